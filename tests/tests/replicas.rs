//! Several `--base-url`: one load over all of them, each of them checked before, and told apart in the report.

use plimsoll_tests::schema::{REPORT, keeps_to, validator};
use plimsoll_tests::{Coordinator, Engine, count, list, text};

#[test]
fn two_engines_share_the_arrivals_and_are_told_apart() {
    let engines = [Engine::start(&["--fixed-ttft-ms", "1"]), Engine::start(&["--fixed-ttft-ms", "40"])];
    let finished = Coordinator::sweep()
        .engine(engines[0].url())
        .args(["--base-url", engines[1].url(), "--warmup", "2", "--slo", "ttft=1s"])
        .args(["--late-budget", "1s", "--brief-probe"])
        .line("--rates 60 --requests 120 --repeats 1 --local-agents 2 --max-tokens 3")
        .finish()
        .expect_code(0)
        .expect_said(&["replica      http"]);
    let results = finished.results();
    keeps_to(&validator(REPORT), &results.report, "the report on two engines");
    let summary = results.summary();
    assert_eq!((count(summary, "/requests"), count(summary, "/successful")), (120, 120));
    let told = list(summary, "/replicas");
    assert_eq!(told.len(), 2);
    let mut medians = Vec::new();
    for (engine, told) in engines.iter().zip(told) {
        assert!(text(told, "/base_url").starts_with(engine.url()), "{told:#}");
        // What the engine saw, and not what the report would like.
        let seen = engine.log_of(results.run(), 0).len() as u64;
        assert_eq!(count(told, "/requests"), seen, "{told:#}");
        assert!(seen > 30, "hardly a share of 120: {seen}");
        // Each agent warms each engine up with its rows.
        let warm = engine.log().iter().filter(|r| text(r, "/request_id").contains("-warmup/")).count();
        assert_eq!(warm, 2);
        medians.push(told["ttft_seconds"]["p50"].as_f64().unwrap());
    }
    assert!(medians[1] > medians[0] + 0.02, "the slow engine hides: {medians:?}");
    assert!(finished.reported_again("").contains("Engines, over which"), "a report made again forgets them");
}

#[test]
fn a_replica_that_cannot_be_used_ends_the_run_before_a_request() {
    let engine = Engine::start(&[]);
    let gone = plimsoll_tests::free_port();
    Coordinator::sweep()
        .relaxed()
        .engine(engine.url())
        .args(["--base-url", &format!("http://{gone}")])
        .line("--rates 10 --requests 5")
        .finish()
        .expect_code(1)
        .expect_said(&["cannot use the engine at", &gone.to_string()])
        .expect_no_results();
    Coordinator::sweep()
        .engine(engine.url())
        .args(["--base-url", engine.url()])
        .line("--rates 10 --requests 5")
        .finish()
        .expect_code(2)
        .expect_said(&["given twice"]);
}
