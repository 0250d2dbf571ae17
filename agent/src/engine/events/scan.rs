//! Reads the usual event in place: one pass over its bytes, nothing built, nothing allocated unless a text has escapes.
//!
//! Nine of ten events of a stream have the same shape: some identifiers, one choice with a piece of text, perhaps counts.
//! They are read here. Whatever is not of that shape (a nested value in a place that is not known, an error, other choices,
//! log probabilities, a number that is no plain count, white space other than blanks, a field that comes twice, bytes that
//! are no UTF-8, anything malformed) is left to serde, which reads all of it: so there is one judge of what is malformed.
//!
//! Guarded by: what is read here is what serde reads (below, and over any bytes in the fuzz target `events`).

use std::borrow::Cow;

use memchr::memchr2;

use super::{Chunk, TokenEvidence, Usage};

/// The chunk in `data`, or nothing where it is not of the usual shape.
pub(super) fn chunk(data: &[u8]) -> Option<Chunk<'_>> {
    // Folded without a branch, so that it is done many bytes at a time.
    if data.iter().fold(false, |bad, &b| bad | (b < b' ')) {
        return None;
    }
    let mut scan = Scan { text: std::str::from_utf8(data).ok()?, at: 0 };
    let mut found = Found::default();
    let mut nulls = [None; 4];
    let [error, timings, metrics, predicted] = &mut nulls;
    scan.object(|scan, key| match key {
        "choices" => scan.once(&mut found.choices, Scan::choices),
        "usage" => scan.once(&mut found.usage, Scan::usage),
        "object" => scan.once(&mut found.object, Scan::optional_string),
        // What they hold matters, and they are rare.
        "error" => scan.once(error, Scan::null),
        "timings" => scan.once(timings, Scan::null),
        "metrics" => scan.once(metrics, Scan::null),
        "tokens_predicted" => scan.once(predicted, Scan::null),
        _ => scan.scalar(),
    })?;
    (scan.at == data.len()).then_some(())?;
    found.chunk()
}

/// What was found at the top of an event.
#[derive(Default)]
struct Found<'a> {
    choices: Option<Choice<'a>>,
    usage: Option<Option<Usage>>,
    /// Only so that it cannot come twice: with choices its value means nothing.
    object: Option<Option<Cow<'a, str>>>,
}

impl<'a> Found<'a> {
    fn chunk(self) -> Option<Chunk<'a>> {
        let choice = self.choices?;
        let usage = self.usage.flatten();
        let (text, content) = (choice.text.flatten(), choice.content.flatten());
        let (old, new) = (choice.reasoning_content.flatten(), choice.reasoning.flatten());
        let first = |a: Option<Cow<'a, str>>, b: Option<Cow<'a, str>>| {
            a.filter(|t| !t.is_empty()).or(b).unwrap_or_default()
        };
        Some(Chunk {
            answer: first(text, content),
            reasoning: first(old, new),
            tool_arguments: Cow::default(),
            finish_reason: choice.finish_reason.flatten().filter(|r| !r.is_empty()),
            usage,
            tokens: TokenEvidence { cumulative: usage.and_then(|u| u.completion), ids: None, logprobs: None },
            engine_time: None,
        })
    }
}

/// A field of a choice, when it has come; and what it says, when it is not null.
type Field<'a> = Option<Option<Cow<'a, str>>>;

/// The one choice.
#[derive(Default)]
struct Choice<'a> {
    index: Option<u64>,
    text: Field<'a>,
    finish_reason: Field<'a>,
    /// Null, if they came; they cannot come twice, nor can the delta.
    logprobs: Option<()>,
    token_ids: Option<()>,
    tool_calls: Option<()>,
    delta: Option<()>,
    content: Field<'a>,
    reasoning_content: Field<'a>,
    reasoning: Field<'a>,
}

