//! What the null engine remembers of its answers: three instants each, for whoever holds a client's clocks against them.
//!
//! Bounded: the newest [`KEPT`] answers, and how many older ones had to go.

use std::collections::VecDeque;
use std::io::Write;

use common::ids::Nanos;
use serde::{Deserialize, Serialize};

/// Answers that are remembered: some 50 MB at most.
pub const KEPT: usize = 1 << 18;

/// One answer, by `CLOCK_MONOTONIC` of the engine's host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrival {
    /// `x-request-id`; empty without one.
    pub id: Box<str>,
    /// When the read returned that made the request whole.
    pub read_ns: u64,
    /// When the write was called that took the first content event.
    pub first_ns: u64,
    /// When the write was called that took the last one.
    pub last_ns: u64,
    /// Content events.
    pub events: u32,
}

/// The answers of late.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    kept: VecDeque<Arrival>,
    dropped: u64,
}

impl Arrivals {
    pub(super) fn extend(&mut self, arrivals: impl IntoIterator<Item = Arrival>) {
        arrivals.into_iter().for_each(|arrival| self.push(arrival));
    }

    fn push(&mut self, arrival: Arrival) {
        if self.kept.len() == KEPT {
            self.kept.pop_front();
            self.dropped += 1;
        }
        self.kept.push_back(arrival);
    }

    pub(super) fn clear(&mut self) {
        self.kept.clear();
        self.dropped = 0;
    }

    /// How many had to go.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// A line of JSON for each, in the order in which they ended.
    pub(super) fn write(&self, mut to: impl Write) -> std::io::Result<()> {
        for arrival in &self.kept {
            serde_json::to_writer(&mut to, arrival)?;
            to.write_all(b"\n")?;
        }
        to.flush()
    }
}

/// Where an answer stands.
#[derive(Debug, Default)]
pub(super) struct Stamps {
    pub(super) id: Box<str>,
    pub(super) read: Nanos,
    pub(super) first: Option<Nanos>,
    pub(super) last: Nanos,
}

impl Stamps {
    /// A write of a content event is called now.
    pub(super) fn write(&mut self, now: Nanos) {
        self.first.get_or_insert(now);
        self.last = now;
    }

    pub(super) fn end(self, events: u32) -> Arrival {
        let Self { id, read, first, last } = self;
        Arrival { id, read_ns: read.0, first_ns: first.unwrap_or(last).0, last_ns: last.0, events }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_kept_and_the_rest_is_counted() {
        let mut arrivals = Arrivals::default();
        for n in 0..KEPT as u64 + 3 {
            arrivals.push(Arrival { id: "a\"b".into(), read_ns: n, first_ns: n, last_ns: n, events: 1 });
        }
        assert_eq!(arrivals.dropped(), 3);
        let mut text = Vec::new();
        arrivals.write(&mut text).unwrap();
        let lines: Vec<Arrival> =
            String::from_utf8(text).unwrap().lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!((lines.len(), lines[0].read_ns, &*lines[0].id), (KEPT, 3, "a\"b"));
        arrivals.clear();
        assert_eq!(arrivals.dropped(), 0);
    }
}
