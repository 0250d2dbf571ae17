//! The bytes of an answer, in the shapes of vLLM's OpenAI-compatible server.
//!
//! Owns the JSON of stream events, whole answers, logprobs and usage. What does not change within an answer is
//! serialised once; an event is then a few string pushes. Must never know about timing, faults or sockets.

use std::fmt::Write as _;

use crate::openai::{Api, Ask};
use crate::text::WORDS;

/// Where a token's text goes in a chat event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Channel {
    Content,
    /// A reasoning field of this name.
    Reasoning(&'static str),
}

/// What every event of one answer has in common.
#[derive(Debug)]
pub(crate) struct Shape {
    api: Api,
    /// From the opening brace through `"created":…,"model":…`.
    head: String,
    object: (&'static str, &'static str),
    logprobs: Option<u32>,
    token_ids: bool,
    prompt_tokens: u32,
    continuous_usage: bool,
    null_usage: bool,
}

/// The usage object for these counts. `cached` of the prompt's tokens are said where the engine has a prefix cache.
pub(crate) fn usage(prompt_tokens: i64, completion_tokens: i64, cached: Option<u32>) -> String {
    let total = prompt_tokens + completion_tokens;
    let details = cached
        .map(|cached| format!(r#","prompt_tokens_details":{{"cached_tokens":{cached}}}"#))
        .unwrap_or_default();
    format!(
        r#"{{"prompt_tokens":{prompt_tokens},"total_tokens":{total},"completion_tokens":{completion_tokens}{details}}}"#
    )
}

impl Shape {
    /// `id` without its prefix; `null_usage` prints `"usage":null` in every event.
    pub(crate) fn new(ask: &Ask, id: &str, created: u64, model: &str, null_usage: bool) -> Self {
        let (prefix, object) = match ask.api {
            Api::Completions => ("cmpl-", ("text_completion", "text_completion")),
            Api::Chat => ("chatcmpl-", ("chat.completion.chunk", "chat.completion")),
        };
        let id = quoted(&format!("{prefix}{id}"));
        let head = format!(r#"{{"id":{id},"created":{created},"model":{}"#, quoted(model));
        Self {
            api: ask.api,
            head,
            object,
            logprobs: ask.logprobs,
            token_ids: ask.token_ids,
            prompt_tokens: ask.prompt_tokens,
            continuous_usage: ask.continuous_usage,
            null_usage,
        }
    }

    fn open(&self) -> String {
        let mut event = String::with_capacity(self.head.len() + 256);
        let _ = write!(event, r#"{},"object":"{}","choices":["#, self.head, self.object.0);
        event
    }

    fn close(&self, mut event: String, tokens_so_far: u32) -> String {
        if self.null_usage {
            event.push_str(r#"],"usage":null}"#);
        } else if self.continuous_usage {
            // vLLM gives the details with the final usage only.
            let usage = usage(self.prompt_tokens.into(), tokens_so_far.into(), None);
            let _ = write!(event, r#"],"usage":{usage}}}"#);
        } else {
            event.push_str("]}");
        }
        event
    }

    /// Chat's first event: the role and no text.
    pub(crate) fn role(&self) -> String {
        let mut event = self.open();
        event.push_str(
            r#"{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}"#,
        );
        self.close(event, 0)
    }

    /// An event with these tokens; `before` are the tokens and characters sent already.
    pub(crate) fn tokens(
        &self,
        channel: Channel,
        ids: &[usize],
        before: (u32, usize),
        finish: Option<&str>,
    ) -> String {
        let mut event = self.open();
        let field = match (self.api, channel) {
            (Api::Completions, _) => r#""text":""#,
            (Api::Chat, Channel::Content) => r#""delta":{"content":""#,
            (Api::Chat, Channel::Reasoning(field)) => {
                let _ = write!(event, r#"{{"index":0,"delta":{{"{field}":""#);
                ""
            }
        };
        if !field.is_empty() {
            let _ = write!(event, r#"{{"index":0,{field}"#);
        }
        ids.iter().for_each(|id| event.push_str(WORDS[*id]));
        event.push_str(if self.api == Api::Chat { r#""},"# } else { r#"","# });
        self.evidence(&mut event, ids, before.1);
        match finish {
            None => event.push_str(r#""finish_reason":null,"stop_reason":null}"#),
            Some(reason) => {
                let _ = write!(event, r#""finish_reason":"{reason}","stop_reason":null}}"#);
            }
        }
        let sent = u32::try_from(ids.len()).unwrap_or(u32::MAX);
        self.close(event, before.0.saturating_add(sent))
    }

    /// The event that carries nothing but a usage.
    pub(crate) fn usage_event(&self, usage: &str) -> String {
        let mut event = self.open();
        let _ = write!(event, r#"],"usage":{usage}}}"#);
        event
    }

    /// The answer to a request that did not ask for a stream.
    pub(crate) fn whole(&self, ids: &[usize], finish: &str, usage: Option<&str>) -> String {
        let text: String = ids.iter().map(|id| WORDS[*id]).collect();
        let mut answer = format!(r#"{},"object":"{}","choices":[{{"index":0,"#, self.head, self.object.1);
        let _ = match self.api {
            Api::Completions => write!(answer, r#""text":"{text}","#),
            Api::Chat => write!(answer, r#""message":{{"role":"assistant","content":"{text}"}},"#),
        };
        self.evidence(&mut answer, ids, 0);
        let _ = write!(answer, r#""finish_reason":"{finish}","stop_reason":null}}]"#);
        if let Some(usage) = usage {
            let _ = write!(answer, r#","usage":{usage}"#);
        }
        answer.push('}');
        answer
    }

    /// What proves how many tokens an event holds, where it was asked for.
    fn evidence(&self, event: &mut String, ids: &[usize], offset: usize) {
        match (self.logprobs, self.api) {
            (None, _) => event.push_str(r#""logprobs":null,"#),
            (Some(top), Api::Completions) => completion_logprobs(event, ids, top, offset),
            (Some(top), Api::Chat) => chat_logprobs(event, ids, top),
        }
        if self.token_ids {
            let _ = write!(event, r#""token_ids":{ids:?},"#);
        }
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// The place of the `rank`th alternative to a token, and its made-up logprob.
fn alternative(id: usize, rank: u32) -> (&'static str, f64) {
    let other = (id + rank as usize) % WORDS.len();
    (WORDS[other], -0.25 - 0.5 * f64::from(rank))
}

fn join<T>(out: &mut String, items: impl Iterator<Item = T>, mut each: impl FnMut(&mut String, T)) {
    for (at, item) in items.enumerate() {
        if at > 0 {
            out.push(',');
        }
        each(out, item);
    }
}

fn completion_logprobs(out: &mut String, ids: &[usize], top: u32, mut offset: usize) {
    out.push_str(r#""logprobs":{"text_offset":["#);
    join(out, ids.iter(), |out, id| {
        let _ = write!(out, "{offset}");
        offset += WORDS[*id].len();
    });
    out.push_str(r#"],"token_logprobs":["#);
    join(out, ids.iter(), |out, id| {
        let _ = write!(out, "{}", alternative(*id, 0).1);
    });
    out.push_str(r#"],"tokens":["#);
    join(out, ids.iter(), |out, id| {
        let _ = write!(out, r#""{}""#, WORDS[*id]);
    });
    out.push_str(r#"],"top_logprobs":["#);
    join(out, ids.iter(), |out, id| {
        out.push('{');
        join(out, 0..top, |out, rank| {
            let (word, logprob) = alternative(*id, rank);
            let _ = write!(out, r#""{word}":{logprob}"#);
        });
        out.push('}');
    });
    out.push_str("]},");
}

fn chat_logprobs(out: &mut String, ids: &[usize], top: u32) {
    let entry = |out: &mut String, (word, logprob): (&str, f64)| {
        let bytes = word.as_bytes();
        let _ = write!(out, r#""token":"{word}","logprob":{logprob},"bytes":{bytes:?}"#);
    };
    out.push_str(r#""logprobs":{"content":["#);
    join(out, ids.iter(), |out, id| {
        out.push('{');
        entry(out, alternative(*id, 0));
        out.push_str(r#","top_logprobs":["#);
        join(out, 0..top, |out, rank| {
            out.push('{');
            entry(out, alternative(*id, rank));
            out.push('}');
        });
        out.push_str("]}");
    });
    out.push_str("]},");
}
