//! A browser that a test drives while a page lives: Chromium without a window, by the WebDriver protocol.
//!
//! [`crate::browser`] opens a file once; this one stays, looks again and again, and hears the console.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::http;
use crate::process::Process;
use crate::wait::{PATIENCE, poll};

/// Names the program; `make test` sets it.
const VARIABLE: &str = "PLIMSOLL_CHROMIUM";

/// A browser with one page. It ends when this is dropped.
#[derive(Debug)]
pub struct DrivenBrowser {
    /// Of the session, at the driver.
    session: String,
    _driver: Process,
}

impl DrivenBrowser {
    /// A browser with a profile in `folder`. None where it, or its driver, is not there; then that is said.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    #[track_caller]
    pub fn start(folder: &Path) -> Option<Self> {
        let program = std::env::var(VARIABLE).ok().filter(|program| !program.is_empty());
        let Some(program) = program else {
            println!("skipped: {VARIABLE} is not set; `make test` installs Chromium and runs this test");
            return None;
        };
        let version = Command::new("chromedriver").arg("--version").stdin(Stdio::null()).output();
        if !version.is_ok_and(|v| v.status.success()) {
            println!(
                "skipped: chromedriver is not installed; on Debian it is in the package chromium-driver"
            );
            return None;
        }
        let mut command = Command::new("chromedriver");
        command.arg("--port=0").env("HOME", folder);
        let mut driver = Process::start(command);
        let port = driver.expect("chromedriver's port", |process| {
            let said = process.stdout();
            let (_, rest) = said.split_once("started successfully on port ")?;
            rest.split_once('.')?.0.parse::<u16>().ok()
        });
        let url = format!("http://127.0.0.1:{port}/session");
        let profile = format!("--user-data-dir={}", folder.join("profile").display());
        // Without a sandbox, which a container's root has not; it opens pages of this test alone.
        let arguments =
            ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", &profile];
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": {"binary": program, "args": arguments},
            "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let (status, body) = http::post(&url, &wanted);
        assert_eq!(status, 200, "no browser: {body}");
        let answer: Value = serde_json::from_str(&body).unwrap_or_else(|e| panic!("{body}: {e}"));
        let id = answer["value"]["sessionId"].as_str().unwrap_or_else(|| panic!("no session: {body}"));
        Some(Self { session: format!("{url}/{id}"), _driver: driver })
    }

    #[track_caller]
    fn ask(&self, what: &str, body: &Value) -> Value {
        let (status, text) = http::post(&format!("{}/{what}", self.session), body);
        assert_eq!(status, 200, "{what} {body}: {text}");
        let mut answer: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{text}: {e}"));
        answer["value"].take()
    }

    /// Opens a page.
    ///
    /// # Panics
    /// When it does not load.
    #[track_caller]
    pub fn open(&self, url: &str) {
        self.ask("url", &json!({"url": url}));
    }

    /// The value of an expression in the page.
    ///
    /// # Panics
    /// When it fails.
    #[must_use]
    #[track_caller]
    pub fn value(&self, expression: &str) -> Value {
        self.ask("execute/sync", &json!({"script": format!("return ({expression});"), "args": []}))
    }

    /// Waits until an expression is true.
    ///
    /// # Panics
    /// When it does not become true; with what the page shows.
    #[track_caller]
    pub fn wait_for(&self, expression: &str) {
        let is = || (self.value(expression) == Value::Bool(true)).then_some(());
        if poll(PATIENCE, is).is_none() {
            let shown = self.value("document.body.innerText");
            panic!(
                "waited in vain for {expression}; the page shows {shown}; its console: {:?}",
                self.console()
            );
        }
    }

    /// What the page's console said since this was asked last: level and text.
    ///
    /// # Panics
    /// When the driver does not say.
    #[must_use]
    #[track_caller]
    pub fn console(&self) -> Vec<(String, String)> {
        let said = self.ask("se/log", &json!({"type": "browser"}));
        let text = |entry: &Value, field: &str| entry[field].as_str().unwrap_or_default().to_owned();
        let entries = said.as_array().cloned().unwrap_or_default();
        entries.iter().map(|entry| (text(entry, "level"), text(entry, "message"))).collect()
    }
}

impl Drop for DrivenBrowser {
    fn drop(&mut self) {
        // The driver ends the browser; without it the browser would stay.
        let _ = http::delete(&self.session);
    }
}
