//! The keys and values of the index.
//!
//! ```text
//! v                                                        -> FORMAT, one byte
//! r run 0                                                  -> RunRecord
//! e run 0 number:u64                                       -> RunEvent
//! m run 0 agent 0 incarnation:u64                          -> next Seq expected
//! b run 0 trial:u32 epoch:u32 agent 0 incarnation:u64 first_seq:u64 -> BlockEntry
//! s run 0                                                  -> Cursor: up to where the segments are indexed
//! ```
//! Numbers in keys are big-endian, so that keys sort as numbers do. Names never contain a zero byte (see
//! `common::ids`), so one ends them without doubt. Values are postcard: variants and fields are only ever added at
//! the end, or [`FORMAT`] changes.

use common::ids::{AgentName, Epoch, Incarnation, Nanos, RunId, Seq, TrialId};
use common::trace::segment::BlockHeader;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::error::IndexError;

/// Key under which the format's number stands.
pub(super) const VERSION: &[u8] = b"v";

/// The number of this format.
pub(super) const FORMAT: u8 = 1;

/// Where a block lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BlockEntry {
    /// Number of the segment file.
    pub(crate) file: u32,
    /// Of its first byte.
    pub(crate) offset: u64,
    /// Bytes, frame included.
    pub(crate) length: u32,
    /// Traces.
    pub(crate) count: u32,
}

/// A position in a run's segment files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Cursor {
    /// Number of the segment file.
    pub(crate) file: u32,
    /// Bytes of it that are indexed.
    pub(crate) offset: u64,
}

/// What the index knows of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRecord {
    /// Wall clock when the run was made; none when the index was rebuilt, for segments do not say.
    pub created: Option<Nanos>,
    /// What became of it.
    pub state: RunState,
}

/// What became of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunState {
    /// It is running, or its coordinator was lost.
    Running,
    /// Every trial was sealed.
    Finished,
    /// It was ended before its last trial.
    Interrupted,
    /// The index was lost and rebuilt: traces are there, the log of events is not.
    Rebuilt,
}

fn key(kind: u8, run: &RunId) -> Vec<u8> {
    let mut key = vec![kind];
    push_name(&mut key, run.as_str());
    key
}

fn push_name(key: &mut Vec<u8>, name: &str) {
    key.extend_from_slice(name.as_bytes());
    key.push(0);
}

/// Prefixes of everything that the index knows of a run.
pub(super) fn all_of(run: &RunId) -> [Vec<u8>; 5] {
    [b'r', b'e', b'm', b'b', b's'].map(|kind| key(kind, run))
}

/// Prefix of all run records.
pub(super) const RUNS: &[u8] = b"r";

pub(super) fn run(run: &RunId) -> Vec<u8> {
    key(b'r', run)
}

/// The run that a key of [`RUNS`] names.
pub(super) fn run_of(key: &[u8]) -> Option<RunId> {
    let name = key.strip_prefix(RUNS)?.strip_suffix(&[0])?;
    std::str::from_utf8(name).ok()?.parse().ok()
}

pub(super) fn events(run: &RunId) -> Vec<u8> {
    key(b'e', run)
}

pub(super) fn event(run: &RunId, number: u64) -> Vec<u8> {
    let mut key = events(run);
    key.extend_from_slice(&number.to_be_bytes());
    key
}

/// The number in an event's key.
pub(super) fn event_number(key: &[u8]) -> Option<u64> {
    let (_, number) = key.split_last_chunk::<8>()?;
    Some(u64::from_be_bytes(*number))
}

pub(super) fn cursor(run: &RunId) -> Vec<u8> {
    key(b's', run)
}

pub(super) fn marks(run: &RunId) -> Vec<u8> {
    key(b'm', run)
}

pub(super) fn mark(run: &RunId, agent: &AgentName, incarnation: Incarnation) -> Vec<u8> {
    let mut key = marks(run);
    push_name(&mut key, agent.as_str());
    key.extend_from_slice(&incarnation.0.to_be_bytes());
    key
}

