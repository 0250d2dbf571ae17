//! A real vLLM and a real SGLang on the CPU, and a trained model on llama.cpp, each through its recipe: what is counted
//! is what the engine itself counts, and nothing is left running.
//!
//! Opt-in: `make test-engines` installs them (7 GB) and runs this; without it each test says that it is skipped. Their
//! token timing on two shared cores means nothing: only counts and outcomes are asserted.

use std::path::{Path, PathBuf};
use std::time::Duration;

use plimsoll_tests::{
    Agent, Coordinator, Recipe, Running, Signal, by, command_line, count, eventually, free_port, list,
    metric, signal, text,
};
use serde_json::{Value, json};

/// For an engine to be ready: mostly imports.
const START: Duration = Duration::from_secs(600);
/// For a sweep of a few dozen requests.
const SWEEP: Duration = Duration::from_secs(300);

/// What is known of an engine.
struct Kind {
    recipe: &'static str,
    overlay: &'static str,
    /// The recipe's variable for its program, and the program in the folder of engines.
    program: (&'static str, &'static str),
    dialect: &'static str,
    generated: &'static str,
    prompts: &'static str,
    /// What the process is called that computes, as its command line or its name has it.
    worker: &'static str,
}

const VLLM: Kind = Kind {
    recipe: "vllm.toml",
    overlay: "vllm-cpu.toml",
    program: ("vllm", "vllm/bin/vllm"),
    dialect: "vllm",
    generated: "vllm:generation_tokens_total",
    prompts: "vllm:prompt_tokens_total",
    worker: "VLLM::Worker",
};

const SGLANG: Kind = Kind {
    recipe: "sglang.toml",
    overlay: "sglang-cpu.toml",
    program: ("python", "sglang/bin/python"),
    dialect: "sglang",
    generated: "sglang:generation_tokens_total",
    prompts: "sglang:prompt_tokens_total",
    worker: "sglang::scheduler",
};

/// The folder that `make test-engines` makes; none when it is not there, which is said.
fn engines() -> Option<PathBuf> {
    let folder = std::env::var_os("PLIMSOLL_CPU_ENGINES").filter(|f| !f.is_empty()).map(PathBuf::from);
    if folder.is_none() {
        println!(
            "skipped: PLIMSOLL_CPU_ENGINES is not set; `make test-engines` installs them and runs this test"
        );
    }
    folder
}

/// An agent that launches the engine, with where it serves.
struct Host {
    agent: Agent,
    kind: &'static Kind,
    port: u16,
    join: std::net::SocketAddr,
}