/// A place in an event. Every method gives nothing where the event is not of the usual shape.
struct Scan<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scan<'a> {
    fn choices(&mut self) -> Option<Choice<'a>> {
        self.take(b'[')?;
        let mut choice = Choice::default();
        self.object(|scan, key| match key {
            "index" => scan.once(&mut choice.index, Scan::count),
            "text" => scan.once(&mut choice.text, Scan::optional_string),
            "finish_reason" => scan.once(&mut choice.finish_reason, Scan::optional_string),
            "delta" => {
                choice.delta.replace(()).is_none().then_some(())?;
                scan.delta(&mut choice)
            }
            "logprobs" => scan.once(&mut choice.logprobs, Scan::null),
            "token_ids" => scan.once(&mut choice.token_ids, Scan::null),
            _ => scan.scalar(),
        })?;
        self.take(b']')?;
        (choice.index.unwrap_or(0) == 0).then_some(choice)
    }

    fn delta(&mut self, choice: &mut Choice<'a>) -> Option<()> {
        self.object(|scan, key| match key {
            "content" => scan.once(&mut choice.content, Scan::optional_string),
            "reasoning_content" => scan.once(&mut choice.reasoning_content, Scan::optional_string),
            "reasoning" => scan.once(&mut choice.reasoning, Scan::optional_string),
            "tool_calls" => scan.once(&mut choice.tool_calls, Scan::null),
            _ => scan.scalar(),
        })
    }

    /// The counts; none when they are null or all of them zero.
    fn usage(&mut self) -> Option<Option<Usage>> {
        if self.next()? == b'n' {
            return self.null().map(|()| None);
        }
        let (mut completion, mut prompt) = (None, None);
        let (mut details, mut prompt_time, mut completion_time) = (None, None, None);
        self.object(|scan, key| match key {
            "completion_tokens" => scan.once(&mut completion, Scan::count),
            "prompt_tokens" => scan.once(&mut prompt, Scan::count),
            "prompt_tokens_details" => scan.once(&mut details, Scan::null),
            "prompt_time" => scan.once(&mut prompt_time, Scan::null),
            "completion_time" => scan.once(&mut completion_time, Scan::null),
            _ => scan.scalar(),
        })?;
        let known = completion.unwrap_or(0) > 0 || prompt.unwrap_or(0) > 0;
        Some(known.then_some(Usage { completion, prompt, cached: None }))
    }

    /// An object; `value` is called after each key and passes over its value.
    fn object(&mut self, mut value: impl FnMut(&mut Self, &'a str) -> Option<()>) -> Option<()> {
        self.take(b'{')?;
        if self.next()? == b'}' {
            return self.take(b'}');
        }
        loop {
            let (key, plain) = self.raw_string()?;
            plain.then_some(())?;
            self.take(b':')?;
            value(self, key)?;
            match self.next()? {
                b',' => self.at += 1,
                _ => return self.take(b'}'),
            }
        }
    }

    /// What `read` gives goes into `field`, unless it is there already.
    fn once<T>(&mut self, field: &mut Option<T>, read: fn(&mut Self) -> Option<T>) -> Option<()> {
        field.is_none().then_some(())?;
        *field = Some(read(self)?);
        Some(())
    }

    /// A string or null.
    fn optional_string(&mut self) -> Option<Option<Cow<'a, str>>> {
        if self.next()? == b'n' {
            return self.null().map(|()| None);
        }
        let begin = self.at;
        match self.raw_string()? {
            (text, true) => Some(Some(Cow::Borrowed(text))),
            (_, false) => {
                serde_json::from_str(&self.text[begin..self.at]).ok().map(|t: String| Some(Cow::Owned(t)))
            }
        }
    }

    /// What is between the quotes, and whether it stands for itself.
    fn raw_string(&mut self) -> Option<(&'a str, bool)> {
        self.take(b'"')?;
        let (begin, mut plain) = (self.at, true);
        loop {
            let rest = &self.text.as_bytes()[self.at..];
            self.at += memchr2(b'"', b'\\', rest)?;
            if self.text.as_bytes()[self.at] == b'"' {
                self.at += 1;
                return Some((&self.text[begin..self.at - 1], plain));
            }
            plain = false;
            // The escaped byte may be a quote; what else it is, is not looked at here. No character begins behind it
            // unless it is a whole one.
            self.at += 2;
            self.text.is_char_boundary(self.at).then_some(())?;
        }
    }

    /// A value that is not looked at: a string without escapes, a number, a word.
    fn scalar(&mut self) -> Option<()> {
        match self.next()? {
            b'"' => self.raw_string()?.1.then_some(()),
            b'n' => self.null(),
            b't' => self.word("true"),
            b'f' => self.word("false"),
            _ => self.number().map(drop),
        }
    }

    fn null(&mut self) -> Option<()> {
        self.word("null")
    }

    fn word(&mut self, word: &str) -> Option<()> {
        self.next()?;
        self.text[self.at..].starts_with(word).then_some(())?;
        self.at += word.len();
        Some(())
    }

    /// A whole number that is written as one.
    fn count(&mut self) -> Option<u64> {
        self.next()?;
        self.number()?.parse().ok()
    }

    /// A number of digits only, small enough for serde to take it for whole.
    fn number(&mut self) -> Option<&'a str> {
        let digits = self.text.as_bytes()[self.at..].iter().take_while(|b| b.is_ascii_digit()).count();
        let number = &self.text[self.at..self.at + digits];
        self.at += digits;
        // No leading zeros, no fraction, no exponent; those end the scan at the next byte.
        (matches!(digits, 1..19) && (digits == 1 || !number.starts_with('0'))).then_some(number)
    }

    /// The next byte that is no blank.
    fn next(&mut self) -> Option<u8> {
        loop {
            let byte = *self.text.as_bytes().get(self.at)?;
            if byte != b' ' {
                return Some(byte);
            }
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        (self.next()? == byte).then_some(())?;
        self.at += 1;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Meaning, whole};
    use super::*;

    /// Read here, or left to serde; never read otherwise than serde does.
    #[track_caller]
    fn is_read(data: &[u8]) -> bool {
        let Some(chunk) = chunk(data) else { return false };
        assert_eq!(Ok(Meaning::Chunk(chunk)), whole(data), "{}", String::from_utf8_lossy(data));
        true
    }

    /// The events that engines send by the thousand are read here.
    const USUAL: &[&str] = &[
        r#"{"choices":[{"text":" Paris","index":0,"logprobs":null,"finish_reason":null}],"created":1795979435,"model":"tiny","system_fingerprint":"b0-unknown","object":"text_completion","id":"chatcmpl-DN"}"#,
        r#"{"id":"cmpl-1","object":"text_completion","created":1795979435,"model":"m","choices":[{"index":0,"text":" a","logprobs":null,"finish_reason":null,"stop_reason":null,"token_ids":null,"prompt_token_ids":null}],"usage":{"prompt_tokens":9,"total_tokens":12,"completion_tokens":3}}"#,
        r#"{"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"role": null, "content": "ä€😀", "reasoning_content": null, "tool_calls": null}, "logprobs": null, "finish_reason": null, "matched_stop": null}], "usage": null}"#,
        r#"{"choices":[{"delta":{"reasoning":"so \"it\" is\n"},"finish_reason":"stop"}],"x":true,"y":false}"#,
        r#"{"choices":[{"delta":{"role":"assistant","content":""}}],"usage":{"prompt_tokens":0,"completion_tokens":0}}"#,
        r#"{"choices":[{}]}"#,
    ];

    #[test]
    fn the_usual_event_is_read_in_place() {
        for event in USUAL {
            assert!(is_read(event.as_bytes()), "{event}");
        }
        let text = chunk(USUAL[0].as_bytes()).unwrap().answer;
        assert!(matches!(text, Cow::Borrowed(" Paris")));
    }

    #[test]
    fn what_is_unusual_is_left_to_serde() {
        for event in [
            r#"{"choices":[]}"#,
            r#"{"choices":[{"text":"a"},{"text":"b"}]}"#,
            r#"{"choices":[{"text":"a","index":1}]}"#,
            r#"{"choices":[{"text":"a","text":"b"}]}"#,
            r#"{"choices":[{"text":"a","logprobs":{"tokens":["a"]}}]}"#,
            r#"{"choices":[{"text":"a","token_ids":[1]}]}"#,
            r#"{"choices":[{"text":"a"}],"error":{"code":1}}"#,
            r#"{"choices":[{}],"error":null,"error":null}"#,
            r#"{"choices":[{}],"timings":null,"timings":null}"#,
            r#"{"choices":[{"logprobs":null,"logprobs":null}]}"#,
            r#"{"choices":[{"token_ids":null,"token_ids":null}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":null,"tool_calls":null}}]}"#,
            r#"{"choices":[{}],"usage":{"prompt_time":null,"prompt_time":null}}"#,
            r#"{"choices":[{"text":"a"}],"usage":{"completion_tokens":1.0}}"#,
            r#"{"choices":[{"text":"a"}],"usage":{"completion_tokens":-1}}"#,
            r#"{"choices":[{"text":"a"}],"usage":{"completion_tokens":01}}"#,
            r#"{"choices":[{"text":"\u12"}]}"#,
            r#"{"choices":[{"text":"a"}],"n":1e}"#,
            r#"{"choices":[{"text":"a"}],}"#,
            r#"{"choices":[{"text":"a"}]} x"#,
            r#"{"choices":[{"text":"a"}]"#,
            "{\"choices\":[{\"text\":\"a\tb\"}]}",
            r#"{"object":"error"}"#,
        ] {
            assert!(!is_read(event.as_bytes()), "{event}");
        }
    }

    /// Events of pieces that belong into events, in any order, often enough whole.
    fn events() -> impl Strategy<Value = Vec<u8>> {
        let value = prop::sample::select(vec![
            "null",
            "true",
            "\"a\"",
            "\"\"",
            "\"\\n\\u00e9\"",
            "\"\\x\"",
            "0",
            "7",
            "07",
            "-1",
            "1.5",
            "1e3",
            "99999999999999999999",
            "[]",
            "[1,2]",
            "{}",
            "{\"content\":\"x\"}",
            "{\"completion_tokens\":3}",
            " 5 ",
            "\"\u{e9}\u{1f600}\"",
            "\"\\ud800\"",
            "nul",
            "[{\"text\":\"t\"}]",
        ]);
        let key = prop::sample::select(vec![
            "text",
            "index",
            "finish_reason",
            "delta",
            "logprobs",
            "token_ids",
            "content",
            "reasoning",
            "object",
            "usage",
            "choices",
            "id",
            "completion_tokens",
            "prompt_tokens",
            "tool_calls",
            "error",
            "timings",
            "a\\n",
        ]);
        let fields = prop::collection::vec((key, value), 0..5)
            .prop_map(|f| f.iter().map(|(k, v)| format!("\"{k}\":{v}")).collect::<Vec<_>>().join(","));
        let shape = prop::sample::select(vec![
            "{\"choices\":[{@}]#}",
            "{\"choices\":[{\"delta\":{@}}]#}",
            "{\"choices\":[{\"text\":\"t\"}],\"usage\":{@}#}",
            "{@#}",
        ]);
        (shape, fields.clone(), fields).prop_map(|(shape, a, b)| {
            let b = if b.is_empty() { b } else { format!(",{b}") };
            shape.replace('@', &a).replace('#', &b).into_bytes()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn it_reads_what_serde_reads(event in events()) {
            is_read(&event);
        }

        #[test]
        fn one_wrong_byte_changes_nothing_of_that(
            event in prop::sample::select(USUAL), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>(),
        ) {
            let mut event = event.as_bytes().to_vec();
            let at = at.index(event.len());
            if cut { event.truncate(at) } else { event[at] = byte }
            is_read(&event);
        }
    }
}
