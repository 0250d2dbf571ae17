//! Text as JSON, in the ways that engines write it, and other shapes that several of them share.

use std::fmt::Write as _;

use crate::answer::Token;

/// A JSON string that leaves non-ASCII characters as they are.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A JSON string as Python's `json.dumps` writes it: nothing but ASCII, with surrogate pairs.
pub(crate) fn ascii_quoted(text: &str) -> String {
    let mut out = String::new();
    for c in quoted(text).chars() {
        if c.is_ascii() {
            out.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            let _ = write!(out, "\\u{unit:04x}");
        }
    }
    out
}

/// `null` or what is there.
pub(crate) fn or_null(json: Option<String>) -> String {
    json.unwrap_or_else(|| "null".to_owned())
}

/// `null` or a string.
pub(crate) fn reason(finish: Option<&str>) -> String {
    or_null(finish.map(quoted))
}

/// A log probability that belongs to a token.
pub(crate) fn logprob(token: &Token) -> String {
    format!("-{}.{:04}", token.id % 5, 1 + token.id % 9973)
}

/// The elements with commas between, without brackets.
pub(crate) fn list<T>(items: impl IntoIterator<Item = T>, show: impl Fn(T) -> String) -> String {
    items.into_iter().map(show).collect::<Vec<_>>().join(",")
}

/// The legacy shape: one entry in each list for a token.
pub(crate) fn legacy_logprobs(tokens: &[Token], offsets: impl Fn(usize) -> i64) -> String {
    format!(
        r#"{{"text_offset":[{}],"token_logprobs":[{}],"tokens":[{}],"top_logprobs":[{}]}}"#,
        list(0..tokens.len(), |i| offsets(i).to_string()),
        list(tokens, logprob),
        list(tokens, |t| quoted(&t.text)),
        list(tokens, |t| format!("{{{}:{}}}", quoted(&t.text), logprob(t))),
    )
}

/// The UTF-8 bytes of a token as a JSON list.
pub(crate) fn bytes(token: &Token) -> String {
    format!("[{}]", list(token.text.bytes(), |b| b.to_string()))
}

/// A page of Prometheus gauges.
pub(crate) fn gauges(values: &[(&str, &str, f64)]) -> String {
    let mut page = String::new();
    for (name, labels, value) in values {
        let _ = write!(page, "# HELP {name} Scripted.\n# TYPE {name} gauge\n{name}{labels} {value:?}\n");
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_of_writing_mean_the_same_text() {
        for text in ["plain", "a\"b\\c\n", "\u{10}", "ä€", "😀 end"] {
            for json in [quoted(text), ascii_quoted(text)] {
                assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text, "{json}");
            }
            assert!(ascii_quoted(text).is_ascii());
        }
        assert_eq!(ascii_quoted("😀"), r#""\ud83d\ude00""#);
    }
}
