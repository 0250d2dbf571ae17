//! Trying the engine before anything is measured: which models it lists, and one request.

use std::sync::Arc;

use common::clock::Clock;
use common::fleet::TargetReport;
use common::ids::{AgentName, ArrivalIndex, Nanos, RunId};
use common::metrics::RequestMetrics;
use common::plan::Target;
use common::trace::FailureKind;
use common::workload::Workload;
use tokio::sync::watch;

use crate::engine::{Client, ClientConfig, Outgoing, Requests, Secret, TrialClock};

/// Of an error body, this much is shown.
const SHOWN: usize = 4096;

/// Tries `target` with the first row of `row_json`. It goes through the measured path, so that what fails there
/// fails here first.
pub(super) async fn check(
    mut target: Target,
    row_json: String,
    agent: AgentName,
    api_key: Option<Secret>,
    clock: Arc<dyn Clock>,
) -> TargetReport {
    match try_target(&mut target, &row_json, agent, api_key, clock).await {
        Ok(report) => report,
        Err(message) => {
            let failure = Some((FailureKind::LocalLimit, message));
            TargetReport { failure, ..TargetReport::default() }
        }
    }
}

async fn try_target(
    target: &mut Target,
    row_json: &str,
    agent: AgentName,
    api_key: Option<Secret>,
    clock: Arc<dyn Clock>,
) -> Result<TargetReport, String> {
    // What the engine says is shown once, to whoever started the run, and kept nowhere: also with --no-text.
    target.keep_text = true;
    // The models are worth an attempt, not a wait: an engine need not list any.
    let client = client(target.clone(), agent.clone(), api_key.clone(), &clock)?;
    let models = match client.get(&target.base_url.v1("/models")).await {
        Ok((200, body)) => model_names(&body),
        Ok(_) => Vec::new(),
        Err(f) => return Ok(TargetReport { failure: Some((f.kind, f.message)), ..TargetReport::default() }),
    };
    if target.model.is_none() {
        target.model = models.first().cloned();
    }
    let client = self::client(target.clone(), agent, api_key, &clock)?;
    let row = Workload::parse(row_json.as_bytes()).map_err(|e| e.to_string())?.rows.swap_remove(0);
    let requests = Requests::new(target);
    let prepared = requests.prepare(&row);
    let unsent = prepared.unsent(ArrivalIndex(0), Nanos::ZERO, 0);
    let (_keep, mut cancel) = watch::channel(false);
    let (released, waited_for_permit) = (Nanos::ZERO, false);
    let request = Outgoing { unsent, released, waited_for_permit, body: prepared.body };
    let trace = client.send(request, &mut cancel).await;
    let metrics = RequestMetrics::of_trace(&trace);
    let mut error_body = trace.text.error_body.clone().unwrap_or_default();
    let cut = (0..=SHOWN.min(error_body.len())).rev().find(|&at| error_body.is_char_boundary(at));
    error_body.truncate(cut.unwrap_or(0));
    Ok(TargetReport {
        models,
        failure: trace.facts.outcome.failure().map(|f| (f.kind, f.message.clone())),
        error_body,
        http_status: trace.facts.http_status,
        ttft: metrics.service_ttft,
        output_tokens: trace.facts.output_tokens.count,
    })
}

fn client(
    target: Target,
    agent: AgentName,
    api_key: Option<Secret>,
    clock: &Arc<dyn Clock>,
) -> Result<Client, String> {
    let run: RunId = "check".parse().map_err(|e: common::ids::NameError| e.to_string())?;
    let config = ClientConfig { target, api_key, agent, run, trial: "0".into() };
    Client::new(config, TrialClock::new(Arc::clone(clock), clock.monotonic())).map_err(|e| e.to_string())
}

/// `data[].id` of a model list; nothing when it is not one.
fn model_names(body: &[u8]) -> Vec<String> {
    let list: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let models = list["data"].as_array().map(Vec::as_slice).unwrap_or_default();
    models.iter().filter_map(|m| m["id"].as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_read_and_other_bodies_are_no_models() {
        assert_eq!(model_names(br#"{"data":[{"id":"a"},{"id":"b","object":"model"},{}]}"#), ["a", "b"]);
        for other in [&b"[]"[..], b"not json", b"{\"data\":{}}", b"{\"detail\":\"Not Found\"}"] {
            assert!(model_names(other).is_empty());
        }
    }
}
