//! Every command of `docs/guides` is run, in its order, against the simulated engine.
//!
//! A block of `sh` is a script that has to succeed. `background`: one command, left running; a coordinator has to come to
//! its end with success. `host=NAME`: it is run in a folder of that host. What differs here from what a reader types is in
//! [`here`] and nowhere else: addresses, and how long everything takes.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use common::clock::{Clock, SystemClock};

use plimsoll_tests::{Engine, Process, binary, free_port};
use serde_json::json;
use tempfile::TempDir;

const GUIDES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/guides");

/// Every sweep of a guide takes some seconds.
const PATIENCE: Duration = Duration::from_secs(240);

/// A block of commands.
#[derive(Debug, PartialEq)]
struct Block {
    host: String,
    background: bool,
    script: String,
}

/// The blocks of a guide, in order. A word that is not known is an error of the guide.
fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(info) = line.strip_prefix("```") else { continue };
        let body: Vec<&str> = lines.by_ref().take_while(|l| *l != "```").collect();
        let mut words = info.split(' ');
        if words.next() != Some("sh") {
            continue;
        }
        let mut block = Block { host: "here".into(), background: false, script: body.join("\n") };
        for word in words {
            match word.strip_prefix("host=") {
                Some(host) => host.clone_into(&mut block.host),
                None if word == "background" => block.background = true,
                None => panic!("```{info}: what is {word:?}?"),
            }
        }
        blocks.push(block);
    }
    blocks
}

/// A script as it is run here.
fn here(script: &str, engine: &str, listen: &str) -> String {
    let mut script = script.to_owned();
    for (theirs, ours) in [
        ("http://127.0.0.1:8000", engine),
        ("http://10.0.0.9:8000", engine),
        ("0.0.0.0:7000", listen),
        ("coordinator-host:7000", listen),
        // On loopback there is none.
        ("PLIMSOLL_TOKEN=… ", ""),
        ("--duration 2m", "--duration 3s --late-budget 1s"),
        ("--duration 10m", "--duration 3s"),
        ("--requests 500", "--requests 30 --late-budget 1s"),
        ("--budget 30m", "--budget 40s"),
    ] {
        script = script.replace(theirs, ours);
    }
    script
}

/// Where a guide is followed.
struct Place {
    folder: TempDir,
    engine: Engine,
    listen: String,
    scenario: PathBuf,
}

impl Place {
    fn new() -> Self {
        let folder = TempDir::new().expect("a folder");
        // A knee between 4 and 8 requests/s of the built-in workload, as in the demo.
        let engine = Engine::start(&["--slots", "8", "--step-ms", "6", "--step-per-seq-ms", "1"]);
        fake_nvml::library::place(folder.path(), &[]).expect("the library");
        let scenario = folder.path().join("scenario.json");
        let gpu = json!({
            "uuid": "GPU-0001", "pci": "00000000:01:00.0", "power_w": [[0.0, 150.0], [600.0, 150.0]],
            "processes": [{"pid": engine.pid(), "used_mib": 1000}],
        });
        let scripted = json!({"t0_ns": SystemClock.monotonic().0, "gpus": [gpu]});
        std::fs::write(&scenario, scripted.to_string()).expect("the scenario");
        Self { folder, engine, listen: free_port().to_string(), scenario }
    }

    fn begin(&self, block: &Block) -> Process {
        let folder = self.folder.path().join(&block.host);
        std::fs::create_dir_all(&folder).expect("a host's folder");
        let script = here(&block.script, self.engine.url(), &self.listen);
        let mut bash = Command::new("bash");
        // In place of the shell, so that ending it leaves nothing behind.
        let script = if block.background { format!("exec {script}") } else { script };
        bash.args(["-euo", "pipefail", "-c", &script]).current_dir(folder);
        bash.env("PATH", path()).env("LD_LIBRARY_PATH", self.folder.path());
        bash.env("FAKE_NVML_SCENARIO", &self.scenario);
        Process::start(bash)
    }
}

/// The programs as they were built, before all others.
fn path() -> String {
    let folder = binary("coordinator").parent().map(Path::to_path_buf).expect("a folder");
    format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default())
}

fn follow(guide: &str) {
    let text = std::fs::read_to_string(Path::new(GUIDES).join(guide)).expect("the guide");
    let blocks = blocks(&text);
    assert!(!blocks.is_empty(), "{guide} has no commands");
    let place = Place::new();
    let mut left_running = Vec::new();
    for block in &blocks {
        let process = place.begin(block);
        if block.background {
            left_running.push((block, process));
            continue;
        }
        let ended = process.wait_within(PATIENCE);
        let beside: Vec<String> = left_running.iter().map(|(_, p)| p.stderr()).collect();
        assert_eq!(ended.code, Some(0), "{guide}: {}\nbeside it: {}", ended.story(), beside.join("\n---\n"));
    }
    for (block, process) in left_running {
        if block.script.starts_with("coordinator ") {
            let ended = process.wait_within(PATIENCE);
            assert_eq!(ended.code, Some(0), "{guide}: {}", ended.story());
        }
    }
}

#[test]
fn a_first_sweep() {
    follow("first-sweep.md");
}

#[test]
fn two_hosts() {
    follow("two-hosts.md");
}

#[test]
fn find_the_knee() {
    follow("find-the-knee.md");
}

#[test]
fn energy() {
    follow("energy.md");
}

#[test]
fn analyse_again() {
    follow("re-analysis.md");
}

/// A guide that nobody follows is not held by anything.
#[test]
fn every_guide_is_followed() {
    let mut found: Vec<String> = std::fs::read_dir(GUIDES)
        .expect("docs/guides")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .filter(|name| name != "README.md")
        .collect();
    found.sort();
    assert_eq!(found, ["energy.md", "find-the-knee.md", "first-sweep.md", "re-analysis.md", "two-hosts.md"]);
    let index = std::fs::read_to_string(Path::new(GUIDES).join("README.md")).expect("the index");
    found.iter().for_each(|name| assert!(index.contains(name.as_str()), "the index lacks {name}"));
}

#[test]
fn blocks_are_read_as_they_are_marked() {
    let text = "a\n```sh\none\ntwo\n```\n```text\nno\n```\n```sh host=b background\nthree\n```\n";
    let block =
        |host: &str, background, script: &str| Block { host: host.into(), background, script: script.into() };
    assert_eq!(blocks(text), [block("here", false, "one\ntwo"), block("b", true, "three")]);
}
