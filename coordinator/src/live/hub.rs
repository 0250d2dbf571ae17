//! The model, shared: who leads the run tells it, whoever shows it reads it.
//!
//! It is held for microseconds only, and never across a wait, so that neither a page nor a terminal can hold up the run.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use common::clock::Clock;
use common::ids::Nanos;
use common::telemetry::series;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use super::model::Model;
use super::tap::{Offer, Outlet};
use super::view::{Known, News};

/// Between two looks at the clock: half of what a reader notices.
const PULSE: Duration = Duration::from_millis(250);

/// What readers wait for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pulse {
    /// Pulses so far.
    pub number: u64,
    /// The run is over: nothing more comes.
    pub over: bool,
}

/// A model that several use. Clones share it.
#[derive(Clone)]
pub struct Hub(Arc<Inner>);

struct Inner {
    model: Mutex<Model>,
    clock: Arc<dyn Clock>,
    /// For those who wait for news.
    pulses: watch::Sender<Pulse>,
}

impl Hub {
    /// Shares a model.
    #[must_use]
    pub fn new(model: Model, clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(Inner { model: Mutex::new(model), clock, pulses: watch::channel(Pulse::default()).0 }))
    }

    fn model(&self) -> MutexGuard<'_, Model> {
        // A model is whole after every change, or nothing worse than a picture is wrong.
        self.0.model.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the model something that happens now.
    pub fn tell(&self, tell: impl FnOnce(&mut Model, Nanos)) {
        let now = self.0.clock.monotonic();
        tell(&mut self.model(), now);
    }

    /// Reads something of the model.
    pub fn read<T>(&self, read: impl FnOnce(&Model, Nanos) -> T) -> T {
        let now = self.0.clock.monotonic();
        read(&self.model(), now)
    }

    /// What a reader lacks.
    #[must_use]
    pub fn news(&self, known: Known) -> News {
        self.read(|model, now| model.news(known, now))
    }

    /// Hears of time passing, four times a second, and of the end of the run.
    #[must_use]
    pub fn pulses(&self) -> watch::Receiver<Pulse> {
        self.0.pulses.subscribe()
    }

    /// Time passed: readers are woken.
    pub fn pulse(&self) {
        self.tell(|model, now| model.tick(now));
        self.0.pulses.send_modify(|pulse| pulse.number += 1);
    }

    /// The run is over: every reader is told at once.
    pub fn over(&self, outcome: &str) {
        self.tell(|model, now| model.over(outcome, now));
        self.0.pulses.send_modify(|pulse| pulse.over = true);
    }

    /// Takes what is stored from `outlet`, and looks at the clock now and then, until it is dropped.
    pub async fn follow(self, mut outlet: Outlet) {
        let mut pulse = interval(PULSE);
        pulse.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut open = true;
        loop {
            tokio::select! {
                _ = pulse.tick() => {
                    let dropped = outlet.take_dropped();
                    self.tell(|model, now| model.missed(dropped, now));
                    self.pulse();
                }
                offer = outlet.next(), if open => match offer {
                    Some(offer) => self.take(offer),
                    None => open = false,
                },
            }
        }
    }

    fn take(&self, offer: Offer) {
        match offer {
            // Unpacked before the model is held.
            Offer::Traces(trial, traces) => {
                let slos = self.read(|model, _| model.slos().clone());
                let finished = traces.finished(&slos);
                self.tell(|model, _| model.finished(trial, &finished));
            }
            Offer::Frames(agent, frames) => {
                for frame in frames.iter().filter_map(|bytes| series::decode(bytes).ok()) {
                    self.tell(|model, now| model.records(&agent, &frame.0.records, now));
                }
            }
        }
    }
}
