//! What stands below the table: what its marks mean, failures and causes by name, reasons of validity, the knee.

use std::collections::BTreeMap;

use common::knee::RateResult;
use common::stats::Interval;
use common::summary::Numbers;

use super::table::{WIDTH, number, percent, percent_up};
use super::{Report, TrialReport, evidence};

/// Reasons shown for one trial; the rest is in `report.json`.
const REASONS_SHOWN: usize = 3;
/// Trials whose reasons are shown.
const TRIALS_SHOWN: usize = 8;

pub(super) fn below(report: &Report) -> Vec<String> {
    let mut lines = before_the_knee(report);
    lines.push(String::new());
    wrap(&report.knee.to_string(), "", &mut lines);
    if let Some(search) = &report.search {
        wrap(&search.text, "", &mut lines);
        search.would_narrow.iter().for_each(|text| wrap(text, "", &mut lines));
    }
    lines
}

/// The same without the knee, which a page shows elsewhere or not at all.
pub(super) fn before_the_knee(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    if report.rates.iter().any(|r| r.repeats > 1) {
        let note = "Medians over the valid trials of a rate, attainment pooled over them (over all where none is \
                    valid); min and max are in report.json.";
        wrap(note, "", &mut lines);
    }
    if report.rates.iter().any(has_thin) {
        wrap("* fewer than 368 samples in a trial: this p99 is an indication only.", "", &mut lines);
    }
    let numbers: Vec<&Numbers> = report.trials.iter().filter_map(|t| t.summary.numbers.as_ref()).collect();
    tokens(&numbers, &mut lines);
    evidence::notes(&numbers, !report.slos.is_empty(), &mut lines);
    prompts(&numbers, &mut lines);
    attainment(report, &mut lines);
    saturated(report, &mut lines);
    failures(report, &mut lines);
    causes(report, &mut lines);
    reasons(report, &mut lines);
    reruns(report, &mut lines);
    cut(report, &mut lines);
    super::replicas::lines(report, &mut lines);
    super::beside::beside(report, &mut lines);
    lines
}

/// Which trials a search ended early.
fn cut(report: &Report, lines: &mut Vec<String>) {
    let cut = report.trials.iter().filter(|t| t.cut.is_some());
    let named: Vec<String> = cut.map(|t| format!("{} ({})", t.trial, named(&t.rate.to_string()))).collect();
    if !named.is_empty() {
        let text = format!(
            "Ended early by the search, because they could not pass any more, and over what was sent before that: trial {}.",
            named.join(", trial ")
        );
        wrap(&text, "", lines);
    }
}

/// Which trials were sent again, and as which.
fn reruns(report: &Report, lines: &mut Vec<String>) {
    for (trial, first) in report.trials.iter().filter_map(|t| Some((t, t.rerun_of?))) {
        let text = format!(
            "Trial {first} was disturbed, for the reason given there, and was sent again as trial {}.",
            trial.trial
        );
        wrap(&text, "", lines);
    }
}

fn has_thin(rate: &RateResult) -> bool {
    let l = &rate.latency_seconds;
    [l.ttft, l.tpot, l.e2e, l.client_queue].iter().any(|p| p.p99_thin && p.p99.is_some())
}

/// An estimate, or a sum over a part, is labelled wherever it shows.
fn tokens(numbers: &[&Numbers], lines: &mut Vec<String>) {
    let successful: u64 = numbers.iter().map(|n| n.successful).sum();
    let known: u64 = numbers.iter().map(|n| n.requests_with_token_counts).sum();
    let estimated: u64 = numbers.iter().filter_map(|n| n.token_count_sources.get("retokenized_text")).sum();
    if known < successful {
        let note = format!("Output tokens are known for {known} of {successful} successful requests only.");
        wrap(&note, "", lines);
    }
    if estimated > 0 {
        let note = format!("Output tokens of {estimated} requests are estimates (retokenized_text).");
        wrap(&note, "", lines);
    }
}

fn prompts(numbers: &[&Numbers], lines: &mut Vec<String>) {
    let repeated: u64 = numbers.iter().map(|n| n.repeated_prompts).sum();
    if repeated == 0 {
        return;
    }
    let requests: u64 = numbers.iter().map(|n| n.successful + n.failed).sum();
    let cached = numbers.iter().filter_map(|n| n.cached_tokens).reduce(|a, b| a + b);
    let input: u64 = numbers.iter().map(|n| n.input_tokens).sum();
    let seen = match cached {
        Some(cached) => format!("the engine found {cached} of {input} prompt tokens in its prefix cache"),
        None => "the engine did not say how many prompt tokens it had cached".to_owned(),
    };
    wrap(&format!("Prompts repeat within a trial for {repeated} of {requests} requests; {seen}."), "", lines);
}

