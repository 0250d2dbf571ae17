//! The coordinator is killed, and the run is resumed: what was spooled is there with its real outcome, the trial that
//! was under way is invalid and sent again, and the report is that of an undisturbed run.

use std::collections::BTreeSet;

use plimsoll_tests::schema::{REPORT, keeps_to, validator};
use plimsoll_tests::{
    Agent, Coordinator, Engine, Finished, Recipe, Results, Running, Signal, brief, by, count, eventually,
    free_port, list, text,
};
use serde_json::{Value, json};

const USAGE: i32 = 2;

fn sweep(engine: &Engine) -> Coordinator {
    Coordinator::sweep()
        .relaxed()
        .engine(engine.url())
        .workload(&[json!({"prompt": "hold fast", "max_tokens": 4})])
        .line("--rates 20,30 --requests 90 --repeats 1")
}

/// Of each trial of [`sweep`]: so many that a trial is still under way when a third of them was seen.
const REQUESTS: u64 = 90;

/// Killed when the engine has seen `requests` of its run.
fn killed_after(requests: usize, engine: &Engine, mut running: Running) -> Finished {
    eventually("requests at the engine", || (engine.log().len() > requests).then_some(()));
    running.signal(Signal::KILL);
    let killed = running.finish();
    assert_eq!(killed.ended.code, None, "{}", killed.story());
    killed
}

/// Rate, repeat, seed and digests of the trials that count.
fn schedules(results: &Results) -> BTreeSet<String> {
    let again: BTreeSet<u64> = results.trials().iter().filter_map(|t| t["rerun_of"].as_u64()).collect();
    let standing = results.trials().iter().filter(|t| !again.contains(&count(t, "/trial")));
    let of = |t: &Value| {
        ["offered_rate", "repeat", "seed", "schedule_sha256", "workload_sha256"]
            .map(|f| t[f].to_string())
            .join(" ")
    };
    standing.map(of).collect()
}

/// What holds of a run of [`sweep`] that was disturbed once, in a trial, and resumed.
fn whole(results: &Results, undisturbed: &Results) {
    assert_eq!(schedules(results), schedules(undisturbed));
    let disturbed: Vec<_> =
        results.trials().iter().filter(|t| text(&t["summary"], "/validity/verdict") == "invalid").collect();
    let [trial] = disturbed.as_slice() else { panic!("{disturbed:#?}") };
    let reasons = by(list(&trial["summary"], "/validity/reasons"), "/kind");
    assert!(reasons.contains_key("coordinator_restarted"), "{reasons:?}");
    let again: Vec<_> = results.trials().iter().filter(|t| t["rerun_of"] == trial["trial"]).collect();
    assert_eq!(again.len(), 1, "it was not sent again once");
    for trial in results.trials().iter().filter(|t| t["trial"] != trial["trial"]) {
        assert_eq!(count(&trial["summary"], "/successful"), REQUESTS, "{:#}", trial["summary"]["validity"]);
    }
    assert_ne!(text(&results.report, "/knee/case"), "undecided");
    assert_eq!(list(&results.report, "/experiment/resumed").len(), 1);
    keeps_to(&validator(REPORT), &results.report, "the report of a resumed run");
}

/// What the traces of the disturbed trial say against the engine's own log.
fn judged_by_the_engine(results: &Results, engine: &Engine, disturbed: u64) {
    let log = engine.log_of(results.run(), disturbed);
    // RUN/TRIAL/INDEX.
    let index = |line: &Value| -> u64 {
        text(line, "/request_id").rsplit('/').next().and_then(|i| i.parse().ok()).expect("an index")
    };
    let finished: BTreeSet<u64> = log.iter().filter(|l| l["outcome"] == "finished").map(index).collect();
    let seen: BTreeSet<u64> = log.iter().map(index).collect();
    assert_eq!(seen.len(), log.len(), "an arrival was sent twice");
    for trace in results.traces_of(disturbed) {
        let index = count(trace, "/index");
        match text(trace, "/outcome") {
            "success" => assert!(finished.contains(&index), "{}", brief(trace)),
            "not_dispatched" => assert!(!seen.contains(&index), "{}", brief(trace)),
            "cancelled" | "agent_lost" => {}
            _ => panic!("{}", brief(trace)),
        }
    }
}

