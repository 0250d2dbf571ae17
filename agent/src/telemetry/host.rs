//! The host, once a second: counters of its CPU, memory and network, of this agent, and of the engine's processes.
//!
//! What the kernel does not tell is none. The CPU time of an engine is that of its whole process tree; processes that
//! ended between two looks take what they used since the last one with them, which is said by their number.

use std::collections::BTreeMap;

use common::ids::Nanos;
use common::telemetry::HostSample;
use procfs::process::{Process, Stat};
use procfs::{Current, CurrentSI, KernelStats, Meminfo, WithCurrentSystemInfo};

/// Looks at the host. It remembers what ended processes of the engine had used.
#[derive(Debug, Clone, Default)]
pub struct HostLook {
    /// CPU seconds of each process of the engine when it was last seen.
    engine: BTreeMap<i32, f64>,
    /// Of those that are gone.
    gone_seconds: f64,
}

impl HostLook {
    /// The host now. `engine` are the processes of the engine, where it is known.
    pub fn sample(&mut self, at: Nanos, engine: Option<&[i32]>) -> HostSample {
        let mut sample = HostSample { at, ..HostSample::default() };
        cpu(&mut sample);
        memory(&mut sample);
        network(&mut sample);
        own(&mut sample);
        if let Some(pids) = engine {
            self.engine(&mut sample, pids);
        }
        sample
    }

    fn engine(&mut self, sample: &mut HostSample, pids: &[i32]) {
        let mut seen = BTreeMap::new();
        let mut memory = 0;
        for stat in pids.iter().filter_map(|pid| stat(*pid)) {
            memory += stat.rss_bytes().get();
            seen.insert(stat.pid, seconds(&stat));
        }
        self.gone_seconds +=
            (self.engine.iter()).filter(|(pid, _)| !seen.contains_key(pid)).map(|(_, s)| s).sum::<f64>();
        self.engine = seen;
        sample.engine_processes = u32::try_from(self.engine.len()).ok();
        if !self.engine.is_empty() || self.gone_seconds > 0.0 {
            sample.engine_cpu_seconds = Some(self.gone_seconds + self.engine.values().sum::<f64>());
            sample.engine_memory_bytes = Some(memory);
        }
    }
}

fn stat(pid: i32) -> Option<Stat> {
    Process::new(pid).ok()?.stat().ok()
}

/// User and system time.
fn seconds(stat: &Stat) -> f64 {
    (stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64
}

fn cpu(sample: &mut HostSample) {
    let Ok(stats) = KernelStats::current() else { return };
    let ticks = procfs::ticks_per_second() as f64;
    let all = stats.total;
    let idle = all.idle + all.iowait.unwrap_or(0);
    let steal = all.steal.unwrap_or(0);
    // Guest time is in user time already.
    let busy = all.user + all.nice + all.system + all.irq.unwrap_or(0) + all.softirq.unwrap_or(0);
    sample.cpu_busy_seconds = Some(busy as f64 / ticks);
    sample.cpu_total_seconds = Some((busy + idle + steal) as f64 / ticks);
    sample.steal_seconds = all.steal.map(|s| s as f64 / ticks);
}

fn memory(sample: &mut HostSample) {
    let Ok(memory) = Meminfo::current() else { return };
    sample.memory_available_bytes = memory.mem_available;
}

fn network(sample: &mut HostSample) {
    let Ok(devices) = procfs::net::dev_status() else { return };
    // Bridges, bonds and the ends of containers carry what an adapter carries, once more.
    let adapter = |name: &str| std::path::Path::new("/sys/class/net").join(name).join("device").exists();
    let any = devices.keys().any(|name| adapter(name));
    let others = || devices.values().filter(|d| if any { adapter(&d.name) } else { d.name != "lo" });
    sample.network_received_bytes = Some(others().map(|d| d.recv_bytes).sum());
    sample.network_sent_bytes = Some(others().map(|d| d.sent_bytes).sum());
}

fn own(sample: &mut HostSample) {
    let Ok(own) = Process::myself() else { return };
    if let Ok(stat) = own.stat() {
        sample.agent_cpu_seconds = Some(seconds(&stat));
        sample.agent_memory_bytes = Some(stat.rss_bytes().get());
    }
    sample.agent_open_files = own.fd_count().ok().and_then(|n| u64::try_from(n).ok());
}

/// A process and all that descend from it.
#[must_use]
pub fn tree(root: i32) -> Vec<i32> {
    let Ok(all) = procfs::process::all_processes() else { return Vec::new() };
    let parents: Vec<(i32, i32)> =
        all.filter_map(|p| p.ok()?.stat().ok()).map(|stat| (stat.pid, stat.ppid)).collect();
    let mut found: Vec<i32> = parents.iter().filter(|(pid, _)| *pid == root).map(|(pid, _)| *pid).collect();
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        found.extend(
            parents.iter().filter(|(pid, ppid)| *ppid == parent && *pid != parent).map(|(pid, _)| *pid),
        );
        next += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_and_this_process_are_seen() {
        let own = i32::try_from(std::process::id()).unwrap();
        let mut look = HostLook::default();
        let first = look.sample(Nanos(1), Some(&[own]));
        // Something to do, so that there is something to see.
        let sum = (0..30_000_000u64).fold(0u64, |a, b| std::hint::black_box(a ^ b));
        let second = look.sample(Nanos(2), Some(&[own]));
        std::hint::black_box(sum);
        assert!(second.cpu_total_seconds > first.cpu_total_seconds);
        assert!(second.cpu_busy_seconds >= first.cpu_busy_seconds);
        assert!(second.agent_cpu_seconds >= first.agent_cpu_seconds && second.agent_open_files > Some(2));
        assert_eq!(second.engine_processes, Some(1));
        // The same process, looked at one after the other while other tests of it run.
        let (engine, agent) = (second.engine_cpu_seconds.unwrap(), second.agent_cpu_seconds.unwrap());
        assert!(engine > 0.0 && engine >= 0.5 * agent, "{engine} of {agent}");
        assert!(second.memory_available_bytes > Some(1 << 20));
        assert!(tree(own).contains(&own));
    }

    #[test]
    fn what_an_ended_process_had_used_stays_in_the_sum() {
        let mut look = HostLook { engine: [(i32::MAX, 3.5)].into(), gone_seconds: 1.0 };
        let sample = look.sample(Nanos(1), Some(&[]));
        assert_eq!((sample.engine_processes, sample.engine_cpu_seconds), (Some(0), Some(4.5)));
        // And is not added again.
        assert_eq!(look.sample(Nanos(2), Some(&[])).engine_cpu_seconds, Some(4.5));
        assert_eq!(look.sample(Nanos(3), None).engine_processes, None);
    }
}
