//! `sim`: runs seeds, side by side, and says what was done and what did not hold.

use std::cell::RefCell;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc;

use clap::Parser;
use common::simulated::Sabotage;
use sim::table::Table;
use sim::world::{self, Found};

/// Runs a fleet in virtual time under faults, from seeds.
#[derive(Debug, Clone, Parser)]
struct Options {
    /// How many seeds
    #[arg(long, default_value_t = 200)]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// How many run at the same time [default: one for each core]
    #[arg(long)]
    jobs: Option<usize>,
    /// Disturb nothing
    #[arg(long)]
    undisturbed: bool,
    /// Break this promise, and end well when a seed notices
    #[arg(long, value_name = "PROMISE")]
    sabotage: Option<String>,
    /// Break every promise in turn, and end well when each is noticed
    #[arg(long, conflicts_with = "sabotage")]
    sabotages: bool,
    /// Put the table into this file, between its markers
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Tell what happens in each seed
    #[arg(long)]
    story: bool,
    /// Run every seed twice: all that happens must be the same
    #[arg(long)]
    twice: bool,
    /// End at the first seed that fails
    #[arg(long)]
    first: bool,
    /// How this program starts itself: tells what came of each seed in JSON
    #[arg(long, hide = true)]
    worker: bool,
    /// From one seed to the next
    #[arg(long, hide = true, default_value_t = 1)]
    step: usize,
}

