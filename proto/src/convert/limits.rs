//! How long a field of a message may be, either way, and what of a peer's words may reach a terminal.
//!
//! A message as a whole is limited where it is received; these keep one field from using all of that up, and are the same
//! for both sides, so that an honest sender can stay below them. What identifies something is refused when it is too
//! long; words for people are cut by whoever writes them, and refused from one who did not.

use std::borrow::Cow;

use super::WireError;

/// Bytes of a name, a version, a stage, a model's name.
pub const MAX_NAME: usize = 1 << 10;

/// Bytes of a description of a host or an engine: kernel, processor, address.
pub const MAX_CARD_TEXT: usize = 4 << 10;

/// Bytes of a message for people.
pub const MAX_TEXT: usize = 64 << 10;

/// Bytes of a document in JSON within a message.
pub const MAX_JSON: usize = 896 << 10;

/// Models that an engine lists, as far as an agent tells of them.
pub const MAX_MODELS: usize = 1_024;

/// Warnings of a host.
pub const MAX_WARNINGS: usize = 32;

/// Entries of any other list: headers of a request, spools that are held.
pub const MAX_LIST: usize = 256;

/// Rows of a warm-up.
pub const MAX_WARMUP_ROWS: usize = 100_000;

/// A peer's words as they may be shown and kept: no control characters, which a terminal would obey, and at most so many
/// bytes.
#[must_use]
pub fn shown(text: &str, most: usize) -> String {
    let mut cut = text.len().min(most);
    while !text.is_char_boundary(cut) {
        cut -= 1;
    }
    let mut words = harmless(&text[..cut]).into_owned();
    if cut < text.len() {
        words.push('…');
    }
    words
}

/// A text as a terminal may show it, at its whole length: what would be obeyed is replaced.
#[must_use]
pub fn harmless(text: &str) -> Cow<'_, str> {
    if text.chars().all(|c| harmless_char(c) == c) {
        text.into()
    } else {
        text.chars().map(harmless_char).collect::<String>().into()
    }
}

fn harmless_char(c: char) -> char {
    match c {
        '\n' | '\t' => c,
        // Marks that turn the direction of writing can make a line read as another.
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        c if c.is_control() => '\u{fffd}',
        c => c,
    }
}

/// Takes a text of at most so many bytes, made harmless.
///
/// # Errors
/// When it is longer: with the message and the field.
pub fn text(
    text: String,
    most: usize,
    message: &'static str,
    field: &'static str,
) -> Result<String, WireError> {
    if text.len() > most {
        return Err(WireError::new(message, field, format!("{} bytes, more than {most}", text.len())));
    }
    if let Cow::Owned(words) = harmless(&text) {
        return Ok(words);
    }
    Ok(text)
}

/// Refuses a list of more than so many entries.
pub(super) fn at_most<T>(
    list: &[T],
    most: usize,
    message: &'static str,
    field: &'static str,
) -> Result<(), WireError> {
    if list.len() > most {
        return Err(WireError::new(message, field, format!("{} entries, more than {most}", list.len())));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_terminal_obeys_nothing_of_it() {
        assert_eq!(
            shown("red \u{1b}[31m\r\u{9b}2J\u{202e}x\ty\n", 99),
            "red \u{fffd}[31m\u{fffd}\u{fffd}2J\u{fffd}x\ty\n"
        );
        assert_eq!(shown("ää", 3), "ä…");
        assert_eq!(shown("", 0), "");
        assert!(matches!(harmless("an error\n\tof two lines, ä"), Cow::Borrowed(_)));
        assert_eq!(harmless("\u{1b}[2Jgone\r\u{7}\u{9b}31m"), "\u{fffd}[2Jgone\u{fffd}\u{fffd}\u{fffd}31m");
    }

    proptest! {
        #[test]
        fn it_is_as_long_as_said_and_harmless(words in ".{0,50}", most in 0usize..40) {
            let shown = shown(&words, most);
            // A replacement takes three bytes where one stood.
            prop_assert!(shown.chars().count() <= most + 1);
            prop_assert!(shown.chars().all(|c| harmless_char(c) == c));
        }
    }
}
