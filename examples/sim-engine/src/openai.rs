//! What a client asks, and how it is told no.
//!
//! Owns the reading of `/v1/completions` and `/v1/chat/completions` bodies into one [`Ask`], and the error envelope,
//! both in vLLM's shapes. Unknown keys are ignored, as vLLM does. Must never decide what the answer is: that is
//! [`crate::answer`]'s, in the shapes of [`crate::wire`].

use std::sync::Arc;

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::text::{id_blocks, prompt_hash, prompt_tokens, text_blocks};

/// Which of the two endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Api {
    Completions,
    Chat,
}

/// vLLM refuses more.
const MOST_LOGPROBS: u32 = 20;

/// A refusal, in vLLM's envelope `{"error": {"message", "type", "param", "code"}}`.
#[derive(Debug, Clone)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) kind: &'static str,
    pub(crate) param: Option<&'static str>,
    pub(crate) message: String,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        Self { status, kind, param: None, message: message.into() }
    }

    fn bad(param: Option<&'static str>, message: impl Into<String>) -> Self {
        Self { param, ..Self::new(StatusCode::BAD_REQUEST, "BadRequestError", message) }
    }

    /// The envelope, which is also an error event's data.
    pub(crate) fn body(&self) -> Value {
        let Self { status, kind, param, message } = self;
        json!({"error": {"message": message, "type": kind, "param": param, "code": status.as_u16()}})
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        (self.status, Json(self.body())).into_response()
    }
}

/// The limits that a request is checked against.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits<'a> {
    pub(crate) model: &'a str,
    pub(crate) max_model_len: u32,
    pub(crate) default_max_tokens: u32,
}

/// One generation request, understood.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) api: Api,
    pub(crate) prompt_chars: u64,
    pub(crate) prompt_tokens: u32,
    pub(crate) prompt_hash: u64,
    pub(crate) prompt_blocks: Arc<[u64]>,
    pub(crate) max_tokens: u32,
    pub(crate) min_tokens: u32,
    pub(crate) ignore_eos: bool,
    pub(crate) seed: u64,
    pub(crate) stream: bool,
    pub(crate) include_usage: bool,
    pub(crate) continuous_usage: bool,
    /// How many alternatives beside each token; `None` when no logprobs were asked for.
    pub(crate) logprobs: Option<u32>,
    pub(crate) token_ids: bool,
}

#[derive(Debug, Default, Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
    continuous_usage_stats: Option<bool>,
}

/// The keys that are looked at. `null` and absent are the same.
#[derive(Debug, Deserialize)]
struct Body {
    model: Option<String>,
    prompt: Option<Value>,
    messages: Option<Vec<Value>>,
    max_tokens: Option<i64>,
    max_completion_tokens: Option<i64>,
    min_tokens: Option<u32>,
    ignore_eos: Option<bool>,
    seed: Option<i64>,
    n: Option<u32>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    logprobs: Option<Value>,
    top_logprobs: Option<u32>,
    return_token_ids: Option<bool>,
}

impl Ask {
    pub(crate) fn read(api: Api, body: &[u8], limits: Limits<'_>) -> Result<Self, ApiError> {
        let body: Body = serde_json::from_slice(body)
            .map_err(|error| ApiError::bad(None, format!("invalid body: {error}")))?;
        if let Some(model) = body.model.as_deref().filter(|model| *model != limits.model) {
            let message = format!("The model `{model}` does not exist.");
            let error = ApiError::new(StatusCode::NOT_FOUND, "NotFoundError", message);
            return Err(ApiError { param: Some("model"), ..error });
        }
        if body.n.is_some_and(|n| n != 1) {
            return Err(ApiError::bad(
                Some("n"),
                "the simulated engine answers with one choice: n must be 1",
            ));
        }
        let prompt = match api {
            Api::Completions => Prompt::of_completion(body.prompt.as_ref())?,
            Api::Chat => Prompt::of_chat(body.messages.as_deref())?,
        };
        let max_tokens = body.max_completion_tokens.or(body.max_tokens);
        let room = limits.max_model_len.saturating_sub(prompt.tokens);
        let max_tokens = match max_tokens {
            None => limits.default_max_tokens.min(room).max(1),
            Some(asked) => u32::try_from(asked).ok().filter(|asked| *asked > 0).ok_or_else(|| {
                ApiError::bad(Some("max_tokens"), format!("max_tokens must be at least 1, got {asked}."))
            })?,
        };
        if max_tokens > room {
            let (most, input) = (limits.max_model_len, prompt.tokens);
            let total = u64::from(input) + u64::from(max_tokens);
            return Err(ApiError::bad(
                Some("max_tokens"),
                format!(
                    "This model's maximum context length is {most} tokens. However, you requested {total} tokens \
                     ({input} in the prompt, {max_tokens} in the completion). Please reduce the length of the \
                     prompt or completion."
                ),
            ));
        }
        let stream_options = body.stream_options.unwrap_or_default();
        let include_usage = stream_options.include_usage.unwrap_or(false);
        Ok(Self {
            api,
            prompt_chars: prompt.chars,
            prompt_tokens: prompt.tokens,
            prompt_hash: prompt.hash,
            prompt_blocks: prompt.blocks,
            max_tokens,
            min_tokens: body.min_tokens.unwrap_or(0),
            ignore_eos: body.ignore_eos.unwrap_or(false),
            seed: body.seed.unwrap_or(0).cast_unsigned(),
            stream: body.stream.unwrap_or(false),
            include_usage,
            continuous_usage: include_usage && stream_options.continuous_usage_stats.unwrap_or(false),
            logprobs: logprobs(api, body.logprobs.as_ref(), body.top_logprobs)?,
            token_ids: body.return_token_ids.unwrap_or(false),
        })
    }
}

