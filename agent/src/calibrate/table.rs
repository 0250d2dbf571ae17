//! A calibration for people, at 100 columns.

use std::fmt::Write as _;

use common::calibration::{Calibration, MOST_SHARE};
use common::fleet::Lateness;

fn us(seconds: f64) -> String {
    format!("{:.1} us", seconds * 1e6)
}

fn of(name: &str, lateness: &Lateness) -> String {
    let ms = |seconds: f64| format!("{:.3}", seconds * 1e3);
    let Lateness { n, p50, p99, max } = lateness;
    format!("  {name:<44} {:>10} {:>10} {:>10} {n:>10}\n", ms(*p50), ms(*p99), ms(*max))
}

/// The whole table, with a line end.
pub(super) fn table(c: &Calibration) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let mut put = |line: std::fmt::Arguments<'_>| {
        let _ = writeln!(text, "{line}");
    };
    let host = &c.host;
    put(format_args!("{}: {}, {} cores, {}", host.hostname, host.cpu_model, host.cpus, host.kernel));
    let engine = match c.engine_core {
        Some(core) => format!("the null engine on core {core}"),
        None => "the null engine on the same core: ceilings are of both".to_owned(),
    };
    let form = if c.quick { "quick form, " } else { "" };
    let busy = c.load_before.map(|load| format!("; load average before {load:.1}")).unwrap_or_default();
    put(format_args!("agent {}, {form}{:.0} s; {engine}{busy}\n", c.agent_version, c.seconds));
    let costs = &c.costs;
    put(format_args!("  {:<44} {:>12} {:>12}", "what it costs", "CPU time", "wall time"));
    put(format_args!(
        "  {:<44} {:>12} {:>12}",
        "a request, without its events",
        us(costs.request_cpu_seconds),
        us(costs.request_wall_seconds)
    ));
    put(format_args!(
        "  {:<44} {:>12} {:>12}",
        "an event that comes with others",
        us(costs.event_cpu_seconds),
        us(costs.event_wall_seconds)
    ));
    put(format_args!("  {:<44} {:>12}\n", "an event that comes alone", us(costs.paced_event_cpu_seconds)));
    let top = &c.ceilings;
    put(format_args!("  {:<44} {:>12}", "the most of it, on one core", "a second"));
    put(format_args!("  {:<44} {:>12.0}", "requests of 1 event, back to back", top.requests_per_second));
    let long = format!("requests of {} events, back to back", top.events_per_answer);
    put(format_args!("  {long:<44} {:>12.0}", top.long_requests_per_second));
    put(format_args!("  {:<44} {:>12.0}", "events of those", top.events_per_second));
    put(format_args!(
        "  {:<44} {:>12.0}",
        "events that come alone, by their cost", top.paced_events_per_second
    ));
    let least = if top.more_streams_are_late { "" } else { "at least " };
    let streams = format!("{least}{}", top.streams);
    put(format_args!("  {:<44} {streams:>12}\n", "streams at once, read within 1 ms at p99"));
    put(format_args!(
        "  {:<44} {:>10} {:>10} {:>10} {:>10}",
        format!("lateness in ms; {} events a request", c.reference.events_per_answer),
        "p50",
        "p99",
        "max",
        "n"
    ));
    for level in &c.levels {
        let at = format!("{:.0}% ({:.0}/s)", level.share * 100.0, level.requests_per_second);
        text += &of(&format!("{at}: requests sent late by"), &level.dispatch_lateness_seconds);
        if let Some(read) = &level.read_lateness_seconds {
            text += &of(&format!("{at}: reads late by"), read);
        }
    }
    let error = &c.error;
    let at = format!("{:.0}/s", error.requests_per_second);
    text += &of(&format!("{at}: added to a known TTFT"), &error.ttft_seconds);
    text += &of(&format!("{at}:   of that, from write to stamp"), &error.read_seconds);
    text += &of(&format!("{at}: added to a known gap, either way"), &error.gap_seconds);
    let share = MOST_SHARE * 100.0;
    let _ = write!(
        text,
        "\nA sweep refuses a load above {share:.0}% of a core by these costs: rate x (request + tokens x event that\n\
         comes alone). See docs/calibration.md.\n"
    );
    text
}
