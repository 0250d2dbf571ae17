//! `coordinator export`: tables of a kept run, for other programs. Nothing is sent.

use anyhow::bail;

use super::options::{ExportFormat, ExportOptions, ExportTable};
use super::terminal::{say, tell};
use super::{browse, planning, usage};
use crate::analysis::analyse;
use crate::export::{Format, Source, Table, export as write};
use crate::kept::KeptRun;
use crate::report::{Report, TrialReport};
use crate::store::RunState;
use crate::telemetry;

/// Writes the tables asked for.
pub(super) fn export(options: &ExportOptions) -> anyhow::Result<u8> {
    let tokenizer = match planning::tokenizer(options.tokenizer.as_deref()) {
        Ok(tokenizer) => tokenizer,
        Err(e) => return Ok(usage(&e)),
    };
    let store = browse::open(&options.data)?;
    let run = browse::find(&store, &options.run)?;
    if browse::capture_of(&run)?.is_some() {
        bail!("{} is a capture, which has no traces; all of it is in its telemetry.jsonl", run.id());
    }
    let kept = KeptRun::read(&run)?;
    if kept.trials.is_empty() {
        bail!("run {} has no sealed trial", run.id());
    }
    if tokenizer.is_some() && !kept.has_text() {
        bail!("--tokenizer counts kept text, and run {} was made with --no-text", run.id());
    }
    if run.record()?.state != RunState::Finished {
        tell!("note: the run was not finished; its {} sealed trials are exported", kept.trials.len());
    }
    // Every row stands with the verdict of its trial, so those are found first.
    let mut trials: Vec<TrialReport> = Vec::with_capacity(kept.trials.len());
    for trial in &kept.trials {
        trials.push(analyse(&run, &kept, &kept.slos, trial, None, tokenizer.as_ref())?);
    }
    telemetry::attach(&run, &kept, &mut trials)?;
    let report =
        Report::new(run.id().clone(), kept.experiment.clone(), kept.slos.clone(), kept.slo_target, trials);
    let folder = options.out.clone().unwrap_or_else(|| run.dir().join("export"));
    let source = Source { run: &run, kept: &kept, tokenizer: tokenizer.as_ref() };
    let tables = tables(&options.what);
    let written = write(&source, &report, &tables, format(options.format), &folder)?;
    for table in &tables {
        match written.iter().find(|w| w.table == table.name()) {
            Some(w) => say!("wrote {} ({} rows)", folder.join(&w.file).display(), w.rows),
            None => tell!("note: {}: nothing of it was recorded in this run; there is no file", table.name()),
        }
    }
    Ok(0)
}

fn format(format: ExportFormat) -> Format {
    match format {
        ExportFormat::Csv => Format::Csv,
        ExportFormat::Parquet => Format::Parquet,
        ExportFormat::Jsonl => Format::Jsonl,
    }
}

/// Each table once, in the order of [`Table::ALL`].
fn tables(asked: &[ExportTable]) -> Vec<Table> {
    let is_asked = |table: &Table| {
        let option = match table {
            Table::Trials => ExportTable::Trials,
            Table::Traces => ExportTable::Traces,
            Table::Events => ExportTable::Events,
            Table::Power => ExportTable::Power,
            Table::Gpu => ExportTable::Gpu,
            Table::Host => ExportTable::Host,
            Table::Engine => ExportTable::Engine,
            Table::Incidents => ExportTable::Incidents,
        };
        asked.contains(&option) || asked.contains(&ExportTable::All)
    };
    Table::ALL.into_iter().filter(is_asked).collect()
}
