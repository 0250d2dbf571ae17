//! How the page opens: what was measured, and what came of it. The verdict stands before every number.
//!
//! Where the knee was searched for, it is the search's that is shown, with its confidence: it knows which rates are decided.
//!
//! A run that is spoiled opens with that and shows no knee: one without any valid trial, or with a trial that stands and is
//! invalid. Where only some trials are late or degraded, the knee is of the valid ones, and the page says how many.

use std::fmt::Write;

use common::knee::{KneeCase, RateResult};
use common::stats::{Interval, Spread};
use common::validity::Verdict;
use serde_json::Value;

use super::markup::{mark, text};
use crate::report::Report;
use crate::report::notes::named;
use crate::report::table::{UNDEFINED, percent, percent_up, shown};

/// Reasons that open the page; each trial's stand with it.
const REASONS_SHOWN: usize = 6;

/// The verdict of a spoiled run; none of one whose knee counts.
pub(super) fn spoiled(report: &Report) -> Option<Verdict> {
    let worst = report.standing().map(|t| t.summary.validity.verdict).max().unwrap_or_default();
    let none_valid = !report.trials.iter().any(|t| t.summary.validity.is_valid());
    // A search sends what was invalid again, and decides without it.
    let invalid = worst == Verdict::Invalid && report.search.is_none();
    (invalid || none_valid).then_some(worst.max(Verdict::Late))
}

/// Name of the run, and what it was of.
pub(super) fn head(report: &Report) -> String {
    let record = &report.experiment;
    let said = |value: &Value| value.as_str().filter(|s| !s.is_empty()).map(str::to_owned);
    let engine = said(&record["engine"]["name"]).map(|name| match said(&record["engine"]["revision"]) {
        Some(revision) => format!("{name} {revision}"),
        None => name,
    });
    let hardware =
        said(&record["hardware"]["gpu"]).map(|gpu| match record["hardware"]["gpu_count"].as_u64() {
            Some(n) if n > 1 => format!("{n} × {gpu}"),
            _ => gpu,
        });
    let facts = [
        ("engine", engine),
        ("model", said(&record["model"]["name"])),
        ("hardware", hardware),
        ("workload", said(&record["workload"]["source"])),
    ];
    let facts: String = facts
        .into_iter()
        .map(|(name, value)| {
            let class = if value.is_some() { "" } else { " class=\"unknown\"" };
            format!(
                "<div><dt>{name}</dt><dd{class}>{}</dd></div>",
                text(value.unwrap_or_else(|| "not recorded".into()))
            )
        })
        .collect();
    format!(
        "<header><div class=\"bar\"><div class=\"brand\"><svg viewBox=\"0 0 32 32\" aria-hidden=\"true\">\
         <circle cx=\"16\" cy=\"16\" r=\"10\"/><path d=\"M1 16h30\"/></svg>Plimsoll</div>\
         <nav><a href=\"#rates\">Rates</a><a href=\"#over-rate\">Charts</a><a href=\"#in-time\">Trials in time</a>\
         <a href=\"#distributions\">Distributions</a><a href=\"#record\">Record</a></nav>\
         <button type=\"button\" id=\"theme\" aria-label=\"light or dark\">◐</button></div>\
         <h1>Run <span class=\"mono\">{}</span></h1><dl class=\"facts\">{facts}</dl></header>\n",
        text(&report.run_id)
    )
}

/// The verdict, the knee, and the numbers at it.
pub(super) fn opening(report: &Report) -> String {
    let mut out = String::from("<section id=\"verdict\">");
    match spoiled(report) {
        Some(verdict) => spoiled_opening(report, verdict, &mut out),
        None => {
            out.push_str(&headline(report));
            let said = report.search.as_ref().map_or(&report.knee.text, |search| &search.text);
            let _ = write!(out, "<p class=\"sentence\" id=\"knee-text\">{}</p>", text(said));
            if let Some(narrower) = report.search.as_ref().and_then(|search| search.would_narrow.as_ref()) {
                let _ = write!(out, "<p class=\"note\">{}</p>", text(narrower));
            }
            doubtful(report, &mut out);
            out.push_str(&tiles(report));
        }
    }
    out.push_str("</section>\n");
    out
}

