//! Says what one event of a stream means. The only place that knows the engines' JSON.
//!
//! One reading serves every engine: an event is the end mark, nothing, an error, or a chunk with text by channel, a
//! finish reason, usage and evidence of how many tokens it holds. Texts stay slices of the event where JSON allows
//! it. Nothing is guessed: an absent number is absent, and what is not the JSON of a chunk is malformed.
//!
//! The usual event is read in place (`scan`), all others by serde (`json`); both say the same of the same event.
//!
//! The shapes come from the engines' sources and bug reports; `tests/engine/dialects.rs` lists them.

mod json;
mod scan;

use std::borrow::Cow;

use common::trace::EngineTime;

use self::json::{BAD_COUNT, Payload};
use super::sse;

/// The longest error that is looked into: what there is to learn of it stands in some hundred bytes.
const MAX_ERROR_JSON: usize = 64 << 10;

/// What an event means.
// Made for each event and moved once: a box would be an allocation for each event.
#[expect(clippy::large_enum_variant)]
#[derive(Debug, Clone, PartialEq)]
pub enum Meaning<'a> {
    /// `[DONE]`.
    Done,
    /// Nothing: `null`, or an event under a name of its own that is no chunk.
    Nothing,
    /// The engine says that the request failed.
    Error(EngineError),
    /// A piece of the answer, perhaps an empty one.
    Chunk(Chunk<'a>),
}

/// What an engine says of a failure. Identifiers only: its words may quote the prompt.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EngineError {
    /// `type` and `code`, such as `server_error 500`; may be empty.
    pub label: String,
}

/// A piece of the answer to choice 0.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Chunk<'a> {
    /// `text` or `delta.content`.
    pub answer: Cow<'a, str>,
    /// `delta.reasoning_content` or `delta.reasoning`.
    pub reasoning: Cow<'a, str>,
    /// Arguments of tool calls.
    pub tool_arguments: Cow<'a, str>,
    /// Why the answer ended; an empty one is none.
    pub finish_reason: Option<Cow<'a, str>>,
    /// Counts by the engine; none when it sent none, null or only zeros.
    pub usage: Option<Usage>,
    /// How many tokens the event holds.
    pub tokens: TokenEvidence,
    /// What the engine says about its own time.
    pub engine_time: Option<EngineTime>,
}

impl Chunk<'_> {
    /// Some channel has text.
    #[must_use]
    pub fn has_text(&self) -> bool {
        !(self.answer.is_empty() && self.reasoning.is_empty() && self.tool_arguments.is_empty())
    }
}

/// An engine's token counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Output tokens.
    pub completion: Option<u64>,
    /// Prompt tokens.
    pub prompt: Option<u64>,
    /// Prompt tokens found in the prefix cache.
    pub cached: Option<u64>,
}

/// What an event says about the tokens in it, in the three ways that engines have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TokenEvidence {
    /// Output tokens of the request so far, this event included.
    pub cumulative: Option<u64>,
    /// Length of `token_ids`.
    pub ids: Option<u64>,
    /// Entries in `logprobs`.
    pub logprobs: Option<u64>,
}

/// Why an event is not what the protocol says. Says nothing of its content.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(String);

/// Reads one event.
///
/// # Errors
/// [`Malformed`] when the data is neither `[DONE]`, `null` nor the JSON of a chunk or an error.
pub fn classify<'a>(event: sse::Event<'a>) -> Result<Meaning<'a>, Malformed> {
    let data = event.data.trim_ascii();
    if data == b"[DONE]" {
        return Ok(Meaning::Done);
    }
    if event.name == b"error" || (!event.error.is_empty() && data.is_empty()) {
        let said = if data.is_empty() { event.error } else { data };
        return Ok(Meaning::Error(error_in(said)));
    }
    // An event under a name of its own (`agentic_tool_call_progress`, `sglext_ids`, …) may hold anything.
    let foreign = !event.name.is_empty() && event.name != b"message";
    match payload(data) {
        Err(_) if foreign => Ok(Meaning::Nothing),
        other => other,
    }
}

