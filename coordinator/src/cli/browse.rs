//! Looking at runs that are over: `report`, `runs`, `rm`. Nothing is sent.

use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use common::disk::OsDisk;
use common::ids::RunId;
use common::slo::{SloSet, Target as SloTarget};

use super::options::{Format, ReportOptions, RmOptions, RunsOptions};
use super::terminal::{self, say, tell};
use super::{planning, usage};
use crate::analysis::{Lines, analyse, samples};
use crate::kept::KeptRun;
use crate::report::{Report, TrialReport, html, render_table, render_window, to_json};
use crate::retokenize::Retokenizer;
use crate::store::{RunRecord, RunState, RunStore, Store};
use crate::telemetry;

/// Stands for the latest run.
const LATEST: &str = "latest";

/// Opens the data directory of runs that exist: a mistyped one must not be made.
pub(super) fn open(data: &Path) -> anyhow::Result<Store> {
    if !data.join("runs").is_dir() {
        bail!("--data {}: no runs are kept there", data.display());
    }
    Ok(Store::open(data, Arc::new(OsDisk))?)
}

pub(super) fn find(store: &Store, run: &str) -> anyhow::Result<RunStore> {
    let id: RunId = if run == LATEST {
        let runs = store.runs()?;
        runs.last().map(|(id, _)| id.clone()).ok_or_else(|| anyhow!("no runs are kept yet"))?
    } else {
        run.parse()?
    };
    Ok(store.run(&id)?)
}

/// What a capture left; none when the run is none.
pub(super) fn capture_of(run: &RunStore) -> anyhow::Result<Option<serde_json::Value>> {
    if run.dir().join("run.json").exists() {
        return Ok(None);
    }
    let path = run.dir().join("capture.json");
    match std::fs::read(&path) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes).with_context(|| path.display().to_string())?)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => bail!(
            "run {} has neither trials nor a capture: it ended before its first trial; see `coordinator runs`",
            run.id()
        ),
        Err(e) => Err(e).with_context(|| path.display().to_string()),
    }
}

/// A capture has a window and no trials: there is nothing to compute again.
fn show_capture(capture: &serde_json::Value, format: Format) -> anyhow::Result<u8> {
    match format {
        Format::Text => {
            let window = serde_json::from_value(capture["window"].clone()).context("capture.json")?;
            terminal::out(format_args!("{}", render_window(&window)));
        }
        Format::Json => say!("{capture:#}"),
        Format::Jsonl => bail!("this is a capture, which has no traces; see its telemetry.jsonl"),
    }
    Ok(0)
}

/// Computes a kept run's report again, with other objectives if any are given.
pub(super) fn report(options: &ReportOptions) -> anyhow::Result<u8> {
    let asked = percentiles(&options.percentiles).and_then(|percentiles| {
        let target = options.objectives.slo_target.as_deref().map(str::parse::<SloTarget>).transpose();
        let target = target.map_err(|e| anyhow!("--slo-target: {e}"))?;
        let tokenizer = planning::tokenizer(options.tokenizer.as_deref())?;
        Ok((percentiles, planning::objectives(&options.objectives)?, target, tokenizer))
    });
    let (percentiles, given, target, tokenizer) = match asked {
        Ok(asked) => asked,
        Err(e) => return Ok(usage(&e)),
    };
    let store = open(&options.data)?;
    let run = find(&store, &options.run)?;
    if let Some(capture) = capture_of(&run)? {
        if options.html.is_some() {
            bail!("--html: {} is a capture, which has no trials to show", run.id());
        }
        return show_capture(&capture, options.format);
    }
    let mut kept = KeptRun::read(&run)?;
    if kept.trials.is_empty() {
        bail!("run {} has no sealed trial", run.id());
    }
    if tokenizer.is_some() && !kept.has_text() {
        bail!("--tokenizer counts kept text, and run {} was made with --no-text", run.id());
    }
    // The record says what counted the numbers beside it.
    let counted_by = kept.set_tokenizer(tokenizer.as_ref());
    if let Some(file) = counted_by.filter(|_| tokenizer.is_none()) {
        tell!("note: the run's own report counted its text with {file}; --tokenizer does so again");
    }
    let slos: SloSet = given.unwrap_or_else(|| kept.slos.clone());
    let target = target.unwrap_or(kept.slo_target);
    // A search has no order beforehand.
    let planned = kept.experiment["plan"]["trial_order"].as_array().map(Vec::len).filter(|n| *n > 0);
    if run.record()?.state != RunState::Finished {
        let of = planned.map_or_else(String::new, |planned| format!(" of {planned}"));
        tell!("note: the run was not finished; {}{of} trials are sealed", kept.trials.len());
    }
    let stdout = std::io::stdout();
    let mut out = BufWriter::new(stdout.lock());
    let mut trials: Vec<TrialReport> = Vec::with_capacity(kept.trials.len());
    for trial in &kept.trials {
        let lines = (options.format == Format::Jsonl)
            .then_some(Lines { out: &mut out, path: Path::new("standard output") });
        trials.push(analyse(&run, &kept, &slos, trial, lines, tokenizer.as_ref())?);
    }
    telemetry::attach(&run, &kept, &mut trials)?;
    let report = Report::new(run.id().clone(), kept.experiment.clone(), slos, target, trials);
    if let Some(path) = &options.html {
        let (trials, restarts) = (&kept.trials, kept.restarts());
        let sources = html::Sources { run: &run, trials, restarts, tokenizer: tokenizer.as_ref() };
        html::write_file(path, &report, sources).context("--html")?;
        tell!("wrote {}", path.display());
    }
    match options.format {
        Format::Text => {
            write!(out, "{}", render_table(&report))?;
            if !percentiles.is_empty() {
                write_percentiles(&mut out, &run, &kept, &percentiles, tokenizer.as_ref())?;
            }
        }
        Format::Json => write!(out, "{}", to_json(&report)?)?,
        Format::Jsonl => {}
    }
    match out.flush() {
        // Whoever reads has seen enough.
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(0),
        flushed => flushed.map(|()| 0).context("standard output"),
    }
}

