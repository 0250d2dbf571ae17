//! The command line: shares the work out among workers, and gathers what they say.

use std::io::{BufRead, BufReader};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::channel;

use clap::Parser;
use cluster::page::{Done, Page};
use cluster::scenarios::{self, Undisturbed};
use cluster::{chaos, net, stage};
use common::clock::{Clock, SystemClock};
use common::seed::Seed;

/// Runs real coordinators, agents and engines on network namespaces of one machine, and lets things go wrong.
///
/// Needs root; without, it says so and ends with 0. Ends with 3 when something did not hold.
#[derive(Debug, Parser)]
#[command(name = "cluster")]
struct Options {
    /// Sweeps in which a random process is killed or stopped.
    #[arg(long, value_name = "N", default_value_t = 0)]
    kills: u64,

    /// Of what is done in them.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Only this round of them.
    #[arg(long, value_name = "N")]
    round: Option<u64>,

    /// Only scenarios of these names, separated by commas; none: no scenarios.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,

    /// Only the short scenarios.
    #[arg(long)]
    short: bool,

    /// Fleets at the same time.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..))]
    jobs: u64,

    /// Write the tables between the markers of this page, too.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,

    /// Which of so many workers this is: for `cluster` itself.
    #[arg(long, hide = true, num_args = 2)]
    worker: Option<Vec<u64>>,
}

/// What is to be done, in order.
enum Task {
    Scenario(usize),
    Chaos(u64),
}

impl Options {
    fn tasks(&self) -> Vec<Task> {
        let wanted = |s: &scenarios::Scenario| {
            (!self.short || s.short) && (self.only.is_empty() || self.only.iter().any(|name| name == s.name))
        };
        let played = scenarios::all()
            .iter()
            .enumerate()
            .filter(|(_, s)| wanted(s))
            .map(|(i, _)| i)
            .collect::<Vec<_>>();
        let rounds = self.round.map_or(0..self.kills, |round| round..round + 1);
        played.into_iter().map(Task::Scenario).chain(rounds.map(Task::Chaos)).collect()
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let known = scenarios::all();
    if let Some(name) =
        options.only.iter().find(|n| *n != "none" && known.iter().all(|s| s.name != n.as_str()))
    {
        let names: Vec<&str> = known.iter().map(|s| s.name).collect();
        eprintln!("cluster: there is no scenario {name}; there are {}", names.join(", "));
        return ExitCode::from(2);
    }
    match options.worker.as_deref() {
        Some([worker, of]) => {
            work(&options, *worker, *of);
            ExitCode::SUCCESS
        }
        _ => lead(&options),
    }
}

/// Starts the workers and gathers what they say.
fn lead(options: &Options) -> ExitCode {
    if let Some(why) = stage::missing() {
        println!("********************************************************************************");
        println!("SKIPPED: the fault tests with real processes were not run: {why}");
        println!("********************************************************************************");
        return ExitCode::SUCCESS;
    }
    let began = SystemClock.monotonic();
    let tasks = options.tasks().len();
    let jobs = options.jobs.min(tasks as u64);
    eprintln!("cluster: {tasks} things to do, {jobs} at a time; seed {}", options.seed);
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (said, heard) = channel();
    let mut workers = Vec::new();
    for worker in 0..jobs {
        let words = [&words[..], &["--worker".into(), worker.to_string(), jobs.to_string()]].concat();
        let mut child = stage::start(&words);
        let (out, said) = (child.stdout.take(), said.clone());
        std::thread::spawn(move || {
            for line in out.map(BufReader::new).into_iter().flat_map(BufRead::lines).map_while(Result::ok) {
                let _ = said.send(line);
            }
        });
        workers.push(child);
    }
    drop(said);
    let mut page = Page::default();
    for line in heard {
        match serde_json::from_str::<Done>(&line) {
            Ok(done) => {
                page.add(done);
                eprintln!("cluster: {} of {tasks}", page.done());
            }
            Err(_) => eprintln!("{line}"),
        }
    }
    let ended_well = workers.iter_mut().all(|w| w.wait().is_ok_and(|status| status.success()));
    println!("{}", page.text(Seed(options.seed)));
    println!("{:.0} s", (SystemClock.monotonic() - began).as_secs_f64());
    let mut failures = page.failures();
    if !ended_well || page.done() != tasks {
        failures.push(format!("a worker ended early: {} of {tasks} things were done", page.done()));
    }
    if let Some(path) = &options.write
        && let Err(e) = page.write(path, Seed(options.seed))
    {
        failures.push(e);
    }
    failures.iter().for_each(|why| eprintln!("failed: {why}"));
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(3) }
}

/// On a stage: does this worker's part.
fn work(options: &Options, worker: u64, of: u64) {
    stage::enter();
    net::lay();
    let undisturbed = scenarios::undisturbed();
    let known = scenarios::all();
    for (_, task) in options.tasks().into_iter().enumerate().filter(|(i, _)| *i as u64 % of == worker) {
        let began = SystemClock.monotonic();
        let done = match task {
            Task::Scenario(place) => {
                let scenario = &known[place];
                let held = caught(|| (scenario.play)(&undisturbed));
                Done::Scenario(place, scenario.name.into(), scenario.fault.into(), held)
            }
            Task::Chaos(round) => Done::Chaos(chaos(options, round, &undisturbed)),
        };
        let took = (SystemClock.monotonic() - began).as_secs_f64();
        match &done {
            Done::Scenario(_, name, _, Ok(held)) => eprintln!("ok     {name}, {took:.0} s: {held}"),
            Done::Scenario(_, name, _, Err(why)) => eprintln!("FAILED {name}, {took:.0} s: {why}"),
            Done::Chaos(Ok(round)) => eprintln!("ok     round {}, {took:.0} s: {round:?}", round.round),
            Done::Chaos(Err((round, why))) => eprintln!(
                "FAILED round {round}, {took:.0} s (again: --seed {} --only none --round {round}): {why}",
                options.seed
            ),
        }
        match serde_json::to_string(&done) {
            Ok(line) => println!("{line}"),
            Err(e) => eprintln!("cluster: {e}"),
        }
    }
}

fn chaos(options: &Options, round: u64, undisturbed: &Undisturbed) -> Result<chaos::Round, (u64, String)> {
    let planned: Vec<String> =
        chaos::faults(Seed(options.seed), round).iter().map(ToString::to_string).collect();
    eprintln!("round {round}: {}", planned.join(", then "));
    caught(|| chaos::round(Seed(options.seed), round, undisturbed)).map_err(|why| (round, why))
}

/// What panicked, in words.
fn caught<T>(what: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(what)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()))
            .unwrap_or_else(|| "it panicked".into())
    })
}
