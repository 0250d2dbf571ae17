//! CPU time of the calling thread, and the core that it runs on.
//!
//! CPU time and not wall time: a neighbour that takes the core makes a wall time worthless, and only blurs this one.

use common::ids::Nanos;
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// CPU time that the calling thread has used.
pub(crate) fn used() -> Nanos {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, nanoseconds) = (u64::try_from(t.tv_sec), u64::try_from(t.tv_nsec));
    Nanos(seconds.unwrap_or(0) * 1_000_000_000 + nanoseconds.unwrap_or(0))
}

/// Keeps the calling thread on one core, where the host allows it.
pub(crate) fn pin(core: usize) {
    let mut cores = CpuSet::new();
    cores.set(core);
    if let Err(e) = sched_setaffinity(None, &cores) {
        eprintln!("not pinned to core {core}: {e}");
    }
}

/// Lets the calling thread run wherever this process may: a thread inherits the core of the one that started it.
pub(crate) fn unpin() {
    let mut cores = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|core| cores.set(core));
    if let Err(e) = sched_setaffinity(None, &cores) {
        eprintln!("still pinned: {e}");
    }
}

/// The core of the clients and that of the server: the first and the last of those that this process may use.
pub(crate) fn cores() -> (usize, usize) {
    let allowed = rustix::thread::sched_getaffinity(None).unwrap_or_default();
    let mut cores = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core));
    let first = cores.next().unwrap_or(0);
    (first, cores.next_back().unwrap_or(first))
}