/// The interval of each rate's attainment, or that there is none, and why.
fn attainment(report: &Report, lines: &mut Vec<String>) {
    section("Attainment with its 95% interval:", lines, |lines| {
        for rate in &report.rates {
            let Some(attainment) = rate.slo_attainment else { continue };
            let said = match rate.slo_attainment_interval {
                Interval::Known { low, high, batches, .. } => {
                    format!("{} to {}% ({batches} batches)", percent(low), percent_up(high))
                }
                Interval::None { reason, min, max } => {
                    // A single trial has no spread to speak of.
                    let repeats = min.zip(max).filter(|_| rate.trials_used > 1);
                    let repeats = repeats.map_or_else(String::new, |(min, max)| {
                        format!("; min {}, max {} over the repeats", percent(min), percent(max))
                    });
                    format!("no interval ({reason}){repeats}")
                }
            };
            let head = format!("{}: {}%", named(&rate.offered_rate), percent(attainment));
            wrap(&format!("{head}, {said}"), "  ", lines);
        }
    });
}

fn saturated(report: &Report, lines: &mut Vec<String>) {
    let rates: Vec<String> = (report.rates.iter().filter(|r| r.saturated_trials > 0))
        .map(|r| match (r.saturated_trials, r.trials_used) {
            (n, of) if n == of => named(&r.offered_rate),
            (n, of) => format!("{} in {n} of {of} trials", named(&r.offered_rate)),
        })
        .collect();
    if !rates.is_empty() {
        let note = format!("Saturated, requests in flight grew over the trial: {}.", rates.join(", "));
        wrap(&note, "", lines);
    }
}

fn failures(report: &Report, lines: &mut Vec<String>) {
    section("Failures:", lines, |lines| {
        for rate in report.rates.iter().filter(|r| !r.failures_by_kind.is_empty()) {
            let l = &rate.latency_seconds;
            let infinite = [("TTFT", l.ttft), ("TPOT", l.tpot), ("E2E", l.e2e)].map(|(name, pair)| {
                let p99 = pair.p99_with_failures_as_infinite.map(|s| s.median.get());
                p99.map(
                    |v| if v.is_finite() { format!("{name} {} s", number(v)) } else { format!("{name} inf") },
                )
            });
            let infinite: Vec<String> = infinite.into_iter().flatten().collect();
            let line = format!(
                "{}: {}; p99 with failures as infinite: {}",
                named(&rate.offered_rate),
                counted(&rate.failures_by_kind),
                infinite.join(", ")
            );
            wrap(&line, "  ", lines);
        }
    });
}

/// What successes were lost to; what failures were, is said above.
fn causes(report: &Report, lines: &mut Vec<String>) {
    section("Successful but not good, each request under every cause:", lines, |lines| {
        for rate in &report.rates {
            let mut causes = rate.slo_lost_by_cause.clone();
            causes.retain(|name, _| !rate.failures_by_kind.contains_key(name));
            if !causes.is_empty() {
                wrap(&format!("{}: {}", named(&rate.offered_rate), counted(&causes)), "  ", lines);
            }
        }
    });
}

fn reasons(report: &Report, lines: &mut Vec<String>) {
    let doubtful: Vec<&TrialReport> =
        report.trials.iter().filter(|t| !t.summary.validity.is_valid()).collect();
    section("Validity:", lines, |lines| {
        for trial in doubtful.iter().take(TRIALS_SHOWN) {
            let validity = &trial.summary.validity;
            let head = format!(
                "trial {} ({}, repeat {}) is {}",
                trial.trial,
                named(&trial.rate.to_string()),
                trial.repeat,
                validity.verdict
            );
            let mut messages: Vec<String> =
                validity.reasons.iter().take(REASONS_SHOWN).map(|r| r.message.clone()).collect();
            let more = validity.reasons.len().saturating_sub(REASONS_SHOWN);
            if more > 0 {
                messages.push(format!("and {more} more in report.json"));
            }
            wrap(&format!("{head}: {}", messages.join("; ")), "  ", lines);
        }
        let more = doubtful.len().saturating_sub(TRIALS_SHOWN);
        if more > 0 {
            wrap(&format!("and {more} more trials in report.json"), "  ", lines);
        }
    });
}

/// Adds what `fill` adds under a title, and no title when it adds nothing.
pub(super) fn section(title: &str, lines: &mut Vec<String>, fill: impl FnOnce(&mut Vec<String>)) {
    let mut body = Vec::new();
    fill(&mut body);
    if !body.is_empty() {
        lines.push(title.to_owned());
        lines.append(&mut body);
    }
}

pub(super) fn named(rate: &str) -> String {
    match rate {
        "inf" => "rate inf".to_owned(),
        closed if closed.starts_with("closed") => format!("{closed} workers"),
        rate => format!("{rate}/s"),
    }
}

fn counted(counts: &BTreeMap<String, u64>) -> String {
    counts.iter().map(|(name, n)| format!("{name} {n}")).collect::<Vec<_>>().join(", ")
}

/// Breaks `text` at blanks into lines of at most [`WIDTH`] characters, all but the first indented further. A word that
/// is longer than a line, such as a path in a message, is broken too.
pub(super) fn wrap(text: &str, indent: &str, lines: &mut Vec<String>) {
    let mut line = indent.to_owned();
    let mut empty = true;
    let longest = WIDTH - 2 - indent.len();
    let words = text.split_whitespace().flat_map(|word| {
        let chars: Vec<char> = word.chars().collect();
        chars.chunks(longest).map(|part| part.iter().collect::<String>()).collect::<Vec<_>>()
    });
    for word in words {
        if !empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push(std::mem::replace(&mut line, format!("{indent}  ")));
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(&word);
        empty = false;
    }
    lines.push(line);
}
