//! Open files: an agent takes three sockets, and many systems let a program open 1,024 unless it asks for more.

use anyhow::bail;
use common::disk::raise_open_files;

/// Sockets of one agent: session, clock probes, bulk.
const OF_AN_AGENT: u64 = 3;

/// Store, index, reports, doors, local agents' pipes, and connections that an agent has given up and we have not.
const OWN: u64 = 128;

/// Raises the limit of open files to what the system allows this process.
///
/// # Errors
/// When that is too few for so many agents, with what to do.
pub(super) fn make_room_for(agents: usize) -> anyhow::Result<()> {
    check(agents, raise_open_files())
}

fn check(agents: usize, allowed: u64) -> anyhow::Result<()> {
    let needed = agents as u64 * OF_AN_AGENT + OWN;
    if allowed < needed {
        bail!(
            "{agents} agents take about {needed} open files, and this process may open {allowed}: raise that (ulimit -n {needed}, or LimitNOFILE of its service)"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn too_few_files_for_the_agents_are_refused_with_what_to_raise() {
        assert!(check(1, 1_024).is_ok());
        assert!(check(1_000, 4_096).is_ok());
        let told = check(1_000, 1_024).unwrap_err().to_string();
        assert!(told.contains("ulimit -n 3128") && told.contains("may open 1024"), "{told}");
    }
}
