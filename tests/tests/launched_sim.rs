//! The engine's life where it is awkward: it dies at the wrong moment, is slow to stop, has secrets, is one of several.
//! With the simulated engine, so that these run everywhere.

use plimsoll_tests::{
    Agent, Coordinator, Engine, Recipe, Signal, count, eventually, files_with, free_port, list, metric,
    signal, text,
};
use serde_json::json;

fn sweep(recipe: &Recipe) -> Coordinator {
    Coordinator::sweep()
        .args(["--late-budget", "1s", "--warmup", "0", "--warm-connections", "0", "--repeats", "1"])
        .args(["--engine".to_owned(), recipe.path().display().to_string()])
        .workload(&[json!({"prompt": "here we go", "max_tokens": 8})])
}

#[test]
fn a_death_while_the_engine_is_probed_is_called_one_and_nothing_is_measured() {
    // Slow enough that the probe is under way for seconds.
    let recipe = Recipe::sim(&["--fixed-ttft-ms", "400", "--fixed-itl-ms", "20"], "");
    let mut coordinator = sweep(&recipe).line("--rates 10 --requests 20").start();
    coordinator.process.expect_said("engine       ready");
    eventually("the engine to be asked for something", || {
        (metric(&recipe.url(), "vllm:prompt_tokens_total") > 0).then_some(())
    });
    recipe.pids().into_iter().for_each(|pid| signal(pid, Signal::KILL));
    let finished = coordinator.finish().expect_code(1).expect_said(&["the engine died", "signal 9"]);
    finished.expect_no_results();
    recipe.expect_gone();
}

#[test]
fn a_death_between_the_probe_and_the_first_trial_is_never_a_valid_trial() {
    let recipe = Recipe::sim(&["--fixed-ttft-ms", "1", "--fixed-itl-ms", "1"], "");
    let mut coordinator = sweep(&recipe).line("--rates 2 --requests 20 --brief-probe").start();
    coordinator.process.expect_said("trial 0 (1 of 1)");
    recipe.pids().into_iter().for_each(|pid| signal(pid, Signal::KILL));
    let finished = coordinator.finish();
    assert_ne!(finished.ended.code, Some(0), "{}", finished.story());
    assert!(finished.ended.stderr.contains("the engine died"), "{}", finished.story());
    recipe.expect_gone();
}

#[test]
fn two_agents_here_find_the_engine_where_the_recipe_says() {
    // Somebody else is where an engine is looked for when nobody says anything; if that port is taken, all the better.
    let recipe = Recipe::sim(&["--fixed-ttft-ms", "1"], "");
    let finished = sweep(&recipe)
        .line("--rates 20 --requests 20 --local-agents 2 --brief-probe")
        .finish()
        .expect_code(0);
    let results = finished.results();
    assert_eq!(results.outcomes()["success"], 20);
    let record = &results.report["experiment"];
    assert_eq!(text(record, "/plan/base_url"), format!("{}/v1", recipe.url()));
    assert_eq!(list(record, "/agents").len(), 2);
    recipe.expect_gone();
}

#[test]
fn restarts_come_before_each_trial_the_first_one_too() {
    let recipe = Recipe::sim(&["--fixed-ttft-ms", "1"], "");
    let results = sweep(&recipe)
        .line("--rates 10,20 --requests 10 --between-trials restart")
        .finish()
        .expect_code(0)
        .results();
    assert_eq!(count(&results.report, "/experiment/launch/starts"), 3);
    recipe.expect_gone();
}

#[test]
fn a_cache_that_cannot_be_emptied_is_said_before_anything_is_sent() {
    let recipe = Recipe::sim(&["--fixed-ttft-ms", "1"], "");
    let finished = sweep(&recipe).line("--rates 10 --between-trials flush").finish().expect_code(1);
    assert!(finished.ended.stderr.contains("use --between-trials restart"), "{}", finished.story());
    finished.expect_no_results();
    recipe.expect_gone();
}

#[test]
fn an_engine_that_is_slow_to_stop_is_waited_for() {
    let recipe = Recipe::slow_to_stop(7);
    let finished = sweep(&recipe).line("--rates 20 --requests 10 --brief-probe").finish().expect_code(0);
    // Not after a while: when the coordinator is gone, so is the engine.
    assert!(recipe.pids().is_empty() && recipe.port_is_free(), "{}", finished.story());
}

#[test]
fn asked_twice_an_agent_ends_its_engine_at_once() {
    let recipe = Recipe::slow_to_stop(3600);
    let path = recipe.path().display().to_string();
    let mut agent = Agent::start("host", free_port(), &["--engine", &path, "--no-load"]);
    agent.process.expect_said("is ready");
    agent.process.signal(Signal::TERM);
    agent.process.expect_said("stopping the engine");
    agent.process.signal(Signal::TERM);
    let ended = agent.process.wait();
    assert!(ended.stderr.contains("without grace"), "{}", ended.story());
    assert!(recipe.pids().is_empty() && recipe.port_is_free(), "{}", ended.story());
}

#[test]
fn variables_of_a_recipe_may_be_secret() {
    let secret = "sk-planted-7f3a";
    // It says its key when it starts, as engines do.
    let recipe = Recipe::sim(&["--fixed-ttft-ms", "1"], "api_key = \"\"");
    let overlay = "[env]\nENGINE_API_KEY = \"${api_key}\"\n";
    let finished = sweep(&recipe)
        .file("--engine-overlay", "overlay.toml", overlay)
        .args(["--engine-var".to_owned(), format!("api_key={secret}")])
        .line("--rates 20 --requests 10 --brief-probe")
        .finish()
        .expect_code(0);
    assert!(finished.results().report.to_string().contains("ENGINE_API_KEY"), "the record has its name");
    assert_eq!(files_with(finished.folder(), secret), Vec::<std::path::PathBuf>::new());
    assert!(
        !finished.ended.stdout.contains(secret)
            && !finished.story().replace(&finished.ended.command, "").contains(secret)
    );
    recipe.expect_gone();
}

#[test]
fn another_engine_on_the_recipes_port_is_named() {
    let other = Engine::start(&["--fixed-ttft-ms", "1"]);
    let recipe = Recipe::sim(&["--fixed-ttft-ms", "1"], "");
    let port = other.url().rsplit(':').next().unwrap_or_default().to_owned();
    let finished =
        sweep(&recipe).args(["--engine-var".to_owned(), format!("port={port}")]).line("--rates 1").finish();
    let finished = finished.expect_code(1);
    assert!(finished.ended.stderr.contains("is held by process"), "{}", finished.story());
    finished.expect_no_results();
}