/// Completions take a number of alternatives, chat a switch and a number beside it.
fn logprobs(api: Api, asked: Option<&Value>, top: Option<u32>) -> Result<Option<u32>, ApiError> {
    let wrong = |expected| Err(ApiError::bad(Some("logprobs"), format!("logprobs must be {expected}")));
    let alternatives = match (api, asked) {
        (_, None) | (Api::Chat, Some(Value::Bool(false))) => None,
        (Api::Chat, Some(Value::Bool(true))) => Some(top.unwrap_or(0)),
        (Api::Chat, Some(_)) => return wrong("true or false"),
        (Api::Completions, Some(number)) => match number.as_u64() {
            Some(number) => Some(u32::try_from(number).unwrap_or(u32::MAX).max(1)),
            None => return wrong("a whole number"),
        },
    };
    if alternatives.is_some_and(|alternatives| alternatives > MOST_LOGPROBS) {
        return wrong("at most 20");
    }
    Ok(alternatives)
}

struct Prompt {
    chars: u64,
    tokens: u32,
    hash: u64,
    blocks: Arc<[u64]>,
}

impl Prompt {
    fn of_text(text: &str) -> Self {
        let chars = text.chars().count() as u64;
        Self { chars, tokens: prompt_tokens(chars), hash: prompt_hash(text), blocks: text_blocks(text) }
    }

    /// A string, a list with one string, or a list of token ids.
    fn of_completion(prompt: Option<&Value>) -> Result<Self, ApiError> {
        let bad = |message: &str| ApiError::bad(Some("prompt"), message);
        let prompt = prompt.ok_or_else(|| bad("prompt is required"))?;
        match prompt {
            Value::String(text) if text.is_empty() => Err(bad("prompt cannot be empty")),
            Value::String(text) => Ok(Self::of_text(text)),
            Value::Array(items) => match items.as_slice() {
                [] => Err(bad("prompt cannot be empty")),
                [single @ (Value::String(_) | Value::Array(_))] => Self::of_completion(Some(single)),
                ids if ids.iter().all(Value::is_u64) => Ok(Self {
                    chars: 0,
                    tokens: u32::try_from(ids.len()).unwrap_or(u32::MAX),
                    hash: prompt_hash(&prompt.to_string()),
                    blocks: id_blocks(ids.iter().filter_map(Value::as_u64)),
                }),
                _ => Err(bad(
                    "the simulated engine takes one prompt a request: a string or a list of token ids",
                )),
            },
            _ => Err(bad("prompt must be a string or a list of token ids")),
        }
    }

    /// The texts of all messages, one a line.
    fn of_chat(messages: Option<&[Value]>) -> Result<Self, ApiError> {
        let bad = |message: &str| ApiError::bad(Some("messages"), message);
        let messages = messages.ok_or_else(|| bad("messages is required"))?;
        if messages.is_empty() {
            return Err(bad("messages cannot be empty"));
        }
        let mut text = String::new();
        for message in messages {
            if !message.get("role").is_some_and(Value::is_string) {
                return Err(bad("each message needs a role"));
            }
            match message.get("content") {
                Some(Value::String(content)) => text.push_str(content),
                Some(Value::Array(parts)) => {
                    parts
                        .iter()
                        .filter_map(|part| part.get("text")?.as_str())
                        .for_each(|part| text.push_str(part));
                }
                None | Some(Value::Null) => {}
                Some(_) => return Err(bad("a message's content must be a string or a list of parts")),
            }
            text.push('\n');
        }
        text.pop();
        Ok(Self::of_text(&text))
    }
}
