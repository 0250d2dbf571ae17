//! The engine's API key, in a form that does not end up in a log, a trace or an error by accident.

use std::fmt;

use memchr::memmem;

/// What stands where a secret was.
const REDACTED: &str = "[redacted]";

/// Text that must not be shown. Its `Debug` is redacted and it has no `Display`.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// Keeps `text` without surrounding blanks (a key file ends in a line feed); none if nothing is left.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        (!text.is_empty()).then(|| Self(text.to_owned()))
    }

    /// The text itself, for the one place that sends it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// `text` with every occurrence of the secret replaced: engines and proxies like to repeat a key they refuse.
    #[must_use]
    pub fn scrub(&self, text: &str) -> String {
        text.replace(&self.0, REDACTED)
    }

    /// As [`Secret::scrub`], without a copy where there is nothing to replace.
    pub(crate) fn scrub_in_place(&self, text: &mut String) {
        if memmem::find(text.as_bytes(), self.0.as_bytes()).is_some() {
            *text = self.scrub(text);
        }
    }

    /// The value of an `Authorization` header, for nobody else to see.
    pub(super) fn bearer(&self) -> String {
        format!("Bearer {}", self.0)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_does_not_show_itself() {
        let secret = Secret::new(" sk-1234\n").unwrap();
        assert!(!format!("{secret:?}").contains("1234"));
        assert_eq!(secret.scrub("no sk-1234 and sk-1234!"), "no [redacted] and [redacted]!");
        let mut untouched = String::from("nothing here");
        secret.scrub_in_place(&mut untouched);
        assert_eq!(untouched, "nothing here");
        assert!(Secret::new(" \n").is_none());
    }
}
