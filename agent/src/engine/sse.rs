//! Cuts a stream of bytes into server-sent events.
//!
//! It works on bytes, because a read may end inside a character, and hands out slices of what was pushed: an event
//! that lies within one push is not copied. Lines end in LF, CRLF or a lone CR; after a CR at the end of a push the
//! LF that may follow is swallowed by the next one, so that an event never waits for a byte that it does not need.
//!
//! It knows nothing of JSON and never decides what an event means. Besides `data:` and `event:` it keeps what a
//! classifier needs to recognise errors that come without data: the comment after `event: error` and an `error:`
//! field. Memory is bounded by [`MAX_EVENT_BYTES`].
//!
//! Guarded by: any split of any bytes gives the same events (below), and the same events as a naive decoder.

use std::ops::ControlFlow;

use memchr::{memchr, memchr2};

/// The longest event (and line) that is read. An engine's largest chunk is some kilobytes, and a megabyte with the log
/// probabilities of a long prompt.
pub const MAX_EVENT_BYTES: usize = 4 << 20;
/// What is kept of fields that only describe an error.
const MAX_SIDE_BYTES: usize = 2 << 10;

/// One event. Nothing is decoded: all parts are bytes as received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event<'a> {
    /// Value of `event:`; empty when there was none.
    pub name: &'a [u8],
    /// Values of `data:`, joined by LF.
    pub data: &'a [u8],
    /// The last comment before the end of the event, shortened.
    pub comment: &'a [u8],
    /// Value of an `error:` field, which no standard knows, shortened.
    pub error: &'a [u8],
}

/// An event or a line is longer than [`MAX_EVENT_BYTES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event is longer than {} MiB", MAX_EVENT_BYTES >> 20)]
pub struct TooLong;

/// The state between two pushes.
#[derive(Debug, Default)]
pub struct Decoder {
    /// Begin of a line whose end has not come yet.
    line: Vec<u8>,
    /// Data of the event so far, where it could not be left in the caller's bytes.
    data: Vec<u8>,
    has_data: bool,
    name: Vec<u8>,
    comment: Vec<u8>,
    error: Vec<u8>,
    /// The last byte was a CR: a LF that follows belongs to it.
    after_cr: bool,
    /// A first line has been seen, so that no byte order mark can come any more.
    begun: bool,
}

/// The data of the event that is being read.
enum Held<'a> {
    /// None yet, or all of it in the decoder's own buffer.
    No,
    /// A single line, still in the caller's bytes.
    Line(&'a [u8]),
}

