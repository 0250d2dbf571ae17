//! The table: a row per rate, readable at 100 columns and without colour.
//!
//! Every cell has a bounded width, whatever the value, so that the table never wraps; a test feeds it extremes. What
//! does not fit into a cell stands below the table (see [`super::notes`]).

use comfy_table::{CellAlignment, LineStyle, Table, TableStyle};
use common::knee::RateResult;
use common::stats::{Spread, Value};

use super::{Report, notes};

/// Columns of a terminal that the table and its notes keep to.
pub(super) const WIDTH: usize = 100;
/// What is shown where a number is undefined.
pub(super) const UNDEFINED: &str = "–";

/// Columns with which a group begins: there the gap is wider. A wider gap at every column would not fit.
const GROUPS: [usize; 5] = [4, 6, 8, 10, 11];

pub(super) const HEADER: [&str; 12] = [
    "offered\n\n/s",
    "achieved\n\n/s",
    "goodput\n\n/s",
    "attain-\nment\n%",
    "TTFT\np50\nms",
    "TTFT\np99\nms",
    "TPOT\np50\nms",
    "TPOT\np99\nms",
    "E2E\np99\ns",
    "client\nqueue\np99 ms",
    "failed\n\n",
    "validity\n\n",
];

/// The report as text: the objectives, the table, its notes and the knee.
#[must_use]
pub fn render_table(report: &Report) -> String {
    let mut table = Table::new();
    let rule = LineStyle::none().fill('─').junction('─');
    table.load_style(TableStyle::new().top_border(rule).header_separator(rule).bottom_border(rule));
    table.set_header(HEADER);
    for rate in &report.rates {
        table.add_row(row(rate));
    }
    let last = HEADER.len() - 1;
    for (i, column) in table.column_iter_mut().enumerate() {
        column.set_padding((u16::from(GROUPS.contains(&i)), 0));
        column.set_cell_alignment(if i == last { CellAlignment::Left } else { CellAlignment::Right });
    }
    let mut lines = Vec::new();
    if !report.slos.is_empty() {
        lines.push(format!("SLO {} for {} of requests", report.slos, report.target));
    }
    lines.extend(table.lines().map(|line| line.trim_end().to_owned()));
    lines.extend(notes::below(report));
    let mut text = lines.join("\n");
    text.push('\n');
    text
}

/// The cells of a rate.
pub(super) fn row(rate: &RateResult) -> [String; 12] {
    let l = &rate.latency_seconds;
    let spread = |s: Option<Spread>, scale: f64| s.map_or(UNDEFINED.to_owned(), |s| shown(s.median, scale));
    let p99 = |pair: &common::knee::SpreadPair, scale: f64| {
        let star = if pair.p99_thin && pair.p99.is_some() { "*" } else { "" };
        spread(pair.p99, scale) + star
    };
    let offered = match rate.offered_rate_per_second {
        Some(v) if rate.offered_rate.len() > 7 => number(v),
        _ => rate.offered_rate.clone(),
    };
    [
        offered,
        spread(rate.achieved_rate_per_second, 1.0),
        spread(rate.goodput_requests_per_second, 1.0),
        rate.slo_attainment.map_or(UNDEFINED.to_owned(), percent),
        spread(l.ttft.p50, 1e3),
        p99(&l.ttft, 1e3),
        spread(l.tpot.p50, 1e3),
        p99(&l.tpot, 1e3),
        p99(&l.e2e, 1.0),
        p99(&l.client_queue, 1e3),
        if rate.trials_used == 0 { UNDEFINED.to_owned() } else { count(rate.failed) },
        validity(rate),
    ]
}

/// The worst verdict; with how many of the repeats have it where not all do.
fn validity(rate: &RateResult) -> String {
    let worst = rate.verdicts.worst();
    let (n, of) = (rate.verdicts.of(worst), rate.verdicts.total());
    if n == of { worst.name().to_owned() } else { format!("{}\n{n} of {of}", worst.name()) }
}

pub(super) fn shown(value: Value, scale: f64) -> String {
    match value {
        Value::Finite(v) => number(v * scale),
        Value::Infinite => "inf".to_owned(),
    }
}

/// At least two significant digits, at most six characters for anything that a 64-bit clock can hold.
pub(super) fn number(v: f64) -> String {
    match v.abs() {
        a if a < 10.0 => format!("{v:.3}"),
        a if a < 100.0 => format!("{v:.2}"),
        a if a < 1_000.0 => format!("{v:.1}"),
        a if a < 999_999.5 => format!("{v:.0}"),
        _ => format!("{v:.1e}"),
    }
}

fn count(n: u64) -> String {
    if n < 1_000_000 { n.to_string() } else { format!("{:.1e}", n as f64) }
}

/// Rounded down, so that only what is whole shows as 100 and nothing below a target shows as having met it.
pub(super) fn percent(share: f64) -> String {
    // The smallest nudge lets 0.29 × 100 be 29 and not 28.99.
    format!("{:.2}", (share * 1e4 + 1e-9).floor() / 1e2)
}

/// Rounded up: the upper end of an interval, which must not be drawn in.
pub(super) fn percent_up(share: f64) -> String {
    // Adding 0 makes a negative zero positive.
    format!("{:.2}", (share * 1e4 - 1e-9).ceil() / 1e2 + 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_their_width() {
        for v in [0.0, 1e-9, 0.0123, 9.9999, 99.999, 999.99, 12_345.6, 999_999.4, 999_999.9, 1e12, 1.8e13] {
            assert!(number(v).len() <= 6, "{v}: {}", number(v));
        }
        assert_eq!(number(20.31), "20.31");
    }

    #[test]
    fn only_what_is_whole_shows_as_whole() {
        assert_eq!(percent(1.0), "100.00");
        assert_eq!(percent(0.999_999), "99.99");
        assert_eq!(percent(0.989_999), "98.99");
        assert_eq!(percent(0.29), "29.00");
        assert_eq!((percent_up(0.29), percent_up(0.989_91)), ("29.00".into(), "99.00".into()));
        assert_eq!((percent_up(1.0), percent_up(0.0)), ("100.00".into(), "0.00".into()));
        assert_eq!(percent(0.99), "99.00");
    }
}
