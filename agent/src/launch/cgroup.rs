//! A control group of the engine's own, where this process may make one.
//!
//! `/proc` is enough to find an engine's processes as long as their supervisor lives. A group adds two things: all of
//! them are killed at once, so that none can fork away, and they are found when the supervisor itself was killed. Only
//! version 2 of control groups is used, and where one cannot be made (containers, services without delegation) nothing
//! is lost but that.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// A group that lies below the supervisor's own.
#[derive(Debug)]
pub(super) struct Cgroup {
    own: PathBuf,
    path: PathBuf,
}

impl Cgroup {
    /// Makes a group and enters it: processes that this one starts are born into it, so there is no instant at which
    /// they are outside.
    pub(super) fn enter() -> Option<Self> {
        let own = own()?;
        let path = own.join(format!("plimsoll-engine-{}", std::process::id()));
        // One of that name is left from a process of that number that was killed: with nobody in it, it can go.
        remove(&path);
        fs::create_dir(&path).ok()?;
        let group = Self { own, path };
        if fs::write(group.path.join("cgroup.procs"), "0").is_err() {
            remove(&group.path);
            return None;
        }
        Some(group)
    }

    /// Leaves the group again. If that is refused the group must not be used: killing it would kill this process.
    pub(super) fn leave(self) -> Option<PathBuf> {
        fs::write(self.own.join("cgroup.procs"), "0").ok()?;
        Some(self.path)
    }
}

/// Kills all processes of a group. An old kernel cannot; then the processes are killed one by one.
pub(super) fn kill(path: &Path) {
    let _ = fs::write(path.join("cgroup.kill"), "1");
}

/// Removes a group whose processes are gone. One that still has some stays.
pub(super) fn remove(path: &Path) {
    // To the kernel a process that was waited for may be in its group a moment longer.
    for _attempt in 0..10 {
        match fs::remove_dir(path) {
            Err(e) if e.kind() == io::ErrorKind::ResourceBusy => thread::sleep(Duration::from_millis(10)),
            _ => return,
        }
    }
}

/// The folder of this process's group, if it really is this process's.
fn own() -> Option<PathBuf> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let below = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let mount = mounts.lines().find_map(|line| {
        let mut words = line.split(' ');
        let (folder, kind) = (words.nth(1)?, words.next()?);
        (kind == "cgroup2").then_some(folder)
    })?;
    let own = Path::new(mount).join(below);
    // In a container the two files may speak of different roots.
    let is_here = || -> io::Result<bool> {
        let pid = std::process::id().to_string();
        Ok(fs::read_to_string(own.join("cgroup.procs"))?.lines().any(|line| line == pid))
    };
    is_here().ok()?.then_some(own)
}