impl Host {
    fn start(kind: &'static Kind, folder: &Path) -> Self {
        let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/engines");
        let (port, join) = (free_port().port(), free_port());
        let path = |p: PathBuf| p.display().to_string();
        let (variable, program) = kind.program;
        let options = [
            "--no-load".to_owned(),
            "--engine".into(),
            path(deploy.join(kind.recipe)),
            "--engine-overlay".into(),
            path(deploy.join("overlays").join(kind.overlay)),
            "--engine-var".into(),
            format!("checkpoint={}", path(folder.join("tiny"))),
            "--engine-var".into(),
            format!("{variable}={}", path(folder.join(program))),
            "--engine-var".into(),
            format!("port={port}"),
        ];
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let mut agent = Agent::start("engine-host", join, &options);
        agent.process.expect_within(START, "is ready", |p| p.stderr().contains("is ready").then_some(()));
        Self { agent, kind, port, join }
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The engine's first process: the one whose command line names its port.
    fn server(&self) -> Vec<u32> {
        let port = format!("--port {} ", self.port);
        processes().into_iter().filter(|pid| command_line(*pid).contains(&port)).collect()
    }

    fn counters(&self) -> (u64, u64) {
        (metric(&self.url(), self.kind.generated), metric(&self.url(), self.kind.prompts))
    }

    /// `coordinator sweep` by one local agent, with this one looking after the engine.
    fn sweep(&self) -> Coordinator {
        Coordinator::sweep()
            .relaxed()
            .engine(&self.url())
            .line("--repeats 1 --local-agents 1 --await-engine --timeout 60s --listen")
            .args([self.join.to_string()])
    }

    /// Waits until nothing of the engine is left.
    fn expect_gone(&self) {
        eventually("the engine's processes to be gone and its port to be free", || {
            let free = std::net::TcpListener::bind(("127.0.0.1", self.port)).is_ok();
            (self.server().is_empty() && free).then_some(())
        });
    }
}

fn processes() -> Vec<u32> {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The descendants of `pid`.
fn tree(pid: u32) -> Vec<u32> {
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        found.extend(
            plimsoll_tests::descendants(parent)
                .into_iter()
                .filter(|p| !found.contains(p))
                .collect::<Vec<_>>(),
        );
        next += 1;
    }
    found
}

/// Long enough for a block of the prefix cache, 128 tokens on vLLM's CPU.
fn rows(tokens: u64) -> Vec<Value> {
    (0..4)
        .map(
            |n| json!({"prompt": format!("{n} {}", "the quick brown fox ".repeat(40)), "max_tokens": tokens}),
        )
        .collect()
}

/// Probed, swept cold at three rates, counted.
fn probed_and_swept(host: &Host) {
    let probe = Coordinator::probe()
        .engine(&host.url())
        .line("--format json")
        .start()
        .finish_within(SWEEP)
        .expect_code(0);
    let probe: Value = serde_json::from_str(&probe.ended.stdout).expect("a probe as JSON");
    assert_eq!(probe["dialect"], host.kind.dialect, "{probe:#}");
    assert!(!probe["settings"].is_null() && !probe["engine_version"].is_null(), "{probe:#}");
    for can in [
        "usage",
        "token_counts",
        "logprobs",
        "ignore_eos",
        "token_id_prompts",
        "cache_reset",
        "abort_on_disconnect",
    ] {
        assert_eq!(probe["capabilities"][can]["verdict"], "yes", "{can}: {:#}", probe["capabilities"]);
    }
    println!("{}: {:#}", host.kind.dialect, probe["capabilities"]);

    let before = host.counters();
    let finished = host
        .sweep()
        .workload(&rows(12))
        .line("--rates 2,4,6 --requests 12 --ignore-eos --token-counts --between-trials flush")
        .start()
        .finish_within(SWEEP)
        .expect_code(0);
    let results = finished.results();
    assert_eq!(results.outcomes()["success"], 36, "{:?}", results.outcomes());
    let sum = |field: &str| results.traces.iter().map(|t| count(t, field)).sum::<u64>();
    let probing = results.traces.iter().find(|t| t["row"] == 0).expect("the first row");
    // One probing request by the agent that sends, with the first row.
    let expected = (
        before.0 + sum("/output_tokens") + count(probing, "/output_tokens"),
        before.1 + sum("/prompt_tokens") + count(probing, "/prompt_tokens"),
    );
    let mut last = before;
    eventually(&format!("the engine's totals to be {expected:?}; before {before:?}, last {last:?}"), || {
        last = host.counters();
        (last == expected).then_some(())
    });
    for trial in results.trials() {
        let evidence = &trial["summary"]["token_evidence"];
        assert_eq!(evidence["counts_compared"], 12, "{evidence:#}");
        assert_eq!(evidence["counts_differ"], 0, "{evidence:#}");
        // Each trial begins with an empty cache: of a prompt's three requests the first finds nothing, the last all
        // but the end of it.
        let number = count(trial, "/trial");
        let traces = results.traces_of(number);
        for row in 0..4 {
            let of_row: Vec<u64> =
                (traces.iter().filter(|t| t["row"] == row)).map(|t| count(t, "/cached_tokens")).collect();
            assert_eq!(of_row.len(), 3);
            assert!(of_row[0] == 0 || of_row.contains(&0), "trial {number}, row {row}: {of_row:?}");
            assert!(of_row[2] > 0, "trial {number}, row {row}: {of_row:?}");
        }
    }
    println!("{}: 36 requests, tokens as the engine counts them: {expected:?}", host.kind.dialect);
}

/// A run that is in the middle of long answers.
fn in_the_middle(host: &Host) -> Running {
    let mut coordinator =
        host.sweep().workload(&rows(400)).line("--rates 8 --requests 64 --ignore-eos").start();
    // Two lines of progress: some requests are on their way.
    coordinator.process.expect_within(SWEEP, "requests under way", |p| {
        p.stderr().lines().any(|l| l.contains("in flight") && !l.contains("in flight 0")).then_some(())
    });
    coordinator
}

fn expect_died(coordinator: Running) {
    let finished = coordinator.finish_within(SWEEP).expect_code(4).expect_said(&["the engine died"]);
    let results = finished.results();
    assert_eq!(results.traces.len(), 64);
    let reasons = list(results.summary(), "/validity/reasons");
    assert!(reasons.iter().any(|r| r["kind"] == "engine_died"), "{reasons:#?}");
    println!("after the kill: {:?}", by(&results.traces, "/outcome"));
}

fn whole_life(kind: &'static Kind) {
    let Some(folder) = engines() else { return };
    let host = Host::start(kind, &folder);
    probed_and_swept(&host);
    let server = host.server();
    let [first] = server[..] else { panic!("not one server: {server:?}") };
    let workers: Vec<u32> =
        tree(first).into_iter().filter(|pid| command_line(*pid).contains(kind.worker)).collect();
    assert!(!workers.is_empty(), "no {} below {first}", kind.worker);
    let coordinator = in_the_middle(&host);
    workers.iter().for_each(|pid| signal(*pid, Signal::KILL));
    expect_died(coordinator);
    let mut host = host;
    host.agent.process.signal(Signal::TERM);
    host.expect_gone();

    // Again, for the server itself; its workers would live on.
    let mut host = Host::start(kind, &folder);
    let all = tree(host.server()[0]);
    let coordinator = in_the_middle(&host);
    signal(host.server()[0], Signal::KILL);
    expect_died(coordinator);
    eventually("every process of the engine to be gone", || {
        all.iter().all(|pid| command_line(*pid).is_empty()).then_some(())
    });
    host.agent.process.signal(Signal::TERM);
    host.expect_gone();
}

#[test]
fn vllm_is_launched_probed_swept_killed_and_stopped() {
    whole_life(&VLLM);
}

#[test]
fn sglang_is_launched_probed_swept_killed_and_stopped() {
    whole_life(&SGLANG);
}

#[test]
fn a_trained_model_answers_as_the_server_counts() {
    let Some(folder) = engines() else { return };
    let Some(recipe) = Recipe::llama_of(&folder.join("smollm2.gguf"), 2) else { return };
    let finished = Coordinator::sweep()
        .relaxed()
        .args(["--engine".to_owned(), recipe.path().display().to_string()])
        .workload(&[
            json!({"messages": [{"role": "user", "content": "Name three colours."}], "max_tokens": 24}),
        ])
        .line(
            "--rates 0.5,1,2 --requests 6 --repeats 1 --token-counts --timeout 120s --between-trials restart",
        )
        .start()
        .finish_within(SWEEP)
        .expect_code(0);
    let results = finished.results();
    assert_eq!(results.outcomes()["success"], 18, "{:?}", results.outcomes());
    for trace in &results.traces {
        assert_eq!(count(trace, "/stream_tokens"), count(trace, "/output_tokens"));
        assert!(!text(trace, "/output").is_empty());
    }
    assert_eq!(results.report["experiment"]["launch"]["starts"], 4);
    println!("{}", text(&results.traces[0], "/output"));
}