fn spoiled_opening(report: &Report, verdict: Verdict, out: &mut String) {
    let means = match verdict {
        Verdict::Invalid => {
            "The measurement broke down: no knee is read off it, and no number below is a result."
        }
        Verdict::Late => {
            "The load generator was late: what it sent was not the load that was asked for. No knee is read off it."
        }
        _ => "Something outside the generator and the engine interfered. No knee is read off it.",
    };
    let _ = write!(
        out,
        "<div class=\"headline {0}\">{1}<p class=\"big\">This run is {0}</p><p class=\"under\">{means}</p></div>",
        verdict.name(),
        mark(verdict)
    );
    reasons(report, out);
}

/// What is wrong with trials, the worst first.
fn reasons(report: &Report, out: &mut String) {
    let mut all: Vec<_> = (report.trials.iter())
        .flat_map(|t| t.summary.validity.reasons.iter().map(move |reason| (reason, t)))
        .collect();
    // Some are only to be known.
    all.retain(|(reason, _)| reason.verdict != Verdict::Valid);
    all.sort_by_key(|(reason, t)| (std::cmp::Reverse(reason.verdict), t.trial));
    if all.is_empty() {
        return;
    }
    out.push_str("<ul class=\"reasons\">");
    for (reason, trial) in all.iter().take(REASONS_SHOWN) {
        let at = named(&trial.rate.to_string());
        let _ = write!(
            out,
            "<li>{} trial {} ({}, repeat {}): {}</li>",
            mark(reason.verdict),
            trial.trial,
            text(at),
            trial.repeat,
            text(&reason.message)
        );
    }
    if all.len() > REASONS_SHOWN {
        let _ = write!(out, "<li>and {} more, with the trials below</li>", all.len() - REASONS_SHOWN);
    }
    out.push_str("</ul>");
}

fn headline(report: &Report) -> String {
    let (label, big) = match bracket(report) {
        (Some(pass), Some(fail)) => ("Plimsoll line", format!("{pass}<small> to {fail} requests/s</small>")),
        (Some(pass), None) => ("Plimsoll line", format!("≥ {pass}<small> requests/s</small>")),
        (None, Some(fail)) => ("Plimsoll line", format!("&lt; {fail}<small> requests/s</small>")),
        (None, None) => {
            let (label, why) = match report.knee.case {
                _ if report.search.is_some() => ("Undecided", "that the search could decide"),
                KneeCase::NoSlo => ("No objective", "without an SLO"),
                KneeCase::NoRate => ("No finite rate", "without a finite rate"),
                _ => ("Undecided", "without a valid trial"),
            };
            (label, format!("No knee<small> {why}</small>"))
        }
    };
    let objective = match report.slos.is_empty() {
        true => String::new(),
        false => format!(
            "<p class=\"under\">at SLO <b>{}</b> for {} of requests</p>",
            text(&report.slos),
            text(report.target)
        ),
    };
    format!(
        "<div class=\"headline\"><p class=\"label\">{label}</p><p class=\"big\">{big}</p>{objective}\
         <p class=\"under\">{}</p></div>",
        verdicts(report)
    )
}

/// The rate that passes and the one that fails, as far as there are such.
pub(super) fn bracket(report: &Report) -> (Option<f64>, Option<f64>) {
    match &report.search {
        Some(search) => (search.bracket.pass, search.bracket.fail),
        None => (report.knee.bracket.pass, report.knee.bracket.fail),
    }
}

/// How many trials have each verdict.
fn verdicts(report: &Report) -> String {
    let of = |verdict| report.trials.iter().filter(|t| t.summary.validity.verdict == verdict).count();
    let counts = Verdict::ALL.iter().map(|&verdict| (verdict, of(verdict))).filter(|(_, n)| *n > 0);
    let counts: Vec<String> = counts.map(|(verdict, n)| format!("{} {n}", mark(verdict))).collect();
    let all = report.trials.len();
    format!("{} of {all} {}", counts.join(" "), if all == 1 { "trial" } else { "trials" })
}

