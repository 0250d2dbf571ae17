//! What was said: warnings, each once with how often, and the last lines of the story.

use std::collections::VecDeque;

use serde::Serialize;

/// Warnings that are kept: the newest.
const MOST_WARNINGS: usize = 64;
/// Lines of the story that are kept.
const MOST_NOTES: usize = 200;
/// Characters of one of them.
const LONGEST: usize = 500;

/// A warning.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Warning {
    #[serde(skip)]
    key: String,
    /// In words.
    pub text: String,
    /// How often it was said.
    pub times: u64,
    /// When last, seconds since the live view's start.
    pub at_seconds: f64,
}

/// A line of the story.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line {
    /// When, seconds since the live view's start.
    pub at_seconds: f64,
    /// In words.
    pub text: String,
}

/// All that was said.
#[derive(Debug, Clone, Default)]
pub(super) struct Messages {
    warnings: VecDeque<Warning>,
    notes: VecDeque<Line>,
}

impl Messages {
    /// A warning; one of the same key is replaced and counted.
    pub(super) fn warn(&mut self, key: &str, text: &str, at_seconds: f64) {
        let known = self.warnings.iter().position(|w| w.key == key).and_then(|i| self.warnings.remove(i));
        let times = known.map_or(1, |w| w.times + 1);
        if self.warnings.len() == MOST_WARNINGS {
            self.warnings.pop_front();
        }
        self.warnings.push_back(Warning { key: cut(key), text: cut(text), times, at_seconds });
    }

    /// A line of the story.
    pub(super) fn note(&mut self, text: &str, at_seconds: f64) {
        if self.notes.len() == MOST_NOTES {
            self.notes.pop_front();
        }
        self.notes.push_back(Line { at_seconds, text: cut(text) });
    }

    /// Warnings, the newest last.
    #[must_use]
    pub(super) fn warnings(&self) -> Vec<Warning> {
        self.warnings.iter().cloned().collect()
    }

    /// The last `n` lines, the newest last.
    #[must_use]
    pub(super) fn notes(&self, n: usize) -> Vec<Line> {
        self.notes.iter().skip(self.notes.len().saturating_sub(n)).cloned().collect()
    }
}

/// Short, and nothing that moves a terminal's cursor.
fn cut(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || *c == '\n').take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_again_is_counted_and_all_of_it_is_bounded() {
        let mut messages = Messages::default();
        (0..3u32).for_each(|i| messages.warn("late a", &format!("late by {i}"), f64::from(i)));
        let [warning] = &messages.warnings()[..] else { panic!("{:?}", messages.warnings()) };
        assert_eq!((warning.text.as_str(), warning.times, warning.at_seconds), ("late by 2", 3, 2.0));
        for i in 0..1_000 {
            messages.warn(&i.to_string(), &"long".repeat(1_000), 0.0);
            messages.note("\u{1b}[2Jcleared", 0.0);
        }
        assert_eq!((messages.warnings().len(), messages.notes(9_999).len()), (MOST_WARNINGS, MOST_NOTES));
        assert_eq!(messages.warnings()[0].text.len(), LONGEST);
        assert_eq!(messages.notes(1)[0].text, "[2Jcleared");
    }
}
