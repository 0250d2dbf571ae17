//! What is recorded beside a run: the host, the engine's own metrics, and GPUs whose true energy is known.

use common::clock::{Clock, SystemClock};
use engines::Scripted;
use plimsoll_tests::schema::{CAPTURE, REPORT, TELEMETRY, keeps_to, validator};
use plimsoll_tests::{
    Agent, Coordinator, Engine, Finished, Recipe, count, eventually, free_port, get, list, number, text,
};
use serde_json::{Value, json};
use tempfile::TempDir;

fn sweep(engine: &Engine) -> Coordinator {
    Coordinator::sweep()
        .relaxed()
        .engine(engine.url())
        .workload(&[json!({"prompt": "here we go", "max_tokens": 16})])
}

fn engine() -> Engine {
    Engine::start(&["--fixed-ttft-ms", "20", "--fixed-itl-ms", "5"])
}

/// All that it left keeps to the schemas.
#[track_caller]
fn keeps_to_the_schemas(finished: &Finished) {
    let report = finished.results().report;
    keeps_to(&validator(REPORT), &report, "report.json");
    let schema = validator(TELEMETRY);
    for line in finished.telemetry() {
        keeps_to(&schema, &line, "a line of telemetry.jsonl");
    }
}

/// The run's folder.
fn folder(finished: &Finished) -> std::path::PathBuf {
    finished.runs().pop().expect("a run")
}

fn series(finished: &Finished, kind: &str) -> Vec<Value> {
    finished.telemetry().into_iter().filter(|line| line["kind"] == kind).collect()
}

#[test]
fn every_host_and_the_engines_own_view_stand_beside_the_trials() {
    let engine = engine();
    let finished = sweep(&engine)
        // The simulated engine has vLLM's metrics. Two trials, so that the first has samples after it, too.
        .line("--rates 20,30 --requests 120 --repeats 1 --local-agents 2 --dialect vllm")
        .finish()
        .expect_code(0);
    let results = finished.results();
    let telemetry = &results.trials()[0]["telemetry"];
    let agents = list(telemetry, "/agents");
    assert_eq!(agents.len(), 2, "{telemetry:#}");
    for agent in agents {
        assert!(
            number(agent, "/host/cpu_share") > 0.0 && number(agent, "/host/agent_cpu_cores") > 0.0,
            "{agent:#}"
        );
        assert!(count(agent, "/host/agent_open_files_peak") > 3);
        assert_eq!(agent["gpus"], json!([]));
    }
    // One of them reads the engine's metrics, once a second, and they agree with what the client saw.
    let scraped = agents.iter().filter(|a| !a["engine"].is_null()).count();
    assert_eq!(scraped, 1, "{telemetry:#}");
    let beside = &telemetry["engine_beside_client"];
    assert_eq!(
        (&beside["tokens_differ"], &beside["in_flight_differs"]),
        (&json!(false), &json!(false)),
        "{beside:#}"
    );
    let summary = &results.trials()[0]["summary"];
    assert_eq!(count(beside, "/client_output_tokens"), count(summary, "/output_tokens"));
    // No GPU was looked for: no energy, and not 0 of it.
    assert!(
        telemetry["totals"]["energy_joules"].is_null()
            && telemetry["efficiency"]["joules_per_output_token"].is_null()
    );
    assert!(finished.ended.stdout.contains("Host of local-1"), "{}", finished.ended.stdout);
    // The series: aligned with the trial, with its bound.
    let hosts = series(&finished, "host");
    let within = hosts.iter().filter(|line| !line["trial_ns"].is_null());
    assert!(within.count() >= 4 && hosts.iter().all(|line| count(line, "/clock_bound_ns") > 0), "{hosts:#?}");
}

