//! The state of the run in Prometheus' text format.

use std::fmt::Write;

use common::ids::Nanos;

use crate::live::{Metric, Model};

/// A page under construction: each metric with its help and type before its first sample.
#[derive(Default)]
struct Page(String);

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(self.0, "# HELP plimsoll_{name} {help}\n# TYPE plimsoll_{name} {kind}\n");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let labels: Vec<String> = labels.iter().map(|(l, v)| format!("{l}=\"{}\"", escaped(v))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.0, "plimsoll_{name}{labels} {value}");
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: Option<f64>) {
        if let Some(value) = value {
            self.head(name, kind, help);
            self.sample(name, &[], value);
        }
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Seconds that may pass until the newest point is not what is the case now.
const FRESH_SECONDS: f64 = 6.0;

/// The page. What is not known is left out.
pub(super) fn render(model: &Model, now: Nanos) -> String {
    let (state, sweep) = (model.state(now), model.sweep());
    let mut page = Page::default();
    let about = &sweep.about;
    page.head("run_info", "gauge", "What is measured.");
    let labels = [
        ("run", about.run.as_str()),
        ("engine", about.engine.as_str()),
        ("model", about.model.as_deref().unwrap_or("")),
        ("version", about.version),
    ];
    page.sample("run_info", &labels, 1.0);
    page.head("stage_info", "gauge", "Where the run stands.");
    page.sample("stage_info", &[("stage", state.stage)], 1.0);
    let count = |n: usize| Some(n as f64);
    page.one("trials_planned", "gauge", "Trials of the plan.", count(state.trials_planned));
    page.one("trials_done", "gauge", "Trials that are done.", count(state.trials_done));
    page.one("elapsed_seconds", "gauge", "Since the coordinator began.", Some(state.elapsed_seconds));
    page.one("left_seconds", "gauge", "What the rest may take.", state.left_seconds);
    page.one("warnings", "gauge", "Different warnings so far.", count(state.warnings.len()));
    page.one(
        "live_late_requests_total",
        "counter",
        "Requests whose traces came too late for the time lines.",
        Some(state.late_requests as f64),
    );
    page.one(
        "live_missed_total",
        "counter",
        "Blocks and frames that the live view did not take.",
        Some(state.missed as f64),
    );
    if let Some(trial) = &state.trial {
        let number = |n: u64| Some(n as f64);
        page.one("trial", "gauge", "The trial under way.", Some(f64::from(trial.trial)));
        page.one("trial_dispatched", "gauge", "Its requests that were released.", number(trial.dispatched));
        page.one("trial_succeeded", "gauge", "Its requests that ended well.", number(trial.succeeded));
        page.one("trial_failed", "gauge", "Its requests that failed.", number(trial.failed));
        page.one(
            "trial_attainment",
            "gauge",
            "Share of its finished requests that is good.",
            trial.attainment_so_far,
        );
    }
    let newest = model.lines().all().next_back();
    let newest = newest.filter(|p| state.elapsed_seconds - f64::from(p.at_seconds) < FRESH_SECONDS);
    for metric in Metric::ALL {
        let value = newest.and_then(|point| point.low.get(metric));
        page.one(metric.name(), "gauge", "Of the newest whole second.", value);
    }
    if !state.agents.is_empty() {
        page.head("agent_in_flight", "gauge", "Requests in flight of each agent.");
        for agent in &state.agents {
            page.sample("agent_in_flight", &[("agent", &agent.name)], agent.in_flight as f64);
        }
        page.head("agent_lost", "gauge", "1 where the agent is lost.");
        for agent in &state.agents {
            page.sample("agent_lost", &[("agent", &agent.name)], f64::from(u8::from(agent.lost.is_some())));
        }
    }
    let knee = sweep.knee.unwrap_or_default();
    page.one("knee_pass_per_second", "gauge", "The highest rate that passes so far.", knee.pass_per_second);
    page.one("knee_fail_per_second", "gauge", "The lowest rate that fails so far.", knee.fail_per_second);
    page.0
}
