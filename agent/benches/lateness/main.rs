//! How late requests are sent and reads are stamped: the real binaries against a simulated engine, beside the pacer
//! alone in a process with nothing else to do.
//!
//! `make bench`, or `cargo bench -p agent --bench lateness` after
//! `cargo build --release -p coordinator -p agent -p sim-engine`. Pacer and trial take turns, because what a
//! neighbour does to one it will mostly do to the other; what is printed are medians over the turns. It is the ratio
//! that says something of the agent. Engine, agent and coordinator share this machine: on a host of its own a
//! generator does better.

#[path = "../support/bare.rs"]
mod bare;
mod pacer;
#[path = "../support/quick.rs"]
mod quick;
mod trial;

use trial::{Engine, Lateness, Trial};

/// Arrivals a second.
const RATES: [u32; 3] = [50, 200, 1000];

/// Length of each schedule.
const SECONDS: u64 = 4;

/// Turns of pacer and trial.
const TURNS: usize = 3;

fn main() -> anyhow::Result<()> {
    let turns_each = quick::turns(TURNS);
    let engine = Engine::start()?;
    println!(
        "lateness in us, {SECONDS} s of Poisson arrivals, responses of 16 tokens; medians of {turns_each} turns"
    );
    println!(
        "| arrivals/s | what               | n a turn |    p50 |    p99 |     max | p99 / bare pacer (min-max) |"
    );
    println!(
        "| ---------- | ------------------ | -------- | ------ | ------ | ------- | -------------------------- |"
    );
    for rate in RATES {
        let mut turns = Vec::with_capacity(turns_each);
        for turn in 0..turns_each {
            let bare = pacer::alone(rate, SECONDS)?;
            turns.push((bare, engine.trial(rate, SECONDS, turn)?));
        }
        line(rate, "bare pacer", &turns, |(bare, _)| *bare);
        line(rate, "dispatch", &turns, |(_, trial)| trial.dispatch);
        line(rate, "read (1 ms canary)", &turns, |(_, trial)| trial.read);
        let verdicts: Vec<&str> = turns.iter().map(|(_, trial)| trial.verdict.as_str()).collect();
        let cpu = middle(turns.iter().map(|(_, trial)| trial.agent_cpu).collect());
        println!("| {rate:>10} | {}; agent CPU {:.0}% of a core |", verdicts.join(", "), cpu * 100.0);
    }
    Ok(())
}

type Turn = (Lateness, Trial);

fn line(rate: u32, what: &str, turns: &[Turn], of: fn(&Turn) -> Lateness) {
    let us = |value: fn(&Lateness) -> f64| middle(turns.iter().map(|turn| value(&of(turn)) * 1e6).collect());
    let mut ratios: Vec<f64> = turns.iter().map(|turn| of(turn).p99 / turn.0.p99).collect();
    ratios.sort_unstable_by(f64::total_cmp);
    let ratio = format!("{:.1} ({:.1}-{:.1})", ratios[ratios.len() / 2], ratios[0], ratios[ratios.len() - 1]);
    println!(
        "| {rate:>10} | {what:<18} | {:>8} | {:>6.0} | {:>6.0} | {:>7.0} | {ratio:>26} |",
        turns.first().map_or(0, |turn| of(turn).n),
        us(|l| l.p50),
        us(|l| l.p99),
        us(|l| l.max),
    );
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}
