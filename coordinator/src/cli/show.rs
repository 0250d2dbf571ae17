//! The plan as a person reads it before it starts.

use std::fmt::Write;

use clap::ArgMatches;
use clap::parser::ValueSource;
use common::ids::{Nanos, RunId};
use common::plan::Extent;
use common::slo::shown_time;

use crate::plan::Plan;

/// Beyond its schedule a trial takes some time for warm-up, barrier and drain.
const AROUND_A_TRIAL: Nanos = Nanos(3_000_000_000);

/// A line of the plan: values, each with the option that it comes from.
struct Line<'a> {
    matches: &'a ArgMatches,
    text: String,
}

impl<'a> Line<'a> {
    fn new(matches: &'a ArgMatches, name: &str) -> Self {
        Self { matches, text: format!("{name:<12} ") }
    }

    /// A value, marked when none of these options was given.
    fn value(mut self, value: impl std::fmt::Display, options: &[&str]) -> Self {
        if !self.text.ends_with(' ') {
            self.text.push_str(", ");
        }
        let mark = if options.iter().any(|o| given(self.matches, o)) { "" } else { " (default)" };
        let _ = write!(self.text, "{value}{mark}");
        self
    }
}

/// What will be done, with every value that was not asked for marked as a default.
pub(super) fn plan(plan: &Plan, matches: &ArgMatches, run: &RunId) -> String {
    let line = |name: &str| Line::new(matches, name);
    let target = &plan.target;
    let mut lines = vec![line("engine").value(&target.base_url, &["base_url"]).value(target.api, &["api"])];
    lines.extend(target.replicas.iter().map(|url| line("replica").value(url, &["base_url"])));
    if let Some(model) = &target.model {
        lines.push(line("model").value(model, &["model"]));
    }
    if let Some(dialect) = plan.engine.dialect {
        lines.push(line("dialect").value(dialect, &["dialect"]));
    }
    if target.token_counts {
        let text = "asked for: the engine does a little more than it would without";
        lines.push(line("token counts").value(text, &["token_counts"]));
    }
    if target.logprobs {
        let text = "asked for: the engine does more than it would without";
        lines.push(line("logprobs").value(text, &["logprobs"]));
    }
    let rows = plan.workload.rows.rows.len();
    lines.push(line("workload").value(format!("{} of {rows} rows", plan.workload.source), &["workload"]));
    lines.push(arrivals(plan, line("arrivals")));
    lines.extend(search(plan, line("search")));
    let slos = if plan.slos.is_empty() { "none".to_owned() } else { plan.slos.to_string() };
    lines.push(
        line("objectives")
            .value(slos, &["slo", "ttft_slo", "tpot_slo", "e2e_slo"])
            .value(format!("for {} of requests", plan.slo_target), &["slo_target"])
            .value(format!("late above {}", shown_time(plan.limits.lateness_budget)), &["late_budget"]),
    );
    let limit = plan.max_concurrency.map_or("no limit".to_owned(), |n| format!("at most {n} in flight"));
    lines.push(line("concurrency").value(limit, &["max_concurrency"]));
    lines.push(
        line("warm-up")
            .value(
                format!(
                    "{} requests{}",
                    plan.warmup,
                    if target.replicas.is_empty() { "" } else { " to each engine" }
                ),
                &["warmup"],
            )
            .value(format!("{} connections an agent", plan.warm_connections), &["warm_connections"]),
    );
    lines.push(
        line("timeouts")
            .value(format!("{} to connect", shown_time(target.connect_timeout)), &["connect_timeout"])
            .value(format!("{} a request", shown_time(target.total_timeout)), &["timeout"])
            .value(format!("{} between texts", shown_time(target.idle_timeout)), &["idle_timeout"]),
    );
    let elsewhere = format!("{} from elsewhere", plan.fleet.remote);
    lines.push(
        line("agents")
            .value(format!("{} started here", plan.fleet.local), &["local_agents"])
            .value(elsewhere, &["agents"])
            .value(format!("traces come {} a trial", plan.upload.name()), &["upload"]),
    );
    if let Some(tokenizer) = &plan.tokenizer {
        lines.push(line("tokenizer").value(tokenizer.file(), &["tokenizer"]));
    }
    lines.push(line("results").value(plan.data.display(), &["data"]));
    let mut text: String = lines.into_iter().map(|line| line.text + "\n").collect();
    for field in &plan.workload.rows.ignored_fields {
        let _ = writeln!(text, "note         the workload's field {field:?} is not used");
    }
    if let Some(most) = plan.search().map(|search| search.at_most()) {
        let _ = writeln!(
            text,
            "run          {run}: at most {}, {}, and the drain of the last one",
            trials(most.trials as usize),
            about(Nanos::from_secs_f64(most.seconds))
        );
        return text;
    }
    let expected = plan.scheduled_length() + Nanos(AROUND_A_TRIAL.0.saturating_mul(plan.trials.len() as u64));
    let _ = writeln!(text, "run          {run}: {}, about {}", trials(plan.trials.len()), about(expected));
    text
}

