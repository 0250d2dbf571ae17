//! The live page, in a real browser, during a real sweep.

use std::net::SocketAddr;

use plimsoll_tests::{Coordinator, DrivenBrowser, Engine, Recorder, Running, get};
use tempfile::TempDir;

/// Where the coordinator says that its page is.
fn page(coordinator: &mut Running) -> String {
    coordinator.process.expect("the page's address", |process| {
        let said = process.stderr();
        let line = said.lines().find_map(|l| l.strip_prefix("live "))?;
        Some(line.trim().to_owned())
    })
}

fn sweep(engine: &Engine, options: &str) -> Running {
    Coordinator::sweep()
        .relaxed()
        .engine(engine.url())
        .env("OPENAI_API_KEY", "planted-key")
        .env("PLIMSOLL_TOKEN", "planted-token")
        .args(["--header", "x-note: planted-header"])
        .line("--web 127.0.0.1:0 --repeats 1 --local-agents 2 --slo ttft=1s")
        .line(options)
        .start()
}

fn address(url: &str) -> SocketAddr {
    let address = url.trim_start_matches("http://").trim_end_matches('/');
    address.parse().unwrap_or_else(|e| panic!("{url}: {e}"))
}

const LIVE: &str = "document.getElementById('link').dataset.is === 'live'";

#[test]
fn a_browser_sees_a_sweep_and_a_cut_connection_recovers() {
    let folder = TempDir::new().unwrap();
    let Some(browser) = DrivenBrowser::start(folder.path()) else { return };
    let engine = Engine::start(&["--fixed-ttft-ms", "40"]);
    let mut coordinator = sweep(&engine, "--rates 15,16 --duration 10s");
    let proxy = Recorder::start(address(&page(&mut coordinator)));
    browser.open(&format!("http://{}/", proxy.address()));
    browser.wait_for(LIVE);
    for chart in ["rate", "ttft", "flight"] {
        // Drawn, and with the numbers of several seconds.
        let drawn = format!(
            "(() => {{ const f = document.getElementById('chart-{chart}'); return f.querySelector('canvas') !== null \
             && Number(f.dataset.points) > 6; }})()"
        );
        browser.wait_for(&drawn);
    }
    browser.wait_for("document.querySelectorAll('#agents tr').length === 2");
    assert_eq!(problems(&browser), Vec::<String>::new());
    // A wire is cut: it goes on where it was, and throws nothing away.
    let before = browser.value("plimsoll.points.length").as_u64().unwrap();
    let _ = browser.value("plimsoll.points[0].mine = true");
    assert!(proxy.cut() > 0, "nothing was cut");
    browser.wait_for(&format!("{LIVE} && plimsoll.points.length > {before} + 2"));
    assert_eq!(browser.value("plimsoll.points[0].mine"), true, "it began anew");
    let seconds = "plimsoll.points.every((p, i) => i === 0 || p.at === plimsoll.points[i - 1].at + 1)";
    assert_eq!(browser.value(seconds), true, "a second is missing, or there twice");
    let cut: Vec<String> = problems(&browser).into_iter().filter(|p| !p.contains("/events")).collect();
    assert_eq!(cut, Vec::<String>::new());
    browser.wait_for("document.querySelectorAll('#trials .mark').length >= 1");
    browser.wait_for("document.getElementById('link').dataset.is === 'over'");
    assert_eq!(browser.value("plimsoll.sweep.trials.length"), 2);
    assert!(browser.value("document.getElementById('knee').textContent").as_str().unwrap().contains("knee"));
    let _ = coordinator.finish().expect_code(0);
}

/// What the console complains of.
fn problems(browser: &DrivenBrowser) -> Vec<String> {
    let console = browser.console().into_iter();
    console.filter(|(level, _)| level == "SEVERE" || level == "WARNING").map(|(_, text)| text).collect()
}

#[test]
fn with_upload_after_the_page_says_that_there_are_no_latencies_and_counts_all_the_same() {
    let engine = Engine::start(&["--fixed-ttft-ms", "20"]);
    let mut coordinator = sweep(&engine, "--rates 20 --duration 8s --upload after");
    let url = page(&mut coordinator);
    let seen = plimsoll_tests::eventually("achieved requests", || {
        let snapshot: serde_json::Value = serde_json::from_str(&get(&format!("{url}snapshot"))).unwrap();
        let place = |name: &str| snapshot["metrics"].as_array()?.iter().position(|m| m == name);
        let known = |name: &str| {
            let place = place(name)?;
            let points = snapshot["points"].as_array()?.iter();
            Some(points.filter(|p| p["low"][place].as_f64().is_some_and(|v| v > 0.0)).count())
        };
        let (achieved, ttft) = (known("achieved_per_second")?, known("ttft_p50_seconds")?);
        (achieved >= 3).then_some((ttft, snapshot["sweep"]["about"]["live_latencies"].clone()))
    });
    assert_eq!(seen, (0, false.into()));
    assert!(get(&format!("{url}metrics")).contains("plimsoll_in_flight"));
    for page in ["", "snapshot", "metrics", "live.js"] {
        assert!(!get(&format!("{url}{page}")).contains("planted"), "a secret is on /{page}");
    }
    let _ = coordinator.finish().expect_code(0);
}

/// The view and the report say the same of what was achieved: nothing is lost on the way, and nothing counted twice.
#[test]
fn what_the_page_counted_is_what_the_report_counts() {
    let engine = Engine::start(&["--fixed-ttft-ms", "20"]);
    let mut coordinator = sweep(&engine, "--rates 25,26 --duration 5s");
    let url = page(&mut coordinator);
    // While the second trial runs, the first is whole.
    let counted = plimsoll_tests::eventually("the first trial", || {
        let snapshot: serde_json::Value = serde_json::from_str(&get(&format!("{url}snapshot"))).unwrap();
        let points = snapshot["points"].as_array()?;
        points.iter().any(|p| p["trial"] == 1).then_some(())?;
        let names = snapshot["metrics"].as_array()?;
        let place = names.iter().position(|m| m == "achieved_per_second")?;
        let of_first = points.iter().filter(|p| p["trial"] == 0);
        let late = snapshot["state"]["late_requests"].as_f64()?;
        Some((of_first.filter_map(|p| p["low"][place].as_f64()).sum::<f64>(), late))
    });
    let results = coordinator.finish().expect_code(0).results();
    let first = results.traces.iter().filter(|t| t["trial"] == 0 && t["outcome"] == "success").count();
    let (counted, late) = counted;
    // On a busy machine a trace may come after its second was closed; then that is counted.
    assert!(
        counted <= first as f64 && counted + late >= first as f64,
        "{counted} and {late} late, of {first}"
    );
}
