//! From a sealed trial's stored traces to its summary and its lines of `traces.jsonl`, in one pass.

mod reading;
#[cfg(test)]
mod tests;

use std::io::Write;
use std::path::Path;

use common::ids::{AgentName, Nanos};
use common::metrics::RequestMetrics;
use common::plan::ArrivalPlan;
use common::slo::{SloMetric, SloSet};
use common::summary::{Gaps, Summariser, TrialInput};
use common::trace::Facts;

use crate::aside;
use crate::kept::{KeptAgent, KeptRun, KeptTrial};
use crate::record;
use crate::report::TrialReport;
use crate::retokenize::{Retokenizer, Uncountable};
use crate::store::{RunStore, Selection};
use crate::sweep::PlannedTrial;
use crate::trial::seal::{SealError, ledger};
use reading::{Decoded, Reading, Row};

/// Why a trial cannot be analysed.
#[derive(Debug, thiserror::Error)]
pub enum AnalysisError {
    /// The stored traces.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// The file of traces.
    #[error("{path}: {error}")]
    Write {
        /// Which.
        path: String,
        /// What the disk says.
        error: std::io::Error,
    },
}

/// Where the lines of traces go.
pub struct Lines<'a> {
    /// The file, buffered.
    pub out: &'a mut dyn Write,
    /// Its name, for errors.
    pub path: &'a Path,
}

/// Summarises a sealed trial against `slos` and, where `lines` are wanted, writes a line for each trace. With a
/// `tokenizer` the successes' texts are counted: what is unknown becomes that count, what is known is held against it.
/// Without either the texts stay as they are stored. It waits for the disk, and keeps all processors busy.
///
/// # Errors
/// See [`AnalysisError`].
pub fn analyse(
    run: &RunStore,
    kept: &KeptRun,
    slos: &SloSet,
    trial: &KeptTrial,
    lines: Option<Lines<'_>>,
    tokenizer: Option<&Retokenizer>,
) -> Result<TrialReport, AnalysisError> {
    analyse_on(aside::threads(), run, kept, slos, trial, lines, tokenizer)
}

/// The same on so many threads: no number depends on how many.
fn analyse_on(
    threads: usize,
    run: &RunStore,
    kept: &KeptRun,
    slos: &SloSet,
    trial: &KeptTrial,
    mut lines: Option<Lines<'_>>,
    tokenizer: Option<&Retokenizer>,
) -> Result<TrialReport, AnalysisError> {
    let PlannedTrial { trial: number, rate, repeat, seed, rerun_of } = trial.planned;
    let agents: Vec<_> = trial.agents.iter().map(KeptAgent::input).collect();
    let plan = ArrivalPlan { process: kept.process, rate, extent: kept.extent };
    let input = TrialInput {
        scheduled: trial.scheduled,
        offered: rate,
        length: trial.cut.map_or(plan.length(), |cut| Some(Nanos::from_secs_f64(cut.length_seconds))),
        slos,
        agents: &agents,
        limits: kept.limits,
        findings: &trial.findings,
    };
    let mut summariser = Summariser::new(input).threaded(threads > 1);
    let engines = record::engines(&kept.experiment);
    if engines.len() > 1 {
        summariser = summariser.over_engines(&engines, trial.schedule_sha256);
    }
    if !plan.is_stationary() {
        summariser = summariser.not_stationary();
    }
    let mut counting = Counting { run, trial, selection: None };
    let mut uncounted = Uncounted::default();
    let mut synthetic = Gaps::default();
    let counted = counted(trial);
    let reading =
        Reading { trial: number, tokenizer, lines: lines.is_some(), gaps: trial.gaps.is_none(), counted };
    let blocks = run.trial_blocks(number, trial.epoch).map_err(SealError::from)?;
    let gaps = reading.all(blocks, threads, |Decoded { agent, rows, lines: told }| {
        // A stranger's traces get a position that no agent has: the books will say so.
        let agent = agents.iter().position(|a| a.name == agent).map_or(u16::MAX, |p| p as u16);
        let mut next = 0;
        for row in rows {
            let line = next..next + row.line;
            next = line.end;
            if !counting.counts(&row.facts)? {
                continue;
            }
            if row.facts.index.0 < counted {
                if let Some((known, retokenized)) = row.compared {
                    summariser.compare_retokenized(known, retokenized);
                }
                uncounted.note(row.uncountable);
                summariser.take(agent, &row.metrics, &row.facts);
                synthetic.add(&row.metrics, row.gaps);
            }
            if let Some(Lines { out, path }) = &mut lines {
                out.write_all(told.get(line).unwrap_or_default())
                    .map_err(|error| AnalysisError::Write { path: path.display().to_string(), error })?;
            }
        }
        Ok::<_, AnalysisError>(())
    })?;
    uncounted.say(trial);
    summariser.take_gaps(trial.gaps.clone().map_or(gaps, Gaps::known));
    summariser.take_gaps(synthetic);
    Ok(TrialReport {
        trial: number,
        rate,
        repeat,
        rerun_of,
        seed,
        schedule_sha256: trial.schedule_sha256,
        workload_sha256: trial.workload_sha256,
        cut: trial.cut,
        summary: summariser.finish(),
        telemetry: None,
    })
}

/// Arrivals that count, from the first. What was sent after a cut, before its word came to the agent, is kept and does not.
pub(crate) fn counted(trial: &KeptTrial) -> u64 {
    trial.cut.map_or(u64::MAX, |_| trial.scheduled)
}

