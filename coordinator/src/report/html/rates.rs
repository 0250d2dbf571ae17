//! The rates: the table with the very cells of the terminal's, what was lost to each cause, and energy.

use std::collections::BTreeSet;
use std::fmt::Write;

use common::knee::RateResult;

use super::markup::{cell, long_cell, mark, section, table as markup_table, text};
use super::verdict::{bracket, spoiled, used};
use crate::report::Report;
use crate::report::beside::{COLUMNS as ENERGY, significant};
use crate::report::notes::{before_the_knee, named};
use crate::report::table::{HEADER, UNDEFINED, percent, row};

/// The table, and the notes that stand below it.
pub(super) fn table(report: &Report) -> String {
    let heads: Vec<String> = HEADER
        .iter()
        .map(|head| head.replace("-\n", "").split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    let heads: Vec<&str> =
        heads.iter().map(|head| if head == "validity" { "<validity" } else { head }).collect();
    let knee = bracket(report).0.filter(|_| spoiled(report).is_none());
    let rows = report.rates.iter().map(|rate| {
        let cells = row(rate);
        let last = cells.len() - 1;
        let at_knee = knee.is_some() && rate.offered_rate_per_second == knee;
        let first = if at_knee { "<td class=\"at-knee\" title=\"the knee\">" } else { "<td>" };
        let mut out = format!("{first}{}</td>", text(&cells[0]));
        out.extend(cells[1..last].iter().map(cell));
        let others = cells[last].split_once('\n').map_or("", |(_, others)| others);
        let _ = write!(out, "<td class=\"left\">{} {}</td>", mark(rate.verdicts.worst()), text(others));
        out
    });
    let notes = before_the_knee(report).join("\n");
    let body = format!(
        "{}<details><summary>Notes to the table</summary><pre class=\"notes\">{}</pre></details>",
        markup_table("rates", &heads, rows),
        text(notes.trim_end())
    );
    section("rates", "Rates", LEAD, &body)
}

const LEAD: &str = "Medians over the valid trials of a rate, attainment pooled over them; where no trial is valid, over all, \
    and the rate decides nothing. – is undefined, * a p99 of fewer than 368 samples.";

/// What attainment was lost to, by rate.
pub(super) fn losses(report: &Report) -> String {
    if report.slos.is_empty() {
        return String::new();
    }
    let causes: BTreeSet<&String> = report.rates.iter().flat_map(|r| r.slo_lost_by_cause.keys()).collect();
    if causes.is_empty() {
        return section(
            "losses",
            "What attainment was lost to",
            "",
            "<p>Nothing: every request met every objective.</p>",
        );
    }
    let mut heads = vec!["offered", "requests", "good"];
    heads.extend(causes.iter().map(|cause| cause.as_str()));
    heads.push("<validity");
    let rows = report.rates.iter().map(|rate| {
        let mut out = cell(named(&rate.offered_rate)) + &cell(rate.requests);
        out += &cell(rate.good.map_or_else(|| UNDEFINED.to_owned(), |n| n.to_string()));
        out.extend(causes.iter().map(|cause| lost(rate, cause)));
        let _ = write!(out, "<td class=\"left\">{}</td>", mark(rate.verdicts.worst()));
        out
    });
    section("losses", "What attainment was lost to", LEAD_LOSSES, &markup_table("losses", &heads, rows))
}

const LEAD_LOSSES: &str = "Requests over the trials used. A failure counts once, under its kind; a success under each objective \
    that it misses. The bar is the share of the rate's requests.";

fn lost(rate: &RateResult, cause: &str) -> String {
    let Some(&n) = rate.slo_lost_by_cause.get(cause).filter(|n| **n > 0 && rate.requests > 0) else {
        return "<td class=\"soft\">0</td>".to_owned();
    };
    let share = n as f64 / rate.requests as f64;
    // Attributes of the drawing: the page's policy allows no style of an element.
    format!(
        "<td class=\"share\" title=\"{}% of {} requests\">{n}<svg width=\"64\" height=\"7\" aria-hidden=\"true\"><rect class=\"of\" width=\"64\" \
         height=\"7\" rx=\"2\"/><rect class=\"is\" width=\"{:.1}\" height=\"7\" rx=\"2\"/></svg></td>",
        percent(share),
        rate.requests,
        (share * 64.0).clamp(1.0, 64.0)
    )
}

/// Energy by rate; nothing where no GPU was recorded.
pub(super) fn energy(report: &Report) -> String {
    let Some(energy) = report.energy() else {
        return section(
            "energy",
            "Energy",
            "",
            "<p class=\"note\">No GPU was recorded: start an agent with <code>--gpu</code> on the engine's host.</p>",
        );
    };
    let mut heads = vec!["offered"];
    heads.extend(ENERGY.iter().map(|(head, _)| *head));
    heads.extend(["<seen whole", "<validity"]);
    let rows = energy.rates.iter().map(|rate| {
        let mut out = cell(named(&rate.offered_rate));
        let values =
            ENERGY.iter().map(|(_, value)| value(rate).map_or_else(|| UNDEFINED.to_owned(), significant));
        out.extend(values.map(cell));
        out += &if rate.complete {
            "<td class=\"left\">yes</td>".to_owned()
        } else {
            long_cell(format!("no: {}", rate.incomplete.join("; ")))
        };
        let verdict = report.rates.iter().find(|r| r.offered_rate == rate.offered_rate);
        let _ = match verdict {
            Some(r) => write!(out, "<td class=\"left\">{} {}</td>", mark(r.verdicts.worst()), text(used(r))),
            None => write!(out, "<td>{UNDEFINED}</td>"),
        };
        out
    });
    let mut body = markup_table("energy", &heads, rows);
    if let Some(best) = &energy.most_efficient_rate {
        let _ = write!(
            body,
            "<p class=\"note\">Of the rates that meet the objectives, <b>{}</b> takes the least energy for an output token.</p>",
            text(named(best))
        );
    }
    let lead = format!(
        "{} GPU{} ({}): a trial, median over the trials of the rate.",
        energy.gpus,
        if energy.gpus == 1 { "" } else { "s" },
        energy.boundary
    );
    section("energy", "Energy", &lead, &body)
}
