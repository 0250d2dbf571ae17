//! A canary on the reading thread: due every millisecond, it says how late it got to run.
//!
//! It stands in for a read that became possible at that instant. Its timer is the kernel's (timerfd) and not the
//! runtime's, whose resolution is a millisecond; and every instant that it missed counts with its own lateness, so
//! that one long stall is not one sample.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use common::clock::Clock;
use common::fleet::Lateness;
use common::ids::Nanos;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Between two instants.
const PERIOD: Nanos = Nanos(1_000_000);

/// Samples kept: over an hour. Later ones are not taken, which the number of samples shows.
const MOST: usize = 4_000_000;

/// Samples of a canary that may still be running. Nanoseconds, at most 4 s each.
#[derive(Debug, Clone, Default)]
pub struct Samples(Arc<Mutex<Vec<u32>>>);

impl Samples {
    fn push(&self, lateness: Nanos) {
        let mut samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if samples.len() < MOST {
            samples.push(u32::try_from(lateness.0).unwrap_or(u32::MAX));
        }
    }

    /// What they amount to; none when there are none.
    #[must_use]
    pub fn lateness(&self) -> Option<Lateness> {
        let mut seconds: Vec<f64> = {
            let samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            samples.iter().map(|&ns| f64::from(ns) / 1e9).collect()
        };
        seconds.sort_unstable_by(f64::total_cmp);
        let at = |p| common::stats::percentile(&seconds, p);
        Some(Lateness { n: seconds.len() as u64, p50: at(50.0)?, p99: at(99.0)?, max: *seconds.last()? })
    }
}

/// The instants that are due by now: gives each instant's lateness once.
#[derive(Debug)]
struct Instants {
    next: Nanos,
}

impl Instants {
    fn due(&mut self, now: Nanos, mut sample: impl FnMut(Nanos)) {
        while self.next <= now {
            sample(now - self.next);
            self.next = self.next + PERIOD;
        }
    }
}

/// Runs on the thread that it watches, from `start` on, until it is dropped.
///
/// # Errors
/// When the kernel refuses the timer.
pub async fn run(start: Nanos, clock: Arc<dyn Clock>, samples: Samples) -> std::io::Result<()> {
    let timer: OwnedFd =
        timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
    let first = start + PERIOD;
    let spec = Itimerspec { it_interval: timespec(PERIOD), it_value: timespec(first) };
    timerfd_settime(&timer, TimerfdTimerFlags::ABSTIME, &spec)?;
    #[expect(
        deprecated,
        reason = "its replacement is unsafe; what it guards against, a descriptor that closes early, an OwnedFd cannot do"
    )]
    let timer = AsyncFd::with_interest(timer, Interest::READABLE)?;
    let mut instants = Instants { next: first };
    loop {
        let mut ready = timer.readable().await?;
        let now = clock.monotonic();
        instants.due(now, |lateness| samples.push(lateness));
        // Reading takes the expirations away; the clock has told how many there were.
        let mut expirations = [0u8; 8];
        let _ = rustix::io::read(timer.get_ref(), &mut expirations);
        ready.clear_ready();
    }
}

fn timespec(t: Nanos) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(t.0 / 1_000_000_000).unwrap_or(i64::MAX),
        tv_nsec: (t.0 % 1_000_000_000) as _,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::clock::SystemClock;

    #[test]
    fn a_stall_counts_once_for_every_instant_that_it_covers() {
        let mut instants = Instants { next: Nanos(1_000_000) };
        let mut seen = Vec::new();
        instants.due(Nanos(1_000_100), |l| seen.push(l.0));
        instants.due(Nanos(1_500_000), |l| seen.push(l.0));
        instants.due(Nanos(4_250_000), |l| seen.push(l.0));
        assert_eq!(seen, [100, 2_250_000, 1_250_000, 250_000]);
    }

    /// A thread that is blocked for 50 ms is seen to be late by that order, whatever else the host does.
    #[test]
    fn a_blocked_thread_is_seen() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let samples = Samples::default();
        let watched = samples.clone();
        runtime.block_on(async move {
            let clock: Arc<dyn Clock> = Arc::new(SystemClock);
            let canary = tokio::spawn(run(clock.monotonic(), clock, watched));
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            std::thread::sleep(std::time::Duration::from_millis(50));
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            canary.abort();
        });
        let lateness = samples.lateness().unwrap();
        assert!(lateness.n >= 80, "{lateness:?}");
        assert!(lateness.max >= 0.045 && lateness.p50 <= lateness.p99, "{lateness:?}");
    }
}
