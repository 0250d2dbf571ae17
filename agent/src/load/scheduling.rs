//! How the operating system schedules the threads of a trial.
//!
//! By default a thread that becomes ready waits for its turn behind whoever else wants the core. With real-time priority
//! (`agent --rt`) it runs at once. It is for hosts that have cores to spare: threads of it leave nothing to others, and
//! neither pacer nor load thread waits longer without sleeping than [`super::lead`] says.

use thread_priority::unix::{set_thread_priority_and_policy, thread_native_id};
use thread_priority::{RealtimeThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy};

/// The lowest of the real-time priorities is above everything that is none, and below the kernel's own.
const PRIORITY: u8 = 1;

/// How a thread is scheduled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Scheduling {
    /// As every other thread.
    #[default]
    Usual,
    /// First in, first out, before all that is not (SCHED_FIFO).
    RealTime,
}

/// Why a thread stays with the usual scheduling.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "real-time priority is refused: {0}; run as root or with CAP_SYS_NICE, or raise the limit (ulimit -r 1)"
)]
pub struct Refused(String);

impl Scheduling {
    /// Schedules the calling thread so.
    ///
    /// # Errors
    /// [`Refused`]; nothing has changed then.
    pub fn take(self) -> Result<(), Refused> {
        if self == Self::Usual {
            return Ok(());
        }
        let priority = PRIORITY.try_into().map(ThreadPriority::Crossplatform);
        let priority = priority.map_err(|e: String| Refused(e))?;
        let policy = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo);
        set_thread_priority_and_policy(thread_native_id(), priority, policy)
            .map_err(|e| Refused(e.to_string()))
    }

    /// What a thread can have of it on this host, found out on a thread that ends at once.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn check(self) -> Result<(), Refused> {
        let tried = std::thread::Builder::new().name("scheduling".into()).spawn(move || self.take());
        let tried = tried.map_err(|e| Refused(e.to_string()))?;
        tried.join().unwrap_or_else(|_| Err(Refused("the thread that tried it died".into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's word for how this thread is scheduled: 0 is the usual way, 1 is SCHED_FIFO.
    fn policy() -> u32 {
        let text = std::fs::read_to_string("/proc/thread-self/sched").unwrap_or_default();
        let line = text.lines().find(|l| l.starts_with("policy"));
        line.and_then(|l| l.rsplit(':').next()?.trim().parse().ok()).unwrap_or(u32::MAX)
    }

    #[test]
    fn real_time_is_had_or_refused_with_what_to_do() {
        assert_eq!(Scheduling::Usual.take(), Ok(()));
        let before = policy();
        match Scheduling::RealTime.check() {
            Ok(()) => {
                let seen = std::thread::spawn(|| (Scheduling::RealTime.take(), policy())).join().unwrap();
                assert!(seen.0.is_ok() && [1, u32::MAX].contains(&seen.1), "{seen:?}");
            }
            Err(e) => assert!(e.to_string().contains("CAP_SYS_NICE"), "{e}"),
        }
        assert_eq!(policy(), before, "only the thread that asked");
    }
}
