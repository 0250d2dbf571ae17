//! An engine's words, for a person to read.
//!
//! They end up on terminals and in logs, which obey control characters. What is kept as data keeps them.

use std::borrow::Cow;

/// `text` without control characters but line feeds and tabs.
#[must_use]
pub fn shown(text: &str) -> Cow<'_, str> {
    let obeyed = |c: char| c.is_control() && c != '\n' && c != '\t';
    if text.contains(obeyed) { text.replace(obeyed, "\u{fffd}").into() } else { text.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_replaced() {
        assert!(matches!(shown("an error\n\tof two lines, ä"), Cow::Borrowed(_)));
        assert_eq!(shown("\u{1b}[2Jgone\r\u{7}\u{9b}31m"), "\u{fffd}[2Jgone\u{fffd}\u{fffd}\u{fffd}31m");
    }
}
