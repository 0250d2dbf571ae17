//! Writing to the terminal, or to whatever stands in its place.
//!
//! `println!` panics when the other side is gone, as in `coordinator runs | head -1`. A reader that has seen enough
//! must not end a run, nor change its exit code.
//!
//! While the live screen has the terminal, what goes to standard error is held here, bounded, and written when the screen
//! is gone: nothing that was said is lost, and nothing is written across the picture.

use std::collections::VecDeque;
use std::fmt::Arguments;
use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Lines that are held: more than a night of warnings that are said again each minute.
const MOST_HELD: usize = 2_000;

/// What is held; none while nobody has the terminal.
static HELD: Mutex<Option<Held>> = Mutex::new(None);

#[derive(Default)]
struct Held {
    texts: VecDeque<String>,
    dropped: u64,
}

impl Held {
    fn push(&mut self, text: String) {
        if self.texts.len() == MOST_HELD {
            self.texts.pop_front();
            self.dropped += 1;
        }
        self.texts.push_back(text);
    }
}

fn held() -> MutexGuard<'static, Option<Held>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes to standard output.
pub(super) fn out(text: Arguments<'_>) {
    let _ = std::io::stdout().lock().write_fmt(text);
}

/// Writes to standard error, or has it held.
pub(super) fn err(text: Arguments<'_>) {
    match &mut *held() {
        Some(held) => held.push(text.to_string()),
        None => _ = std::io::stderr().lock().write_fmt(text),
    }
}

/// From now on what goes to standard error is held.
pub(super) fn hold() {
    held().get_or_insert_default();
}

/// Writes what was held; from now on nothing is.
pub(super) fn release() {
    let mut place = held();
    let Some(held) = place.take() else { return };
    let mut stderr = std::io::stderr().lock();
    if held.dropped > 0 {
        let _ = writeln!(stderr, "({} earlier lines were left out)", held.dropped);
    }
    held.texts.iter().for_each(|text| _ = stderr.write_all(text.as_bytes()));
}

/// The last line that is held.
pub(super) fn last_held() -> Option<String> {
    let place = held();
    let texts = &place.as_ref()?.texts;
    let line =
        texts.iter().rev().flat_map(|text| text.trim_end().lines().rev()).find(|l| !l.trim().is_empty());
    line.map(str::to_owned)
}

/// Standard error for whoever wants a writer.
pub(super) struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match &mut *held() {
            Some(held) => held.push(String::from_utf8_lossy(bytes).into_owned()),
            None => return std::io::stderr().lock().write(bytes),
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stderr().lock().flush()
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_bounded_and_its_last_line_is_known() {
        let mut held = Held::default();
        (0..MOST_HELD + 5).for_each(|n| held.push(format!("{n}\n")));
        assert_eq!((held.texts.len(), held.dropped, held.texts[0].as_str()), (MOST_HELD, 5, "5\n"));
        hold();
        err(format_args!("\nstopping: now\n\n"));
        assert_eq!(last_held().as_deref(), Some("stopping: now"));
        // Not released: it would write into the tests' own output.
        *super::held() = None;
        assert_eq!(last_held(), None);
    }
}