/// What is searched for, and what it may take.
fn search<'a>(plan: &Plan, line: Line<'a>) -> Option<Line<'a>> {
    let search = plan.search?;
    let percent = |share: f64| format!("{}%", (share * 1e6).round() / 1e4);
    Some(
        line.value(format!("from {}/s", search.min_rate_per_second), &["min_rate"])
            .value(format!("to {}/s", search.max_rate_per_second), &["max_rate"])
            .value(
                format!("until the bracket is {} wide", percent(search.relative_width)),
                &["bracket_width"],
            )
            .value(format!("with {} confidence", percent(search.confidence)), &["confidence"])
            .value(format!("at most {} trials a rate", search.trials_a_rate), &["trials_a_rate"])
            .value(format!("within {}", about(Nanos::from_secs_f64(search.budget_seconds))), &["budget"]),
    )
}

fn arrivals<'a>(plan: &Plan, line: Line<'a>) -> Line<'a> {
    let closed = plan.trials.iter().any(|t| t.rate.workers().is_some());
    let shape = if closed {
        "closed loop (no rate: it hides the queue)".to_owned()
    } else {
        plan.process.to_string()
    };
    let line = line.value(shape, &["arrival"]);
    let line = match plan.extent {
        Extent::Requests(n) => line.value(format!("{n} requests a trial"), &["requests"]),
        Extent::Duration(d) => line.value(format!("{} a trial", shown_time(d)), &["duration"]),
    };
    let repeats = plan.trials.iter().map(|t| t.repeat + 1).max().unwrap_or(0);
    let line = if plan.search.is_none() && known(line.matches, "repeats") {
        line.value(format!("{repeats} repeats"), &["repeats"])
    } else {
        line
    };
    let line = line.value(format!("seed {}", plan.seed.0), &["seed"]);
    if plan.workload.rows.rows.iter().all(|r| r.max_tokens.is_some()) {
        return line;
    }
    let most = format!("{} tokens where a row does not say", plan.target.default_max_tokens);
    line.value(most, &["max_tokens"])
}

fn trials(n: usize) -> String {
    if n == 1 { "1 trial".into() } else { format!("{n} trials") }
}

/// Whether the command has such an option: `run` has no repeats.
fn known(matches: &ArgMatches, option: &str) -> bool {
    matches.try_contains_id(option).is_ok()
}

fn given(matches: &ArgMatches, option: &str) -> bool {
    known(matches, option) && matches.value_source(option) == Some(ValueSource::CommandLine)
}

fn about(time: Nanos) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 90.0 { format!("{seconds:.0} s") } else { format!("{:.0} min", seconds / 60.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_rounded_for_people() {
        assert_eq!(about(Nanos::from_secs(75)), "75 s");
        assert_eq!(about(Nanos::from_secs(540)), "9 min");
    }
}
