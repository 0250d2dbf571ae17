//! A terminal that a test can see and type into: a tmux server of its own, without a configuration.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::wait::eventually;

/// Tells one server of a test process from another.
static SERVERS: AtomicU32 = AtomicU32::new(0);

/// A terminal with a shell in it. The server, and all in it, ends when this is dropped.
#[derive(Debug)]
pub struct Tmux {
    socket: String,
}

impl Tmux {
    /// A shell in a terminal of this size, in `folder`. None where tmux is not installed; then that is said.
    ///
    /// # Panics
    /// When the server cannot be started.
    #[must_use]
    #[track_caller]
    pub fn start((width, height): (u16, u16), folder: &Path) -> Option<Self> {
        let version = Command::new("tmux").arg("-V").stdin(Stdio::null()).output();
        if !version.is_ok_and(|v| v.status.success()) {
            println!("skipped: tmux is not installed; `make setup` installs it");
            return None;
        }
        let number = SERVERS.fetch_add(1, Ordering::Relaxed);
        let tmux = Self { socket: format!("plimsoll-test-{}-{number}", std::process::id()) };
        let (width, height) = (width.to_string(), height.to_string());
        let folder = folder.to_str().unwrap_or_else(|| panic!("{}: no text", folder.display()));
        let shell = "PS1='$ ' ENV= exec sh";
        tmux.ask(["new-session", "-d", "-x", &width, "-y", &height, "-c", folder, shell]);
        tmux.wait_for("a prompt", |seen| seen.contains('$'));
        Some(tmux)
    }

    /// What tmux answers.
    #[track_caller]
    fn ask<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> String {
        let mut command = Command::new("tmux");
        command.args(["-L", &self.socket, "-f", "/dev/null"]).args(words);
        command.env_remove("TMUX").env_remove("NO_COLOR").stdin(Stdio::null());
        let answer = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        assert!(answer.status.success(), "{command:?}: {}", String::from_utf8_lossy(&answer.stderr));
        String::from_utf8_lossy(&answer.stdout).into_owned()
    }

    /// Types a line.
    #[track_caller]
    pub fn line(&self, text: &str) {
        self.ask(["send-keys", "-l", text]);
        self.key("Enter");
    }

    /// Presses a key, by tmux's name for it.
    #[track_caller]
    pub fn key(&self, name: &str) {
        self.ask(["send-keys", name]);
    }

    /// Makes the terminal another size.
    #[track_caller]
    pub fn resize(&self, width: u16, height: u16) {
        self.ask(["resize-window", "-x", &width.to_string(), "-y", &height.to_string()]);
    }

    /// What is seen.
    #[must_use]
    #[track_caller]
    pub fn seen(&self) -> String {
        self.ask(["capture-pane", "-p"])
    }

    /// What is seen, and what has scrolled away; lines that were too long for the terminal are whole.
    #[must_use]
    #[track_caller]
    pub fn history(&self) -> String {
        self.ask(["capture-pane", "-p", "-J", "-S", "-"])
    }

    /// A program has the other screen, and has not given it back.
    #[must_use]
    #[track_caller]
    pub fn on_other_screen(&self) -> bool {
        self.ask(["display-message", "-p", "#{alternate_on}"]).trim() == "1"
    }

    /// The shell's process.
    ///
    /// # Panics
    /// When tmux does not say.
    #[must_use]
    #[track_caller]
    pub fn shell(&self) -> u32 {
        let answer = self.ask(["display-message", "-p", "#{pane_pid}"]);
        answer.trim().parse().unwrap_or_else(|e| panic!("{answer:?}: {e}"))
    }

    /// Waits until what is seen is as wanted.
    ///
    /// # Panics
    /// When it does not come; with what is seen.
    #[track_caller]
    pub fn wait_for(&self, what: &str, is: impl Fn(&str) -> bool) {
        let mut last = String::new();
        let found = crate::wait::poll(crate::wait::PATIENCE, || {
            last = self.seen();
            is(&last).then_some(())
        });
        assert!(found.is_some(), "waited in vain for {what}; seen is\n{last}");
    }

    /// Asks the terminal for its settings: whether it echoes, and gives whole lines.
    #[must_use]
    #[track_caller]
    pub fn is_sane(&self) -> bool {
        self.line("clear; stty -a; printf 'asked%s\\n' .");
        eventually("stty's answer", || self.seen().contains("asked.").then_some(()));
        let said = self.seen();
        let on = |flag: &str| said.split([' ', ';', '\n']).any(|word| word == flag);
        on("icanon") && on("echo") && on("isig") && on("opost") && !self.on_other_screen()
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let mut command = Command::new("tmux");
        command.args(["-L", &self.socket, "kill-server"]).env_remove("TMUX");
        let _ = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}
