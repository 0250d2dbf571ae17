//! Writing to the terminal, or to whatever stands in its place.
//!
//! `println!` panics when the other side is gone, as in `coordinator runs | head -1`. A reader that has seen enough
//! must not end a run, nor change its exit code.

use std::fmt::Arguments;
use std::io::Write;

/// Writes to standard output.
pub(super) fn out(text: Arguments<'_>) {
    let _ = std::io::stdout().lock().write_fmt(text);
}

/// Writes to standard error.
pub(super) fn err(text: Arguments<'_>) {
    let _ = std::io::stderr().lock().write_fmt(text);
}

/// A line to standard output.
macro_rules! say {
    ($($text:tt)*) => { $crate::cli::terminal::out(format_args!("{}\n", format_args!($($text)*))) };
}

/// A line to standard error.
macro_rules! tell {
    ($($text:tt)*) => { $crate::cli::terminal::err(format_args!("{}\n", format_args!($($text)*))) };
}

pub(super) use {say, tell};
