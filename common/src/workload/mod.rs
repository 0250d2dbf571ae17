//! The workload: the rows that arrivals carry, read from JSON Lines.
//!
//! A row is `{"prompt": "…", "max_tokens": 64}`, `{"messages": [{"role": …, "content": …}], "max_tokens": 64}` or
//! `{"prompt_token_ids": [1, 2, 3], "max_tokens": 64}`.
//! `max_tokens` may be left out. Other fields are allowed, for data sets carry ids and the like, but they are listed,
//! so that a misspelt `max_token` is seen. Every error names the line and the field.

mod builtin;

pub use builtin::builtin;

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::ids::Digest;
use crate::plan::Api;

/// Longest workload line that is read. A longer one is more likely the wrong file than a prompt.
const MAX_LINE_BYTES: usize = 64 << 20;

/// Largest workload: coordinator and agents hold it in memory.
pub const MAX_WORKLOAD_BYTES: u64 = 4 << 30;

/// Rows with the digest of the bytes that they were read from.
#[derive(Debug, Clone)]
pub struct Workload {
    /// In the order of the file, blank lines left out. Never empty.
    pub rows: Vec<Row>,
    /// SHA-256 of the file.
    pub digest: Digest,
    /// Fields that rows have and Plimsoll does not use.
    pub ignored_fields: BTreeSet<String>,
}

/// What one arrival asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The prompt.
    pub body: RowBody,
    /// Tokens to generate at the most, if the row says so.
    pub max_tokens: Option<u32>,
    /// Line of the file, from 1.
    pub line: u32,
}

impl Row {
    /// Tokens of the prompt, where they are known without a tokenizer.
    #[must_use]
    pub fn prompt_tokens(&self) -> Option<u32> {
        match &self.body {
            RowBody::TokenIds(ids) => u32::try_from(ids.len()).ok(),
            RowBody::Prompt(_) | RowBody::Messages(_) => None,
        }
    }
}

/// The prompt in one of its forms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowBody {
    /// Plain text: for `/v1/completions`, or as one user message.
    Prompt(String),
    /// A conversation, as the JSON array that stood in the file: for `/v1/chat/completions` only.
    Messages(String),
    /// Token ids: for `/v1/completions` of an engine that takes them.
    TokenIds(Vec<u32>),
}

/// What is wrong with a workload.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkloadError {
    /// No rows.
    #[error(
        "the workload has no rows; it needs one JSON object a line, such as {{\"prompt\": \"hello\", \"max_tokens\": 16}}"
    )]
    Empty,
    /// A line that cannot be used.
    #[error("line {line}: {problem}")]
    Line {
        /// From 1.
        line: u32,
        /// What is wrong, with the field.
        problem: String,
    },
}

#[derive(Deserialize)]
struct RawRow<'a> {
    #[serde(default)]
    prompt: Option<String>,
    #[serde(default, borrow)]
    messages: Option<&'a RawValue>,
    #[serde(default)]
    prompt_token_ids: Option<Vec<u32>>,
    #[serde(default)]
    max_tokens: Option<u32>,
    #[serde(flatten)]
    rest: std::collections::BTreeMap<String, serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct Message {
    #[serde(rename = "role")]
    _role: String,
}

impl Workload {
    /// Reads the bytes of a JSON Lines file. A byte order mark and blank lines are allowed.
    ///
    /// # Errors
    /// The first line that cannot be used, or [`WorkloadError::Empty`].
    pub fn parse(bytes: &[u8]) -> Result<Self, WorkloadError> {
        let mut workload =
            Self { rows: Vec::new(), digest: Digest::of(bytes), ignored_fields: BTreeSet::new() };
        let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        for (number, line) in (1u32..).zip(text.split(|&b| b == b'\n')) {
            let fail = |problem: String| WorkloadError::Line { line: number, problem };
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            if line.len() > MAX_LINE_BYTES {
                return Err(fail(format!("longer than {} MiB", MAX_LINE_BYTES >> 20)));
            }
            let line = std::str::from_utf8(line).map_err(|e| fail(format!("not UTF-8: {e}")))?;
            let row = workload.row(line, number).map_err(fail)?;
            workload.rows.push(row);
        }
        if workload.rows.is_empty() { Err(WorkloadError::Empty) } else { Ok(workload) }
    }

    fn row(&mut self, line: &str, number: u32) -> Result<Row, String> {
        if !line.trim_start().starts_with('{') {
            return Err("expected a JSON object such as {\"prompt\": \"hello\", \"max_tokens\": 16}".into());
        }
        let raw: RawRow<'_> = serde_json::from_str(line).map_err(|e| explain(&e))?;
        let body = match (raw.prompt, raw.messages, raw.prompt_token_ids) {
            (None, None, None) => {
                return Err("has neither `prompt` nor `messages` nor `prompt_token_ids`".into());
            }
            (Some(prompt), None, None) if prompt.is_empty() => return Err("field `prompt` is empty".into()),
            (Some(prompt), None, None) => RowBody::Prompt(prompt),
            (None, None, Some(ids)) if ids.is_empty() => {
                return Err("field `prompt_token_ids` is empty".into());
            }
            (None, None, Some(ids)) => RowBody::TokenIds(ids),
            (None, Some(messages), None) => {
                let parsed: Vec<Message> = serde_json::from_str(messages.get())
                    .map_err(|e| format!("field `messages` must be a list of objects with a `role`: {e}"))?;
                if parsed.is_empty() {
                    return Err("field `messages` is empty".into());
                }
                RowBody::Messages(messages.get().to_owned())
            }
            (prompt, messages, ids) => {
                let fields = [("`prompt`", prompt.is_some()), ("`messages`", messages.is_some())];
                let fields = fields.into_iter().chain([("`prompt_token_ids`", ids.is_some())]);
                let given: Vec<&str> = fields.filter(|(_, given)| *given).map(|(name, _)| name).collect();
                return Err(format!("has {}; one of them is wanted", given.join(" and ")));
            }
        };
        if raw.max_tokens == Some(0) {
            return Err("field `max_tokens` must be at least 1".into());
        }
        self.ignored_fields.extend(raw.rest.into_keys());
        Ok(Row { body, max_tokens: raw.max_tokens, line: number })
    }

