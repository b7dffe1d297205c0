//! `txn`: PostgreSQL transactions that fight over the same rows, without the fall.
use pgrx::prelude::*;
::pgrx::pg_module_magic!(name, version);
