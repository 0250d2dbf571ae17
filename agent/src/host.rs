//! What kind of machine this is, and how many files it lets us open.

use common::fleet::HostFacts;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of open files as far as the host allows, since every request in flight is one, and says what it
/// is then.
pub fn raise_open_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    // Refused only where the hard limit cannot be read back right; the soft limit stays then.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

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

/// What a person should know before so many requests may be in flight here at once.
#[must_use]
pub fn warnings(open_files: u64, at_once: u64) -> Vec<String> {
    // Besides requests: sockets to the coordinator, spool, log, standard streams.
    let needed = at_once.saturating_add(64);
    if open_files >= needed {
        return Vec::new();
    }
    vec![format!(
        "{at_once} requests may be in flight here, but only {open_files} files may be open; raise the limit (ulimit -n {needed})"
    )]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_known_and_limits_are_compared() {
        let facts = facts();
        assert!(!facts.hostname.is_empty() && facts.cpus > 0 && facts.kernel.contains(' '));
        assert!(warnings(1024, 100).is_empty());
        assert!(warnings(1024, 2_000)[0].contains("ulimit -n 2064"));
    }
}