/// GPUs on the machine's own time line, so that this process can ask what they really drew.
fn two_gpus(t0_ns: u64, engine: &Engine) -> Value {
    let processes = json!([{"pid": engine.pid(), "used_mib": 1000}]);
    json!({
        "t0_ns": t0_ns,
        "gpus": [
            // Locked to the period of the sensor, which instant power would be fooled by.
            {"uuid": "GPU-0001", "pci": "00000000:01:00.0",
             "power_w": {"squares": [{"low": 120.0, "high": 620.0, "period_s": 0.1, "duty": 0.3, "from_s": 0.0}]},
             "processes": processes},
            {"uuid": "GPU-0002", "pci": "00000000:02:00.0", "power_w": [[0.0, 100.0], [60.0, 700.0], [600.0, 700.0]],
             "processes": processes},
        ],
    })
}

struct Gpus {
    folder: TempDir,
    library: std::path::PathBuf,
    control: fake_nvml::Control,
    scenario: Value,
    t0_ns: u64,
}

impl Gpus {
    fn new(scenario: impl FnOnce(u64) -> Value) -> Self {
        let folder = TempDir::new().expect("a folder");
        let library = fake_nvml::library::place(folder.path(), &[]).expect("the library");
        let t0_ns = SystemClock.monotonic().0;
        let scenario = scenario(t0_ns);
        let control = fake_nvml::Control::open(&library).expect("a scripted library");
        assert!(control.load(&scenario.to_string()), "{scenario:#}");
        Self { folder, library, control, scenario, t0_ns }
    }

    fn agent(&self, name: &str, join: std::net::SocketAddr) -> Agent {
        let library = self.library.display().to_string();
        let path = self.folder.path().join("scenario.json");
        std::fs::write(&path, self.scenario.to_string()).expect("the scenario's file");
        let path = path.display().to_string();
        Agent::start_with(
            name,
            join,
            &["--once", "--no-load", "--gpu", "--nvml-lib", &library],
            &[("FAKE_NVML_SCENARIO", &path)],
        )
    }

    /// What a GPU drew over a trial's window.
    fn truth(&self, gpu: u32, finished: &Finished, trial: &Value) -> f64 {
        let kept = std::fs::read_to_string(folder(finished).join("run.json")).expect("run.json");
        let kept: Value = serde_json::from_str(&kept).expect("JSON");
        let kept =
            list(&kept, "/trials").iter().find(|t| t["trial"] == trial["trial"]).expect("the trial").clone();
        let from = (count(&kept, "/start") - self.t0_ns) as i64 / 1000;
        let length = (number(trial, "/summary/duration_seconds") * 1e6) as i64;
        self.control.true_joules(gpu, from, from + length)
    }

    /// Asserts that both GPUs' energies are what they drew in a trial, and gives what was said of each.
    #[track_caller]
    fn hold(&self, finished: &Finished, trial: &Value, within: f64) -> Vec<Value> {
        let agents = list(trial, "/telemetry/agents");
        let seen = agents.iter().find(|a| a["agent"] == "beside").expect("the agent");
        let boards = list(seen, "/gpus");
        assert_eq!(boards.len(), 2, "{seen:#}");
        for (gpu, board) in (0..).zip(boards) {
            let (measured, truth) = (number(board, "/energy/joules"), self.truth(gpu, finished, trial));
            let off = (measured / truth - 1.0).abs();
            assert!(off < within, "GPU {gpu}: {measured} J, truly {truth} J: {board:#}");
        }
        boards.to_vec()
    }
}

