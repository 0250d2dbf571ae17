//! Taking the terminal and giving it back, once, whoever comes first: the end, a key, a panic or an exit.

use std::io::{Stderr, Write};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::{Frame, Terminal};

use super::terminal;

/// The terminal is taken.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The terminal, raw and on its other screen.
pub(super) struct Tty(Terminal<CrosstermBackend<Stderr>>);

impl Tty {
    /// Takes it. A panic gives it back from now on.
    pub(super) fn take() -> std::io::Result<Self> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                restore();
                before(panic);
            }));
        });
        let mut stderr = std::io::stderr();
        enable_raw_mode()?;
        TAKEN.store(true, Ordering::SeqCst);
        terminal::hold();
        let opened = execute!(stderr, EnterAlternateScreen, Hide)
            .and_then(|()| Terminal::new(CrosstermBackend::new(stderr)));
        opened.map(Self).inspect_err(|_| restore())
    }

    /// Draws a picture.
    pub(super) fn draw(&mut self, picture: impl FnOnce(&mut Frame<'_>)) -> std::io::Result<()> {
        self.0.draw(picture).map(|_| ())
    }
}

/// Whether nobody has given it back.
pub(super) fn is_taken() -> bool {
    TAKEN.load(Ordering::SeqCst)
}

/// Gives it back, and says what was held meanwhile. The first call counts.
pub(in crate::cli) fn restore() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        let mut stderr = std::io::stderr();
        let _ = execute!(stderr, LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
        let _ = stderr.flush();
        terminal::release();
    }
}
