//! The bytes of a response: a completion of 128 tokens as vLLM streams it, an event of some 200 bytes a token.

use std::ops::Range;

/// Content events of a response.
pub(crate) const EVENTS: usize = 128;

/// Events that end a response: finish reason, usage, `[DONE]`.
const LAST_EVENTS: usize = 3;

/// Blank lines in a response, each the end of an event.
pub(crate) const BOUNDARIES: usize = EVENTS + LAST_EVENTS;

/// A response, serialised once.
pub(crate) struct Response {
    bytes: Vec<u8>,
    /// End of what leaves with each content event: the head with the first, the end of the body with the last.
    ends: Vec<usize>,
}

impl Response {
    /// With the first so many of the content events.
    pub(crate) fn new(content: usize) -> Self {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        let mut bytes = head.as_bytes().to_vec();
        let mut ends = Vec::with_capacity(EVENTS);
        let left_out = content..EVENTS;
        for (_, event) in (0..).zip(events()).filter(|(n, _)| !left_out.contains(n)) {
            bytes.extend(format!("{:x}\r\n{event}\r\n", event.len()).into_bytes());
            ends.push(bytes.len());
        }
        bytes.extend(b"0\r\n\r\n");
        ends.truncate(content);
        ends[content - 1] = bytes.len();
        Self { bytes, ends }
    }

    /// All of it.
    pub(crate) fn whole(&self) -> &[u8] {
        &self.bytes
    }

    /// What leaves with content event `number`.
    pub(crate) fn part(&self, number: usize) -> &[u8] {
        let start = if number == 0 { 0 } else { self.ends[number - 1] };
        &self.bytes[Range { start, end: self.ends[number] }]
    }
}

/// Every event of a response, without HTTP's framing.
pub(crate) fn events() -> Vec<String> {
    let chunk = |text: &str, finish: &str, usage: &str| {
        format!(
            "data: {{\"id\":\"cmpl-8f1e7c5a3b9d4f60a2c4e6f8091b3d5f\",\"object\":\"text_completion\",\
             \"created\":1764460800,\"model\":\"sim\",\"choices\":[{{\"index\":0,\"text\":\"{text}\",\
             \"logprobs\":null,\"finish_reason\":{finish},\"stop_reason\":null}}],\"usage\":{usage}}}\n\n"
        )
    };
    let mut events: Vec<String> = (0..EVENTS).map(|n| chunk(&format!(" t{n:03}"), "null", "null")).collect();
    events.push(chunk("", "\"length\"", "null"));
    let usage = "{\"prompt_tokens\":200,\"total_tokens\":328,\"completion_tokens\":128}";
    events.push(format!("data: {{\"id\":\"cmpl-8f1e\",\"choices\":[],\"usage\":{usage}}}\n\n"));
    events.push("data: [DONE]\n\n".to_owned());
    events
}
