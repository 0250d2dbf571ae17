//! Lines about several engines: what each was sent, and how it fared beside the others.

use common::stats::{Spread, Value};
use common::summary::ReplicaSummary;

use super::notes::{named, section, wrap};
use super::table::number;
use super::{Report, TrialReport};

/// A line for each rate and engine, over the trials that stand.
pub(super) fn lines(report: &Report, lines: &mut Vec<String>) {
    section("Engines, over which the arrivals were spread at random:", lines, |lines| {
        for rate in &report.rates {
            let of_rate = |t: &&TrialReport| t.rate.to_string() == rate.offered_rate;
            let trials: Vec<&TrialReport> = report.standing().filter(of_rate).collect();
            let engines = trials.iter().map(|t| t.summary.replicas.len()).max().unwrap_or(0);
            for at in 0..engines {
                let parts: Vec<&ReplicaSummary> =
                    trials.iter().filter_map(|t| t.summary.replicas.get(at)).collect();
                wrap(&line(&named(&rate.offered_rate), &parts), "  ", lines);
            }
        }
    });
}

fn line(rate: &str, parts: &[&ReplicaSummary]) -> String {
    let sum = |field: fn(&ReplicaSummary) -> u64| parts.iter().map(|part| field(part)).sum::<u64>();
    let median = |field: fn(&ReplicaSummary) -> Option<f64>| {
        let spread = Spread::of(parts.iter().filter_map(|part| field(part)));
        match spread.map(|s| s.median) {
            Some(Value::Finite(seconds)) => format!("{} s", number(seconds)),
            Some(Value::Infinite) => "inf".to_owned(),
            None => "-".to_owned(),
        }
    };
    format!(
        "{rate}: {}: {} requests, {} failed, TTFT p50 {}, p99 {}, E2E p50 {}",
        parts.first().map_or_else(String::new, |part| part.base_url.to_string()),
        sum(|p| p.requests),
        sum(|p| p.failed),
        median(|p| p.ttft_seconds.p50),
        median(|p| p.ttft_seconds.p99),
        median(|p| p.e2e_seconds.p50),
    )
}
