//! What a scripted engine knows besides the request in hand: how many streams are open, how many it has served, and
//! the prompts in its prefix cache.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Prompts that the prefix cache holds; the oldest goes first.
const CACHED_PROMPTS: usize = 1024;

/// One engine's state. Requests share it.
#[derive(Debug, Default)]
pub struct State {
    running: AtomicUsize,
    served: AtomicU64,
    cache: Mutex<Vec<Vec<u32>>>,
    failed: AtomicBool,
}

impl State {
    /// Streams that are open now.
    #[must_use]
    pub fn running(&self) -> usize {
        self.running.load(SeqCst)
    }

    /// Requests for generation so far.
    #[must_use]
    pub fn served(&self) -> u64 {
        self.served.load(SeqCst)
    }

    /// Empties the prefix cache.
    pub fn reset_cache(&self) {
        self.prompts().clear();
    }

    /// A generation has failed.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.failed.load(SeqCst)
    }

    /// Notes that a generation has failed.
    pub(crate) fn fail(&self) {
        self.failed.store(true, SeqCst);
    }

    /// Counts one more request; gives its number, from 1.
    pub(crate) fn serve(&self) -> u64 {
        self.served.fetch_add(1, SeqCst) + 1
    }

    /// Tokens of this prompt that an earlier one shares with it from the begin. The last token is always computed.
    /// The prompt is in the cache from now on.
    pub(crate) fn look_up(&self, prompt: &[u32]) -> u64 {
        let mut prompts = self.prompts();
        let shared = |other: &Vec<u32>| other.iter().zip(prompt).take_while(|(a, b)| a == b).count();
        let longest = prompts.iter().map(shared).max().unwrap_or(0);
        if prompts.len() == CACHED_PROMPTS {
            prompts.remove(0);
        }
        prompts.push(prompt.to_vec());
        longest.min(prompt.len().saturating_sub(1)) as u64
    }

    /// A stream is open as long as this lives.
    pub(crate) fn open(&self) -> Open<'_> {
        self.running.fetch_add(1, SeqCst);
        Open(self)
    }

    fn prompts(&self) -> MutexGuard<'_, Vec<Vec<u32>>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stream that is open.
pub(crate) struct Open<'a>(&'a State);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_knows_the_longest_common_begin_until_it_is_emptied() {
        let state = State::default();
        assert_eq!(state.look_up(&[1, 2, 3, 4]), 0);
        assert_eq!(state.look_up(&[1, 2, 3, 4]), 3, "the last token is computed");
        assert_eq!(state.look_up(&[1, 2, 9, 9]), 2);
        state.reset_cache();
        assert_eq!(state.look_up(&[1, 2, 3, 4]), 0);
    }

    #[test]
    fn a_stream_is_open_as_long_as_it_is() {
        let state = State::default();
        let open = state.open();
        assert_eq!(state.running(), 1);
        drop(open);
        assert_eq!(state.running(), 0);
    }
}
