//! Runs the engine model under the wall clock.
//!
//! Owns the [`Engine`], the thread that sleeps until its next deadline, and one small mailbox per sequence that
//! says how many tokens are ready. The thread exists because an async timer rounds to whole milliseconds and a
//! decode step must not.
//!
//! Must never do I/O, and never wait for a reader: a mailbox holds a count, so a slow client costs no memory and
//! stalls nobody. A [`Ticket`] that is dropped cancels its sequence.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::clock::Clock;
use crate::engine::{Engine, Job, Output, QueueFull, SeqId, Stats, Timing};
use crate::latency::Latencies;

/// What a sequence has ready.
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    tokens: u32,
    cached_tokens: u32,
}

#[derive(Debug)]
struct Mailbox {
    progress: watch::Sender<Progress>,
    arrival: Duration,
    /// The instant of its newest token.
    last: Option<Duration>,
}

#[derive(Debug)]
struct State {
    engine: Engine,
    mailboxes: HashMap<SeqId, Mailbox>,
    latencies: Latencies,
    next_id: u64,
    stopped: bool,
}

#[derive(Debug)]
struct Shared {
    clock: Clock,
    state: Mutex<State>,
    changed: Condvar,
}

impl State {
    fn deliver(&mut self, output: &Output) {
        let Some(mailbox) = self.mailboxes.get_mut(&output.id) else { return };
        match mailbox.last {
            None => self.latencies.first_token(output.at.saturating_sub(mailbox.arrival)),
            Some(last) => self.latencies.next_tokens(output.at.saturating_sub(last)),
        }
        mailbox.last = Some(output.at);
        mailbox.progress.send_modify(|progress| {
            progress.tokens += output.tokens;
            progress.cached_tokens = output.cached_tokens;
        });
        if output.finished {
            self.latencies.whole_request(output.at.saturating_sub(mailbox.arrival));
            self.mailboxes.remove(&output.id);
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The engine thread: hand out what is due, sleep until more is.
    fn run(&self) {
        let mut state = self.lock();
        while !state.stopped {
            let now = self.clock.now();
            for output in state.engine.on_time(now) {
                state.deliver(&output);
            }
            state = match state.engine.next_deadline() {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(due) => {
                    let pause = due.saturating_sub(self.clock.now());
                    self.changed.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

/// The engine and its thread. Dropping it ends the thread.
#[derive(Debug)]
pub(crate) struct Driver {
    shared: Arc<Shared>,
}

impl Driver {
    pub(crate) fn start(timing: Timing, clock: Clock) -> std::io::Result<Self> {
        let state = State {
            engine: Engine::new(timing),
            mailboxes: HashMap::new(),
            latencies: Latencies::default(),
            next_id: 0,
            stopped: false,
        };
        let shared = Arc::new(Shared { clock, state: Mutex::new(state), changed: Condvar::new() });
        let runner = Arc::clone(&shared);
        std::thread::Builder::new().name("engine".into()).spawn(move || runner.run())?;
        Ok(Self { shared })
    }

    /// Submits a job that arrived at `arrival` on the driver's clock. Its id is the driver's to choose.
    pub(crate) fn submit(&self, arrival: Duration, job: Job) -> Result<Ticket, QueueFull> {
        let mut state = self.shared.lock();
        let before = state.engine.next_deadline();
        let id = SeqId(state.next_id);
        state.engine.submit(arrival, Job { id, ..job })?;
        state.next_id += 1;
        let (mailbox, progress) = watch::channel(Progress::default());
        state.mailboxes.insert(id, Mailbox { progress: mailbox, arrival, last: None });
        if state.engine.next_deadline() != before {
            self.shared.changed.notify_one();
        }
        Ok(Ticket { id, progress, shared: Arc::clone(&self.shared) })
    }

    /// What the engine does and has done, and how long it took.
    pub(crate) fn observe(&self) -> (Stats, Latencies) {
        let state = self.shared.lock();
        (state.engine.stats(), state.latencies.clone())
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.shared.lock().stopped = true;
        self.shared.changed.notify_one();
    }
}

/// A sequence in the engine.
#[derive(Debug)]
pub(crate) struct Ticket {
    id: SeqId,
    progress: watch::Receiver<Progress>,
    shared: Arc<Shared>,
}

impl Ticket {
    /// Waits until at least `tokens` are ready. Returns at once when the sequence ended short of that.
    pub(crate) async fn reach(&mut self, tokens: u32) {
        // An error says that the engine dropped the mailbox: the sequence is over.
        let _ = self.progress.wait_for(|progress| progress.tokens >= tokens).await;
    }

    /// Tokens of its prompt that were in the prefix cache; known with the first token.
    pub(crate) fn cached_tokens(&self) -> u32 {
        self.progress.borrow().cached_tokens
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        if state.mailboxes.remove(&self.id).is_some() {
            state.engine.cancel(self.id);
        }
    }
}
