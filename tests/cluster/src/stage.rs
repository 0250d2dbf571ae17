//! The stage: a machine within the machine, which goes as a whole.
//!
//! A worker runs behind `unshare` with processes, mounts and networks of its own, as its first process. So everything
//! that it makes is gone with it, by the kernel: after a panic, a ctrl-c or a kill -9, too. It lives as long as the
//! pipe to who started it; that is all there is of clean-up, and there is no list of things to remove that could be
//! incomplete. It must never touch a network, a mount or a process of the host.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A file system in memory that only the stage sees; all that it writes lies there.
pub const ROOT: &str = "/run";

const APART: [&str; 6] = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];

/// Why there can be no stage here. None when there can.
#[must_use]
pub fn missing() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("network namespaces need root".into());
    }
    let tried = [("unshare", [&APART[..], &["true"]].concat()), ("ip", vec!["-V"])];
    tried.into_iter().find_map(|(program, words)| match Command::new(program).args(words).output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(e) => Some(format!("{program}: {e}")),
    })
}

/// Starts this program once more, on a stage. It ends when the child's standard input is closed, as at our own end.
///
/// # Panics
/// When it cannot be started.
#[must_use]
pub fn start(words: &[String]) -> Child {
    let own = std::env::current_exe().unwrap_or_else(|e| panic!("cannot tell what to start: {e}"));
    let mut command = Command::new("unshare");
    command.args(APART).arg(own).args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().unwrap_or_else(|e| panic!("unshare: {e}"))
}

/// Called first on a stage: ties its life to who started it, and gives it room for files.
pub fn enter() {
    assert_eq!(std::process::id(), 1, "a worker is started by `cluster` itself");
    std::thread::spawn(|| {
        let mut ignored = [0; 64];
        while let Ok(1..) = std::io::stdin().read(&mut ignored) {}
        std::process::exit(130);
    });
    mount(Path::new(ROOT), "256m");
    // For `ip netns`.
    folder(&Path::new(ROOT).join("netns"));
}

/// Mounts a file system in memory of at most `size` there.
pub fn mount(path: &Path, size: &str) {
    folder(path);
    let size = format!("size={size}");
    run("mount", &["-t", "tmpfs", "-o", &size, "plimsoll", &path.display().to_string()]);
}

/// Takes it away.
pub fn unmount(path: &Path) {
    run("umount", &["--lazy", &path.display().to_string()]);
}

/// Makes a folder.
///
/// # Panics
/// When it cannot be made.
pub fn folder(path: &Path) {
    std::fs::create_dir_all(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}

/// Runs a program that must work.
///
/// # Panics
/// When it does not.
pub fn run(program: &str, words: &[&str]) {
    let output = Command::new(program).args(words).output().unwrap_or_else(|e| panic!("{program}: {e}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {}: {said}", words.join(" "));
}

/// Processes of the program on this stage, zombies left out: id and command line.
#[must_use]
pub fn processes() -> Vec<(u32, String)> {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids =
        all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).filter(|pid| *pid != 1);
    pids.map(|pid| (pid, plimsoll_tests::command_line(pid)))
        .filter(|(_, line)| {
            let program = line.split(' ').next().unwrap_or_default().rsplit('/').next().unwrap_or_default();
            ["coordinator", "agent", "sim-engine"].contains(&program)
        })
        .collect()
}
