//! The same work for many seeds, on two threads.

use std::sync::atomic::{AtomicU64, Ordering};

use common::seed::Seed;

/// A CI machine has two cores.
const THREADS: usize = 2;

/// `work` for each of the first `seeds` seeds (1, 2, …), in their order, whichever thread did which.
pub fn map<T: Send>(seeds: u64, work: impl Fn(Seed) -> T + Sync) -> Vec<T> {
    let next = AtomicU64::new(1);
    let run = || {
        let mut done = Vec::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed > seeds {
                return done;
            }
            done.push((seed, work(Seed(seed))));
        }
    };
    let mut all: Vec<(u64, T)> = std::thread::scope(|scope| {
        let others: Vec<_> = (1..THREADS).map(|_| scope.spawn(run)).collect();
        let mut all = run();
        for other in others {
            match other.join() {
                Ok(done) => all.extend(done),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        all
    });
    all.sort_by_key(|(seed, _)| *seed);
    all.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_seed_once_and_in_order() {
        assert_eq!(super::map(50, |seed| seed.0 * 2), (1..=50).map(|seed| seed * 2).collect::<Vec<_>>());
        assert!(super::map(0, |seed| seed.0).is_empty());
    }
}