/// Says that some trials do not count, and why.
fn doubtful(report: &Report, out: &mut String) {
    let doubtful = report.trials.iter().filter(|t| !t.summary.validity.is_valid()).count();
    if doubtful == 0 {
        return;
    }
    let (n, all) = (doubtful, report.trials.len());
    let _ = write!(
        out,
        "<p class=\"note warn\">Trials that do not count: {n} of {all}. Rates are decided by their valid trials alone.</p>"
    );
    reasons(report, out);
}

/// The rate that the headline is about: the knee, or else the lowest that was decided.
fn rate_of_the_headline(report: &Report) -> Option<&RateResult> {
    let (pass, fail) = bracket(report);
    let at = pass.or(fail);
    let decided = || report.rates.iter().find(|r| r.decided);
    match at {
        Some(at) => report.rates.iter().find(|r| r.offered_rate_per_second == Some(at)),
        None => decided(),
    }
}

fn tiles(report: &Report) -> String {
    let Some(rate) = rate_of_the_headline(report) else { return String::new() };
    let l = &rate.latency_seconds;
    let spread = |s: Option<Spread>, scale: f64, unit: &str| match s {
        Some(s) => (
            format!("{}<small> {unit}</small>", shown(s.median, scale)),
            format!("{} to {}", shown(s.min, scale), shown(s.max, scale)),
        ),
        None => (UNDEFINED.to_owned(), "undefined".to_owned()),
    };
    let attainment = match (rate.slo_attainment, rate.slo_attainment_interval) {
        (None, _) => (UNDEFINED.to_owned(), "no objective".to_owned()),
        (Some(a), Interval::Known { low, high, .. }) => (
            format!("{}<small> %</small>", percent(a)),
            format!("95% interval {} to {}", percent(low), percent_up(high)),
        ),
        (Some(a), Interval::None { reason, .. }) => {
            (format!("{}<small> %</small>", percent(a)), format!("no interval ({reason})"))
        }
    };
    let thin = |pair: &common::knee::SpreadPair| if pair.p99_thin && pair.p99.is_some() { "*" } else { "" };
    let tiles = [
        ("attainment".to_owned(), attainment),
        ("goodput".to_owned(), spread(rate.goodput_requests_per_second, 1.0, "/s")),
        ("output".to_owned(), spread(rate.output_token_throughput_per_second, 1.0, "tokens/s")),
        (format!("TTFT p99{}", thin(&l.ttft)), spread(l.ttft.p99, 1e3, "ms")),
        (format!("TPOT p99{}", thin(&l.tpot)), spread(l.tpot.p99, 1e3, "ms")),
        (format!("E2E p99{}", thin(&l.e2e)), spread(l.e2e.p99, 1.0, "s")),
    ];
    let mut out = format!(
        "<h3 class=\"tiles-head\">At {} {} <span class=\"soft\">{}</span></h3><dl class=\"tiles\">",
        text(named(&rate.offered_rate)),
        mark(rate.verdicts.worst()),
        text(used(rate))
    );
    for (name, (value, under)) in tiles {
        let _ =
            write!(out, "<div><dt>{name}</dt><dd>{value}</dd><dd class=\"soft\">{}</dd></div>", text(under));
    }
    out.push_str("</dl>");
    if [&l.ttft, &l.tpot, &l.e2e].into_iter().any(|pair| !thin(pair).is_empty()) {
        out.push_str(
            "<p class=\"note\">* fewer than 368 samples in a trial: this p99 is an indication only.</p>",
        );
    }
    out
}

/// How many trials its numbers are over.
pub(super) fn used(rate: &RateResult) -> String {
    let kind = if rate.decided { "valid" } else { "none of them valid" };
    match (rate.trials_used, rate.verdicts.total()) {
        (n, of) if n == of => format!("over {n} trials, {kind}"),
        (n, of) => format!("over {n} of {of} trials, {kind}"),
    }
}
