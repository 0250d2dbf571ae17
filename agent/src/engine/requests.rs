//! Head and body of a request.
//!
//! The body of a row is built once, before the trial, so that nothing is serialised between an arrival and its
//! first byte. The head is a template that gets the request's id.

use bytes::Bytes;
use common::dialect::TokenCounts;
use common::ids::{AgentName, ArrivalIndex, Nanos, RunId};
use common::plan::{Api, RESERVED_BODY_FIELDS, Target};
use common::trace::Unsent;
use common::workload::{Row, RowBody};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::PathAndQuery;
use http::{Method, Uri};
use serde_json::{Map, Value, json};

use super::client::ConfigError;
use super::connection::Wire;
use super::secret::Secret;

/// Carries the request's place in the experiment, so that the engine's own log can be held against ours.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Names the agent, so that an engine's log shows each agent's share.
const AGENT: HeaderName = HeaderName::from_static("x-plimsoll-agent");

/// A row as it is sent.
#[derive(Debug, Clone, Default)]
pub struct Prepared {
    /// The JSON body.
    pub body: Bytes,
    /// Its `max_tokens`.
    pub max_tokens: u32,
    /// Tokens of its prompt, where it is a list of token ids.
    pub prompt_tokens: Option<u32>,
}

impl Prepared {
    /// What is known of an arrival that carries it.
    #[must_use]
    pub fn unsent(&self, index: ArrivalIndex, scheduled: Nanos, row: u32) -> Unsent {
        let Self { max_tokens, prompt_tokens, .. } = *self;
        Unsent { index, scheduled, row, requested_tokens: max_tokens, prompt_tokens }
    }
}

/// Builds the bodies of a workload's rows.
#[derive(Debug, Clone)]
pub struct Requests {
    api: Api,
    default_max_tokens: u32,
    /// Every field but the prompt and `max_tokens`.
    common: Map<String, Value>,
}

impl Requests {
    /// For requests to `target`.
    ///
    /// A field that the engine's dialect refuses or does not heed is left out. `extra_body` goes on top of what
    /// Plimsoll sends, object by object, reserved fields excepted; a `null` takes away a field that Plimsoll would send.
    #[must_use]
    pub fn new(target: &Target) -> Self {
        let mut common = Map::new();
        let dialect = target.dialect;
        let mut set = |key: &str, value: Value| {
            if !dialect.refuses(key) && !dialect.ignores(key) {
                common.insert(key.to_owned(), value);
            }
        };
        if let Some(model) = &target.model {
            set("model", json!(model));
        }
        set("stream", json!(true));
        let mut stream_options = json!({ "include_usage": true });
        match dialect.traits().token_counts.filter(|_| target.token_counts) {
            Some(TokenCounts::Field(field)) => set(field, json!(true)),
            Some(TokenCounts::StreamOption(option)) => stream_options[option] = json!(true),
            None => {}
        }
        set("stream_options", stream_options);
        set("temperature", json!(0));
        set("n", json!(1));
        if target.ignore_eos {
            set("ignore_eos", json!(true));
        }
        if target.logprobs {
            set("logprobs", if target.api == Api::Chat { json!(true) } else { json!(1) });
        }
        for (key, value) in &target.extra_body {
            if RESERVED_BODY_FIELDS.contains(&key.as_str()) {
                continue;
            }
            match (common.get_mut(key), value) {
                (Some(_), Value::Null) => drop(common.remove(key)),
                // Such as stream_options: what the user adds does not take away what Plimsoll counts on.
                (Some(Value::Object(ours)), Value::Object(theirs)) => ours.extend(theirs.clone()),
                _ => drop(common.insert(key.clone(), value.clone())),
            }
        }
        Self { api: target.api, default_max_tokens: target.default_max_tokens, common }
    }

    /// `row` as it is sent.
    #[must_use]
    pub fn prepare(&self, row: &Row) -> Prepared {
        Prepared {
            body: self.body(row),
            max_tokens: self.max_tokens(row),
            prompt_tokens: row.prompt_tokens(),
        }
    }

    /// `max_tokens` that is sent for `row`.
    #[must_use]
    pub fn max_tokens(&self, row: &Row) -> u32 {
        row.max_tokens.unwrap_or(self.default_max_tokens)
    }

