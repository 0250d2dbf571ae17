//! From a sealed trial's stored traces to its summary and its lines of `traces.jsonl`, in one pass.

use std::io::Write;
use std::path::Path;

use common::metrics::RequestMetrics;
use common::plan::ArrivalPlan;
use common::slo::{SloMetric, SloSet};
use common::summary::{Sample, Summariser, TrialInput};
use common::trace::{Facts, OutputTokens, Text, TokenSource, Trace};

use crate::kept::{KeptAgent, KeptRun, KeptTrial};
use crate::report::{TraceRow, TrialReport, write_trace};
use crate::retokenize::{Retokenizer, Uncountable};
use crate::store::RunStore;
use crate::sweep::PlannedTrial;
use crate::trial::seal::{SealError, ledger};

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
/// Without either the texts stay on disk. It waits for the disk.
///
/// # Errors
/// See [`AnalysisError`].
pub fn analyse(
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
        length: plan.length(),
        slos,
        agents: &agents,
        limits: kept.limits,
        findings: &trial.findings,
    };
    let mut selection = ledger(run, number, trial.epoch, trial.scheduled)?.selection();
    let mut summariser = Summariser::new(input);
    if !plan.is_stationary() {
        summariser = summariser.not_stationary();
    }
    let mut texts_read = TextsRead { tokenizer, uncounted: 0, why: None };
    for block in run.trial_blocks(number, trial.epoch).map_err(SealError::from)? {
        let block = block.map_err(SealError::from)?;
        let name = &block.header().agent;
        // A stranger's traces get a position that no agent has: the books will say so.
        let agent = agents.iter().position(|a| a.name == *name).map_or(u16::MAX, |p| p as u16);
        let clocks = block.clocks().map_err(SealError::from)?;
        let facts = block.facts().map_err(SealError::from)?;
        let wanted = lines.is_some() || tokenizer.is_some();
        let texts = if wanted { block.texts().map_err(SealError::from)? } else { Vec::new() };
        let mut texts = texts.into_iter();
        for (clocks, mut facts) in clocks.into_iter().zip(facts) {
            let text = texts.next();
            if !selection.counts(&facts) {
                continue;
            }
            let known = facts.output_tokens.count;
            let retokenized = texts_read.count(&mut facts, text.as_ref());
            if let Some((known, retokenized)) = known.zip(retokenized) {
                summariser.compare_retokenized(known, retokenized);
            }
            summariser.add(Sample { agent, clocks: &clocks, facts: &facts });
            if let (Some(Lines { out, path }), Some(text)) = (&mut lines, text) {
                let trace = Trace { clocks, facts, text };
                write_trace(out, TraceRow { trial: number, agent: name, trace: &trace, retokenized })
                    .map_err(|error| AnalysisError::Write { path: path.display().to_string(), error })?;
            }
        }
    }
    texts_read.say(trial);
    Ok(TrialReport {
        trial: number,
        rate,
        repeat,
        rerun_of,
        seed,
        schedule_sha256: trial.schedule_sha256,
        workload_sha256: trial.workload_sha256,
        summary: summariser.finish(),
        telemetry: None,
    })
}

/// The texts of a trial as a tokenizer counts them.
struct TextsRead<'a> {
    tokenizer: Option<&'a Retokenizer>,
    /// Successes whose text it refused, and why it refused the first.
    uncounted: u64,
    why: Option<Uncountable>,
}

impl TextsRead<'_> {
    /// The tokens of a success's text. Where its output tokens are unknown, they become that estimate.
    fn count(&mut self, facts: &mut Facts, text: Option<&Text>) -> Option<u64> {
        let tokenizer = self.tokenizer.filter(|_| facts.outcome.is_success())?;
        match tokenizer.count(text?) {
            Ok(counted) => {
                if let Some(n) = counted.filter(|_| facts.output_tokens.count.is_none()) {
                    facts.output_tokens =
                        OutputTokens { count: Some(n), source: TokenSource::RetokenizedText };
                }
                counted
            }
            // It is evidence that is missing: no reason to lose the trial's numbers.
            Err(e) => {
                self.uncounted += 1;
                self.why.get_or_insert(e);
                None
            }
        }
    }

    /// Says once what could not be counted.
    fn say(&self, trial: &KeptTrial) {
        if let Some(why) = &self.why {
            let (number, n) = (trial.planned.trial, self.uncounted);
            tracing::warn!("trial {number}: the tokenizer cannot count the text of {n} requests: {why}");
        }
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
    let mut texts_read = TextsRead { tokenizer, uncounted: 0, why: None };
    let metrics = [SloMetric::Ttft, SloMetric::Tpot, SloMetric::E2e];
    let mut samples: Vec<(SloMetric, Vec<f64>)> = metrics.map(|m| (m, Vec::new())).into();
    // Synthetic traces are failures: every success counts.
    for block in run.trial_blocks(trial.planned.trial, trial.epoch)? {
        let block = block?;
        let texts = if tokenizer.is_some() { block.texts()? } else { Vec::new() };
        for (i, (clocks, mut facts)) in block.clocks()?.iter().zip(block.facts()?).enumerate() {
            if facts.outcome.is_success() {
                texts_read.count(&mut facts, texts.get(i));
                let metrics = RequestMetrics::of(clocks, &facts);
                samples.iter_mut().for_each(|(metric, values)| values.extend(metrics.seconds(*metric)));
            }
        }
    }
    samples.iter_mut().for_each(|(_, values)| values.sort_unstable_by(f64::total_cmp));
    Ok(samples)
}
