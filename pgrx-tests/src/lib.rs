//! Server tests.