#[test]
fn agents_elsewhere_that_live_on_give_back_all_that_they_know() {
    let engine = Engine::start(&["--fixed-ttft-ms", "200"]);
    let undisturbed = sweep(&engine).line("--local-agents 2").finish().expect_code(0).results();
    let before = engine.log().len();
    let listen = free_port().to_string();
    let mut agents: Vec<Agent> = ["east", "west"].map(|name| Agent::start(name, &listen, &[])).into();
    let running = sweep(&engine).args(["--agents", "2", "--listen", &listen]).start();
    let killed = killed_after(before + 30, &engine, running);
    let results = Coordinator::resume(&killed)
        .finish()
        .expect_code(0)
        .expect_said(&["trial 0 was under way", "sent again", "again for trial 0"])
        .results();
    whole(&results, &undisturbed);
    judged_by_the_engine(&results, &engine, 0);
    // The agents know the fate of every arrival: what was in flight was cut, and what was not sent was not sent.
    let outcomes = by(results.traces_of(0), "/outcome");
    assert!(outcomes["success"] > 10, "{outcomes:?}");
    assert!(!outcomes.contains_key("agent_lost"), "{outcomes:?}");
    assert_eq!(count(&results.trials()[0]["summary"], "/synthetic_traces"), 0);
    assert!(agents.iter_mut().all(|a| a.process.is_running()));
    for agent in agents {
        let left = walk(agent.folder());
        assert!(!left.iter().any(|name| name.ends_with(".seg")), "sealed segments stay: {left:?}");
    }
}

#[test]
fn agents_of_the_coordinators_own_host_leave_their_spools_to_the_next() {
    let engine = Engine::start(&["--fixed-ttft-ms", "50"]);
    let undisturbed = sweep(&engine).line("--local-agents 2").finish().expect_code(0).results();
    let before = engine.log().len();
    let killed = killed_after(before + 30, &engine, sweep(&engine).line("--local-agents 2").start());
    let results = Coordinator::resume(&killed).finish().expect_code(0).results();
    whole(&results, &undisturbed);
    judged_by_the_engine(&results, &engine, 0);
    assert!(by(results.traces_of(0), "/outcome")["success"] > 10);
}

#[test]
fn a_run_that_was_stopped_goes_on_and_one_that_is_over_does_not() {
    let engine = Engine::start(&["--fixed-ttft-ms", "5"]);
    let mut running = sweep(&engine).line("--header x-note:planted").start();
    eventually("requests at the engine", || (engine.log().len() > 10).then_some(()));
    running.signal(Signal::INT);
    let stopped = running.finish().expect_code(130);
    // What may be secret was not kept, and what was asked for cannot be something else.
    Coordinator::resume(&stopped).finish().expect_code(USAGE).expect_said(&["--header x-note: …"]);
    let typed = ["--header", "x-note:planted"];
    let other = Coordinator::resume(&stopped).args(typed).line("--max-tokens 9").finish();
    other.expect_code(1).expect_said(&["default_max_tokens", "cannot go on as the same run"]);
    let resumed = Coordinator::resume(&stopped).args(typed).finish().expect_code(0);
    let results = resumed.results();
    assert_eq!(results.trials().len(), 3);
    let counted: Vec<u64> = results.trials().iter().map(|t| count(&t["summary"], "/successful")).collect();
    assert_eq!(counted[1..], [REQUESTS, REQUESTS]);
    Coordinator::resume(&resumed).finish().expect_code(1).expect_said(&["is finished"]);
}

