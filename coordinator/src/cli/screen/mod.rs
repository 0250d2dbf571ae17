//! The live screen of a terminal: what [`crate::live`] knows, drawn four times a second.
//!
//! It runs on a thread of its own, and reads the hub and the keys: `q` gives the terminal back and plain progress goes on,
//! ctrl-c asks for an end as a signal does. `tty` takes the terminal and gives it back, `draw` is the picture, `lines`
//! its parts.
//!
//! Must never: leave a terminal raw on any way out, write anywhere but to standard error, or hold up the run.

mod draw;
mod lines;
#[cfg(test)]
mod tests;
mod tty;

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::terminal;
use crate::live::{Hub, Known, News};
use draw::Shown;
pub(super) use tty::restore;

/// How long a key is waited for before the picture is drawn again.
const FRAME: Duration = Duration::from_millis(250);

/// A screen that is up, or was.
pub(super) struct Screen {
    up: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What a key asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    Nothing,
    /// Plain progress.
    Plain,
    /// An end, as by ctrl-c.
    Stop,
}

fn wish(key: KeyEvent) -> Wish {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        _ if key.kind == KeyEventKind::Release => Wish::Nothing,
        // In raw mode it is a key and no signal.
        KeyCode::Char('c') if control => Wish::Stop,
        KeyCode::Char('q' | 'Q') => Wish::Plain,
        _ => Wish::Nothing,
    }
}

/// Whether there is a terminal to draw on, and to read keys from.
pub(super) fn is_possible() -> bool {
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb" || term.is_empty());
    std::io::stderr().is_terminal() && std::io::stdin().is_terminal() && !dumb && is_in_front()
}

/// Whether this is the terminal's job in front: one in the background would be stopped when it takes the terminal. Where
/// the kernel does not say, it is.
fn is_in_front() -> bool {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The program's name, in brackets, may hold anything; behind it: state, parent, group, session, terminal, its group.
    let fields: Vec<&str> = stat.rsplit_once(") ").map_or("", |(_, rest)| rest).split(' ').collect();
    match (fields.get(2), fields.get(5)) {
        (Some(group), Some(in_front)) => group == in_front,
        _ => true,
    }
}

impl Screen {
    /// Takes the terminal. None when it cannot be taken: plain progress is shown then.
    pub(super) fn open(hub: Hub) -> Option<Self> {
        let colour = std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
        let mut tty = match tty::Tty::take() {
            Ok(tty) => tty,
            Err(e) => {
                tracing::debug!("no live screen: {e}");
                return None;
            }
        };
        let up = Arc::new(AtomicBool::new(true));
        let theirs = Arc::clone(&up);
        let draws = std::thread::Builder::new().name("screen".to_owned()).spawn(move || {
            let mut news = hub.news(Known::default());
            while theirs.load(Ordering::SeqCst) && tty::is_taken() {
                let more = hub.news(news.known);
                take(&mut news, more);
                let shown = Shown { news: &news, colour, last_line: terminal::last_held() };
                if tty.draw(|frame| draw::draw(frame, &shown)).is_err() || !keys() {
                    break;
                }
            }
            theirs.store(false, Ordering::SeqCst);
            restore();
        });
        match draws {
            Ok(thread) => Some(Self { up, thread: Some(thread) }),
            Err(_) => {
                restore();
                None
            }
        }
    }

    /// It still has the terminal.
    pub(super) fn is_up(&self) -> bool {
        self.up.load(Ordering::SeqCst)
    }

    /// Gives the terminal back, and waits until that is done.
    pub(super) fn close(&mut self) {
        self.up.store(false, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        restore();
    }
}

/// Waits for keys until the next picture; false when the terminal is to be given back.
fn keys() -> bool {
    let Ok(true) = event::poll(FRAME) else { return true };
    // What is there is read at once: a paste must not take a frame for each letter.
    loop {
        let wished = match event::read() {
            Ok(Event::Key(key)) => wish(key),
            Ok(_) => Wish::Nothing,
            Err(_) => return false,
        };
        match wished {
            Wish::Plain => return false,
            Wish::Stop => stop(),
            Wish::Nothing => {}
        }
        if !matches!(event::poll(Duration::ZERO), Ok(true)) {
            return true;
        }
    }
}

/// The same as ctrl-c without a screen: whoever counts signals counts this one.
fn stop() {
    let own = rustix::process::getpid();
    let _ = rustix::process::kill_process(own, rustix::process::Signal::INT);
}

/// Puts what is new to what is there.
fn take(news: &mut News, more: News) {
    if more.anew {
        news.points = more.points;
    } else {
        news.points.extend(more.points);
        // No screen is wider.
        let extra = news.points.len().saturating_sub(draw::MOST_POINTS);
        news.points.drain(..extra);
    }
    (news.state, news.known) = (more.state, more.known);
    news.sweep = more.sweep.or(news.sweep.take());
}
