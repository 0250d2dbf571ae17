//! One trial: from its schedule to its seal.
//!
//! [`assignment`] says who sends what; [`machine`] is the pure state machine of barrier, run and drain; [`drive`] is
//! the shell that moves messages and waits; [`seal`] closes the books.

pub mod assignment;
pub mod drive;
pub mod machine;
pub mod seal;
