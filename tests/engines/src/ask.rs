//! What a request for generation asks, as far as any engine heeds it.

use serde_json::{Map, Value};

use crate::rng;

/// The endpoints that generate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    /// `/v1/completions`
    Completions,
    /// `/v1/chat/completions`
    Chat,
}

impl Api {
    /// The path of a request.
    #[must_use]
    pub fn path(self) -> &'static str {
        match self {
            Self::Completions => "/v1/completions",
            Self::Chat => "/v1/chat/completions",
        }
    }
}

/// Why a body cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// It is no JSON object.
    Json,
    /// This field has a type that no engine takes.
    Field(&'static str),
    /// There is no prompt, or none of a kind that any engine takes.
    Prompt,
}

/// A prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Prompt {
    /// Text, or the texts of messages.
    Text(String),
    /// Token ids.
    Ids(Vec<u32>),
}

/// A request for generation.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) api: Api,
    pub(crate) prompt: Prompt,
    pub(crate) model: Option<String>,
    pub(crate) max_tokens: Option<u64>,
    pub(crate) temperature: f64,
    pub(crate) seed: Option<i64>,
    pub(crate) ignore_eos: bool,
    pub(crate) stream: bool,
    pub(crate) include_usage: bool,
    pub(crate) continuous_usage: bool,
    pub(crate) logprobs: bool,
    /// Every field of the body.
    pub(crate) fields: Map<String, Value>,
}

impl Ask {
    /// Reads a body.
    pub(crate) fn read(api: Api, body: &[u8]) -> Result<Self, Unreadable> {
        let Ok(Value::Object(fields)) = serde_json::from_slice(body) else { return Err(Unreadable::Json) };
        let prompt = match api {
            Api::Completions => prompt(fields.get("prompt"))?,
            Api::Chat => Prompt::Text(messages(fields.get("messages"))?),
        };
        let stream_option = |name| fields.get("stream_options").is_some_and(|o| o[name] == true);
        let logprobs = fields.get("logprobs").is_some_and(|l| *l != false && !l.is_null());
        Ok(Self {
            api,
            prompt,
            model: fields.get("model").and_then(Value::as_str).map(str::to_owned),
            max_tokens: match fields.get("max_tokens") {
                None | Some(Value::Null) => None,
                Some(n) => Some(n.as_u64().ok_or(Unreadable::Field("max_tokens"))?),
            },
            temperature: fields.get("temperature").and_then(Value::as_f64).unwrap_or(1.0),
            seed: fields.get("seed").and_then(Value::as_i64),
            ignore_eos: fields.get("ignore_eos") == Some(&Value::Bool(true)),
            stream: fields.get("stream") == Some(&Value::Bool(true)),
            include_usage: stream_option("include_usage"),
            continuous_usage: stream_option("continuous_usage_stats"),
            logprobs,
            fields,
        })
    }

    /// The text that may name a scenario.
    pub(crate) fn text(&self) -> &str {
        match &self.prompt {
            Prompt::Text(text) => text,
            Prompt::Ids(_) => "",
        }
    }

    /// A field that is `true`.
    pub(crate) fn says(&self, field: &str) -> bool {
        self.fields.get(field) == Some(&Value::Bool(true))
    }

    /// The prompt's tokens: one for each word, and what a chat template puts around it.
    pub(crate) fn prompt_ids(&self) -> Vec<u32> {
        let text = match &self.prompt {
            Prompt::Ids(ids) => return ids.clone(),
            Prompt::Text(text) => text,
        };
        let word = |word: &str| rng::hash(word.bytes().map(u64::from)) as u32 % 30_000 + 300;
        let words = text.split_whitespace().map(word);
        match self.api {
            Api::Completions => [1].into_iter().chain(words).collect(),
            Api::Chat => [1, 3, 203].into_iter().chain(words).chain([4, 203]).collect(),
        }
    }
}

fn prompt(value: Option<&Value>) -> Result<Prompt, Unreadable> {
    match value {
        Some(Value::String(text)) => Ok(Prompt::Text(text.clone())),
        Some(Value::Array(ids)) if !ids.is_empty() => {
            let id = |id: &Value| id.as_u64().and_then(|id| u32::try_from(id).ok());
            ids.iter().map(id).collect::<Option<_>>().map(Prompt::Ids).ok_or(Unreadable::Prompt)
        }
        _ => Err(Unreadable::Prompt),
    }
}

fn messages(value: Option<&Value>) -> Result<String, Unreadable> {
    let list = value.and_then(Value::as_array).filter(|list| !list.is_empty()).ok_or(Unreadable::Prompt)?;
    let texts: Option<Vec<&str>> = list.iter().map(|message| message["content"].as_str()).collect();
    // The last message first: it is the one that names a scenario.
    texts.map(|texts| texts.into_iter().rev().collect::<Vec<_>>().join("\n")).ok_or(Unreadable::Prompt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_read_or_said_to_be_unreadable() {
        let read = |api, body: &str| Ask::read(api, body.as_bytes());
        let ask =
            read(Api::Completions, r#"{"prompt":"a b","max_tokens":3,"stream":true,"seed":4}"#).unwrap();
        assert_eq!(
            (ask.prompt_ids().len(), ask.max_tokens, ask.stream, ask.seed),
            (3, Some(3), true, Some(4))
        );
        let ids = read(Api::Completions, r#"{"prompt":[5,6]}"#).unwrap();
        assert_eq!((ids.prompt_ids(), ids.text()), (vec![5, 6], ""));
        let chat = r#"{"messages":[{"role":"system","content":"s"},{"role":"user","content":"scenario:x"}]}"#;
        assert!(read(Api::Chat, chat).unwrap().text().starts_with("scenario:x"));
        assert_eq!(read(Api::Chat, "{").unwrap_err(), Unreadable::Json);
        assert_eq!(read(Api::Chat, r#"{"prompt":"a"}"#).unwrap_err(), Unreadable::Prompt);
        let typed = r#"{"prompt":"a","max_tokens":"many"}"#;
        assert_eq!(read(Api::Completions, typed).unwrap_err(), Unreadable::Field("max_tokens"));
    }
}