thread_local! {
    /// Panics of this thread, which a runtime would swallow.
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

fn main() -> ExitCode {
    let options = Options::parse();
    let sabotage = match options.sabotage.as_deref().map(promise).transpose() {
        Ok(sabotage) => sabotage,
        Err(e) => {
            eprintln!("sim: {e}");
            return ExitCode::from(2);
        }
    };
    if options.worker {
        return work(&options, sabotage);
    }
    if options.sabotages {
        return break_all(&options);
    }
    let table = seeds(&options, sabotage.is_some());
    let page = table.render();
    print!("{page}");
    if let Some(path) = &options.write
        && let Err(e) = write(path, &page)
    {
        eprintln!("sim: {}: {e}", path.display());
        return ExitCode::FAILURE;
    }
    match (sabotage, table.failed().is_empty()) {
        (None, true) => ExitCode::SUCCESS,
        (Some(_), false) => {
            println!("noticed: {}", options.sabotage.unwrap_or_default());
            ExitCode::SUCCESS
        }
        (Some(what), true) => {
            eprintln!("sim: {what:?} was not noticed in {} seeds", options.seeds);
            ExitCode::FAILURE
        }
        (None, false) => ExitCode::FAILURE,
    }
}

/// Virtual time, for the log.
struct VirtualTime;

impl tracing_subscriber::fmt::time::FormatTime for VirtualTime {
    fn format_time(&self, w: &mut tracing_subscriber::fmt::format::Writer<'_>) -> std::fmt::Result {
        write!(w, "{:>10.3} s", sim::clock::elapsed_seconds())
    }
}

/// Runs seeds; with `until_one_fails` no longer than that.
fn seeds(options: &Options, until_one_fails: bool) -> Table {
    let mut table = Table::default();
    let mut workers = Workers::start(options);
    while let Some((seed, found)) = workers.next() {
        let failed = !found.broken.is_empty();
        report(seed, &found, options);
        table.add(seed, found);
        if table.seeds() % SAY_EVERY == 0 {
            eprintln!("sim: {} of {} seeds, {} failed", table.seeds(), options.seeds, table.failed().len());
        }
        if failed && (options.first || until_one_fails) {
            break;
        }
    }
    let all_well = workers.end();
    let cut_short = options.first || until_one_fails;
    if !cut_short && (table.seeds() != options.seeds || !all_well) {
        eprintln!(
            "sim: a process that runs seeds ended early; {} of {} are there",
            table.seeds(),
            options.seeds
        );
        std::process::exit(3);
    }
    table
}

/// Breaks one promise after the other, and says whether that was noticed.
fn break_all(options: &Options) -> ExitCode {
    let mut unnoticed = 0;
    for (name, _) in Sabotage::ALL {
        let options = Options { sabotage: Some(name.to_owned()), ..options.clone() };
        match seeds(&options, true).failed().first() {
            Some(seed) => println!("{name}: noticed, by seed {seed}\n"),
            None => {
                unnoticed += 1;
                println!("{name}: NOT noticed in {} seeds\n", options.seeds);
            }
        }
    }
    if unnoticed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Seeds from one line about the progress to the next.
const SAY_EVERY: u64 = 500;

const BEGIN: &str = "<!-- make sim writes from here -->";
const END: &str = "<!-- make sim: to here -->";

/// Puts the page between its markers.
fn write(path: &Path, page: &str) -> std::io::Result<()> {
    let text = std::fs::read_to_string(path)?;
    let missing = || std::io::Error::other(format!("no line {BEGIN} … {END}"));
    let (before, rest) = text.split_once(BEGIN).ok_or_else(missing)?;
    let (_, after) = rest.split_once(END).ok_or_else(missing)?;
    std::fs::write(path, format!("{before}{BEGIN}\n\n{page}\n{END}{after}"))
}

/// Runs seeds and tells what came of each, a line each.
fn work(options: &Options, sabotage: Option<Sabotage>) -> ExitCode {
    std::panic::set_hook(Box::new(|info| PANICS.with_borrow_mut(|all| all.push(info.to_string()))));
    break_promise(sabotage);
    // RUST_LOG shows what the program itself says, to stderr.
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "off".into());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_timer(VirtualTime)
        .with_writer(std::io::stderr)
        .init();
    for seed in (options.from..options.from.saturating_add(options.seeds)).step_by(options.step) {
        let Ok(line) = serde_json::to_string(&(seed, one(seed, options))) else { return ExitCode::FAILURE };
        println!("{line}");
    }
    ExitCode::SUCCESS
}

/// Processes that run seeds: tasks of a process have numbers that all its threads count, and on which the order of things
/// depends.
struct Workers {
    children: Vec<Child>,
    lines: mpsc::Receiver<String>,
}

impl Workers {
    fn start(options: &Options) -> Self {
        let jobs =
            options.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
        let jobs = jobs.clamp(1, usize::try_from(options.seeds).unwrap_or(usize::MAX).max(1));
        let (sender, lines) = mpsc::sync_channel(64);
        let mut children = Vec::new();
        for number in 0..jobs as u64 {
            let Ok(mut child) = command(options, number, jobs).stdout(Stdio::piped()).spawn() else {
                continue;
            };
            if let Some(out) = child.stdout.take() {
                let sender = sender.clone();
                std::thread::spawn(move || {
                    BufReader::new(out).lines().map_while(Result::ok).for_each(|line| _ = sender.send(line));
                });
            }
            children.push(child);
        }
        Self { children, lines }
    }

    fn next(&mut self) -> Option<(u64, Found)> {
        loop {
            let line = self.lines.recv().ok()?;
            match serde_json::from_str(&line) {
                Ok(found) => return Some(found),
                Err(_) => println!("{line}"),
            }
        }
    }

    /// Ends those that still run. Whether the others ended well.
    fn end(self) -> bool {
        drop(self.lines);
        let mut well = true;
        for mut child in self.children {
            // One that has closed its output is about to end by itself.
            for _ in 0..20 {
                if !matches!(child.try_wait(), Ok(None)) {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
            match child.try_wait() {
                Ok(Some(status)) => well &= status.success(),
                _ => {
                    let _ = child.kill();
                    let _ = child.wait();
                }
            }
        }
        well
    }
}

/// This program, as one of so many workers.
fn command(options: &Options, number: u64, jobs: usize) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap_or_else(|_| "sim".into()));
    let seeds = options.seeds.saturating_sub(number);
    command.args(["--worker", "--from", &(options.from + number).to_string(), "--seeds", &seeds.to_string()]);
    command.args(["--step", &jobs.to_string()]);
    command.args(options.sabotage.iter().flat_map(|what| ["--sabotage", what]));
    for (flag, given) in [("--undisturbed", options.undisturbed), ("--twice", options.twice)] {
        command.args(given.then_some(flag));
    }
    command
}

fn promise(name: &str) -> Result<Sabotage, String> {
    if !cfg!(feature = "sabotage") {
        return Err("--sabotage needs a build with the feature of that name".to_owned());
    }
    let known = || Sabotage::ALL.map(|(name, _)| name).join(", ");
    let found = Sabotage::ALL.into_iter().find(|(known, _)| *known == name);
    found.map(|(_, what)| what).ok_or_else(|| format!("--sabotage {name}: there are {}", known()))
}

#[cfg(feature = "sabotage")]
fn break_promise(what: Option<Sabotage>) {
    common::simulated::sabotage(what);
}

#[cfg(not(feature = "sabotage"))]
fn break_promise(_: Option<Sabotage>) {}

/// One seed, or the same one twice.
fn one(seed: u64, options: &Options) -> Found {
    let mut found = once(seed, options.undisturbed);
    if options.twice {
        let again = once(seed, options.undisturbed);
        if again.digest != found.digest {
            found.broken.push("the same seed went another way the second time".to_owned());
        }
    }
    found
}

fn once(seed: u64, undisturbed: bool) -> Found {
    let folder = match tempfile::tempdir() {
        Ok(folder) => folder,
        Err(e) => return Found { broken: vec![format!("no folder for results: {e}")], ..Found::default() },
    };
    let path: &Path = folder.path();
    let ran = std::panic::catch_unwind(|| world::run(seed, path, undisturbed));
    let mut found = ran.unwrap_or_default();
    found.broken.extend(PANICS.with_borrow_mut(std::mem::take).into_iter().map(|p| format!("a panic: {p}")));
    found
}

fn report(seed: u64, found: &Found, options: &Options) {
    if options.story || (!found.broken.is_empty() && options.seeds == 1) {
        for (at, told) in &found.told {
            println!("{:>10.3} s  {told}", *at as f64 / 1e9);
        }
    }
    if options.story {
        println!("seed {seed}: {} s of virtual time, digest {}", found.seconds, found.digest);
    }
    if !found.broken.is_empty() {
        let of = options.sabotage.as_ref().map_or_else(String::new, |s| format!(" --sabotage {s}"));
        println!("seed {seed} fails (again: make sim SIM=\"--from {seed} --seeds 1 --story{of}\"):");
        found.broken.iter().take(6).for_each(|broken| println!("    {broken}"));
        if found.broken.len() > 6 {
            println!("    and {} more", found.broken.len() - 6);
        }
    }
}
