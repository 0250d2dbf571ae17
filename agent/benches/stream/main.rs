//! What reading a stream costs the agent: CPU time per content event, beside a bare reader of the same bytes.
//!
//! `cargo bench -p agent --bench stream`. Three take turns on one core, the server has another one: the agent's client, a
//! bare HTTP connection of a library that drops what it reads, and a bare socket. Every turn is measured in CPU time of the
//! reading thread; what is printed are medians over the turns. The ratios hold on another machine sooner than the
//! microseconds do.

#[expect(dead_code, reason = "the pacing bench uses the rest of it")]
mod cpu;
#[path = "../support/quick.rs"]
mod quick;
mod readers;
mod server;
#[path = "../support/mod.rs"]
mod support;
mod wire;

use readers::Cost;
use server::Pace;

/// Turns of client and floor.
const TURNS: usize = 3;

/// A way for responses to leave, over so many connections, so many on each.
struct Case {
    name: &'static str,
    pace: Pace,
    connections: usize,
    rounds: usize,
}

const CASES: [Case; 6] = [
    Case { name: "one write", pace: Pace::OneWrite, connections: 16, rounds: 300 },
    Case { name: "a write each", pace: Pace::EachWrite, connections: 16, rounds: 60 },
    Case { name: "10 ms, in step", pace: Pace::InStep, connections: 64, rounds: 2 },
    Case { name: "10 ms, in step", pace: Pace::InStep, connections: 256, rounds: 2 },
    Case { name: "10 ms, spread", pace: Pace::Spread(64), connections: 64, rounds: 2 },
    Case { name: "10 ms, spread", pace: Pace::Spread(256), connections: 256, rounds: 2 },
];

fn main() -> anyhow::Result<()> {
    let turns_each = quick::turns(TURNS);
    let (ours, theirs) = cpu::cores();
    cpu::pin(ours);
    println!("CPU per content event, responses of {} events, medians of {turns_each} turns", wire::EVENTS);
    println!(
        "| a response's events | connections | agent us | http us | floor us | agent / http    | agent / floor   | events a read |"
    );
    println!(
        "| ------------------- | ----------- | -------- | ------- | -------- | --------------- | --------------- | ------------- |"
    );
    for case in CASES {
        let port = server::start(case.pace, wire::EVENTS, theirs)?;
        let mut turns: Vec<[Cost; 3]> = Vec::with_capacity(turns_each);
        for _ in 0..turns_each {
            let floor = readers::floor(port, case.connections, case.rounds)?;
            let http = readers::http(port, case.connections, case.rounds)?;
            turns.push([readers::client(port, case.connections, case.rounds)?, http, floor]);
        }
        let cost = |which: usize| middle(&sorted(turns.iter().map(|t| t[which].us_per_event()).collect()));
        let ratio = |to: usize| {
            let all = sorted(turns.iter().map(|t| t[0].us_per_event() / t[to].us_per_event()).collect());
            format!("{:.2} ({:.2}-{:.2})", middle(&all), all[0], all[all.len() - 1])
        };
        println!(
            "| {:<19} | {:>11} | {:>8.2} | {:>7.2} | {:>8.2} | {:>15} | {:>15} | {:>13.1} |",
            case.name,
            case.connections,
            cost(0),
            cost(1),
            cost(2),
            ratio(1),
            ratio(2),
            middle(&sorted(turns.iter().map(|t| t[0].events_per_read()).collect())),
        );
    }
    let parser = (0..turns_each).map(|_| readers::parser(1000).map(|c| c.us_per_event()));
    let parser = sorted(parser.collect::<anyhow::Result<_>>()?);
    println!("the client's parser alone (SSE, JSON, trace; no socket, no HTTP): {:.2} us", middle(&parser));
    Ok(())
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_unstable_by(f64::total_cmp);
    values
}

fn middle(sorted: &[f64]) -> f64 {
    sorted[sorted.len() / 2]
}
