use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Request, Response, StatusCode, header};
use common::clock::{Clock, ManualClock};
use serde_json::Value;
use tokio_stream::StreamExt;

use super::*;
use crate::live::tests::Bench;

const SWEEP: &str = "coordinator sweep --rates 4,8 --repeats 1 --duration 10s --slo ttft=1s";

fn hub() -> Hub {
    let mut bench = Bench::new(SWEEP, 2);
    bench.begin(0);
    (0..10).for_each(|s| bench.second(0, s, 2));
    bench.end(0, 40);
    let clock = Arc::new(ManualClock::at(bench.clock.monotonic()));
    Hub::new(bench.model, clock)
}

fn site(ip: [u8; 4]) -> Arc<Site> {
    let access = Access::to(ip.into()).unwrap();
    Arc::new(Site {
        hub: hub(),
        access,
        viewers: Arc::new(Semaphore::new(2)),
        process: 7,
        pace: Pace::default(),
    })
}

fn asking(path: &str) -> axum::http::request::Builder {
    Request::builder().uri(path).header(header::HOST, "127.0.0.1:7001")
}

async fn ask(site: &Arc<Site>, request: axum::http::request::Builder) -> Response<Body> {
    answer(State(Arc::clone(site)), request.body(Body::empty()).unwrap()).await
}

async fn body(response: Response<Body>) -> String {
    let bytes = axum::body::to_bytes(response.into_body(), 8 << 20).await.unwrap();
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The next event of a stream: its id and its content.
async fn next(events: &mut (impl StreamExt<Item = Result<Bytes, axum::Error>> + Unpin)) -> (String, Value) {
    let bytes = events.next().await.unwrap().unwrap();
    let text = std::str::from_utf8(&bytes).unwrap();
    assert!(text.ends_with("\n\n") && text.contains("event: news\n"), "{text}");
    let field = |name: &str| text.lines().find_map(|l| l.strip_prefix(name)).unwrap();
    (field("id: ").to_owned(), serde_json::from_str(field("data: ")).unwrap())
}

#[tokio::test]
async fn every_file_that_the_page_names_is_there_and_comes_from_here() {
    let site = site([127, 0, 0, 1]);
    let page = body(ask(&site, asking("/")).await).await;
    let named: Vec<&str> = page
        .split(['"'])
        .filter(|w| [".js", ".css", ".svg", ".txt"].iter().any(|e| w.ends_with(e)))
        .collect();
    assert!(named.len() >= 7, "{named:?}");
    for name in named {
        let response = ask(&site, asking(&format!("/{name}"))).await;
        assert_eq!(response.status(), StatusCode::OK, "{name}");
        assert!(!body(response).await.is_empty());
    }
    for file in ["/", "/live.js", "/charts.js", "/live.css", "/style.css"] {
        let text = body(ask(&site, asking(file)).await).await;
        let elsewhere = text.replace("http://www.w3.org/2000/svg", "");
        assert!(
            !elsewhere.contains("http://") && !elsewhere.contains("https://"),
            "{file} names another host"
        );
        assert!(!text.contains("<style") && !text.contains("onclick"), "{file}: the policy forbids it");
    }
}

#[tokio::test]
async fn every_answer_has_its_policy_and_nothing_can_be_changed() {
    let site = site([127, 0, 0, 1]);
    for path in ["/", "/events", "/metrics", "/snapshot", "/none"] {
        let response = ask(&site, asking(path)).await;
        let policy = response.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        assert_eq!(response.headers()[header::REFERRER_POLICY], "no-referrer");
        assert_eq!(response.headers()[header::CACHE_CONTROL], "no-store");
    }
    assert_eq!(ask(&site, asking("/none")).await.status(), StatusCode::NOT_FOUND);
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"] {
        let response = ask(&site, asking("/").method(method)).await;
        assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED, "{method}");
    }
    let evil = Request::builder().uri("/snapshot").header(header::HOST, "evil.example");
    let response = ask(&site, evil).await;
    assert_eq!(response.status(), StatusCode::MISDIRECTED_REQUEST);
    assert!(!body(response).await.contains("run-1"));
}

#[tokio::test]
async fn elsewhere_than_on_loopback_nothing_is_told_without_the_token() {
    let site = site([10, 0, 0, 5]);
    for path in ["/", "/events", "/metrics", "/live.js", "/00000000000000000000000000000000/snapshot"] {
        let response = ask(&site, asking(path)).await;
        assert_eq!(response.status(), StatusCode::FORBIDDEN, "{path}");
        assert!(body(response).await.contains("token"));
    }
    let url = site.access.url("10.0.0.5:7001".parse().unwrap());
    let path = url.strip_prefix("http://10.0.0.5:7001").unwrap();
    let page = body(ask(&site, asking(path)).await).await;
    assert!(page.contains("<script src=\"live.js\""), "what it names is named relative to itself");
    assert!(body(ask(&site, asking(&format!("{path}metrics"))).await).await.contains("plimsoll_run_info"));
}