/// Says which traces count. Only of a synthetic one that takes a look at all others, so that it is taken when there is
/// one: few trials have any.
struct Counting<'a> {
    run: &'a RunStore,
    trial: &'a KeptTrial,
    selection: Option<Selection>,
}

impl Counting<'_> {
    fn counts(&mut self, facts: &Facts) -> Result<bool, SealError> {
        if !facts.synthetic {
            return Ok(true);
        }
        let selection = match &mut self.selection {
            Some(selection) => selection,
            None => {
                let KeptTrial { planned, epoch, scheduled, .. } = self.trial;
                let ledger = ledger(self.run, planned.trial, *epoch, *scheduled)?;
                self.selection.insert(ledger.selection())
            }
        };
        Ok(selection.counts(facts))
    }
}

/// Successes whose text the tokenizer refused, and why it refused the first.
#[derive(Default)]
struct Uncounted {
    traces: u64,
    why: Option<Uncountable>,
}

impl Uncounted {
    fn note(&mut self, why: Option<Uncountable>) {
        self.traces += u64::from(why.is_some());
        self.why = self.why.take().or(why);
    }

    /// Says once what could not be counted.
    fn say(&self, trial: &KeptTrial) {
        if let Some(why) = &self.why {
            let (number, n) = (trial.planned.trial, self.traces);
            tracing::warn!("trial {number}: the tokenizer cannot count the text of {n} requests: {why}");
        }
    }
}

/// Gives `take` each request of a sealed trial that counts, as [`analyse`] sees it with the same `tokenizer`: its agent, its
/// metrics and its facts. It waits for the disk.
///
/// # Errors
/// When the stored traces cannot be read.
pub fn each_request(
    run: &RunStore,
    trial: &KeptTrial,
    tokenizer: Option<&Retokenizer>,
    mut take: impl FnMut(&AgentName, &RequestMetrics, &Facts),
) -> Result<(), SealError> {
    let number = trial.planned.trial;
    let mut counting = Counting { run, trial, selection: None };
    let counted = counted(trial);
    let reading = Reading { trial: number, tokenizer, lines: false, gaps: false, counted };
    let blocks = run.trial_blocks(number, trial.epoch)?;
    reading.all(blocks, aside::threads(), |block| {
        for row in block.rows.iter().filter(|row| row.facts.index.0 < counted) {
            if counting.counts(&row.facts)? {
                take(&block.agent, &row.metrics, &row.facts);
            }
        }
        Ok::<_, SealError>(())
    })?;
    Ok(())
}

/// Gives `take` the line of `traces.jsonl` of each request of a sealed trial that counts, with its line end, as [`analyse`]
/// writes it with the same `tokenizer`. It waits for the disk.
///
/// # Errors
/// When the stored traces cannot be read, and what `take` gives.
pub fn each_line(
    run: &RunStore,
    trial: &KeptTrial,
    tokenizer: Option<&Retokenizer>,
    take: &mut dyn FnMut(&[u8]) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let number = trial.planned.trial;
    let mut counting = Counting { run, trial, selection: None };
    let reading = Reading { trial: number, tokenizer, lines: true, gaps: false, counted: counted(trial) };
    let blocks = run.trial_blocks(number, trial.epoch).map_err(std::io::Error::other)?;
    let taken = reading.all(blocks, aside::threads(), |block| {
        let mut next = 0;
        for row in &block.rows {
            let line = next..next + row.line;
            next = line.end;
            if counting.counts(&row.facts).map_err(LineError::Seal)? {
                take(block.lines.get(line).unwrap_or_default()).map_err(LineError::Take)?;
            }
        }
        Ok::<_, LineError>(())
    });
    match taken {
        Ok(_) => Ok(()),
        Err(LineError::Take(e)) => Err(e),
        Err(LineError::Seal(e)) => Err(std::io::Error::other(e)),
    }
}

/// What ends [`each_line`].
enum LineError {
    Seal(SealError),
    Take(std::io::Error),
}

impl From<SealError> for LineError {
    fn from(e: SealError) -> Self {
        Self::Seal(e)
    }
}

/// TTFT, TPOT and E2E of a sealed trial's successes, each sorted, in seconds; their tokens as [`analyse`] counts them
/// with the same `tokenizer`. It waits for the disk.
///
/// # Errors
/// When the stored traces cannot be read.
pub fn samples(
    run: &RunStore,
    trial: &KeptTrial,
    tokenizer: Option<&Retokenizer>,
) -> Result<Vec<(SloMetric, Vec<f64>)>, SealError> {
    let metrics = [SloMetric::Ttft, SloMetric::Tpot, SloMetric::E2e];
    let mut samples: Vec<(SloMetric, Vec<f64>)> = metrics.map(|m| (m, Vec::new())).into();
    let number = trial.planned.trial;
    let blocks = run.trial_blocks(number, trial.epoch)?;
    let counted = counted(trial);
    let reading = Reading { trial: number, tokenizer, lines: false, gaps: false, counted };
    reading.all(blocks, aside::threads(), |block| {
        // Synthetic traces are failures: every success counts.
        let counts = |row: &&Row| row.facts.outcome.is_success() && row.facts.index.0 < counted;
        for row in block.rows.iter().filter(counts) {
            samples.iter_mut().for_each(|(metric, values)| values.extend(row.metrics.seconds(*metric)));
        }
        Ok::<_, SealError>(())
    })?;
    samples.iter_mut().for_each(|(_, values)| values.sort_unstable_by(f64::total_cmp));
    Ok(samples)
}