/// The label of an error body in any of the envelopes that engines use.
#[must_use]
pub fn error_in(body: &[u8]) -> EngineError {
    // In memory JSON is up to sixteen times as long.
    if body.len() > MAX_ERROR_JSON {
        return EngineError::default();
    }
    let Ok(value) = serde_json::from_slice::<serde_json::Value>(body) else { return EngineError::default() };
    // {"error": {…}}, or flat: {"object": "error", "type": …}, {"error": "…", "error_type": …}
    let inner = value.get("error").filter(|e| e.is_object()).unwrap_or(&value);
    let part = |keys: &[&str]| keys.iter().find_map(|key| identifier(inner.get(key)?));
    let parts = [part(&["type", "error_type"]), part(&["code", "http_status_code"])];
    EngineError { label: parts.into_iter().flatten().collect::<Vec<_>>().join(" ") }
}

/// A short identifier; anything that could be prose is left out.
fn identifier(value: &serde_json::Value) -> Option<String> {
    let text = match value {
        serde_json::Value::String(s) => s.clone(),
        serde_json::Value::Number(n) => n.to_string(),
        _ => return None,
    };
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    (!text.is_empty() && text.len() <= 64 && text.chars().all(fine)).then_some(text)
}

fn payload(data: &[u8]) -> Result<Meaning<'_>, Malformed> {
    match data {
        b"" | b"null" => return Ok(Meaning::Nothing),
        [b'{', ..] => {}
        _ => return Err(Malformed("an event is not a JSON object".into())),
    }
    match scan::chunk(data) {
        Some(chunk) => Ok(Meaning::Chunk(chunk)),
        None => whole(data),
    }
}

/// The usual event as it is read in place, and as serde reads it: the same. None for an event that is not usual.
#[cfg(any(test, feature = "fuzz"))]
pub(super) fn both_readings(data: &[u8]) -> Option<(Meaning<'_>, Result<Meaning<'_>, Malformed>)> {
    Some((Meaning::Chunk(scan::chunk(data)?), whole(data)))
}

/// Reads all of an object.
fn whole(data: &[u8]) -> Result<Meaning<'_>, Malformed> {
    let raw: Payload<'_> = serde_json::from_slice(data).map_err(|e| Malformed(explain(&e)))?;
    let says_error = raw.error.is_some_and(|e| truthy(e.get()));
    if says_error || (raw.choices.is_none() && raw.object.as_ref().is_some_and(|o| o.0 == "error")) {
        return Ok(Meaning::Error(error_in(data)));
    }
    Ok(Meaning::Chunk(raw.into_chunk()))
}

/// Some engines send `error` with a value that says that there is none.
fn truthy(json: &str) -> bool {
    if json.len() > MAX_ERROR_JSON {
        return true;
    }
    match serde_json::from_str(json) {
        Ok(serde_json::Value::Null | serde_json::Value::Bool(false)) => false,
        Ok(serde_json::Value::Number(n)) => n.as_f64() != Some(0.0),
        Ok(serde_json::Value::String(s)) => !s.is_empty(),
        Ok(serde_json::Value::Array(a)) => !a.is_empty(),
        Ok(serde_json::Value::Object(o)) => !o.is_empty(),
        Ok(serde_json::Value::Bool(true)) | Err(_) => true,
    }
}