#[test]
fn a_run_does_not_go_on_with_an_engine_that_is_launched_otherwise() {
    let recipe = Recipe::sim(&["--fixed-ttft-ms", "5"], "");
    let mut running = Coordinator::sweep()
        .relaxed()
        .args(["--engine".to_owned(), recipe.path().display().to_string()])
        .workload(&[json!({"prompt": "hold fast", "max_tokens": 4})])
        .line("--rates 10,20 --requests 40 --repeats 1")
        .start();
    running.process.expect_said("trial 0 (1 of 2)");
    running.signal(Signal::INT);
    let stopped = running.finish().expect_code(130);
    let text = std::fs::read_to_string(recipe.path()).expect("a recipe");
    std::fs::write(recipe.path(), format!("{text}\n# Another.\n")).expect("a recipe");
    let other = Coordinator::resume(&stopped).finish();
    assert_ne!(other.ended.code, Some(0), "{}", other.story());
    other.expect_said(&["launch.recipe.sha256", "cannot go on as the same run"]);
    std::fs::write(recipe.path(), text).expect("a recipe");
    let results = Coordinator::resume(&stopped).finish().expect_code(0).results();
    let record = &results.report["experiment"];
    assert_eq!(list(record, "/resumed").len(), 1);
    // Each launch beside what was sent to it.
    assert_eq!(record["launch"]["command"], record["resumed"][0]["launch"]["command"]);
    keeps_to(&validator(REPORT), &results.report, "the report of a run whose engine was launched twice");
    recipe.expect_gone();
}

/// Local agents have a log each, made when they are started.
fn agents_started(data: &std::path::Path) -> usize {
    walk(&data.join("agents")).iter().filter(|name| name.ends_with(".log")).count()
}

#[test]
fn what_cannot_go_on_or_has_nothing_left_starts_no_agent() {
    let engine = Engine::start(&["--fixed-ttft-ms", "5"]);
    let mut running = sweep(&engine).line("--local-agents 2").start();
    eventually("requests at the engine", || (engine.log().len() > 10).then_some(()));
    running.signal(Signal::INT);
    let stopped = running.finish().expect_code(130);
    let forget_agents = || std::fs::remove_dir_all(stopped.data().join("agents")).expect("agents' folder");
    forget_agents();
    let nowhere = Coordinator::resume(&stopped).args(["--out", "/dev/null/nowhere"]).finish();
    nowhere.expect_code(1).expect_said(&["choose another folder"]);
    assert_eq!(agents_started(stopped.data()), 0);
    let whole = Coordinator::resume(&stopped).finish().expect_code(0);
    assert_eq!(agents_started(whole.data()), 2);
    // That it was finished is not known any more; its trials are there.
    std::fs::remove_dir_all(whole.data().join("index")).expect("an index");
    forget_agents();
    let before = engine.log().len();
    let again = Coordinator::resume(&whole).finish().expect_code(0).expect_said(&["nothing is left to send"]);
    assert_eq!((agents_started(again.data()), engine.log().len()), (0, before));
    assert_eq!(schedules(&again.results()), schedules(&whole.results()));
    assert!(!walk(again.data()).iter().any(|name| name.ends_with(".part")));
}

#[test]
fn an_agent_that_is_not_there_is_waited_out() {
    let engine = Engine::start(&["--fixed-ttft-ms", "5"]);
    let listen = free_port().to_string();
    let stays = Agent::start("stays", &listen, &[]);
    let mut goes = Agent::start("goes", &listen, &[]);
    let running = sweep(&engine).args(["--agents", "2", "--listen", &listen]).start();
    let killed = killed_after(30, &engine, running);
    goes.process.signal(Signal::KILL);
    let results = Coordinator::resume(&killed)
        .args(["--agents", "1"])
        .finish()
        .expect_code(0)
        .expect_said(&["agent goes is not there", "until goes may not send any more"])
        .results();
    let lost = by(results.traces_of(0), "/outcome")["agent_lost"];
    let reasons = list(&results.trials()[0]["summary"], "/validity/reasons").to_vec();
    let said = format!("of {lost} requests nobody knows the fate");
    assert!(reasons.iter().any(|r| text(r, "/message").contains(&said)), "{reasons:?}");
    drop(stays);
}

fn walk(folder: &std::path::Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.path() {
            path if path.is_dir() => names.extend(walk(&path)),
            path => names.push(path.display().to_string()),
        }
    }
    names
}
