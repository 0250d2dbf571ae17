//! Parts of the picture as text: sparklines, times, numbers.

use ratatui::style::{Color, Modifier, Style};

/// What is shown where a number is not known.
pub(super) const UNKNOWN: &str = "–";

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The last `width` values as bars from 0 to `top`, `rows` high, the upper row first. What is not known is blank, and
/// never a bar.
pub(super) fn spark(values: &[Option<f64>], width: usize, top: f64, rows: usize) -> Vec<String> {
    let shown = values.get(values.len().saturating_sub(width)..).unwrap_or_default();
    let steps = BARS.len() * rows;
    let heights: Vec<Option<usize>> = shown
        .iter()
        .map(|value| {
            value.map(
                |v| if top > 0.0 { ((v / top * steps as f64).ceil() as usize).clamp(1, steps) } else { 1 },
            )
        })
        .collect();
    let row = |below: usize| {
        let bar = |height: &Option<usize>| match height.map_or(0, |h| h.saturating_sub(below).min(BARS.len()))
        {
            0 => ' ',
            n => BARS[n - 1],
        };
        format!("{:>width$}", heights.iter().map(bar).collect::<String>())
    };
    (0..rows).rev().map(|n| row(n * BARS.len())).collect()
}

/// m:ss, or h:mm:ss.
pub(super) fn time(seconds: f64) -> String {
    let s = seconds.max(0.0).round() as u64;
    match s / 3600 {
        0 => format!("{}:{:02}", s / 60, s % 60),
        h => format!("{h}:{:02}:{:02}", s / 60 % 60, s % 60),
    }
}

/// At most six characters.
pub(super) fn number(v: f64) -> String {
    match v.abs() {
        a if a < 1e5 && a.fract() == 0.0 => format!("{v:.0}"),
        a if a < 10.0 => format!("{v:.2}"),
        a if a < 100.0 => format!("{v:.1}"),
        a if a < 999_999.5 => format!("{v:.0}"),
        _ => format!("{v:.1e}"),
    }
}

/// A number with its unit, where it is known.
pub(super) fn with(v: Option<f64>, scale: f64, unit: &str) -> String {
    v.map_or_else(|| UNKNOWN.to_owned(), |v| format!("{}{unit}", number(v * scale)))
}

/// A share, rounded down, so that only what is whole shows as 100%.
pub(super) fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| UNKNOWN.to_owned(), |s| format!("{:.1}%", (s * 1e3 + 1e-9).floor() / 10.0))
}

/// Cut to `width` characters, with a mark where something is missing.
pub(super) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// In lines of at most `width` characters, broken at blanks; what does not fit into `lines` of them is cut.
pub(super) fn wrap(text: &str, width: usize, lines: usize) -> Vec<String> {
    let mut wrapped = vec![String::new()];
    for word in text.split_whitespace() {
        let full = wrapped.len() == lines;
        let Some(line) = wrapped.last_mut() else { break };
        let fits = line.chars().count() + 1 + word.chars().count() <= width;
        match (line.is_empty(), fits || full) {
            (true, _) => line.push_str(word),
            (false, true) => _ = std::fmt::Write::write_fmt(line, format_args!(" {word}")),
            (false, false) => wrapped.push(word.to_owned()),
        }
    }
    wrapped.iter().map(|line| cut(line, width)).collect()
}

/// Colours, where they are wanted. What they say stands in words, too.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ink {
    pub(super) colour: bool,
}

impl Ink {
    fn of(self, colour: Color) -> Style {
        if self.colour { Style::new().fg(colour) } else { Style::new() }
    }

    pub(super) fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub(super) fn faint(self) -> Style {
        if self.colour { self.of(Color::DarkGray) } else { Style::new() }
    }

    pub(super) fn good(self) -> Style {
        self.of(Color::Green)
    }

    pub(super) fn warn(self) -> Style {
        self.of(Color::Yellow)
    }

    pub(super) fn bad(self) -> Style {
        self.of(Color::Red).add_modifier(Modifier::BOLD)
    }

    pub(super) fn blue(self) -> Style {
        self.of(Color::Cyan)
    }

    /// Of a verdict.
    pub(super) fn verdict(self, verdict: &str) -> Style {
        match verdict {
            "valid" => self.good(),
            "invalid" => self.bad(),
            _ => self.warn(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sparkline_shows_the_newest_and_leaves_gaps() {
        let values = [Some(9.0), Some(0.0), None, Some(4.0), Some(8.0)];
        assert_eq!(spark(&values, 4, 8.0, 1), ["▁ ▄█"]);
        assert_eq!(spark(&values[3..], 5, 8.0, 1), ["   ▄█"]);
        assert_eq!(spark(&[Some(0.0)], 1, 0.0, 1), ["▁"]);
        assert_eq!(spark(&values, 4, 8.0, 2), ["   █", "▁ ██"]);
    }

    #[test]
    fn texts_keep_their_width() {
        for v in [0.0, 0.001, 9.994, 99.94, 999.4, 12_345.0, 999_999.4, 1e12] {
            assert!(number(v).len() <= 6, "{v}: {}", number(v));
        }
        assert_eq!((time(59.6), time(3_725.0)), ("1:00".into(), "1:02:05".into()));
        assert_eq!((cut("four", 4), cut("fives", 4)), ("four".into(), "fiv…".into()));
        assert_eq!(wrap("one two three four", 9, 2), ["one two", "three fo…"]);
        assert_eq!(wrap("one two", 9, 2), ["one two"]);
        assert_eq!((percent(Some(0.9999)), percent(None)), ("99.9%".into(), UNKNOWN.into()));
    }
}
