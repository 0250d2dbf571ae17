//! The threads of a sampler: they sleep until an instant or until they are told to end, and their end is waited for
//! within a bound.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use std::sync::Arc;

use common::clock::Clock;
use common::ids::Nanos;

/// The threads, and the word that ends them.
#[derive(Debug, Default)]
pub(super) struct Threads(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    stopped: bool,
    running: Vec<&'static str>,
}

/// Takes a thread off the list however it ends.
struct Leaves(Arc<Inner>, &'static str);

impl Drop for Leaves {
    fn drop(&mut self) {
        let mut state = self.0.state();
        if let Some(place) = state.running.iter().position(|name| *name == self.1) {
            state.running.swap_remove(place);
        }
        drop(state);
        self.0.changed.notify_all();
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Threads {
    /// Starts one. Once they were told to end it is not started.
    pub(super) fn spawn(
        &self,
        name: &'static str,
        body: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<()> {
        let mut state = self.0.state();
        if state.stopped {
            return Ok(());
        }
        state.running.push(name);
        drop(state);
        let leaves = Leaves(Arc::clone(&self.0), name);
        let run = move || {
            let _leaves = leaves;
            body();
        };
        std::thread::Builder::new().name(name.to_owned()).spawn(run).map(|_| ())
    }

    /// Sleeps until an instant; at once true when the thread shall end.
    pub(super) fn until(&self, clock: &dyn Clock, instant: Nanos) -> bool {
        let mut state = self.0.state();
        loop {
            let left = instant - clock.monotonic();
            if state.stopped || left == Nanos::ZERO {
                return state.stopped;
            }
            state = match self.0.changed.wait_timeout(state, left.to_duration()) {
                Ok((state, _)) => state,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }

    /// Tells them to end.
    pub(super) fn tell(&self) {
        self.0.state().stopped = true;
        self.0.changed.notify_all();
    }

    /// The same, and waits for their end. Those that are still there when `patience` is over are named.
    pub(super) fn stop(&self, patience: Duration) -> Vec<&'static str> {
        self.tell();
        let running = |state: &mut State| !state.running.is_empty();
        match self.0.changed.wait_timeout_while(self.0.state(), patience, running) {
            Ok((state, _)) => state.running.clone(),
            Err(poisoned) => poisoned.into_inner().0.running.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::clock::SystemClock;

    #[test]
    fn a_sleeper_is_woken_by_the_end_and_a_stuck_thread_is_named() {
        let threads = Arc::new(Threads::default());
        let sleeper = Arc::clone(&threads);
        threads.spawn("sleeper", move || assert!(sleeper.until(&SystemClock, Nanos::MAX))).unwrap();
        let (release, stuck) = std::sync::mpsc::channel::<()>();
        threads.spawn("stuck", move || stuck.recv().unwrap()).unwrap();
        while threads.0.state().running.len() < 2 {
            std::thread::yield_now();
        }
        let mut left = threads.stop(Duration::ZERO);
        while left != ["stuck"] {
            left = threads.stop(Duration::from_millis(10));
        }
        release.send(()).unwrap();
        assert_eq!(threads.stop(Duration::MAX), Vec::<&str>::new());
        threads.spawn("late", || unreachable!("they were told to end")).unwrap();
    }
}
