//! `report.html`: the report as one page that needs nothing else, no network and no program but a browser.
//!
//! Rust writes every number that stands as text, with the functions of the table, and embeds the report itself, the very
//! document of `report.json`; `points` are the requests, distributions and series that charts are drawn from, thinned so
//! that extremes stay. The scripts beside this only draw. The page must never compute a number of its own, show one without
//! the validity of its trial, show what is undefined as 0, or take a string of an engine or a user for markup.

mod gather;
mod lines;
mod markup;
mod points;
mod rates;
mod record;
#[cfg(test)]
mod tests;
mod thin;
mod trials;
mod verdict;

use std::io::{self, Write};

use sha2::{Digest as _, Sha256};

pub use gather::{PageError, Sources, gather, write_file, write_gathered};
pub use points::Points;

use super::Report;
use super::json::document;
use crate::page::{self, assets};
use markup::{base64, json, section, text};

/// Drawn by these, in this order. Each is a part of one script.
const SCRIPTS: [&str; 5] = [
    include_str!("base.js"),
    include_str!("rates.js"),
    include_str!("trial.js"),
    include_str!("distributions.js"),
    include_str!("start.js"),
];

const STYLE: &str = include_str!("page.css");

/// Writes the page.
///
/// # Errors
/// As `out` does.
pub fn write_page(out: &mut dyn Write, report: &Report, points: &Points) -> io::Result<()> {
    let styles = [assets::UPLOT_CSS, page::STYLE, STYLE].join("\n");
    let scripts =
        format!("{}\n(() => {{\n\"use strict\";\n{}\n}})();\n", assets::UPLOT_JS, SCRIPTS.join("\n"));
    let (style, script) = (digest(&styles), digest(&scripts));
    write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src '{script}'; \
         style-src '{style}'; base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <title>{} – Plimsoll</title>\n<style>{styles}</style>\n</head>\n<body>\n",
        text(&report.run_id)
    )?;
    out.write_all(body(report, points).as_bytes())?;
    writeln!(out, "<script type=\"application/json\" id=\"report\">{}</script>", json(&document(report))?)?;
    writeln!(out, "<script type=\"application/json\" id=\"points\">{}</script>", json(points)?)?;
    writeln!(out, "<script>{scripts}</script>\n</body>\n</html>")
}

fn digest(content: &str) -> String {
    format!("sha256-{}", base64(&Sha256::digest(content.as_bytes())))
}

fn body(report: &Report, points: &Points) -> String {
    let mut out = verdict::head(report);
    out.push_str("<main>\n");
    out.push_str(&verdict::opening(report));
    out.push_str(&rates::table(report));
    out.push_str(&section(
        "over-rate",
        "Latency and goodput over the offered rate",
        LEAD_RATES,
        CHARTS_RATES,
    ));
    out.push_str(&rates::losses(report));
    out.push_str(&trials::in_time(report, points));
    out.push_str(&section("distributions", "Distributions", LEAD_DISTRIBUTIONS, CHARTS_DISTRIBUTIONS));
    out.push_str(&rates::energy(report));
    out.push_str(&trials::agents(report));
    out.push_str(&trials::all(report));
    out.push_str(&record::reproduce(report));
    out.push_str(&record::record(report));
    out.push_str(&record::about(points));
    out.push_str("</main>\n");
    out
}

const LEAD_RATES: &str = "Each point is the median over the trials of a rate, the band their smallest and largest value. \
    A hollow point is of a rate without a valid trial: it decides nothing.";
const CHARTS_RATES: &str = "<div class=\"grid\" id=\"rate-charts\"></div>\
    <noscript><p class=\"note\">The charts need JavaScript, which is in this page; the numbers are in the table.</p></noscript>";
const LEAD_DISTRIBUTIONS: &str = "The share of a trial's successful requests that took at most so long. A line a trial: \
    colours are rates, dashes are repeats.";
const CHARTS_DISTRIBUTIONS: &str = "<div class=\"controls\" id=\"distribution-controls\"></div>\
    <div class=\"grid wide\" id=\"distribution-charts\"></div>";
