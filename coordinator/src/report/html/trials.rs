//! The trials one by one: in time, with every reason of their validity, and what each agent had to do with them.

use std::fmt::Write;

use common::stats::Distribution;
use common::summary::AgentSummary;

use super::markup::{cell, long_cell, mark, section, table, text};
use super::points::Points;
use crate::report::notes::named;
use crate::report::table::{UNDEFINED, number, percent};
use crate::report::{Report, TrialReport};

/// Rows of agents; the rest is in `report.json`.
const AGENT_ROWS: usize = 200;
/// Rows of trials.
const TRIAL_ROWS: usize = 1_000;

/// The place of the charts over a trial's time.
pub(super) fn in_time(report: &Report, points: &Points) -> String {
    if points.trials.is_empty() {
        return section(
            "in-time",
            "A trial in time",
            "",
            "<p class=\"note\">No trial has numbers to show.</p>",
        );
    }
    let options: String = points
        .trials
        .iter()
        .filter_map(|shown| {
            let trial = report.trials.iter().find(|t| t.trial == shown.trial)?;
            Some(format!("<option value=\"{0}\">{1}</option>", shown.trial, text(title(trial))))
        })
        .collect();
    let body = format!(
        "<div class=\"controls\"><label>Trial <select id=\"trial\">{options}</select></label><span id=\"trial-verdict\"></span>\
         <span class=\"buttons\" id=\"scatter-metric\" role=\"group\" aria-label=\"metric\"></span></div>\
         <p class=\"note\" id=\"thinned\"></p><div id=\"trial-charts\"></div>"
    );
    section("in-time", "A trial in time", LEAD_TIME, &body)
}

const LEAD_TIME: &str = "Each point is a request, where it was scheduled. Point at one for its clocks; drag to zoom, double-click to go back. \
    Requests, GPUs and engine share one time line: host clocks are compared within their bound.";

fn title(trial: &TrialReport) -> String {
    let again = trial.rerun_of.map_or_else(String::new, |of| format!(", trial {of} again"));
    format!(
        "{}: {}, repeat {}{again} – {}",
        trial.trial,
        named(&trial.rate.to_string()),
        trial.repeat,
        trial.summary.validity.verdict
    )
}

/// What each agent carried, and how it fared.
pub(super) fn agents(report: &Report) -> String {
    let heads = [
        "trial",
        "<agent",
        "requests",
        "share %",
        "failed",
        "dispatch lateness p50 ms",
        "p99 ms",
        "read lateness p99 ms",
        "clock offset ms",
        "± ms",
        "CPU pressure s",
        "lost",
        "<validity of the trial",
    ];
    let all: Vec<(&TrialReport, &AgentSummary)> =
        report.trials.iter().flat_map(|t| t.summary.agents.iter().map(move |a| (t, a))).collect();
    let rows = all.iter().take(AGENT_ROWS).map(|(trial, agent)| agent_row(trial, agent));
    let mut body = table("agents", &heads, rows);
    if all.len() > AGENT_ROWS {
        let _ =
            write!(body, "<p class=\"note\">{} more rows are in report.json.</p>", all.len() - AGENT_ROWS);
    }
    section("agents", "Agents", "Who sent how much, how punctually, and how well its clock is known.", &body)
}

fn agent_row(trial: &TrialReport, agent: &AgentSummary) -> String {
    let ms = |seconds: Option<f64>| seconds.map_or_else(|| UNDEFINED.to_owned(), |s| number(s * 1e3));
    let late = &agent.dispatch_lateness_seconds;
    let health = agent.health.as_ref();
    let mut out = cell(trial.trial);
    let _ = write!(out, "<td class=\"left mono\">{}</td>", text(&agent.name));
    out += &cell(agent.requests);
    out += &cell(agent.share.map_or_else(|| UNDEFINED.to_owned(), percent));
    out += &cell(agent.failed);
    out += &cell(ms(late.p50));
    out += &cell(ms(late.p99) + thin(late));
    out += &cell(ms(health.and_then(|h| h.read_lateness).map(|l| l.p99)));
    out += &cell(ms(agent.clock_offset_seconds));
    out += &cell(ms(agent.clock_bound_seconds));
    out += &cell(health.and_then(|h| h.cpu_pressure_seconds).map_or_else(|| UNDEFINED.to_owned(), number));
    out += &cell(if agent.lost { "lost" } else { "no" });
    let _ = write!(out, "<td class=\"left\">{}</td>", mark(trial.summary.validity.verdict));
    out
}

fn thin(distribution: &Distribution) -> &'static str {
    if distribution.p99_thin && distribution.p99.is_some() { "*" } else { "" }
}

/// Every trial with its verdict and all of its reasons.
pub(super) fn all(report: &Report) -> String {
    let heads = [
        "trial",
        "offered",
        "repeat",
        "<validity",
        "requests",
        "failed",
        "achieved /s",
        "goodput /s",
        "attainment %",
        "TTFT p99 ms",
        "TPOT p99 ms",
        "<why",
    ];
    let rows = report.trials.iter().take(TRIAL_ROWS).map(trial_row);
    let mut body = table("trials", &heads, rows);
    if report.trials.len() > TRIAL_ROWS {
        let _ = write!(
            body,
            "<p class=\"note\">{} more are in report.json.</p>",
            report.trials.len() - TRIAL_ROWS
        );
    }
    section("trials", "Every trial", "In the order in which they were sent.", &body)
}

fn trial_row(trial: &TrialReport) -> String {
    let summary = &trial.summary;
    let numbers = summary.numbers.as_ref();
    let shown =
        |value: Option<f64>, scale: f64| value.map_or_else(|| UNDEFINED.to_owned(), |v| number(v * scale));
    let p99 = |distribution: Option<&Distribution>| {
        shown(distribution.and_then(|d| d.p99), 1e3) + distribution.map_or("", thin)
    };
    let mut out = cell(trial.trial) + &cell(named(&trial.rate.to_string())) + &cell(trial.repeat);
    let _ = write!(out, "<td class=\"left\">{}</td>", mark(summary.validity.verdict));
    out += &cell(summary.requests);
    out += &cell(numbers.map_or_else(|| UNDEFINED.to_owned(), |n| n.failed.to_string()));
    out += &cell(shown(numbers.and_then(|n| n.achieved_rate_per_second), 1.0));
    out += &cell(shown(numbers.and_then(|n| n.goodput_requests_per_second), 1.0));
    out += &cell(numbers.and_then(|n| n.slo_attainment).map_or_else(|| UNDEFINED.to_owned(), percent));
    out += &cell(p99(numbers.map(|n| &n.latency_seconds.ttft)));
    out += &cell(p99(numbers.map(|n| &n.latency_seconds.tpot)));
    let mut why: Vec<String> = summary.validity.reasons.iter().map(|r| r.message.clone()).collect();
    why.extend(trial.rerun_of.map(|of| format!("trial {of} sent again")));
    out + &long_cell(why.join("; "))
}
