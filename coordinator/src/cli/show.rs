//! The plan as a person reads it before it starts.

use std::fmt::Write;
use std::net::SocketAddr;

use clap::ArgMatches;
use clap::parser::ValueSource;
use common::ids::{Nanos, RunId};
use common::plan::Extent;
use common::slo::shown_time;

use super::planning::Token;
use crate::plan::Plan;

/// Beyond its schedule a trial takes some time for warm-up, barrier and drain.
const AROUND_A_TRIAL: Nanos = Nanos(3_000_000_000);

/// What will be done, with what was not asked for marked as a default.
pub(super) fn plan(plan: &Plan, matches: &ArgMatches, run: &RunId) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String, options: &[&str]| {
        let mark = if options.iter().any(|o| typed(matches, o)) { "" } else { " (default)" };
        let _ = writeln!(text, "{name:<12} {value}{mark}");
    };
    line("engine", format!("{} ({})", plan.target.base_url, plan.target.api), &["base_url", "api"]);
    if let Some(model) = &plan.target.model {
        line("model", model.clone(), &["model"]);
    }
    let rows = plan.workload.rows.rows.len();
    line("workload", format!("{}, {rows} rows", plan.workload.source), &["workload"]);
    let extent = match plan.extent {
        Extent::Requests(n) => format!("{n} requests a trial"),
        Extent::Duration(d) => format!("{} a trial", shown_time(d)),
    };
    line(
        "arrivals",
        format!("{}, {extent}, seed {}", plan.process, plan.seed.0),
        &["arrival", "requests", "duration", "seed"],
    );
    let slos = if plan.slos.is_empty() {
        "none".to_owned()
    } else {
        format!("{} for {} of requests", plan.slos, plan.slo_target)
    };
    line("objectives", slos, &["slo", "ttft_slo", "tpot_slo", "e2e_slo", "slo_target"]);
    let limit = plan.max_concurrency.map_or("none".to_owned(), |n| n.to_string());
    line("concurrency", format!("limit {limit}"), &["max_concurrency"]);
    line("warm-up", format!("{} requests before each trial", plan.warmup), &["warmup"]);
    let target = &plan.target;
    let timeouts = format!(
        "{} a request, {} between texts",
        shown_time(target.total_timeout),
        shown_time(target.idle_timeout)
    );
    line("timeouts", timeouts, &["timeout", "idle_timeout"]);
    line(
        "agents",
        format!("{} started here, {} from elsewhere", plan.fleet.local, plan.fleet.remote),
        &["agents", "local_agents"],
    );
    if target.logprobs {
        line("logprobs", "asked for: the engine does more than it would without".into(), &["logprobs"]);
    }
    for field in &plan.workload.rows.ignored_fields {
        let _ = writeln!(text, "note         the workload's field {field:?} is not used");
    }
    let expected = plan.scheduled_length() + Nanos(AROUND_A_TRIAL.0.saturating_mul(plan.trials.len() as u64));
    let _ = writeln!(text, "run          {run}: {}, about {}", trials(plan.trials.len()), about(expected));
    text
}

fn trials(n: usize) -> String {
    if n == 1 { "1 trial".into() } else { format!("{n} trials") }
}

fn typed(matches: &ArgMatches, option: &str) -> bool {
    matches.try_contains_id(option).is_ok() && matches.value_source(option) == Some(ValueSource::CommandLine)
}

fn about(time: Nanos) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 90.0 { format!("{seconds:.0} s") } else { format!("{:.0} min", seconds / 60.0) }
}

/// What to type on the other hosts.
pub(super) fn join_line(address: SocketAddr, token: Option<&Token>, plan: &Plan) -> String {
    let host = if address.ip().is_unspecified() { "THIS-HOST".to_owned() } else { address.ip().to_string() };
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    let secret = match token {
        Some(Token { secret, made: true }) => format!("PLIMSOLL_TOKEN={secret} "),
        // A token that was given is known to whoever gave it, and need not stand on a screen.
        Some(_) => "PLIMSOLL_TOKEN=… ".to_owned(),
        None => String::new(),
    };
    let port = address.port();
    format!(
        "waiting      for {} agents, at most {}; on each host:\n             {secret}agent --join {host}:{port}\n",
        plan.fleet.remote,
        shown_time(plan.fleet.join_timeout)
    )
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
