//! The processes of an engine, found in `/proc`, and signals to them.
//!
//! A process belongs to the engine when it descends from the supervisor, or is in the session that the supervisor
//! leads. Since the supervisor adopts orphans, a process stays its descendant whatever it does: a new session, a new
//! group, a double fork. `/proc` is not read at one instant, so one look may miss a process that is being adopted
//! meanwhile: who needs to know that none is left asks `wait`, which does not err (see `supervise`).
//!
//! It never signals by number alone: a process is held by a descriptor, and known again by its start time, before the
//! signal goes out. A number may be somebody else's by then.

use std::collections::{HashMap, HashSet};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// One process, as `/proc` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: i32,
    parent: i32,
    group: i32,
    session: i32,
    /// Ticks since boot: together with the number it is this process and no other.
    started: u64,
    /// It has ended and waits for its parent to notice.
    ended: bool,
}

/// Every live process that descends from `leader` or is in its session, without `leader` itself.
pub(super) fn members(leader: i32) -> Vec<Process> {
    let all = processes();
    members_of(leader, &all)
}

fn members_of(leader: i32, all: &[Process]) -> Vec<Process> {
    let mut children: HashMap<i32, Vec<&Process>> = HashMap::new();
    for process in all {
        children.entry(process.parent).or_default().push(process);
    }
    let mut found = Vec::new();
    let mut seen = HashSet::from([leader]);
    let mut next: Vec<i32> = vec![leader];
    next.extend(all.iter().filter(|p| p.session == leader).map(|p| p.pid));
    let by_pid: HashMap<i32, &Process> = all.iter().map(|p| (p.pid, p)).collect();
    while let Some(pid) = next.pop() {
        if seen.insert(pid)
            && let Some(process) = by_pid.get(&pid)
        {
            found.push(**process);
        }
        if let Some(children) = children.remove(&pid) {
            next.extend(children.iter().map(|p| p.pid));
        }
    }
    found.retain(|process| !process.ended);
    found
}

/// Sends `signal` to a process if it still is the one that was seen. A process that has ended is none's loss.
pub(super) fn signal(process: &Process, signal: Signal) {
    let Some(pid) = Pid::from_raw(process.pid) else { return };
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(held) => {
            // The descriptor holds whatever has the number now; is it still the same?
            if read(process.pid).is_some_and(|now| now.started == process.started) {
                let _ = pidfd_send_signal(held, signal);
            }
        }
        // Kernels before 5.3.
        Err(rustix::io::Errno::NOSYS) => {
            let _ = rustix::process::kill_process(pid, signal);
        }
        Err(_) => {}
    }
}

/// Kills `members` of `leader`'s tree, and their process groups: to the kernel a group is one, so nobody in it gets away
/// by forking. The leader's own group is left out.
pub(super) fn kill(leader: i32, members: &[Process]) {
    let mut groups = HashSet::from([leader]);
    for process in members {
        let group = Pid::from_raw(process.group);
        // A group is within a session and a session within the tree, so there is no stranger in it; and as long as one
        // of its processes is there its number is its own.
        if let Some(group) = group.filter(|group| !groups.contains(&group.as_raw_pid()))
            && read(process.pid)
                .is_some_and(|now| (now.started, now.group) == (process.started, process.group))
        {
            groups.insert(group.as_raw_pid());
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
        }
        signal(process, Signal::KILL);
    }
}

/// One process by its number.
pub(super) fn read(pid: i32) -> Option<Process> {
    parse(pid, &std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn processes() -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(read).collect()
}

/// `PID (NAME) STATE PPID PGRP SESSION …`: the name is the program's own and may hold blanks and parentheses.
fn parse(pid: i32, stat: &str) -> Option<Process> {
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    Some(Process {
        pid,
        ended: matches!(*fields.first()?, "Z" | "X"),
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        session: fields.get(3)?.parse().ok()?,
        started: fields.get(19)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, parent: i32, session: i32) -> Process {
        Process { pid, parent, group: pid, session, started: 1, ended: false }
    }

    #[test]
    fn descendants_and_the_session_are_members_and_nobody_else() {
        let mut all = [
            process(10, 1, 10), // the leader
            process(11, 10, 10),
            process(12, 11, 12), // a session of its own
            process(13, 12, 12),
            process(14, 1, 10), // adopted by another, still in the session
            process(15, 14, 15),
            process(20, 1, 20),
            process(21, 20, 20),
        ];
        let pids = |all: &[Process]| {
            let mut pids: Vec<i32> = members_of(10, all).iter().map(|p| p.pid).collect();
            pids.sort_unstable();
            pids
        };
        assert_eq!(pids(&all), [11, 12, 13, 14, 15]);
        all[2].ended = true;
        assert_eq!(pids(&all), [11, 13, 14, 15], "below one that has ended there may be live ones");
    }

    #[test]
    fn a_name_may_look_like_anything() {
        let stat = "7 (a) R 1 (b)) S 5 6 4 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 98765 1 2 3";
        let expected = Process { pid: 7, parent: 5, group: 6, session: 4, started: 98765, ended: false };
        assert_eq!(parse(7, stat), Some(expected));
        assert_eq!(parse(7, "7 (a) Z"), None);
    }

    #[test]
    fn a_signal_is_not_for_a_successor_of_the_same_number() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = child.id() as i32;
        let mut seen = read(pid).unwrap();
        seen.started += 1;
        signal(&seen, Signal::KILL);
        let untouched = child.try_wait().unwrap().is_none();
        signal(&read(pid).unwrap(), Signal::KILL);
        // If neither signal arrives this waits until the test's end: then it is the second that is broken.
        assert!(!child.wait().unwrap().success());
        assert!(untouched);
    }
}
