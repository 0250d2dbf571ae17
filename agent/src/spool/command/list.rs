//! `agent spool ls`: a table for people, JSON for programs.

use std::fmt::Write as _;
use std::os::unix::fs::MetadataExt;

use common::clock::{Clock, SystemClock};
use common::disk::OsDisk;
use common::ids::Nanos;
use serde::Serialize;

use super::{Holding, ListOptions, look, out};
use crate::spool::held::Segment;

/// The table's columns: the heading, and whether it is of numbers, which stand at the right.
const COLUMNS: [(&str, bool); 9] = [
    ("RUN", false),
    ("TRIAL", true),
    ("AGENT", false),
    ("PROCESS", false),
    ("SEGMENTS", true),
    ("TRACES", true),
    ("BYTES", true),
    ("STATE", false),
    ("AGE", true),
];
/// The widest line.
const WIDTH: usize = 100;
/// The columns of names, which are shortened where lines are too long, and how far at most.
const NAMES: [(usize, usize); 2] = [(0, 16), (2, 8)];

/// What `--json` prints. Described in docs/schemas/spool.schema.json: a field changes there first.
#[derive(Debug, Serialize)]
pub(super) struct Listing {
    schema_version: &'static str,
    spool: String,
    agents: Vec<AgentLine>,
    segments: Vec<SegmentLine>,
}

#[derive(Debug, Serialize)]
struct AgentLine {
    agent: String,
    in_use: bool,
}

#[derive(Debug, Serialize)]
struct SegmentLine {
    run_id: String,
    trial: u32,
    epoch: u32,
    agent: String,
    incarnation: String,
    path: String,
    traces: u64,
    first_seq: Option<u64>,
    next_seq: Option<u64>,
    bytes: u64,
    torn_bytes: u64,
    sealed: bool,
    age_seconds: f64,
}

pub(super) fn run(options: &ListOptions) -> anyhow::Result<u8> {
    let holdings = look(&OsDisk, &options.place)?;
    let listing = listing(&options.place.spool.display().to_string(), &holdings, SystemClock.wall());
    if options.json {
        out(&serde_json::to_string_pretty(&listing)?);
    } else {
        out(table(&listing).trim_end());
    }
    for holding in holdings.iter().filter(|_| !options.json) {
        if let Some(holder) = &holding.in_use {
            eprintln!("note: {} is in use by a running agent ({holder})", holding.dir.display());
        }
    }
    Ok(0)
}

/// Since a file was last written, by the wall clock; 0 when that is in the future.
fn age(segment: &Segment, now: Nanos) -> Nanos {
    let written = std::fs::metadata(&segment.path).ok().map(|m| {
        let seconds = Nanos::from_secs(u64::try_from(m.mtime()).unwrap_or(0));
        seconds + Nanos(u64::try_from(m.mtime_nsec()).unwrap_or(0))
    });
    written.map_or(Nanos::ZERO, |written| now.since(written))
}

pub(super) fn listing(spool: &str, holdings: &[Holding], now: Nanos) -> Listing {
    let agents = holdings
        .iter()
        .map(|h| AgentLine { agent: h.agent.to_string(), in_use: h.in_use.is_some() })
        .collect();
    let line = |s: &Segment| SegmentLine {
        run_id: s.run.to_string(),
        trial: s.origin.trial.0,
        epoch: s.origin.epoch.0,
        agent: s.origin.agent.to_string(),
        incarnation: format!("{:016x}", s.origin.incarnation.0),
        path: s.path.display().to_string(),
        traces: s.traces,
        first_seq: s.first().map(|seq| seq.0),
        next_seq: s.next().map(|seq| seq.0),
        bytes: s.bytes,
        torn_bytes: s.torn_bytes,
        sealed: s.sealed,
        age_seconds: age(s, now).as_secs_f64(),
    };
    let segments = holdings.iter().flat_map(|h| &h.segments).map(line).collect();
    Listing { schema_version: "1", spool: spool.to_owned(), agents, segments }
}

/// A line for each trial of an agent process.
pub(super) fn table(listing: &Listing) -> String {
    if listing.segments.is_empty() {
        return format!("{} holds no traces\n", listing.spool);
    }
    let mut rows: Vec<[String; COLUMNS.len()]> = vec![COLUMNS.map(|(name, _)| name.to_owned())];
    let key = |s: &SegmentLine| (s.run_id.clone(), s.trial, s.agent.clone(), s.incarnation.clone());
    for group in listing.segments.chunk_by(|a, b| key(a) == key(b)) {
        let Some(first) = group.first() else { continue };
        let sum = |of: fn(&SegmentLine) -> u64| group.iter().map(of).sum::<u64>();
        let youngest = group.iter().map(|s| s.age_seconds).fold(f64::INFINITY, f64::min);
        rows.push([
            first.run_id.clone(),
            first.trial.to_string(),
            first.agent.clone(),
            // As much as tells processes of one agent apart; --json has all of it.
            first.incarnation[..8].to_owned(),
            group.len().to_string(),
            sum(|s| s.traces).to_string(),
            bytes(sum(|s| s.bytes)),
            if group.iter().all(|s| s.sealed) { "sealed" } else { "unsealed" }.to_owned(),
            length(youngest),
        ]);
    }
    for (column, least) in NAMES {
        let widths = widths(&rows);
        let excess = (widths.iter().sum::<usize>() + 2 * (COLUMNS.len() - 1)).saturating_sub(WIDTH);
        let most = widths[column].saturating_sub(excess).max(least);
        rows.iter_mut().for_each(|row| row[column] = shortened(&row[column], most));
    }
    let widths = widths(&rows);
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for ((cell, width), (_, right)) in row.iter().zip(widths).zip(COLUMNS) {
            let _ = if right { write!(line, "{cell:>width$}  ") } else { write!(line, "{cell:<width$}  ") };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn widths(rows: &[[String; COLUMNS.len()]]) -> [usize; COLUMNS.len()] {
    std::array::from_fn(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
}

/// The end of a name tells more than its middle: both ends stay.
fn shortened(name: &str, most: usize) -> String {
    if name.len() <= most {
        return name.to_owned();
    }
    // Names are ASCII.
    let (head, tail) = ((most - 1).div_ceil(2), (most - 1) / 2);
    format!("{}~{}", &name[..head], &name[name.len() - tail..])
}

fn bytes(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1024.0 && unit + 1 < units.len() {
        (value, unit) = (value / 1024.0, unit + 1);
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", units[unit]) }
}

fn length(seconds: f64) -> String {
    let whole = seconds as u64;
    match whole {
        0..120 => format!("{whole} s"),
        120..7200 => format!("{} min", whole / 60),
        7200..172_800 => format!("{} h", whole / 3600),
        _ => format!("{} d", whole / 86_400),
    }
}