#[test]
fn what_gpus_and_engine_do_is_seen_while_it_goes_on() {
    let engine = engine();
    let gpus = Gpus::new(|t0| two_gpus(t0, &engine));
    let join = free_port();
    let _beside = gpus.agent("beside", join);
    let mut coordinator = sweep(&engine)
        .line("--rates 10,12 --duration 12s --repeats 1 --local-agents 1 --await-gpu --dialect vllm")
        .line("--web 127.0.0.1:0 --listen")
        .args([join.to_string()])
        .start();
    let url = coordinator.process.expect("the page's address", |process| {
        let said = process.stderr();
        Some(said.lines().find_map(|l| l.strip_prefix("live "))?.trim().to_owned())
    });
    let state = eventually("power, memory and the engine's queue", || {
        let seen: Value = serde_json::from_str(&get(&format!("{url}snapshot"))).ok()?;
        let known = |name: &str| {
            let place = seen["metrics"].as_array()?.iter().position(|m| m == name)?;
            let values = seen["points"].as_array()?.iter().filter_map(|p| p["low"][place].as_f64());
            values.reduce(f64::max)
        };
        // The scripted ones have no memory in use, which is known to be 0.
        let watts = known("gpu_power_watts").filter(|_| known("gpu_memory_bytes") == Some(0.0))?;
        known("engine_running")?;
        (watts > 1.0 && seen["state"]["gpus"].as_array()?.len() == 2).then_some(seen["state"].clone())
    });
    assert!(number(&state, "/gpus/0/power_watts") > 1.0, "{state:#}");
    assert!(number(&state, "/gpus/1/memory_total_bytes") > 1e9, "{state:#}");
    let _ = coordinator.finish().expect_code(0);
}

#[test]
fn energy_is_what_the_gpus_really_drew() {
    let engine = engine();
    let gpus = Gpus::new(|t0| two_gpus(t0, &engine));
    let join = free_port();
    let _beside = gpus.agent("beside", join);
    let finished = sweep(&engine)
        .line("--rates 10 --duration 20s --repeats 1 --local-agents 2 --await-gpu --listen")
        .args([join.to_string()])
        .finish()
        .expect_code(0);
    let results = finished.results();
    let trial = &results.trials()[0];
    let telemetry = &trial["telemetry"];
    let boards = gpus.hold(&finished, trial, 0.02);
    for board in &boards {
        assert_eq!(
            (&board["energy"]["method"], &board["complete"]),
            (&json!("counter"), &json!(true)),
            "{board:#}"
        );
    }
    let sum: f64 = boards.iter().map(|board| number(board, "/energy/joules")).sum();
    assert!((number(telemetry, "/totals/energy_joules") / sum - 1.0).abs() < 1e-9);
    let per_token = sum / count(trial, "/summary/output_tokens") as f64;
    assert!((number(telemetry, "/efficiency/joules_per_output_token") / per_token - 1.0).abs() < 1e-9);
    let shown = &finished.ended.stdout;
    assert!(
        shown.contains("Energy of 2 GPUs (GPU board, NVML; not wall power)") && shown.contains("J/token"),
        "{shown}"
    );
    // The record says what the hardware is, so that nobody has to.
    let record = &results.report["experiment"];
    assert_eq!(text(record, "/hardware/gpu"), "NVIDIA H200");
    assert_eq!(count(record, "/hardware/gpu_count"), 2);
    assert!(!list(record, "/missing").contains(&json!("hardware.driver")), "{:#}", record["missing"]);
    assert!(series(&finished, "power").len() > 500);
    keeps_to_the_schemas(&finished);
}

#[test]
fn five_seconds_are_enough_for_an_energy() {
    let engine = engine();
    let gpus = Gpus::new(|t0| two_gpus(t0, &engine));
    let join = free_port();
    let _beside = gpus.agent("beside", join);
    let finished = sweep(&engine)
        .line("--rates 10 --duration 5s --repeats 3 --local-agents 2 --await-gpu --listen")
        .args([join.to_string()])
        .finish()
        .expect_code(0);
    for trial in finished.results().trials() {
        gpus.hold(&finished, trial, 0.05);
    }
}

