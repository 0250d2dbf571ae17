//! An engine that an agent launches from a recipe: a real llama.cpp, swept, restarted, killed and stopped.
//!
//! Skipped, and said to be, where no real engine is set up.

use plimsoll_tests::{
    Agent, Coordinator, Recipe, Signal, brief, count, free_port, list, number, signal, text,
};
use serde_json::{Value, json};

fn rows(tokens: u64) -> Vec<Value> {
    (0..8).map(|n| json!({"prompt": format!("{n} ba ke lo mi nu"), "max_tokens": tokens})).collect()
}

fn sweep(recipe: &Recipe) -> Coordinator {
    Coordinator::sweep()
        .args(["--late-budget", "1s", "--warmup", "0", "--repeats", "1"])
        .args(["--engine".to_owned(), recipe.path().display().to_string()])
}

#[test]
fn it_is_started_probed_swept_restarted_between_trials_and_stopped() {
    let Some(recipe) = Recipe::llama("ascii", 4) else { return };
    let finished = sweep(&recipe)
        .workload(&rows(24))
        .line(
            "--rates 10,20 --requests 16 --ignore-eos --token-counts --slo itl=20s --between-trials restart",
        )
        .finish()
        .expect_code(0)
        .expect_said(&["local-1 launches it", "llama.cpp"]);
    recipe.expect_gone();
    let results = finished.results();
    for trace in &results.traces {
        let tokens = count(trace, "/output_tokens");
        assert_eq!(tokens, 24, "{}", brief(trace));
        assert_eq!(tokens, list(trace, "/content_ns").len() as u64, "{}", brief(trace));
        assert_eq!(count(trace, "/stream_tokens"), tokens, "{}", brief(trace));
        assert_eq!(trace["itl_evidence"], "proven", "{}", brief(trace));
    }
    for trial in 0..2 {
        // The server was restarted before each trial: it knows no prompt of what was before, but for the word that all
        // prompts begin with.
        let first = results.traces_of(trial).into_iter().min_by_key(|t| count(t, "/written_ns"));
        let first = first.expect("a first trace");
        assert!(count(first, "/cached_tokens") <= 1, "trial {trial}: {}", brief(first));
    }
    let record = &results.report["experiment"];
    let launch = &record["launch"];
    assert_eq!(count(launch, "/starts"), 3, "{launch:#}");
    assert!(text(launch, "/log/sha256").len() == 64 && !list(launch, "/log/tail").is_empty(), "{launch:#}");
    assert_eq!(record["engine"]["name"], "llama.cpp");
    assert!(!list(record, "/engine/launch_command").is_empty(), "{record:#}");
    let probe = &record["probe"];
    assert_eq!(probe["dialect"], "llamacpp");
    assert_eq!(probe["settings"]["total_slots"], 4, "{probe:#}");
    for can in ["usage", "token_counts", "logprobs", "ignore_eos", "token_id_prompts"] {
        assert_eq!(probe["capabilities"][can]["verdict"], "yes", "{can}: {probe:#}");
    }
    // A model as small as this may end before it is seen to run, on a machine that is busy: then nothing is known.
    assert_ne!(probe["capabilities"]["abort_on_disconnect"]["verdict"], "no", "{probe:#}");
    assert_eq!(probe["capabilities"]["cache_reset"]["verdict"], "no");
}

#[test]
fn a_server_that_is_killed_in_the_middle_ends_the_trial_with_its_last_words() {
    let Some(recipe) = Recipe::llama("ascii", 2) else { return };
    let mut coordinator = sweep(&recipe)
        .workload(&rows(400))
        .line("--rates 20 --requests 400 --ignore-eos --brief-probe")
        .start();
    coordinator.process.expect_said("trial 0 (1 of 1)");
    // Into the trial: some answers have come.
    coordinator.process.expect_said("in flight");
    for pid in recipe.pids() {
        signal(pid, Signal::KILL);
    }
    let finished = coordinator.finish().expect_code(4).expect_said(&["the engine died", "signal 9"]);
    recipe.expect_gone();
    let results = finished.results();
    let summary = results.summary();
    assert_eq!(summary["validity"]["verdict"], "invalid");
    let reasons = list(summary, "/validity/reasons");
    assert!(reasons.iter().any(|r| r["kind"] == "engine_died"), "{reasons:#?}");
    // Nothing is unaccounted for: served, cut, or never sent and said so.
    let outcomes = results.outcomes();
    let known = ["success", "reset", "truncated_stream", "connect", "not_dispatched"];
    assert!(outcomes.keys().all(|outcome| known.contains(&outcome.as_str())), "{outcomes:?}");
    assert!(outcomes["not_dispatched"] > 0 && outcomes["success"] > 0, "{outcomes:?}");
    assert_eq!(outcomes.values().sum::<u64>(), 400);
}

#[test]
fn prompts_beyond_the_context_are_failures_with_a_name() {
    let Some(recipe) = Recipe::llama("ascii", 2) else { return };
    let long = json!({"prompt": "ba ke lo mi nu ".repeat(2000), "max_tokens": 8});
    let mut workload = rows(8);
    workload.push(long);
    let results = sweep(&recipe)
        .workload(&workload)
        .line("--rates 20 --requests 18 --brief-probe")
        .finish()
        .expect_code(0)
        .results();
    let refused: Vec<_> = results.traces.iter().filter(|t| t["row"] == 8).collect();
    assert_eq!(refused.len(), 2, "each row is carried twice");
    for trace in refused {
        assert_eq!((trace["outcome"].as_str(), count(trace, "/http_status")), (Some("http_status"), 400));
        assert!(text(trace, "/failure_message").contains("exceed_context_size_error"), "{}", brief(trace));
    }
    assert_eq!(results.outcomes()["success"], 16);
}