/// The agent process that a mark's key names; `prefix` is that of [`marks`].
pub(super) fn mark_of(prefix: &[u8], key: &[u8]) -> Option<(AgentName, Incarnation)> {
    let (name, incarnation) = key.strip_prefix(prefix)?.split_last_chunk::<8>()?;
    let name = std::str::from_utf8(name.strip_suffix(&[0])?).ok()?;
    Some((name.parse().ok()?, Incarnation(u64::from_be_bytes(*incarnation))))
}

/// Prefix of all of a run's blocks.
pub(super) fn blocks(run: &RunId) -> Vec<u8> {
    key(b'b', run)
}

/// Prefix of a trial's blocks under one epoch.
pub(super) fn trial_blocks(run: &RunId, trial: TrialId, epoch: Epoch) -> Vec<u8> {
    let mut key = blocks(run);
    key.extend_from_slice(&trial.0.to_be_bytes());
    key.extend_from_slice(&epoch.0.to_be_bytes());
    key
}

pub(super) fn block(run: &RunId, header: &BlockHeader) -> Vec<u8> {
    let mut key = trial_blocks(run, header.trial, header.epoch);
    push_name(&mut key, header.agent.as_str());
    key.extend_from_slice(&header.incarnation.0.to_be_bytes());
    key.extend_from_slice(&header.first_seq.0.to_be_bytes());
    key
}

/// The epoch in a block's key; `prefix` is that of [`blocks`].
pub(super) fn epoch_of(prefix: &[u8], key: &[u8]) -> Option<Epoch> {
    let bytes = key.strip_prefix(prefix)?.get(4..8)?.try_into().ok()?;
    Some(Epoch(u32::from_be_bytes(bytes)))
}

/// The agent process in a block's key, and the number of the block's first trace; `prefix` is that of [`blocks`].
pub(super) fn process_of(prefix: &[u8], key: &[u8]) -> Option<((AgentName, Incarnation), Seq)> {
    let (rest, first) = key.strip_prefix(prefix)?.get(8..)?.split_last_chunk::<8>()?;
    let process = mark_of(&[], rest)?;
    Some((process, Seq(u64::from_be_bytes(*first))))
}

/// A value as it stands in the index.
pub(super) fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    // Writing to memory cannot fail, and every type here has a length that postcard can know.
    postcard::to_stdvec(value).unwrap_or_default()
}

/// A value from the index; `what` names it where it cannot be read.
pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8], what: &'static str) -> Result<T, IndexError> {
    postcard::from_bytes(bytes).map_err(|_| IndexError::Value { what })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_id(s: &str) -> RunId {
        s.parse().unwrap()
    }

    /// A run whose name begins with another's name shares no key with it.
    #[test]
    fn a_prefix_selects_one_run() {
        assert!(!event(&run_id("ab"), 0).starts_with(&events(&run_id("a"))));
        assert!(event(&run_id("a"), 0).starts_with(&events(&run_id("a"))));
    }

    #[test]
    fn keys_sort_as_numbers_do_and_read_back() {
        let run = run_id("r-1");
        assert!(event(&run, 255) < event(&run, 256));
        assert_eq!(event_number(&event(&run, 256)), Some(256));
        let agent: AgentName = "gpu.1".parse().unwrap();
        let key = mark(&run, &agent, Incarnation(0));
        assert_eq!(mark_of(&marks(&run), &key), Some((agent.clone(), Incarnation(0))));
        assert_eq!(run_of(&super::run(&run)), Some(run.clone()));
        let header = BlockHeader {
            agent,
            incarnation: Incarnation(7),
            trial: TrialId(1),
            epoch: Epoch(258),
            first_seq: Seq(0),
            count: 1,
            columns: [0; 3],
        };
        assert_eq!(epoch_of(&blocks(&run), &block(&run, &header)), Some(Epoch(258)));
        let process = (header.agent.clone(), Incarnation(7));
        assert_eq!(process_of(&blocks(&run), &block(&run, &header)), Some((process, Seq(0))));
    }
}
