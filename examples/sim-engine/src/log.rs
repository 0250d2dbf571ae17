//! The request log: what arrived, when, and what became of it.
//!
//! Owns one entry per generation request, served as JSON by `GET /log` and cleared by `DELETE /log`. It is the
//! engine's own testimony, for tests that compare it with a load generator's. An entry never holds the value of an
//! Authorization header, only whether there was one. The number of entries is bounded: the oldest go first, and how
//! many went is said in the header `x-sim-log-dropped`.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::clock::{Clock, nanos};

/// How a request ended, as the engine sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Outcome {
    /// Not over yet.
    Open,
    /// Everything that the engine meant to send was handed to the socket; a fault is part of what it meant.
    Finished,
    /// The client went away first.
    Cancelled,
    /// Refused before generation.
    Rejected,
}

/// One request. Field names are the keys in `GET /log`.
#[derive(Debug, Serialize)]
pub(crate) struct Entry {
    /// Counted from 0 since the start; clearing does not reset it.
    pub(crate) number: u64,
    /// The header `x-request-id`.
    pub(crate) request_id: Option<String>,
    /// The header `x-plimsoll-agent`.
    pub(crate) agent: Option<String>,
    pub(crate) arrival_unix_ns: u64,
    /// Since the engine's start, monotonic. So are the other instants.
    pub(crate) arrival_ns: u64,
    pub(crate) connection: u64,
    pub(crate) path: &'static str,
    pub(crate) authorization: bool,
    pub(crate) model: Option<String>,
    pub(crate) stream: bool,
    pub(crate) max_tokens: Option<u32>,
    pub(crate) prompt_chars: Option<u64>,
    pub(crate) prompt_tokens: Option<u32>,
    pub(crate) fault: Option<&'static str>,
    pub(crate) outcome: Outcome,
    pub(crate) status: u16,
    pub(crate) finish_reason: Option<&'static str>,
    pub(crate) output_tokens: u32,
    pub(crate) first_token_ns: Option<u64>,
    pub(crate) ended_ns: Option<u64>,
    #[serde(skip)]
    pub(crate) body: Box<[u8]>,
}

/// An entry as it is printed: the body as it came when it is JSON, else as a string.
#[derive(Serialize)]
struct Printed<'a> {
    #[serde(flatten)]
    entry: &'a Entry,
    keys: Vec<String>,
    body: PrintedBody<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum PrintedBody<'a> {
    Json(&'a RawValue),
    Text(std::borrow::Cow<'a, str>),
}

#[derive(Debug, Default)]
struct Entries {
    kept: VecDeque<Entry>,
    next_number: u64,
    dropped: u64,
}

/// See the module's page.
#[derive(Debug)]
pub(crate) struct Log {
    entries: Mutex<Entries>,
    limit: usize,
    clock: Clock,
}

impl Log {
    pub(crate) fn new(limit: usize, clock: Clock) -> Self {
        Self { entries: Mutex::default(), limit: limit.max(1), clock }
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Files a request; the record's changes are written back when it is dropped.
    pub(crate) fn open(self: &Arc<Self>, mut entry: Entry) -> Record {
        let mut entries = self.lock();
        let number = entries.next_number;
        entry.number = number;
        entries.next_number += 1;
        if entries.kept.len() == self.limit {
            entries.kept.pop_front();
            entries.dropped += 1;
        }
        entries.kept.push_back(entry);
        Record {
            log: Arc::clone(self),
            number,
            outcome: Outcome::Cancelled,
            status: 0,
            finish_reason: None,
            output_tokens: 0,
            first_token: None,
            clock: self.clock,
        }
    }

    pub(crate) fn clear(&self) {
        let mut entries = self.lock();
        entries.kept.clear();
        entries.dropped = 0;
    }

    /// The array, and how many entries were dropped for want of room.
    pub(crate) fn print(&self) -> Result<(Vec<u8>, u64), serde_json::Error> {
        let entries = self.lock();
        let printed: Vec<_> = entries.kept.iter().map(print).collect();
        Ok((serde_json::to_vec(&printed)?, entries.dropped))
    }
}

fn print(entry: &Entry) -> Printed<'_> {
    let keys = serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(&entry.body);
    let keys = keys.map(|map| map.into_iter().map(|(key, _)| key).collect()).unwrap_or_default();
    let body = serde_json::from_slice::<&RawValue>(&entry.body)
        .map_or_else(|_| PrintedBody::Text(String::from_utf8_lossy(&entry.body)), PrintedBody::Json);
    Printed { entry, keys, body }
}

/// The open end of an entry. Dropped without a word, it says that the client went away.
#[derive(Debug)]
pub(crate) struct Record {
    log: Arc<Log>,
    number: u64,
    pub(crate) outcome: Outcome,
    pub(crate) status: u16,
    pub(crate) finish_reason: Option<&'static str>,
    pub(crate) output_tokens: u32,
    first_token: Option<Duration>,
    clock: Clock,
}

impl Record {
    /// So many tokens more are being handed to the socket.
    pub(crate) fn sent(&mut self, tokens: u32) {
        if self.first_token.is_none() {
            self.first_token = Some(self.clock.now());
        }
        self.output_tokens += tokens;
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let ended = nanos(self.clock.now());
        let mut entries = self.log.lock();
        let oldest = entries.kept.front().map_or(0, |entry| entry.number);
        let place = self.number.checked_sub(oldest).and_then(|place| usize::try_from(place).ok());
        let Some(entry) = place.and_then(|place| entries.kept.get_mut(place)) else { return };
        entry.outcome = self.outcome;
        entry.status = self.status;
        entry.finish_reason = self.finish_reason;
        entry.output_tokens = self.output_tokens;
        entry.first_token_ns = self.first_token.map(nanos);
        entry.ended_ns = Some(ended);
    }
}
