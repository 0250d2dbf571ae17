//! What kind of machine this is, and how many files it lets us open.

use common::fleet::HostFacts;
use rustix::process::{Resource, getrlimit};

/// Facts for the experiment record. What cannot be found out is empty or 0, and the record lists it as missing.
#[must_use]
pub fn facts() -> HostFacts {
    let system = rustix::system::uname();
    let text = |c: &std::ffi::CStr| c.to_string_lossy().into_owned();
    HostFacts {
        hostname: text(system.nodename()),
        kernel: format!("{} {} {}", text(system.sysname()), text(system.release()), text(system.machine())),
        cpu_model: field("/proc/cpuinfo", "model name").unwrap_or_default(),
        cpus: std::thread::available_parallelism().map_or(0, |n| n.get() as u32),
        memory_bytes: field("/proc/meminfo", "MemTotal")
            .and_then(|t| t.split_whitespace().next()?.parse::<u64>().ok())
            .map_or(0, |kib| kib * 1024),
        open_files_limit: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
    }
}

fn field(path: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find(|l| l.starts_with(name))?;
    line.split_once(':').map(|(_, value)| value.trim().to_owned())
}

/// How many connections this host allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Files that this process may have open.
    pub open_files: u64,
    /// Ports from which connections to one address can come. None where it cannot be found out.
    pub ports: Option<u64>,
    /// Connections that wait for a server on this host to accept them. None where it does not matter: the engine is
    /// elsewhere.
    pub accept_queue: Option<u64>,
}

impl Limits {
    /// Those of this host, for an engine that is on it or not.
    #[must_use]
    pub fn here(open_files: u64, engine_is_here: bool) -> Self {
        let number = |path: &str| std::fs::read_to_string(path).ok()?.trim().parse().ok();
        let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok();
        let ports = range.and_then(|text| {
            let mut ends = text.split_whitespace().map(str::parse::<u64>);
            let (first, last) = (ends.next()?.ok()?, ends.next()?.ok()?);
            Some(last.saturating_sub(first) + 1)
        });
        let accept_queue = engine_is_here.then(|| number("/proc/sys/net/core/somaxconn")).flatten();
        Self { open_files, ports, accept_queue }
    }

    /// What a person should know before so many requests may be in flight here at once.
    #[must_use]
    pub fn warnings(&self, at_once: u64) -> Vec<String> {
        // Besides requests: sockets to the coordinator, spool, log, standard streams.
        let files = at_once.saturating_add(64);
        let files = (self.open_files < files).then(|| {
            format!("only {} files may be open; raise the limit (ulimit -n {files})", self.open_files)
        });
        let ports = self.ports.filter(|&ports| ports < at_once).map(|ports| {
            format!(
                "only {ports} ports are there for them; widen the range (sysctl net.ipv4.ip_local_port_range=\"1024 65535\") or take more hosts"
            )
        });
        let queue = self.accept_queue.filter(|&queue| queue < at_once).map(|queue| {
            format!(
                "only {queue} connections may wait to be accepted on this host; raise it (sysctl net.core.somaxconn={at_once})"
            )
        });
        let limits = [files, ports, queue].into_iter().flatten();
        limits.map(|limit| format!("{at_once} requests may be in flight here, but {limit}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_known_and_limits_are_compared() {
        let facts = facts();
        assert!(!facts.hostname.is_empty() && facts.cpus > 0 && facts.kernel.contains(' '));
        let limits = Limits { open_files: 1024, ports: Some(28_232), accept_queue: Some(4096) };
        assert!(limits.warnings(100).is_empty());
        assert!(limits.warnings(2_000)[0].contains("ulimit -n 2064"));
        let all = Limits { open_files: 1 << 20, ..limits }.warnings(30_000);
        assert!(all[0].contains("ip_local_port_range") && all[1].contains("somaxconn=30000"), "{all:?}");
        let here = Limits::here(1024, true);
        assert!(here.ports.is_some_and(|n| n > 0) && here.accept_queue.is_some_and(|n| n > 0), "{here:?}");
        assert_eq!(Limits::here(1024, false).accept_queue, None);
    }
}