/// serde_json's own message may quote the stream, so only ours and its position are passed on.
fn explain(e: &serde_json::Error) -> String {
    let text = e.to_string();
    if text.starts_with(BAD_COUNT) {
        BAD_COUNT.to_owned()
    } else if e.is_data() {
        format!("a field of an event has an unexpected type (byte {})", e.column())
    } else {
        format!("an event is not valid JSON (byte {})", e.column())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(data: &str) -> Result<Meaning<'_>, Malformed> {
        classify(sse::Event { name: b"", data: data.as_bytes(), comment: b"", error: b"" })
    }

    fn chunk(data: &str) -> Chunk<'_> {
        match read(data).expect(data) {
            Meaning::Chunk(chunk) => chunk,
            other => panic!("{data}: {other:?}"),
        }
    }

    #[test]
    fn text_is_found_in_every_channel_and_borrowed() {
        let c = chunk(r#"{"choices":[{"index":0,"text":"hi","finish_reason":null}]}"#);
        assert!(matches!(c.answer, Cow::Borrowed("hi")));
        assert_eq!(chunk(r#"{"choices":[{"delta":{"content":"a\n"}}]}"#).answer, "a\n");
        assert_eq!(
            chunk(r#"{"choices":[{"delta":{"reasoning_content":null,"reasoning":"r"}}]}"#).reasoning,
            "r"
        );
        assert_eq!(
            chunk(r#"{"choices":[{"delta":{"reasoning_content":"r","reasoning":"r"}}]}"#).reasoning,
            "r"
        );
        let tools = r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"f","arguments":"{\"a\""}},{"function":{"arguments":":1}"}}]}}]}"#;
        assert_eq!(chunk(tools).tool_arguments, "{\"a\":1}");
        for silent in [
            r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#,
            r#"{"choices":[{"delta":{"role":"assistant","content":null}}]}"#,
            r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#,
            r#"{"choices":[]}"#,
            r#"{"choices":null}"#,
            r#"{"choices":[{"index":1,"text":"other"}]}"#,
            r#"{"id":"x"}"#,
        ] {
            assert!(!chunk(silent).has_text(), "{silent}");
        }
    }

    #[test]
    fn usage_is_absent_unless_it_counts_something() {
        let usage = |s: &str| chunk(&format!(r#"{{"choices":[],"usage":{s}}}"#)).usage;
        assert_eq!(usage("null"), None);
        assert_eq!(usage(r#"{"prompt_tokens":0,"completion_tokens":0}"#), None);
        let full = usage(
            r#"{"prompt_tokens":9,"completion_tokens":12.0,"prompt_tokens_details":{"cached_tokens":4}}"#,
        );
        assert_eq!(full, Some(Usage { completion: Some(12), prompt: Some(9), cached: Some(4) }));
        assert_eq!(usage(r#"{"prompt_tokens":9,"prompt_tokens_details":null}"#).unwrap().completion, None);
        assert_eq!(chunk(r#"{"usage":{"completion_tokens":3}}"#).usage.unwrap().completion, Some(3));
        let other = r#"{"choices":[{"index":1,"text":""}],"usage":{"completion_tokens":3}}"#;
        assert_eq!(chunk(other).usage, None);
    }

    #[test]
    fn counts_that_are_no_counts_are_malformed() {
        for bad in ["-1", "1.5", "\"12\"", "true", "[1]", "{}", "1e300", "-0.5"] {
            for place in [
                r#"{"usage":{"completion_tokens":@}}"#,
                r#"{"usage":{"prompt_tokens":@}}"#,
                r#"{"usage":{"prompt_tokens_details":{"cached_tokens":@}}}"#,
                r#"{"timings":{"predicted_n":@}}"#,
            ] {
                let error = read(&place.replace('@', bad)).map(|_| ()).expect_err(bad);
                assert_eq!(error.to_string(), BAD_COUNT);
            }
        }
    }

    #[test]
    fn evidence_is_read_in_its_three_forms() {
        let tokens = |s: &str| chunk(s).tokens;
        let ids = tokens(r#"{"choices":[{"text":"","token_ids":[1,2]}]}"#);
        assert_eq!(ids, TokenEvidence { ids: Some(2), ..Default::default() });
        let legacy =
            tokens(r#"{"choices":[{"text":"a","logprobs":{"tokens":["a"],"token_logprobs":[-1]}}]}"#);
        assert_eq!(legacy.logprobs, Some(1));
        let chat =
            tokens(r#"{"choices":[{"delta":{},"logprobs":{"content":[{"token":"a"},{"token":"b"}]}}]}"#);
        assert_eq!(chat.logprobs, Some(2));
        assert_eq!(
            tokens(r#"{"choices":[{"text":"a","logprobs":{"content":null},"token_ids":null}]}"#),
            TokenEvidence::default()
        );
        assert_eq!(tokens(r#"{"choices":[{"text":"a"}],"timings":{"predicted_n":7}}"#).cumulative, Some(7));
        assert_eq!(tokens(r#"{"choices":[{"text":"a"}],"tokens_predicted":7}"#).cumulative, Some(7));
        assert_eq!(
            tokens(r#"{"choices":[{"text":"a"}],"usage":{"prompt_tokens":1,"completion_tokens":0}}"#)
                .cumulative,
            Some(0)
        );
    }

    #[test]
    fn what_an_engine_says_of_its_time_is_kept_and_never_a_reason_to_fail() {
        let ms = |n: u64| Some(common::ids::Nanos(n * 1_000_000));
        let time = |s: &str| chunk(s).engine_time;
        let vllm = r#"{"choices":[],"metrics":{"time_to_first_token_ms":7,"generation_time_ms":20.0,"queue_time_ms":3,"mean_itl_ms":null}}"#;
        let said = time(vllm).unwrap();
        assert_eq!((said.queue, said.first_token, said.generation), (ms(3), ms(7), ms(20)));
        assert_eq!(said.total(), ms(30));
        let llamacpp =
            r#"{"choices":[{"text":""}],"timings":{"prompt_ms":4,"predicted_n":2,"predicted_ms":6}}"#;
        assert_eq!(time(llamacpp).unwrap().total(), ms(10));
        let tabbyapi = r#"{"choices":[{"text":""}],"usage":{"completion_tokens":2,"prompt_time":0.002,"completion_time":0.003,"prompt_tokens_per_sec":"Indeterminate"}}"#;
        assert_eq!(time(tabbyapi).unwrap().total(), ms(5));
        assert_eq!(time(r#"{"choices":[],"metrics":{"ttft_ms":2,"total_ms":9}}"#).unwrap().total(), ms(9));
        for nothing in
            [r#"{"metrics":{"ttft_ms":"soon"}}"#, r#"{"metrics":null}"#, r#"{"metrics":{"ttft_ms":-1}}"#]
        {
            assert_eq!(time(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn an_error_is_an_error_only_if_it_says_something() {
        for error in [
            r#"{"error":{"message":"m"}}"#,
            r#"{"error":"m"}"#,
            r#"{"error":1}"#,
            r#"{"error":true}"#,
            r#"{"error":[0]}"#,
            r#"{"object":"error","message":"m"}"#,
        ] {
            assert!(matches!(read(error), Ok(Meaning::Error(_))), "{error}");
        }
        for none in ["null", "false", "\"\"", "{ }", "[]", "0", "0.0"] {
            let event = format!(r#"{{"error":{none},"choices":[{{"text":"a"}}]}}"#);
            assert_eq!(chunk(&event).answer, "a", "{none}");
        }
        let label = |s: &str| error_in(s.as_bytes()).label;
        assert_eq!(
            label(r#"{"error":{"code":503,"type":"SERVICE_UNAVAILABLE","message":"The queue is full."}}"#),
            "SERVICE_UNAVAILABLE 503"
        );
        assert_eq!(label(r#"{"object":"error","type":"BadRequest","code":400}"#), "BadRequest 400");
        assert_eq!(label(r#"{"error":"Model is overloaded","error_type":"overloaded"}"#), "overloaded");
        assert_eq!(label(r#"{"error":{"type":"a sentence about the prompt","code":null}}"#), "");
        assert_eq!(label("not json"), "");
    }

    #[test]
    fn named_events_and_fields_that_mean_an_error_are_errors() {
        let event = |name: &'static str, data: &'static str, error: &'static str| {
            classify(sse::Event {
                name: name.as_bytes(),
                data: data.as_bytes(),
                comment: b"",
                error: error.as_bytes(),
            })
        };
        assert!(matches!(event("error", "", ""), Ok(Meaning::Error(_))));
        assert!(matches!(event("error", "not json", ""), Ok(Meaning::Error(_))));
        assert!(matches!(event("", "", "{\"code\":500}"), Ok(Meaning::Error(_))));
        assert_eq!(event("progress", "not json", ""), Ok(Meaning::Nothing));
        assert!(matches!(event("message", "{\"choices\":[]}", ""), Ok(Meaning::Chunk(_))));
    }

    #[test]
    fn what_is_no_chunk_is_malformed_and_not_quoted() {
        for bad in [
            "secret",
            "{\"choices\":[{\"text\":\"secret\"}",
            "[1]",
            "\"secret\"",
            "{\"choices\":\"secret\"}",
            "{\"choices\":[{\"text\":3}]}",
        ] {
            let error = read(bad).map(|_| ()).expect_err(bad).to_string();
            assert!(!error.contains("secret"), "{error}");
        }
        assert_eq!(read(" [DONE] "), Ok(Meaning::Done));
        assert_eq!(read(" null"), Ok(Meaning::Nothing));
    }
}