    /// The endpoint that suits the rows: chat as soon as one row is a conversation.
    #[must_use]
    pub fn natural_api(&self) -> Api {
        let chat = self.rows.iter().any(|r| matches!(r.body, RowBody::Messages(_)));
        if chat { Api::Chat } else { Api::Completions }
    }

    /// Says whether every row can be sent to `api`.
    ///
    /// # Errors
    /// The first row that cannot.
    pub fn check_api(&self, api: Api) -> Result<(), WorkloadError> {
        let problem = |row: &Row| match (&row.body, api) {
            (RowBody::Messages(_), Api::Completions) => {
                Some("field `messages` cannot be sent to the completions endpoint; use --api chat")
            }
            (RowBody::TokenIds(_), Api::Chat) => {
                Some("field `prompt_token_ids` cannot be sent to the chat endpoint; use --api completions")
            }
            _ => None,
        };
        match self.rows.iter().find_map(|row| Some((row.line, problem(row)?))) {
            None => Ok(()),
            Some((line, problem)) => Err(WorkloadError::Line { line, problem: problem.into() }),
        }
    }

    /// The first row whose prompt is a list of token ids.
    #[must_use]
    pub fn first_with_token_ids(&self) -> Option<&Row> {
        self.rows.iter().find(|r| matches!(r.body, RowBody::TokenIds(_)))
    }
}

/// serde_json counts its lines within our one line, which would mislead; keep the column.
fn explain(e: &serde_json::Error) -> String {
    let text = e.to_string();
    let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
    match e.classify() {
        serde_json::error::Category::Data => format!("{what} (column {})", e.column()),
        _ => format!("not valid JSON: {what} (column {})", e.column()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        Workload::parse(text.as_bytes()).expect_err(text).to_string()
    }

    #[test]
    fn errors_name_line_and_field() {
        let good = "{\"prompt\":\"a\"}\n\n";
        for (bad, says) in [
            ("{\"prompt\": 3}", "line 3: invalid type: integer `3`, expected a string"),
            ("{\"prompt\": \"a\"", "line 3: not valid JSON"),
            ("[1]", "line 3: expected a JSON object"),
            ("{}", "neither `prompt` nor `messages` nor `prompt_token_ids`"),
            ("{\"prompt\":\"\"}", "`prompt` is empty"),
            ("{\"prompt\":\"a\",\"messages\":[]}", "has `prompt` and `messages`; one"),
            ("{\"prompt\":\"a\",\"prompt_token_ids\":[1]}", "has `prompt` and `prompt_token_ids`; one"),
            ("{\"prompt_token_ids\":[]}", "`prompt_token_ids` is empty"),
            ("{\"prompt_token_ids\":[-1]}", "line 3: invalid value: integer `-1`, expected u32"),
            ("{\"prompt_token_ids\":[\"a\"]}", "line 3: invalid type"),
            ("{\"messages\":[]}", "`messages` is empty"),
            ("{\"messages\":[{\"content\":\"a\"}]}", "`messages` must be a list of objects with a `role`"),
            ("{\"prompt\":\"a\",\"max_tokens\":0}", "`max_tokens` must be at least 1"),
            ("{\"prompt\":\"a\",\"max_tokens\":-1}", "line 3"),
        ] {
            let e = error(&format!("{good}{bad}\n"));
            assert!(e.contains(says), "{bad}: {e}");
            assert!(e.starts_with("line 3"), "{e}");
        }
        for nothing in ["", "\n \r\n"] {
            assert!(error(nothing).contains("has no rows"));
        }
        assert!(Workload::parse(b"{\"prompt\":\"\xff\"}").is_err());
    }

    #[test]
    fn rows_keep_their_order_and_unknown_fields_are_listed() {
        let w = Workload::parse(b"\xef\xbb\xbf{\"prompt\":\"a\",\"max_token\":4}\r\n{\"messages\":[{\"role\":\"user\",\"content\":\"b\"}]}")
            .unwrap();
        assert_eq!(w.rows.len(), 2);
        assert_eq!(w.ignored_fields.iter().collect::<Vec<_>>(), ["max_token"]);
        assert_eq!(w.natural_api(), Api::Chat);
        assert!(w.check_api(Api::Completions).unwrap_err().to_string().contains("line 2"));
        let ids = Workload::parse(b"{\"prompt\":\"a\"}\n{\"prompt_token_ids\":[1,2]}").unwrap();
        assert_eq!(ids.rows[1].body, RowBody::TokenIds(vec![1, 2]));
        assert_eq!(ids.natural_api(), Api::Completions);
        assert!(ids.check_api(Api::Chat).unwrap_err().to_string().contains("line 2"));
    }

    #[test]
    fn the_builtin_workload_is_valid_and_always_the_same() {
        let w = Workload::parse(&builtin()).unwrap();
        assert!(w.rows.len() >= 32 && w.ignored_fields.is_empty());
        assert!(w.rows.iter().all(|r| r.max_tokens.is_some()));
        assert_eq!(builtin(), builtin());
    }
}
