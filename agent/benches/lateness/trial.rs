//! One trial with the real binaries, and what it says of its lateness.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail};
use serde_json::Value;

/// Seconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lateness {
    pub(crate) n: u64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
}

/// What a trial says of the generator.
#[derive(Debug)]
pub(crate) struct Trial {
    /// From `report.json`.
    pub(crate) dispatch: Lateness,
    /// From `run.json`, which keeps the agent's health.
    pub(crate) read: Lateness,
    /// CPU seconds of the agent a second.
    pub(crate) agent_cpu: f64,
    pub(crate) verdict: String,
}

/// A simulated engine, until it is dropped.
pub(crate) struct Engine {
    process: Child,
    url: String,
    folder: tempfile::TempDir,
}

impl Drop for Engine {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A binary of ours in the folder above this one's: cargo puts benches into `deps`.
fn binary(name: &str) -> anyhow::Result<PathBuf> {
    let bench = std::env::current_exe()?;
    let folder = bench.parent().and_then(Path::parent).context("no folder above the bench")?;
    let path = folder.join(name);
    if !path.is_file() {
        bail!("{name} is not built; run `cargo build --release -p coordinator -p agent -p sim-engine`");
    }
    Ok(path)
}

impl Engine {
    /// Starts it on a free port. Its tokens come all with the first, so that it leaves the cores to the agent.
    pub(crate) fn start() -> anyhow::Result<Self> {
        let mut process = Command::new(binary("sim-engine")?)
            .args(["--listen", "127.0.0.1:0", "--fixed-ttft-ms", "20", "--model", "sim"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let stdout = process.stdout.take().context("no output of sim-engine")?;
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
        let mut engine = Self { process, url: String::new(), folder };
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let url =
            line.trim().strip_prefix("sim-engine listening on ").context("sim-engine does not listen")?;
        engine.url = url.to_owned();
        let row = r#"{"prompt":"What does the mark on the side of a ship say?","max_tokens":16}"#;
        std::fs::write(engine.folder.path().join("workload.jsonl"), format!("{row}\n"))?;
        Ok(engine)
    }

    /// Sends one trial by one agent.
    pub(crate) fn trial(&self, rate: u32, seconds: u64, turn: usize) -> anyhow::Result<Trial> {
        let data = self.folder.path().join(format!("{rate}-{turn}"));
        let output = Command::new(binary("coordinator")?)
            .args(["run", "--rate", &rate.to_string(), "--duration", &format!("{seconds}s")])
            .args(["--base-url", &self.url, "--model", "sim", "--ignore-eos", "--warm-connections", "64"])
            .arg("--workload")
            .arg(self.folder.path().join("workload.jsonl"))
            .arg("--data")
            .arg(&data)
            .stdin(Stdio::null())
            .output()?;
        if !output.status.success() {
            bail!("the coordinator failed: {}", String::from_utf8_lossy(&output.stderr));
        }
        let runs: Vec<_> = std::fs::read_dir(data.join("runs"))?.collect::<Result<_, _>>()?;
        let [run] = runs.as_slice() else { bail!("not one run but {}", runs.len()) };
        read(&run.path())
    }
}

fn read(run: &Path) -> anyhow::Result<Trial> {
    let document = |name: &str| -> anyhow::Result<Value> {
        serde_json::from_slice(&std::fs::read(run.join(name))?).with_context(|| name.to_owned())
    };
    let report = document("report.json")?;
    let summary = &report["trials"][0]["summary"];
    let kept = document("run.json")?;
    let health = &kept["trials"][0]["agents"][0]["health"];
    let number = |value: &Value| value.as_f64().with_context(|| format!("no number but {value}"));
    Ok(Trial {
        dispatch: lateness(&summary["agents"][0]["dispatch_lateness_seconds"])?,
        read: lateness(&health["read_lateness"])?,
        agent_cpu: number(&health["process_cpu_seconds"])? / number(&health["seconds"])?,
        verdict: summary["validity"]["verdict"].as_str().unwrap_or("unknown").to_owned(),
    })
}

fn lateness(value: &Value) -> anyhow::Result<Lateness> {
    let number = |name: &str| value[name].as_f64().with_context(|| format!("no {name} in {value}"));
    Ok(Lateness {
        n: value["n"].as_u64().context("no n")?,
        p50: number("p50")?,
        p99: number("p99")?,
        max: number("max")?,
    })
}
