//! Keeps secrets out of whatever leaves the engine's host or reaches a screen: log lines, commands, the record.
//!
//! What is a secret is told by its name, since nothing else tells it. A name that is wrongly taken for a secret's costs
//! a value in the record; one that is missed costs the secret. So names are matched wide, and only values that cannot
//! be one (a switch, a count) are left alone: `TOKENIZERS_PARALLELISM=false` stays in the record.

use crate::engine::Secret;

pub(super) const REDACTED: &str = "[redacted]";

/// Whether a variable of this name and value holds a secret.
pub(super) fn is_secret(name: &str, value: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    has(&["SECRET", "PASSW", "PASSPHRASE", "CREDENTIAL"])
        || (has(&["KEY", "TOKEN", "AUTH"]) && !is_plain(value))
        || has_password(value)
}

/// A URL with a user's password in it.
fn has_password(value: &str) -> bool {
    let authority =
        value.split_once("://").map(|(_, rest)| rest.split(['/', '?']).next().unwrap_or_default());
    authority.and_then(|a| a.rsplit_once('@')).is_some_and(|(user, _)| user.contains(':'))
}

/// Switches and counts.
fn is_plain(value: &str) -> bool {
    let switch = ["true", "false", "yes", "no", "on", "off", "auto", "none"];
    let count = value.len() <= 6 && value.bytes().all(|b| b.is_ascii_digit());
    value.len() < 3 || count || switch.iter().any(|s| s.eq_ignore_ascii_case(value))
}

/// Options whose value is a secret: by their last word, because `--max-num-batched-tokens` is not one.
pub(crate) fn is_secret_option(word: &str) -> bool {
    let Some(option) = word.strip_prefix('-') else { return false };
    let last = option.rsplit(['-', '_']).next().unwrap_or_default().to_ascii_lowercase();
    ["key", "keys", "apikey", "apikeys", "token", "secret", "password", "passwd"].contains(&last.as_str())
}

/// Secrets that are known, to be replaced wherever they stand.
#[derive(Debug, Clone, Default)]
pub(super) struct Scrub(Vec<Secret>);

impl Scrub {
    /// From now on this is replaced.
    pub(super) fn hide(&mut self, value: &str) {
        if let Some(secret) = Secret::new(value) {
            self.0.push(secret);
            // A secret that begins with another must go first, or its end would stay.
            self.0.sort_by_key(|secret| std::cmp::Reverse(secret.expose().len()));
        }
    }

    /// Hides the values of secret options of a command.
    pub(super) fn hide_options(&mut self, command: &[String]) {
        let mut secret = false;
        for word in command {
            match word.split_once('=') {
                Some((option, value)) if is_secret_option(option) => self.hide(value),
                _ if word.starts_with('-') => secret = is_secret_option(word),
                _ if secret => self.hide(word),
                _ => {}
            }
        }
    }

    /// `text` without the secrets.
    pub(super) fn text(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, secret| secret.scrub(&text))
    }

    /// A command without the secrets.
    pub(super) fn command(&self, words: &[String]) -> Vec<String> {
        words.iter().map(|word| self.text(word)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_matched_wide_and_plain_values_are_not_secret() {
        for (name, value) in [
            ("HF_TOKEN", "hf_1"),
            ("vllm_api_key", "abc"),
            ("DB_PASSWORD", "1"),
            ("TOKEN", "12345678"),
            ("PROXY", "http://me:pw@host/"),
        ] {
            assert!(is_secret(name, value), "{name}");
        }
        for (name, value) in [
            ("TOKENIZERS_PARALLELISM", "false"),
            ("SGLANG_CLIP_MAX_NEW_TOKENS", "4096"),
            ("KEYMAP", "us"),
            ("VLLM_SERVER_DEV_MODE", "abcdefgh"),
        ] {
            assert!(!is_secret(name, value), "{name}");
        }
    }

    #[test]
    fn a_secret_is_replaced_wherever_it_stands_the_longest_first() {
        let mut scrub = Scrub::default();
        scrub.hide("abc");
        scrub.hide("abcdef");
        scrub.hide(" ");
        assert_eq!(scrub.text("x abcdef y abc z"), format!("x {REDACTED} y {REDACTED} z"));
    }

    #[test]
    fn values_of_secret_options_are_hidden_and_counts_of_tokens_are_not() {
        let words =
            ["serve", "--max-num-batched-tokens", "4096", "--api-key", "k-one", "k-two", "--hf-token=hf-x"];
        let words = [&words[..], &["--port", "8000", "--api-key-file", "f"]].concat();
        let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
        let mut scrub = Scrub::default();
        scrub.hide_options(&words);
        let shown = scrub.command(&words).join(" ");
        assert_eq!(
            shown,
            "serve --max-num-batched-tokens 4096 --api-key [redacted] [redacted] --hf-token=[redacted] --port 8000 --api-key-file f"
        );
    }
}
