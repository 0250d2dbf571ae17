//! The engine and how it is asked.

use common::ids::Nanos;
use common::plan::{Api, BaseUrl, BaseUrlError, Target};
use common::replicas::MAX_ENGINES;

use super::WireError;
use super::limits::{MAX_LIST, at_most};
use crate::v1;

impl From<&Target> for v1::Target {
    fn from(t: &Target) -> Self {
        let api = match t.api {
            Api::Completions => v1::target::Api::Completions,
            Api::Chat => v1::target::Api::Chat,
        };
        let header =
            |(name, value): &(String, String)| v1::Header { name: name.clone(), value: value.clone() };
        Self {
            base_url: t.base_url.to_string(),
            model: t.model.clone(),
            api: api.into(),
            ignore_eos: t.ignore_eos,
            logprobs: t.logprobs,
            extra_body_json: serde_json::Value::Object(t.extra_body.clone()).to_string(),
            headers: t.headers.iter().map(header).collect(),
            default_max_tokens: t.default_max_tokens,
            connect_timeout_ns: t.connect_timeout.0,
            total_timeout_ns: t.total_timeout.0,
            idle_timeout_ns: t.idle_timeout.0,
            keep_text: t.keep_text,
            dialect: t.dialect.name().to_owned(),
            token_counts: t.token_counts,
            replica_urls: t.replicas.iter().map(ToString::to_string).collect(),
        }
    }
}

impl TryFrom<v1::Target> for Target {
    type Error = WireError;
    fn try_from(t: v1::Target) -> Result<Self, WireError> {
        let fail = |field, problem: String| WireError::new("Target", field, problem);
        at_most(&t.headers, MAX_LIST, "Target", "headers")?;
        at_most(&t.replica_urls, MAX_ENGINES - 1, "Target", "replica_urls")?;
        let url = |field, text: &str| -> Result<BaseUrl, WireError> {
            text.parse().map_err(|e: BaseUrlError| fail(field, e.to_string()))
        };
        let api = match t.api() {
            v1::target::Api::Completions => Api::Completions,
            v1::target::Api::Chat => Api::Chat,
            v1::target::Api::Unspecified => return Err(fail("api", "missing".into())),
        };
        Ok(Self {
            base_url: url("base_url", &t.base_url)?,
            replicas: t.replica_urls.iter().map(|u| url("replica_urls", u)).collect::<Result<_, _>>()?,
            model: t.model,
            api,
            ignore_eos: t.ignore_eos,
            logprobs: t.logprobs,
            extra_body: serde_json::from_str(&t.extra_body_json)
                .map_err(|e| fail("extra_body_json", e.to_string()))?,
            headers: t.headers.into_iter().map(|h| (h.name, h.value)).collect(),
            default_max_tokens: t.default_max_tokens,
            connect_timeout: Nanos(t.connect_timeout_ns),
            total_timeout: Nanos(t.total_timeout_ns),
            idle_timeout: Nanos(t.idle_timeout_ns),
            keep_text: t.keep_text,
            dialect: t
                .dialect
                .parse()
                .map_err(|e: common::dialect::UnknownDialect| fail("dialect", e.to_string()))?,
            token_counts: t.token_counts,
        })
    }
}
