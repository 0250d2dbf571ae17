//! Where the live view hears of traces and records as they arrive: a channel that never makes anybody wait.
//!
//! Who stores offers what it has stored; when the channel is full the offer is dropped and counted, and the live view
//! says so. Nothing is unpacked on the way in. It must never slow the ingest, nor hold more than a bound.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::ids::{AgentName, TrialId};
use common::trace::Facts;
use common::trace::segment::Block;
use tokio::sync::mpsc;

use super::request::StoredTraces;

/// Offers that wait for the live view: a second of ten thousand requests a second, and then some. With
/// [`MOST_BYTES`] each, 64 MiB at the most; ordinary ones have some kilobytes.
const WAITING: usize = 256;

/// A larger offer is not taken. Blocks are some kilobytes of clocks, frames a second of records.
const MOST_BYTES: usize = 256 << 10;

/// What was stored.
#[derive(Debug)]
pub enum Offer {
    /// Traces of a trial.
    Traces(TrialId, StoredTraces),
    /// Frames of records of an agent, as they came.
    Frames(AgentName, Vec<Vec<u8>>),
}

/// The end that is offered to. Clones share it.
#[derive(Debug, Clone)]
pub struct Tap {
    sender: mpsc::Sender<Offer>,
    dropped: Arc<AtomicU64>,
}

/// The end that takes.
#[derive(Debug)]
pub struct Outlet {
    offers: mpsc::Receiver<Offer>,
    dropped: Arc<AtomicU64>,
}

/// A channel to the live view.
#[must_use]
pub fn tap() -> (Tap, Outlet) {
    let (sender, offers) = mpsc::channel(WAITING);
    let dropped = Arc::new(AtomicU64::new(0));
    (Tap { sender, dropped: Arc::clone(&dropped) }, Outlet { offers, dropped })
}

impl Tap {
    /// A block that is about to be stored, made ready to be offered when it is.
    #[must_use]
    pub fn prepare(block: &Block, facts: Vec<Facts>) -> Offer {
        let header = block.header();
        let (agent, epoch) = (header.agent.clone(), header.epoch);
        Offer::Traces(header.trial, StoredTraces { agent, epoch, clocks: block.packed_clocks(), facts })
    }

    /// Offers what was stored.
    pub fn offer(&self, offer: Offer) {
        let bytes = match &offer {
            Offer::Traces(_, traces) => traces.clocks.len(),
            Offer::Frames(_, frames) => frames.iter().map(Vec::len).sum(),
        };
        if bytes > MOST_BYTES || self.sender.try_send(offer).is_err() {
            // Read one by one, for people.
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Outlet {
    /// The next offer; none when nobody can offer any more.
    pub async fn next(&mut self) -> Option<Offer> {
        self.offers.recv().await
    }

    /// How many were dropped since this was asked last.
    pub fn take_dropped(&self) -> u64 {
        self.dropped.swap(0, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_does_not_fit_is_dropped_and_counted_and_nobody_waits() {
        let (tap, mut outlet) = tap();
        let agent: AgentName = "a".parse().unwrap();
        let frames = |bytes: usize| Offer::Frames(agent.clone(), vec![vec![0; bytes]]);
        (0..WAITING + 7).for_each(|_| tap.offer(frames(1)));
        assert_eq!((outlet.take_dropped(), outlet.take_dropped()), (7, 0));
        assert!(outlet.next().await.is_some());
        tap.offer(frames(MOST_BYTES + 1));
        assert_eq!(outlet.take_dropped(), 1, "too large");
        tap.offer(frames(1));
        assert_eq!(outlet.take_dropped(), 0, "there is room again");
        drop(tap);
        for _ in 0..WAITING {
            assert!(outlet.next().await.is_some());
        }
        assert!(outlet.next().await.is_none());
    }
}