#[test]
fn an_agent_that_is_killed_takes_its_engine_along() {
    let Some(recipe) = Recipe::llama("ascii", 2) else { return };
    let path = recipe.path().display().to_string();
    // There is no coordinator: the engine is launched all the same.
    let mut agent = Agent::start("engine-host", free_port(), &["--engine", &path, "--no-load"]);
    agent.process.expect_said("is ready");
    assert_eq!(recipe.pids().len(), 1);
    agent.process.signal(Signal::KILL);
    recipe.expect_gone();
}

#[test]
fn an_agent_beside_the_engine_sends_no_load_and_stops_the_engine_when_it_ends() {
    let Some(recipe) = Recipe::llama("ascii", 4) else { return };
    let path = recipe.path().display().to_string();
    let address = free_port();
    let mut host = Agent::start("engine-host", address, &["--engine", &path, "--no-load"]);
    let sender = Agent::start("sender", address, &["--once"]);
    let finished = Coordinator::sweep()
        .relaxed()
        .engine(&recipe.url())
        .workload(&rows(8))
        .line("--rates 20 --requests 20 --repeats 1 --agents 1 --await-engine --listen")
        .args([address.to_string()])
        .finish()
        .expect_code(0)
        .expect_said(&["engine-host joined (sends no load)", "sender joined (1 of 1)"]);
    let results = finished.results();
    assert!(results.traces.iter().all(|t| t["agent"] == "sender" && t["outcome"] == "success"));
    assert_eq!(text(&results.report, "/experiment/launch/name"), "tiny-llama");
    drop(sender);
    // It serves the next coordinator, until it is told to end.
    assert_eq!(recipe.pids().len(), 1);
    host.process.signal(Signal::TERM);
    let ended = host.process.wait();
    assert_eq!(ended.code, Some(0), "{}", ended.story());
    recipe.expect_gone();
}

#[test]
fn what_cannot_be_launched_is_said_with_the_engines_last_words() {
    let Some(recipe) = Recipe::llama("ascii", 2) else { return };
    let gone = sweep(&recipe).line("--rates 1 --engine-var port=nine").finish().expect_code(1);
    assert!(gone.story().contains("base_url"), "{}", gone.story());
    let overlay = "command_remove = [\"--model\"]\ncommand_append = [\"--model\", \"/nowhere.gguf\"]\n";
    let finished = sweep(&recipe)
        .file("--engine-overlay", "overlay.toml", overlay)
        .line("--rates 1")
        .finish()
        .expect_code(1)
        .expect_said(&["the engine that agent local-1 launches", "no such model: /nowhere.gguf"]);
    finished.expect_no_results();
    recipe.expect_gone();
}

#[test]
fn held_back_tokens_are_counted_and_prove_no_gap() {
    let Some(recipe) = Recipe::llama("utf8", 4) else { return };
    let results = sweep(&recipe)
        .workload(&rows(48))
        .line("--rates 20 --requests 16 --ignore-eos --token-counts --brief-probe")
        .finish()
        .expect_code(0)
        .results();
    let mut held_back = 0;
    for trace in &results.traces {
        let (tokens, events) = (count(trace, "/output_tokens"), list(trace, "/content_ns").len() as u64);
        assert_eq!((tokens, count(trace, "/stream_tokens")), (48, 48), "{}", brief(trace));
        held_back += u64::from(events < tokens);
        if events < tokens {
            assert_eq!(trace["itl_evidence"], "many_per_event", "{}", brief(trace));
            assert!(trace["largest_itl_seconds"].is_null(), "{}", brief(trace));
        }
        // TPOT counts tokens, not events.
        let span = count(trace, "/last_content_ns") - count(trace, "/first_content_ns");
        let tpot = span as f64 / 1e9 / (tokens - 1) as f64;
        if span > 0 {
            assert!((number(trace, "/tpot_seconds") - tpot).abs() < 1e-8, "{}", brief(trace));
        }
    }
    assert!(held_back > 8, "the server held text back in {held_back} answers only");
    let itl = &results.summary()["latency_seconds"]["itl"];
    assert!(count(itl, "/n") < 47 * 16, "{itl:#}");
    recipe.expect_gone();
}

#[test]
fn answers_that_end_by_themselves_come_from_a_launched_server_too() {
    let Some(recipe) = Recipe::llama("eos", 4) else { return };
    let results = sweep(&recipe)
        .workload(&rows(64))
        .file("--extra-body", "random.json", "{\"temperature\": 1.5, \"seed\": 3}")
        .line("--rates 20 --requests 16 --token-counts --brief-probe")
        .finish()
        .expect_code(0)
        .results();
    assert_eq!(results.outcomes()["success"], 16);
    let ended = results.traces.iter().filter(|t| t["finish_reason"] == "stop").count();
    assert!(ended > 4, "only {ended} answers ended by themselves");
    let evidence = &results.summary()["token_evidence"];
    assert_eq!(
        (count(evidence, "/counts_compared"), count(evidence, "/counts_differ")),
        (16, 0),
        "{evidence:#}"
    );
    recipe.expect_gone();
}