#[test]
fn a_counter_that_begins_again_and_a_call_that_hangs_cost_no_energy() {
    let engine = engine();
    let gpus = Gpus::new(|t0| {
        let mut scenario = two_gpus(t0, &engine);
        // In the trial, which begins after some nine seconds and takes 20: up to 11 more do no harm.
        scenario["gpus"][0]["energy"] = json!({"resets_s": [21.0]});
        scenario["calls"] =
            json!([{"call": "nvmlDeviceGetFieldValues", "from_s": 23.0, "to_s": 25.5, "hang": true}]);
        scenario
    });
    let join = free_port();
    let _beside = gpus.agent("beside", join);
    let finished = sweep(&engine)
        .line("--rates 10 --duration 20s --repeats 1 --local-agents 2 --await-gpu --listen")
        .args([join.to_string()])
        .finish()
        .expect_code(0);
    let results = finished.results();
    let boards = gpus.hold(&finished, &results.trials()[0], 0.02);
    // What the counter lost is not guessed: the average power stands in, and says so.
    assert_eq!(boards[0]["energy"]["method"], "average_power", "{:#}", boards[0]);
    assert_eq!(boards[1]["energy"]["method"], "counter", "{:#}", boards[1]);
    assert!(
        boards.iter().all(|b| number(b, "/energy/largest_gap_seconds") > 2.0 && b["complete"] == false),
        "{boards:#?}"
    );
    let events = series(&finished, "event");
    assert!(events.iter().any(|e| e["event"] == "stalled"), "{events:#?}");
}

#[test]
fn a_gpu_that_goes_away_leaves_the_others_numbers_and_a_mark() {
    let engine = engine();
    let gpus = Gpus::new(|t0| {
        let mut scenario = two_gpus(t0, &engine);
        // In the trial, which begins after some nine seconds and takes 20.
        scenario["gpus"][1]["lost"] = json!([{"from_s": 22.0}]);
        scenario
    });
    let join = free_port();
    let _beside = gpus.agent("beside", join);
    let finished = sweep(&engine)
        .line("--rates 10 --duration 20s --repeats 1 --local-agents 1 --await-gpu --require-gpu --listen")
        .args([join.to_string()])
        .finish()
        .expect_code(0);
    let results = finished.results();
    let trial = &results.trials()[0];
    // Asked for and lost: the trial is no valid one.
    let reasons = list(trial, "/summary/validity/reasons");
    assert!(reasons.iter().any(|r| r["kind"] == "telemetry_lost"), "{reasons:#?}");
    let seen =
        list(trial, "/telemetry/agents").iter().find(|a| a["agent"] == "beside").expect("the agent").clone();
    let boards = list(&seen, "/gpus");
    assert_eq!((&boards[0]["complete"], &boards[1]["complete"]), (&json!(true), &json!(false)), "{seen:#}");
    let truth = gpus.truth(0, &finished, trial);
    assert!((number(&boards[0], "/energy/joules") / truth - 1.0).abs() < 0.02, "{truth}: {:#}", boards[0]);
    let events = series(&finished, "event");
    assert!(events.iter().any(|e| e["event"] == "lost" && e["gpu"] == 1), "{events:#?}");
    assert!(finished.ended.stdout.contains("not seen whole"), "{}", finished.ended.stdout);
    keeps_to_the_schemas(&finished);
}

#[test]
fn without_a_library_it_is_said_and_the_sweep_goes_on_unless_it_must_not() {
    let engine = engine();
    let run = |options: &str| {
        let join = free_port();
        let _beside = Agent::start(
            "beside",
            join,
            &["--once", "--no-load", "--gpu", "--nvml-lib", "/nowhere/libnvidia-ml.so.1"],
        );
        sweep(&engine)
            .line("--rates 20 --requests 20 --repeats 1 --local-agents 1 --await-gpu")
            .line(options)
            .args(["--listen".to_owned(), join.to_string()])
            .finish()
    };
    let went_on = run("").expect_code(0).expect_said(&["nothing is recorded", "/nowhere/libnvidia-ml.so.1"]);
    assert_eq!(went_on.results().outcomes()["success"], 20);
    let stopped =
        run("--require-gpu").expect_code(1).expect_said(&["--require-gpu", "/nowhere/libnvidia-ml.so.1"]);
    assert!(stopped.ended.stdout.is_empty(), "{}", stopped.story());
}

