//! One session after another on shared memory: what is a conflict, what is not, and what is told of
//! it.

mod conflicts;
mod memory;
mod ring_copies;
mod rings;
mod running;