    /// The JSON body of `row`. A plain prompt is one user message to the chat endpoint.
    ///
    /// Rows that the endpoint cannot take are refused by `Workload::check_api` before; here they would be sent as they
    /// are, for the engine to refuse.
    #[must_use]
    pub fn body(&self, row: &Row) -> Bytes {
        let mut fields = self.common.clone();
        fields.insert("max_tokens".to_owned(), json!(self.max_tokens(row)));
        let mut raw = None;
        match (&row.body, self.api) {
            (RowBody::Prompt(prompt), Api::Completions) => {
                fields.insert("prompt".to_owned(), json!(prompt));
            }
            (RowBody::Prompt(prompt), Api::Chat) => {
                fields.insert("messages".to_owned(), json!([{ "role": "user", "content": prompt }]));
            }
            (RowBody::TokenIds(ids), _) => {
                fields.insert("prompt".to_owned(), json!(ids));
            }
            (RowBody::Messages(messages), _) => raw = Some(messages),
        }
        let rest = Value::Object(fields).to_string();
        match raw {
            None => rest.into(),
            // The conversation goes out as it stood in the file: parsing it would change numbers and the order of keys.
            Some(messages) => format!("{{\"messages\":{messages},{}", &rest[1..]).into(),
        }
    }
}

/// What every request's head has in common, up to the number of its arrival.
pub(super) struct HeadTemplate(Vec<u8>);

impl HeadTemplate {
    pub(super) fn new(
        target: &Target,
        api_key: Option<&Secret>,
        agent: &AgentName,
        run: &RunId,
        trial: &str,
    ) -> Result<Self, ConfigError> {
        let mut headers = base_headers(target, api_key)?;
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
        for (name, value) in user_headers(target)? {
            headers.insert(name, value);
        }
        headers.insert(AGENT, text_value("agent name", agent.as_str())?);
        let id_prefix = format!("{run}/{trial}/");
        // Checked once here, so that no request can fail on it.
        text_value("trial label", &id_prefix)?;
        let mut bytes = head(&Method::POST, &target.base_url.v1(target.api.path()), &headers)?;
        bytes.extend_from_slice(format!("{REQUEST_ID}: {id_prefix}").as_bytes());
        Ok(Self(bytes))
    }

    /// The whole request of one arrival.
    pub(super) fn request(&self, index: ArrivalIndex, body: Bytes) -> Wire {
        let rest = format!("{index}\r\n{}: {}\r\n\r\n", header::CONTENT_LENGTH, body.len());
        Wire { head: [&self.0, rest.as_bytes()].concat(), body }
    }
}

/// A request without a body to `path`, for what is not measured.
pub(super) fn bare(
    target: &Target,
    api_key: Option<&Secret>,
    method: &Method,
    path: &str,
) -> Result<Wire, ConfigError> {
    let mut headers = base_headers(target, api_key)?;
    for (name, value) in user_headers(target)? {
        headers.insert(name, value);
    }
    if method == Method::POST {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
    }
    let mut head = head(method, path, &headers)?;
    head.extend_from_slice(b"\r\n");
    Ok(Wire { head, body: Bytes::new() })
}

/// Request line and headers, without the empty line that ends them.
fn head(method: &Method, path: &str, headers: &HeaderMap) -> Result<Vec<u8>, ConfigError> {
    // Parsed only to be checked, and for what a request line has of a URI.
    let uri: Uri = path.parse().map_err(|_| ConfigError::Path(path.to_owned()))?;
    let path = uri.path_and_query().map_or("/", PathAndQuery::as_str);
    let mut bytes = format!("{method} {path} HTTP/1.1\r\n").into_bytes();
    for (name, value) in headers {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            bytes.extend_from_slice(part);
        }
    }
    Ok(bytes)
}

fn base_headers(target: &Target, api_key: Option<&Secret>) -> Result<HeaderMap, ConfigError> {
    let mut headers = HeaderMap::new();
    headers.insert(header::HOST, text_value("host", &target.base_url.authority())?);
    let version = concat!("plimsoll/", env!("CARGO_PKG_VERSION"));
    headers.insert(header::USER_AGENT, HeaderValue::from_static(version));
    if let Some(key) = api_key {
        let mut value = HeaderValue::try_from(key.bearer()).map_err(|_| ConfigError::ApiKey)?;
        value.set_sensitive(true);
        headers.insert(header::AUTHORIZATION, value);
    }
    Ok(headers)
}

fn user_headers(target: &Target) -> Result<Vec<(HeaderName, HeaderValue)>, ConfigError> {
    // The message's framing and our own marks are not the user's to set.
    let reserved =
        [header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::AUTHORIZATION, REQUEST_ID, AGENT];
    let convert = |(name, value): &(String, String)| {
        let parsed = HeaderName::try_from(name.as_str()).map_err(|_| ConfigError::Header(name.clone()))?;
        if reserved.contains(&parsed) {
            return Err(ConfigError::ReservedHeader(name.clone()));
        }
        let value = HeaderValue::try_from(value.as_str()).map_err(|_| ConfigError::Header(name.clone()))?;
        Ok((parsed, value))
    };
    target.headers.iter().map(convert).collect()
}

fn text_value(what: &'static str, text: &str) -> Result<HeaderValue, ConfigError> {
    HeaderValue::try_from(text).map_err(|_| ConfigError::Value(what))
}
