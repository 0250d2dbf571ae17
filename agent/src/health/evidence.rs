//! Why a generator may have been late: what the kernel says of CPU, waiting and steal.
//!
//! What a kernel does not offer is absent, never 0.

use common::clock::Clock;
use common::fleet::Health;
use common::ids::Nanos;

/// Readings at one instant.
#[derive(Debug, Clone, Copy)]
pub struct Snapshot {
    at: Nanos,
    reader_run_queue: Option<Nanos>,
    pressure_us: Option<u64>,
    steal_ticks: Option<u64>,
    process_ticks: Option<u64>,
}

/// Clock ticks of /proc in a second: fixed at 100 on Linux for everything that it shows there.
const TICKS: f64 = 100.0;

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// Time that the calling thread has been ready to run and did not.
#[must_use]
pub fn run_queue_delay() -> Option<Nanos> {
    schedstat(&read("/proc/thread-self/schedstat")?)
}

/// Second field: nanoseconds spent waiting on a run queue (kernel documentation, scheduler/sched-stats).
fn schedstat(text: &str) -> Option<Nanos> {
    text.split_whitespace().nth(1)?.parse().ok().map(Nanos)
}

/// `some … total=` of pressure stall information, microseconds.
fn pressure(text: &str) -> Option<u64> {
    let some = text.lines().find(|l| l.starts_with("some "))?;
    some.split_whitespace().find_map(|w| w.strip_prefix("total="))?.parse().ok()
}

/// Eighth number of the `cpu` line.
fn steal(text: &str) -> Option<u64> {
    text.lines().find(|l| l.starts_with("cpu "))?.split_whitespace().nth(8)?.parse().ok()
}

/// User and system time (fields 14 and 15). The second field is a name in parentheses and may hold blanks.
fn cpu_time(text: &str) -> Option<u64> {
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some(ticks(14)? + ticks(15)?)
}

impl Snapshot {
    /// Readings now. To be taken on the reading thread.
    #[must_use]
    pub fn take(clock: &dyn Clock) -> Self {
        Self {
            at: clock.monotonic(),
            reader_run_queue: run_queue_delay(),
            pressure_us: read("/proc/pressure/cpu").as_deref().and_then(pressure),
            steal_ticks: read("/proc/stat").as_deref().and_then(steal),
            process_ticks: read("/proc/self/stat").as_deref().and_then(cpu_time),
        }
    }

    /// What happened from this snapshot to `end`. Lateness and the pacer's share are the caller's to add.
    #[must_use]
    pub fn until(&self, end: &Self) -> Health {
        let ticks = |a: Option<u64>, b: Option<u64>| Some(b?.saturating_sub(a?) as f64 / TICKS);
        Health {
            read_lateness: None,
            reader_run_queue_seconds: self
                .reader_run_queue
                .and_then(|a| end.reader_run_queue.map(|b| (b - a).as_secs_f64())),
            pacer_run_queue_seconds: None,
            cpu_pressure_seconds: self
                .pressure_us
                .and_then(|a| end.pressure_us.map(|b| b.saturating_sub(a) as f64 / 1e6)),
            steal_seconds: ticks(self.steal_ticks, end.steal_ticks),
            process_cpu_seconds: ticks(self.process_ticks, end.process_ticks),
            seconds: (end.at - self.at).as_secs_f64(),
            cores: std::thread::available_parallelism().map_or(0, |n| n.get() as u32),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::clock::SystemClock;

    #[test]
    fn the_kernels_files_are_read_as_they_are() {
        assert_eq!(schedstat("12345 678 9\n"), Some(Nanos(678)));
        let psi = "some avg10=0.00 avg60=0.00 avg300=0.00 total=123456\nfull avg10=0.00 total=9\n";
        assert_eq!(pressure(psi), Some(123_456));
        assert_eq!(steal("cpu  1 2 3 4 5 6 7 88 9 10\ncpu0 1 1 1 1\n"), Some(88));
        let stat = "42 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 150 25 0 0 20 0 1";
        assert_eq!(cpu_time(stat), Some(175));
        for nothing in ["", "x", "cpu", "some x"] {
            assert_eq!(
                (schedstat(nothing), pressure(nothing), steal(nothing), cpu_time(nothing)),
                (None, None, None, None)
            );
        }
    }

    #[test]
    fn work_shows_as_cpu_time() {
        let start = Snapshot::take(&SystemClock);
        let mut x = 0u64;
        while cpu_time(&read("/proc/self/stat").unwrap()) < start.process_ticks.map(|t| t + 5) {
            x = std::hint::black_box(x.wrapping_mul(31) + 1);
        }
        let health = start.until(&Snapshot::take(&SystemClock));
        assert!(health.process_cpu_seconds.unwrap() >= 0.05 && health.seconds > 0.0 && health.cores > 0);
    }
}
