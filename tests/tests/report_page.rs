//! `report.html` in a real browser: it draws, says nothing on its console, and shows what `report.json` says.

use plimsoll_tests::browser::Browser;
use plimsoll_tests::{Coordinator, Engine, Finished, count, list, text};
use serde_json::{Value, json};

/// What lies between two texts.
#[track_caller]
fn inside<'a>(page: &'a str, begin: &str, end: &str) -> &'a str {
    let (_, rest) = page.split_once(begin).unwrap_or_else(|| panic!("no {begin} in\n{page}"));
    rest.split_once(end).unwrap_or_else(|| panic!("no {end} after {begin}")).0
}

fn sweep() -> Finished {
    let engine = Engine::start(&["--fixed-ttft-ms", "20", "--fixed-itl-ms", "5"]);
    Coordinator::sweep()
        .relaxed()
        .engine(engine.url())
        .workload(&[json!({"prompt": "here we go", "max_tokens": 16})])
        .line("--rates 10,30 --requests 40 --repeats 2 --local-agents 2 --dialect vllm")
        .finish()
        .expect_code(0)
}

/// Put into a copy of the page: it tells what was drawn, what went wrong, and what a chart says to a pointer.
const LOOK: &str = include_str!("../browser/look.js");

#[test]
fn it_draws_without_a_network_and_shows_what_the_report_says() {
    let Some(browser) = Browser::find() else { return };
    let finished = sweep();
    let results = finished.results();
    let page = finished.runs().pop().expect("a run").join("report.html");
    assert!(finished.ended.stdout.contains("report.html"), "{}", finished.ended.stdout);

    let opened = browser.open(&page);
    assert!(opened.console.is_empty(), "{:#?}", opened.console);
    let embedded = inside(&opened.dom, "id=\"report\">", "</script>");
    assert_eq!(serde_json::from_str::<Value>(embedded).expect("JSON"), results.report);
    let knee = text(&results.report, "/knee/text");
    assert_eq!(inside(&opened.dom, "id=\"knee-text\">", "</p>"), knee);
    // The table in the terminal ends with the same words, broken into lines.
    let said = finished.ended.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains(knee), "{said}");

    // Charts: every one of them has points; the scatter has those of its trial, all 40.
    let points: Vec<u64> = opened
        .dom
        .split("data-points=\"")
        .skip(1)
        .map(|rest| inside(&format!("<{rest}"), "<", "\"").parse().expect("a number"))
        .collect();
    assert!(points.len() >= 8 && points.iter().all(|n| *n > 0), "{points:?}");
    assert!(
        points.contains(&40) && points.contains(&(list(&results.report, "/rates").len() as u64)),
        "{points:?}"
    );
    let drawn: usize = inside(&opened.dom, "data-drawn=\"", "\"").parse().expect("a number");
    assert_eq!(drawn, points.len());
    assert!(opened.dom.matches("<canvas").count() >= drawn);

    // With a look from within: the canvases are not blank, and a chart answers a pointer with its rate and validity.
    let html = std::fs::read_to_string(&page).expect("the page");
    let policy = inside(&html, "<meta http-equiv=\"Content-Security-Policy\"", ">");
    let looked = page.with_file_name("looked.html");
    let copy =
        html.replacen(policy, "", 1).replacen("</body>", &format!("<script>{LOOK}</script></body>"), 1);
    std::fs::write(&looked, copy).expect("a copy");
    let opened = browser.open(&looked);
    assert!(opened.console.is_empty(), "{:#?}", opened.console);
    let told: Value =
        serde_json::from_str(inside(&opened.dom, "<output id=\"told\">", "</output>")).expect("JSON");
    let pixels: Vec<u64> = list(&told, "/pixels").iter().map(|n| n.as_u64().expect("a number")).collect();
    assert!(pixels.len() == drawn && pixels.iter().all(|n| *n > 20), "{pixels:?}");
    // On paper it is light, whatever the screen is, and no chart is wider than the paper.
    assert_eq!((text(&told, "/paper/theme"), text(&told, "/after")), ("light", "dark"));
    let paper = list(&told, "/paper/charts");
    assert_eq!(paper.len(), drawn);
    for chart in paper {
        let (width, coloured) = (count(chart, "/width"), count(chart, "/coloured"));
        assert!((1..=700).contains(&width) && coloured > 20, "{chart}");
    }
    let hover = text(&told, "/hover");
    assert!(hover.starts_with("30 requests/s: 2 valid") && hover.contains("p99: "), "{hover}");
}

#[test]
fn a_report_made_again_is_the_same_page_and_other_objectives_another_verdict() {
    let finished = sweep();
    let run = finished.runs().pop().expect("a run");
    let again = finished.folder().join("again.html");
    let page = |path: &std::path::Path| std::fs::read_to_string(path).expect("a page");
    let _ = finished.reported_again(&format!("--html {}", again.display()));
    assert_eq!(page(&again), page(&run.join("report.html")));
    let _ = finished.reported_again(&format!("--html {} --slo ttft=1ms", again.display()));
    assert!(page(&again).contains("The knee is below 10 requests/s"));
    // A folder that is not there: nothing is left, and it is said.
    let said = finished.report_again(&["--html", "not/there/report.html"]);
    let told = String::from_utf8_lossy(&said.stderr);
    assert!(!said.status.success() && told.contains("--html: not/there/report.html: "), "{told}");
}
