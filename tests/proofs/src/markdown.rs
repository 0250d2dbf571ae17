//! The forms in which the page shows numbers.

use std::fmt::Write as _;

use crate::coverage::{Coverage, Tally};

/// In lines of at most 120 characters.
pub(crate) fn paragraph(text: &mut String, said: &str) {
    let mut width = 0;
    for word in said.split_whitespace() {
        let length = word.chars().count();
        if width > 0 {
            let fits = width + 1 + length <= 120;
            text.push(if fits { ' ' } else { '\n' });
            width = if fits { width + 1 } else { 0 };
        }
        text.push_str(word);
        width += length;
    }
    text.push_str("\n\n");
}

/// One line for each number of each case.
pub(crate) fn coverage_table(text: &mut String, cases: &[Coverage]) {
    text.push_str(
        "| queue | requests a trial | number | truth | holds it | half width | no interval | as if independent |\n\
         | --- | ---: | --- | ---: | ---: | ---: | --- | ---: |\n",
    );
    for case in cases {
        for (metric, truth, tally) in case.tallies() {
            let wrong = match metric {
                "mean E2E" => percent(case.independent_mean.coverage()),
                "attainment" => percent(case.independent_attainment.coverage()),
                _ => String::new(),
            };
            let shown = match metric {
                "attainment" => format!("{:.2}%", truth * 100.0),
                _ => format!("{truth:.3} s"),
            };
            let _ = writeln!(
                text,
                "| {} | {} | {metric} | {shown} | {} | {} | {} | {wrong} |",
                case.case.name(),
                case.case.requests,
                percent(tally.coverage()),
                percent(tally.relative_half_width()),
                none(tally),
            );
        }
    }
    text.push('\n');
}

/// With one decimal; a dash for nothing.
pub(crate) fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "–".to_owned(), |share| format!("{:.1}%", share * 100.0))
}

/// How often no interval was given, and why.
fn none(tally: &Tally) -> String {
    let all = tally.trials() as f64;
    let reasons: Vec<String> = tally
        .none
        .iter()
        .map(|(reason, count)| format!("{:.1}% {reason}", *count as f64 / all * 100.0))
        .collect();
    if reasons.is_empty() { "never".to_owned() } else { reasons.join(", ") }
}