#[test]
fn a_capture_records_without_sending_anything() {
    let engine = engine();
    let gpus = Gpus::new(|t0| two_gpus(t0, &engine));
    let join = free_port();
    let _beside = gpus.agent("beside", join);
    let finished = Coordinator::capture()
        .line("--duration 6s --dialect vllm --local-agents 1 --await-gpu --base-url")
        .args([engine.url().to_owned(), "--listen".into(), join.to_string()])
        .finish()
        .expect_code(0);
    assert_eq!(engine.log(), Vec::<Value>::new());
    let shown = &finished.ended.stdout;
    assert!(shown.contains("NVIDIA H200 GPU-0001") && shown.contains("Together"), "{shown}");
    let text = std::fs::read_to_string(folder(&finished).join("capture.json")).expect("capture.json");
    let capture: Value = serde_json::from_str(&text).expect("JSON");
    keeps_to(&validator(CAPTURE), &capture, "capture.json");
    assert_eq!(count(&capture, "/hardware/gpu_count"), 2);
    let seen =
        list(&capture, "/window/agents").iter().find(|a| a["agent"] == "beside").expect("the agent").clone();
    // 120 W and for three tenths of the time 620: 270 W.
    let watts = number(&seen["gpus"][0], "/energy/mean_power_watts");
    assert!((watts / 270.0 - 1.0).abs() < 0.05, "{watts} W: {:#}", seen["gpus"][0]);
    assert!(!seen["engine"].is_null() && series(&finished, "engine").len() >= 5, "{seen:#}");
    // And it can be looked at again.
    let again = finished.reported_again("");
    assert!(again.contains("NVIDIA H200 GPU-0001"), "{again}");
}

#[test]
fn a_capture_waits_for_the_engine_that_it_launches() {
    let recipe = Recipe::sim(&["--fixed-ttft-ms", "1"], "");
    let finished = Coordinator::capture()
        .line("--duration 2s --local-agents 1 --dialect vllm --engine")
        .args([recipe.path().display().to_string()])
        .finish()
        .expect_code(0)
        .expect_said(&["engine       ready"]);
    assert!(series(&finished, "engine").len() >= 2, "{}", finished.story());
    recipe.expect_gone();
}

#[test]
fn a_capture_finds_out_which_engine_it_is_or_says_that_it_cannot() {
    let capture = |name: &str| {
        let engine = Scripted::start(engines::named(name).expect("an engine"));
        let finished = Coordinator::capture()
            .line("--duration 2s --local-agents 1 --base-url")
            .args([engine.url().to_owned()])
            .finish()
            .expect_code(0);
        (series(&finished, "engine").len(), finished)
    };
    let (scrapes, finished) = capture("vllm");
    assert!(scrapes >= 2, "{}", finished.story());
    let (scrapes, finished) = capture("serve_py");
    assert_eq!(scrapes, 0);
    assert!(finished.ended.stdout.contains("the engine's metrics cannot be read"), "{}", finished.story());
}

#[test]
fn an_agent_that_only_records_ends_nothing_when_it_dies() {
    let engine = engine();
    let gpus = Gpus::new(|t0| two_gpus(t0, &engine));
    let join = free_port();
    let beside = gpus.agent("beside", join);
    let mut running = sweep(&engine)
        .line("--rates 20 --duration 6s --repeats 1 --local-agents 1 --await-gpu --listen")
        .args([join.to_string()])
        .start();
    running.process.expect_said("trial 0 (1 of 1)");
    drop(beside);
    // Another takes its place in the middle of the run.
    let _again = gpus.agent("again", join);
    let finished = running.finish().expect_code(0);
    let results = finished.results();
    assert_eq!(results.outcomes()["success"], count(results.summary(), "/requests"));
    let agents: std::collections::BTreeSet<String> =
        series(&finished, "host").iter().map(|line| text(line, "/agent").to_owned()).collect();
    assert!(["again", "beside"].iter().all(|name| agents.contains(*name)), "{agents:?}");
}
