//! Questions to an engine, outside of what is measured.

use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(10);

fn client() -> ureq::Agent {
    ureq::Agent::config_builder()
        .timeout_global(Some(TIMEOUT))
        .http_status_as_error(false)
        .build()
        .new_agent()
}

/// The body of a `GET`.
///
/// # Panics
/// When it is not answered with 200.
#[must_use]
#[track_caller]
pub fn get(url: &str) -> String {
    let answer = client().get(url).call().unwrap_or_else(|e| panic!("GET {url}: {e}"));
    let (status, body) = taken_apart(url, answer);
    assert_eq!(status, 200, "GET {url}: {body}");
    body
}

/// Status and body of a `DELETE`; none without an answer.
pub(crate) fn delete(url: &str) -> Option<u16> {
    client().delete(url).call().ok().map(|answer| answer.status().as_u16())
}

/// Status and body of a `POST` of JSON.
///
/// # Panics
/// When there is no answer.
#[track_caller]
pub(crate) fn post(url: &str, body: &serde_json::Value) -> (u16, String) {
    let answer = client().post(url).send_json(body).unwrap_or_else(|e| panic!("POST {url}: {e}"));
    taken_apart(url, answer)
}

#[track_caller]
fn taken_apart(url: &str, mut answer: ureq::http::Response<ureq::Body>) -> (u16, String) {
    let status = answer.status().as_u16();
    let body = answer.body_mut().with_config().limit(256 << 20).read_to_string();
    (status, body.unwrap_or_else(|e| panic!("{url}: {e}")))
}

/// The sum of a counter of an engine's `/metrics`.
///
/// # Panics
/// When it does not answer, or has none of this name.
#[must_use]
#[track_caller]
pub fn metric(url: &str, name: &str) -> u64 {
    counter(&get(&format!("{url}/metrics")), name)
}

/// The sum of a counter's samples in Prometheus' text format.
///
/// # Panics
/// When there is none.
#[track_caller]
pub(crate) fn counter(metrics: &str, name: &str) -> u64 {
    let samples = metrics.lines().filter(|line| {
        line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ') || rest.starts_with('{'))
    });
    let values: Vec<f64> = samples.filter_map(|line| line.rsplit(' ').next()?.parse().ok()).collect();
    assert!(!values.is_empty(), "no counter {name} in\n{metrics}");
    values.iter().sum::<f64>() as u64
}
