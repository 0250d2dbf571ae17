//! `sim`: runs seeds, side by side, and says what was done and what did not hold.

use std::cell::RefCell;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
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
    /// Tell what happens in each seed
    #[arg(long)]
    story: bool,
    /// Run every seed twice: all that happens must be the same
    #[arg(long)]
    twice: bool,
    /// End at the first seed that fails
    #[arg(long)]
    first: bool,
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
    std::panic::set_hook(Box::new(|info| PANICS.with_borrow_mut(|all| all.push(info.to_string()))));
    let jobs = options.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let (results, found) = mpsc::sync_channel::<(u64, Found)>(64);
    let next = AtomicU64::new(options.from);
    let (end, most) = (AtomicU64::new(0), options.from.saturating_add(options.seeds));
    let mut table = Table::default();
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            let (results, next, end, options) = (results.clone(), &next, &end, &options);
            scope.spawn(move || {
                break_promise(sabotage);
                while end.load(Ordering::Relaxed) == 0 {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= most || results.send((seed, one(seed, options))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(results);
        for (seed, found) in found {
            let failed = !found.broken.is_empty();
            report(seed, &found, &options);
            table.add(seed, found);
            if failed && (options.first || sabotage.is_some()) {
                end.store(1, Ordering::Relaxed);
            }
        }
    });
    print!("{}", table.render());
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
    if !found.broken.is_empty() {
        let of = options.sabotage.as_ref().map_or_else(String::new, |s| format!(" --sabotage {s}"));
        println!("seed {seed} fails (again: make sim SIM=\"--from {seed} --seeds 1 --story{of}\"):");
        found.broken.iter().take(6).for_each(|broken| println!("    {broken}"));
        if found.broken.len() > 6 {
            println!("    and {} more", found.broken.len() - 6);
        }
    }
}