fn percentiles(given: &[f64]) -> anyhow::Result<Vec<f64>> {
    match given.iter().find(|p| !(0.0..=100.0).contains(*p)) {
        Some(bad) => Err(anyhow!("--percentiles {bad}: a percentile lies between 0 and 100")),
        None => Ok(given.to_vec()),
    }
}

/// The percentiles asked for, of each trial's successes.
fn write_percentiles(
    out: &mut impl Write,
    run: &RunStore,
    kept: &KeptRun,
    wanted: &[f64],
    tokenizer: Option<&Retokenizer>,
) -> anyhow::Result<()> {
    let names: Vec<String> = wanted.iter().map(|p| format!("p{p}")).collect();
    let heads: String = names.iter().map(|n| format!(" {n:>10}")).collect();
    writeln!(out, "\n{:<28} {:>8}{heads}   (successes, ms)", "trial", "n")?;
    for trial in &kept.trials {
        for (metric, sorted) in samples(run, trial, tokenizer)? {
            let title = format!("{} at {}/s {}", trial.planned.trial, trial.planned.rate, metric.name());
            write!(out, "{title:<28} {:>8}", sorted.len())?;
            for p in wanted {
                match common::stats::percentile(&sorted, *p) {
                    Some(seconds) => write!(out, " {:>10.3}", seconds * 1e3)?,
                    None => write!(out, " {:>10}", "–")?,
                }
            }
            writeln!(out)?;
        }
    }
    Ok(())
}

/// Lists what is kept.
pub(super) fn runs(options: &RunsOptions) -> anyhow::Result<u8> {
    let store = open(&options.data)?;
    say!("{:<24} {:<20} {:<12} {:>6}  rates", "run", "made (UTC)", "state", "trials");
    for (id, record) in store.runs()? {
        let kept = store.run(&id).ok().and_then(|run| KeptRun::read(&run).ok());
        let trials = kept.as_ref().map_or("–".to_owned(), |k| k.trials.len().to_string());
        let rates = kept.map(|k| rates(&k)).unwrap_or_default();
        say!("{:<24} {:<20} {:<12} {trials:>6}  {rates}", id.as_str(), made(&record), state(record.state));
    }
    Ok(0)
}

fn rates(kept: &KeptRun) -> String {
    let mut rates: Vec<_> = kept.trials.iter().map(|t| t.planned.rate).collect();
    rates.sort_by(|a, b| a.per_second().unwrap_or(f64::MAX).total_cmp(&b.per_second().unwrap_or(f64::MAX)));
    rates.dedup();
    rates.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn made(record: &RunRecord) -> String {
    let stamp = record.created.and_then(|t| jiff::Timestamp::from_nanosecond(i128::from(t.0)).ok());
    stamp.map_or("unknown".into(), |t| t.strftime("%Y-%m-%d %H:%M:%S").to_string())
}

fn state(state: RunState) -> &'static str {
    match state {
        RunState::Running => "unfinished",
        RunState::Finished => "finished",
        RunState::Interrupted => "interrupted",
        RunState::Rebuilt => "rebuilt",
    }
}

/// Forgets runs.
pub(super) fn rm(options: &RmOptions) -> anyhow::Result<u8> {
    let store = open(&options.data)?;
    for run in &options.runs {
        // Not `latest`: what is removed should be named.
        let id: RunId = run.parse()?;
        store.remove_run(&id)?;
        say!("removed {id}");
    }
    Ok(0)
}