#[tokio::test]
async fn a_viewer_gets_all_then_what_is_new_and_comes_back_where_it_stood() {
    let site = site([127, 0, 0, 1]);
    let mut events = ask(&site, asking("/events")).await.into_body().into_data_stream();
    let (id, first) = next(&mut events).await;
    assert_eq!((&first["anew"], &first["state"]["trials_done"]), (&Value::Bool(true), &Value::from(1)));
    let points = first["points"].as_array().unwrap();
    let place = first["metrics"].as_array().unwrap().iter().position(|m| m == "achieved_per_second").unwrap();
    assert!(points.iter().any(|p| p["low"][place] == 4.0), "two a second of each of two agents");
    assert_eq!(first["sweep"]["trials"][0]["verdict"], "valid");
    drop(events);
    for known in [asking("/events").header("last-event-id", &id), asking(&format!("/events?since={id}"))] {
        let mut events = ask(&site, known).await.into_body().into_data_stream();
        let (again, news) = next(&mut events).await;
        assert_eq!((again.as_str(), &news["anew"]), (id.as_str(), &Value::Bool(false)));
        assert!(news["points"].as_array().unwrap().is_empty() && news.get("sweep").is_none());
    }
    // Of another process, which had the same address.
    let strange = asking("/events").header("last-event-id", id.replace("7-", "8-"));
    let (_, anew) = next(&mut ask(&site, strange).await.into_body().into_data_stream()).await;
    assert_eq!(anew["anew"], true);
}

#[tokio::test]
async fn the_end_is_told_at_once_and_ends_the_stream() {
    let site = site([127, 0, 0, 1]);
    let mut events = ask(&site, asking("/events")).await.into_body().into_data_stream();
    next(&mut events).await;
    site.hub.over("The run is over");
    let mut last = next(&mut events).await.1;
    // One that was under way may come before it.
    if last["state"]["stage"] != "over" {
        last = next(&mut events).await.1;
    }
    assert_eq!(
        (&last["state"]["stage"], &last["state"]["outcome"]),
        (&"over".into(), &"The run is over".into())
    );
    assert!(events.next().await.is_none());
}

#[tokio::test]
async fn viewers_are_bounded_and_one_that_does_not_read_makes_room() {
    let access = Access::to([127, 0, 0, 1].into()).unwrap();
    let pace = Pace { every: Duration::from_millis(1), patience: Duration::from_millis(50) };
    let site = Arc::new(Site { hub: hub(), access, viewers: Arc::new(Semaphore::new(1)), process: 7, pace });
    let sleeps = ask(&site, asking("/events")).await;
    let second = ask(&site, asking("/events")).await;
    assert_eq!(second.status(), StatusCode::SERVICE_UNAVAILABLE);
    // Given back when it is dropped, and only then.
    let _place = site.viewers.acquire().await.unwrap();
    let mut left = sleeps.into_body().into_data_stream();
    assert!(
        left.next().await.is_some() && left.next().await.is_none(),
        "one event waited for it, and no more"
    );
}

#[tokio::test]
async fn metrics_are_prometheus_text_without_what_is_not_known() {
    let site = site([127, 0, 0, 1]);
    let text = body(ask(&site, asking("/metrics")).await).await;
    for line in
        ["plimsoll_trials_planned 2", "plimsoll_trials_done 1", "plimsoll_stage_info{stage=\"closing\"} 1"]
    {
        assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
    }
    assert!(!text.contains("gpu_power") && !text.contains("NaN") && !text.contains("null"), "{text}");
    // Each sample after a help and a type of its name.
    let mut named = std::collections::BTreeSet::new();
    for line in text.lines() {
        match line.strip_prefix("# TYPE ") {
            Some(head) => assert!(named.insert(head.split(' ').next().unwrap().to_owned()), "{line} twice"),
            None if line.starts_with('#') => {}
            None => assert!(named.contains(line.split(['{', ' ']).next().unwrap()), "{line}"),
        }
    }
}

#[tokio::test]
async fn a_wrong_address_is_a_message_and_port_0_is_a_free_one() {
    let web = Web::open("127.0.0.1:0").await.unwrap();
    assert!(web.url().starts_with("http://127.0.0.1:") && !web.url().ends_with(":0/"), "{}", web.url());
    let taken = web.address.to_string();
    let said = |listen: String| async move { Web::open(&listen).await.err().unwrap().to_string() };
    assert!(said(taken.clone()).await.contains("the port is in use"), "{taken}");
    assert!(said("7001".into()).await.contains("--web 7001: "), "no host");
}
