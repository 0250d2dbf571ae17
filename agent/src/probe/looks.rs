//! What an engine says of itself when asked politely: nothing here generates a token.

use common::dialect::{Answer, CacheReset, Dialect, JsonAt, recognise};
use common::plan::Target;
use common::probe::Endpoint;
use proto::convert::harmless;
use serde_json::Value;

use super::ask::Asking;
use super::settings;

/// Times that an engine is asked to empty its cache, with a pause between: what is in use is so for a moment.
const RESETS: u32 = 40;

/// Models that are taken of a list, and the longest name: all of them travel to the coordinator and into the record.
const MAX_MODELS: usize = 1000;
const MAX_NAME_BYTES: usize = 512;

/// `data[].id` of a model list; nothing when it is not one.
pub(super) fn models(body: &[u8]) -> Vec<String> {
    let list: Value = serde_json::from_slice(body).unwrap_or_default();
    let models = list["data"].as_array().map(Vec::as_slice).unwrap_or_default();
    // A name with control characters would be obeyed by a terminal, and is no name.
    let fine = |id: &&str| id.len() <= MAX_NAME_BYTES && !id.contains(char::is_control);
    let names = models.iter().filter_map(|m| m["id"].as_str()).filter(fine);
    names.take(MAX_MODELS).map(str::to_owned).collect()
}

/// Which engine it is, and what gave it away.
pub(super) async fn dialect(
    asking: &Asking,
    target: &Target,
    models: Answer,
) -> Result<(Dialect, Option<String>), String> {
    let mut answers = vec![("/v1/models", Some(models))];
    loop {
        match recognise(&answers) {
            Ok((dialect, sign)) => return Ok((dialect, sign.map(|s| s.told()))),
            Err(path) => {
                let answer = asking.get(target, &target.base_url.beside_v1(path)).await?;
                answers.push((path, answer.ok()));
            }
        }
    }
}

/// What it said.
pub(super) struct Said {
    pub(super) version: Option<String>,
    pub(super) ready: Endpoint,
    pub(super) metrics: Option<Endpoint>,
    pub(super) settings: Option<Value>,
}

/// Asks for version, readiness, metrics and settings, as far as engines of this dialect have them.
pub(super) async fn said(asking: &Asking, target: &Target) -> Result<Said, String> {
    let traits = target.dialect.traits();
    let version = match traits.version {
        Some(JsonAt { path, pointer }) => {
            json(asking, target, path).await?.and_then(|v| v.pointer(pointer).map(version_of))
        }
        None => None,
    };
    let settings = match traits.settings {
        Some(path) => json(asking, target, path).await?.map(|v| settings::kept(v, asking.api_key())),
        None => None,
    };
    let metrics = match traits.metrics {
        Some(metrics) => Some(endpoint(asking, target, metrics.path).await?),
        None => None,
    };
    // `/v1/models` lies where the requests go, the other paths beside it.
    Ok(Said { version, ready: endpoint(asking, target, traits.ready).await?, metrics, settings })
}

/// A version may be a number.
fn version_of(version: &Value) -> String {
    let text = version.as_str().map_or_else(|| version.to_string(), str::to_owned);
    harmless(&text).chars().take(MAX_NAME_BYTES).collect()
}

async fn endpoint(asking: &Asking, target: &Target, path: &str) -> Result<Endpoint, String> {
    let answer = asking.get(target, &target.base_url.beside_v1(path)).await?;
    Ok(Endpoint { path: path.to_owned(), status: answer.ok().map(|a| a.status) })
}

async fn json(asking: &Asking, target: &Target, path: &str) -> Result<Option<Value>, String> {
    let answer = asking.get(target, &target.base_url.beside_v1(path)).await?;
    let good = answer.ok().filter(|a| a.status == 200);
    Ok(good.and_then(|a| serde_json::from_slice(&a.body).ok()))
}

/// Empties the prefix cache. An engine may refuse while blocks are in use, which pass in a moment: it is asked again.
pub(super) async fn reset_cache(asking: &Asking, target: &Target) -> Result<Result<String, String>, String> {
    let Some(CacheReset { path, success, needs }) = target.dialect.traits().cache_reset else {
        return Ok(Err(format!("{} has no way to empty its prefix cache", target.dialect.traits().title)));
    };
    let mut told = String::new();
    for _ in 0..RESETS {
        let answer = match asking.post(target, &target.base_url.beside_v1(path)).await? {
            Ok(answer) => answer,
            Err(f) => return Ok(Err(format!("POST {path}: {}", f.told()))),
        };
        let json: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let done = success.is_none_or(|pointer| json.pointer(pointer) == Some(&Value::Bool(true)));
        match answer.status {
            200 if done => return Ok(Ok(format!("POST {path}"))),
            404 | 405 => {
                let needs = needs.map_or_else(String::new, |needs| format!("; it needs {needs}"));
                return Ok(Err(format!("POST {path}: status {}{needs}", answer.status)));
            }
            status => told = format!("POST {path}: status {status}, not done"),
        }
        asking.wait().await;
    }
    Ok(Err(told))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_read_and_other_bodies_are_no_models() {
        assert_eq!(models(br#"{"data":[{"id":"a"},{"id":"b","object":"model"},{}]}"#), ["a", "b"]);
        for other in [&b"[]"[..], b"not json", b"{\"data\":{}}", b"{\"detail\":\"Not Found\"}"] {
            assert!(models(other).is_empty());
        }
        let many: Vec<_> = (0..5000).map(|i| serde_json::json!({"id": i.to_string()})).collect();
        let long = serde_json::json!({"data": [{"id": "x".repeat(600)}, {"id": "\u{1b}[2J"}, {"id": "a"}]});
        assert_eq!(models(serde_json::json!({"data": many}).to_string().as_bytes()).len(), MAX_MODELS);
        assert_eq!(models(long.to_string().as_bytes()), ["a"]);
    }
}
