//! From what is kept of a run to the points of its page. One more look at the stored traces, and at what was recorded.

use std::path::Path;

use common::ids::Nanos;
use common::telemetry::Record;

use super::points::{Collector, Points, TrialPoints, percentiles, room};
use super::{lines, write_page};
use crate::analysis::each_request;
use crate::kept::KeptTrial;
use crate::out;
use crate::report::{Report, TrialReport};
use crate::retokenize::Retokenizer;
use crate::store::{AgentSeries, RunStore};
use crate::telemetry::placed;
use crate::trial::seal::SealError;

/// Where points come from.
#[derive(Clone, Copy)]
pub struct Sources<'a> {
    /// The run.
    pub run: &'a RunStore,
    /// Its sealed trials.
    pub trials: &'a [KeptTrial],
    /// How often the coordinator's host was restarted in its course.
    pub restarts: usize,
    /// Counts text, where the report's numbers were counted so.
    pub tokenizer: Option<&'a Retokenizer>,
}

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// What is stored.
    #[error("the traces for report.html cannot be read: {0}")]
    Read(#[from] SealError),
    /// The file.
    #[error(transparent)]
    Write(#[from] std::io::Error),
}

/// Writes the page of a report to a file, which has its name only when it is whole. It waits for the disk.
///
/// # Errors
/// When what is stored cannot be read, or the file cannot be written.
pub fn write_file(path: &Path, report: &Report, sources: Sources<'_>) -> Result<(), PageError> {
    let points = gather(report, sources)?;
    Ok(write_gathered(path, report, &points)?)
}

/// The same, of points that are there: no more than a file's writing, for whoever watches how long the disk takes.
///
/// # Errors
/// When the file cannot be written.
pub fn write_gathered(path: &Path, report: &Report, points: &Points) -> std::io::Result<()> {
    out::whole(path, |file| write_page(file, report, points))
}

/// The points of a report's page. It waits for the disk.
///
/// # Errors
/// When what is stored cannot be read.
pub fn gather(report: &Report, sources: Sources<'_>) -> Result<Points, SealError> {
    let limits = report.slos.each_request().map(|(metric, limit)| (metric.name(), limit.as_secs_f64()));
    let mut points =
        Points { limits_seconds: limits.collect(), percentiles: percentiles(), ..Points::default() };
    let boots: Result<Vec<_>, _> =
        (0..=sources.restarts).map(|boot| sources.run.telemetry_series_of(boot)).collect();
    let boots = boots.map_err(SealError::from)?;
    for (number, trial) in report.trials.iter().enumerate() {
        points.requests += trial.summary.requests;
        let kept = sources.trials.iter().find(|t| t.planned.trial == trial.trial);
        let (Some(kept), Some(room)) = (kept, room(report.trials.len(), number)) else {
            points.trials_left_out += 1;
            continue;
        };
        // Without numbers its books do not hold: there is nothing to show.
        let Some(numbers) = &trial.summary.numbers else { continue };
        let mut collector =
            Collector::new(trial.trial, trial.summary.requests, numbers.duration_seconds, room);
        each_request(sources.run, kept, sources.tokenizer, |agent, metrics, facts| {
            collector.take(agent, metrics, facts);
        })?;
        let mut shown = collector.finish();
        if let Some((start, series)) = kept.start.zip(boots.get(kept.boot)) {
            record(&mut shown, series, start, trial, numbers.duration_seconds);
            lines::thinned(&mut shown.lines, report.trials.len());
        }
        points.shown += shown.columns.index.len() as u64;
        points.trials.push(shown);
    }
    Ok(points)
}

/// Adds what the trial's agents recorded within its window.
fn record(shown: &mut TrialPoints, series: &[AgentSeries], start: Nanos, trial: &TrialReport, seconds: f64) {
    // Without a window in the report nothing was recorded.
    if trial.telemetry.is_none() {
        return;
    }
    for agent in series {
        let records: Vec<(Option<f64>, Record)> = placed(agent, start, seconds);
        shown.lines.extend(lines::lines(agent.agent(), &records));
    }
}