impl Decoder {
    /// Takes the next bytes and calls `on_event` for each event that they complete, until it breaks.
    ///
    /// After a break or an error the decoder is of no further use.
    ///
    /// # Errors
    /// [`TooLong`].
    pub fn push<F>(&mut self, bytes: &[u8], mut on_event: F) -> Result<ControlFlow<()>, TooLong>
    where
        F: FnMut(Event<'_>) -> ControlFlow<()>,
    {
        let mut rest = bytes;
        let mut held = Held::No;
        loop {
            if self.after_cr
                && let [first, tail @ ..] = rest
            {
                self.after_cr = false;
                rest = if *first == b'\n' { tail } else { rest };
            }
            let Some(end) = memchr2(b'\n', b'\r', rest) else { break };
            let (line, tail) = (&rest[..end], &rest[end + 1..]);
            self.after_cr = rest[end] == b'\r';
            rest = tail;
            let flow = if self.line.is_empty() {
                self.line_ended(line, &mut held, &mut on_event)?
            } else {
                append(&mut self.line, line)?;
                let line = std::mem::take(&mut self.line);
                // The line is ours and goes back to be reused, so its data cannot stay in it.
                let mut own = Held::No;
                self.settle(&mut held)?;
                let flow = self.line_ended(&line, &mut own, &mut on_event)?;
                self.settle(&mut own)?;
                self.line = line;
                self.line.clear();
                flow
            };
            if flow.is_break() {
                return Ok(flow);
            }
        }
        append(&mut self.line, rest)?;
        self.settle(&mut held)?;
        Ok(ControlFlow::Continue(()))
    }

    /// The bytes have ended: hands out an event whose blank line never came, if there is one.
    ///
    /// # Errors
    /// [`TooLong`].
    pub fn finish<F>(&mut self, mut on_event: F) -> Result<(), TooLong>
    where
        F: FnMut(Event<'_>) -> ControlFlow<()>,
    {
        if !self.line.is_empty() && self.push(b"\n", &mut on_event)?.is_break() {
            return Ok(());
        }
        self.after_cr = false;
        self.push(b"\n", &mut on_event).map(|_| ())
    }

    /// Moves data that lies in the caller's bytes into the decoder's.
    fn settle(&mut self, held: &mut Held<'_>) -> Result<(), TooLong> {
        if let Held::Line(line) = std::mem::replace(held, Held::No) {
            append(&mut self.data, line)?;
        }
        Ok(())
    }

    fn line_ended<'a, F>(
        &mut self,
        line: &'a [u8],
        held: &mut Held<'a>,
        on_event: &mut F,
    ) -> Result<ControlFlow<()>, TooLong>
    where
        F: FnMut(Event<'_>) -> ControlFlow<()>,
    {
        let line = if self.begun { line } else { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line) };
        self.begun = true;
        if line.is_empty() {
            return Ok(self.dispatch(held, on_event));
        }
        let (field, value) = match memchr(b':', line) {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &line[line.len()..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" if self.has_data => {
                self.settle(held)?;
                append(&mut self.data, b"\n")?;
                append(&mut self.data, value)?;
            }
            b"data" => {
                self.has_data = true;
                *held = Held::Line(value);
            }
            b"event" => keep(&mut self.name, value),
            b"error" => keep(&mut self.error, value),
            b"" => keep(&mut self.comment, value),
            _ => {}
        }
        Ok(ControlFlow::Continue(()))
    }

    fn dispatch<F>(&mut self, held: &mut Held<'_>, on_event: &mut F) -> ControlFlow<()>
    where
        F: FnMut(Event<'_>) -> ControlFlow<()>,
    {
        let data = match std::mem::replace(held, Held::No) {
            Held::Line(line) => line,
            Held::No => &self.data,
        };
        let says_something = !data.is_empty() || self.name == b"error" || !self.error.is_empty();
        let flow = if says_something {
            on_event(Event { name: &self.name, data, comment: &self.comment, error: &self.error })
        } else {
            ControlFlow::Continue(())
        };
        self.data.clear();
        self.has_data = false;
        self.name.clear();
        self.comment.clear();
        self.error.clear();
        flow
    }
}

fn append(buffer: &mut Vec<u8>, bytes: &[u8]) -> Result<(), TooLong> {
    if buffer.len() + bytes.len() > MAX_EVENT_BYTES {
        return Err(TooLong);
    }
    buffer.extend_from_slice(bytes);
    Ok(())
}

fn keep(buffer: &mut Vec<u8>, value: &[u8]) {
    buffer.clear();
    buffer.extend_from_slice(&value[..value.len().min(MAX_SIDE_BYTES)]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Owned = (Vec<u8>, Vec<u8>, Vec<u8>, Vec<u8>);

    fn decode<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Owned> {
        let mut decoder = Decoder::default();
        let mut events = Vec::new();
        let mut collect = |e: Event<'_>| {
            events.push((e.name.to_vec(), e.data.to_vec(), e.comment.to_vec(), e.error.to_vec()));
            ControlFlow::Continue(())
        };
        for piece in pieces {
            let _ = decoder.push(piece, &mut collect).unwrap();
        }
        decoder.finish(&mut collect).unwrap();
        events
    }

    fn data(text: &str) -> Vec<String> {
        decode([text.as_bytes()]).into_iter().map(|e| String::from_utf8(e.1).unwrap()).collect()
    }

    /// The same by brute force: whole text, lines, events.
    fn naive(bytes: &[u8]) -> Vec<Owned> {
        let text: Vec<u8> = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes).to_vec();
        let mut lines: Vec<Vec<u8>> = vec![Vec::new()];
        let mut i = 0;
        while i < text.len() {
            match text[i] {
                b'\r' => {
                    i += usize::from(text.get(i + 1) == Some(&b'\n'));
                    lines.push(Vec::new());
                }
                b'\n' => lines.push(Vec::new()),
                other => lines.last_mut().unwrap().push(other),
            }
            i += 1;
        }
        lines.push(Vec::new());
        let mut events = Vec::new();
        let mut event: (Vec<u8>, Option<Vec<u8>>, Vec<u8>, Vec<u8>) = Default::default();
        for line in lines {
            if line.is_empty() {
                let (name, data, comment, error) = std::mem::take(&mut event);
                let data = data.unwrap_or_default();
                if !data.is_empty() || name == b"error" || !error.is_empty() {
                    events.push((name, data, comment, error));
                }
                continue;
            }
            let colon = line.iter().position(|&b| b == b':').unwrap_or(line.len());
            let field = &line[..colon];
            let value = line.get(colon + 1..).unwrap_or_default();
            let value = value.strip_prefix(b" ").unwrap_or(value).to_vec();
            match field {
                b"data" => match &mut event.1 {
                    Some(data) => {
                        data.push(b'\n');
                        data.extend(value);
                    }
                    none => *none = Some(value),
                },
                b"event" => event.0 = value,
                b"" => event.2 = value,
                b"error" => event.3 = value,
                _ => {}
            }
        }
        events
    }

    #[test]
    fn every_line_end_and_spacing_is_understood() {
        for text in [
            "data: a\n\ndata: b\n\n",
            "data:a\r\n\r\ndata: b\r\n\r\n",
            "data: a\r\rdata:b\r\r",
            "data: a\n\r\ndata: b\n\r",
        ] {
            assert_eq!(data(text), ["a", "b"], "{text:?}");
        }
        assert_eq!(data("\u{feff}data: a\n\n"), ["a"]);
        assert_eq!(data("data:  two blanks \n\n"), [" two blanks "]);
        assert_eq!(data("data: a\ndata\ndata: b\n\n"), ["a\n\nb"]);
        assert_eq!(data(": ping\n\nid: 3\nretry: 1\nweird\n\ndata: a\n\n"), ["a"]);
        assert_eq!(data("data:\n\ndata: \n\n"), [""; 0]);
        // A last event without its blank line is handed out at the end.
        assert_eq!(data("data: a\n\ndata: [DONE]"), ["a", "[DONE]"]);
    }

    #[test]
    fn errors_without_data_are_handed_out() {
        let events = decode([b"event: error\n: it broke\n\n".as_slice()]);
        assert_eq!(events, [(b"error".to_vec(), Vec::new(), b"it broke".to_vec(), Vec::new())]);
        let events = decode([b"error: {\"code\":500}\n\n".as_slice()]);
        assert_eq!(events[0].3, b"{\"code\":500}");
        assert!(decode([b"event: ping\n: still here\n\n".as_slice()]).is_empty());
    }

    #[test]
    fn an_event_in_one_push_is_not_copied() {
        let bytes = b"data: one\n\ndata: two\n\n".to_vec();
        let within = bytes.as_ptr_range();
        let mut decoder = Decoder::default();
        let flow = decoder.push(&bytes, |e| {
            assert!(within.contains(&e.data.as_ptr()));
            ControlFlow::Continue(())
        });
        assert_eq!(flow, Ok(ControlFlow::Continue(())));
    }

    #[test]
    fn an_endless_line_or_event_ends_in_an_error() {
        let piece = vec![b'x'; 1 << 20];
        let mut line = Decoder::default();
        assert!((0..17).any(|_| line.push(&piece, |_| ControlFlow::Continue(())) == Err(TooLong)));
        let mut event = Decoder::default();
        let piece = [b"data: ".as_slice(), &piece, b"\n"].concat();
        assert!((0..17).any(|_| event.push(&piece, |_| ControlFlow::Continue(())) == Err(TooLong)));
    }

    #[test]
    fn a_break_stops_at_once() {
        let mut seen = 0;
        let mut decoder = Decoder::default();
        let flow = decoder.push(b"data: a\n\ndata: b\n\n", |_| {
            seen += 1;
            ControlFlow::Break(())
        });
        assert_eq!((flow, seen), (Ok(ControlFlow::Break(())), 1));
    }

    fn stream() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            Just(b"data: ".to_vec()),
            Just(b"data:".to_vec()),
            Just(b"event: error".to_vec()),
            Just(b"error: x".to_vec()),
            Just(b": c".to_vec()),
            Just(b"\r".to_vec()),
            Just(b"\n".to_vec()),
            Just(b"\r\n".to_vec()),
            Just(b"\n\n".to_vec()),
            Just(b"\xef\xbb\xbf".to_vec()),
            Just("{\"text\":\"ä€😀\"}".as_bytes().to_vec()),
            proptest::collection::vec(any::<u8>(), 0..4),
        ];
        proptest::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_events(bytes in stream(), cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..8)) {
            let expected = naive(&bytes);
            prop_assert_eq!(&decode([bytes.as_slice()]), &expected);
            prop_assert_eq!(&decode(bytes.chunks(1)), &expected);
            let mut at: Vec<usize> = cuts.iter().map(|i| i.index(bytes.len() + 1)).collect();
            at.extend([0, bytes.len()]);
            at.sort_unstable();
            prop_assert_eq!(&decode(at.windows(2).map(|w| &bytes[w[0]..w[1]])), &expected);
        }
    }
}
