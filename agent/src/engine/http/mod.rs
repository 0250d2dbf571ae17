//! HTTP/1.1 responses as a pure reader: bytes go in, a head and slices of the body come out.
//!
//! It is our own because of what it leaves out. A library reads ahead into a buffer of its connection, hands out a frame
//! for each chunk and keeps a map of headers; here the bytes of one read are looked at where they lie, so that every slice
//! of the body belongs to the read that brought it, nothing is allocated for an event, and an idle or streaming connection
//! holds no buffer (docs/adr/0004-our-own-response-reader.md has the figures). Heads are parsed by `httparse`.
//!
//! What it must never do: look at the body's meaning, keep bytes of the body, or grow beyond [`MAX_HEAD_BYTES`].
//!
//! Guarded by: any split of a response gives the same head and body (below), `stamp_tests`, and `tests/engine`.

mod chunked;
mod head;

use self::chunked::Chunked;
use self::head::Framing;
pub(super) use self::head::Head;

/// The longest response head, interim ones included one by one, and the longest trailer.
pub(super) const MAX_HEAD_BYTES: usize = 64 << 10;
/// Headers of one head.
const MAX_HEADERS: usize = 100;

/// Bytes that are no HTTP. The words quote nothing of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Malformed(pub(super) String);

impl Malformed {
    fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}

/// What a response has to say.
pub(super) enum Heard<'a> {
    /// Its head; interim ones are passed over.
    Head(&'a Head<'a>),
    /// The next bytes of its body.
    Body(&'a [u8]),
}

/// What the end of the connection means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Eof {
    /// No head had come.
    NoHead,
    /// The body ends here, as its head said.
    Clean,
    /// The body is cut.
    Truncated,
}

/// Where a response is.
#[derive(Debug, Default)]
enum At {
    #[default]
    Head,
    Length(u64),
    Chunks(Chunked),
    UntilClosed,
    Over,
}

/// Reads one response.
#[derive(Debug, Default)]
pub(super) struct Reader {
    at: At,
    /// The begin of a head whose end has not come yet.
    held: Vec<u8>,
    keeps_alive: bool,
    /// Bytes came after the response had ended.
    surplus: bool,
}

impl Reader {
    /// Takes the next bytes and tells what they say.
    ///
    /// # Errors
    /// [`Malformed`]; then the reader is of no further use.
    pub(super) fn push(&mut self, bytes: &[u8], hear: &mut impl FnMut(Heard<'_>)) -> Result<(), Malformed> {
        let pushed = self.take(bytes, hear);
        if pushed.is_err() {
            // Whatever else comes: where the next response would begin is not known.
            self.keeps_alive = false;
        }
        pushed
    }

    fn take(&mut self, bytes: &[u8], hear: &mut impl FnMut(Heard<'_>)) -> Result<(), Malformed> {
        let mut rest = bytes;
        while matches!(self.at, At::Head) {
            if self.held.is_empty() {
                match self.head(rest, hear)? {
                    Some(length) => rest = &rest[length..],
                    None => return self.hold(rest),
                }
            } else {
                // A head ends with a line: without the end of one there is nothing to parse anew.
                if memchr::memchr(b'\n', rest).is_none() {
                    return self.hold(rest);
                }
                // With the body, of which the same read may have brought the most: that is not held against the head.
                let mut held = std::mem::take(&mut self.held);
                let before = held.len();
                held.extend_from_slice(rest);
                match self.head(&held, hear)? {
                    Some(length) => rest = &rest[length - before..],
                    None => return self.hold(&held),
                }
            }
        }
        self.body(rest, hear)
    }

    /// The connection has ended.
    pub(super) fn eof(&mut self) -> Eof {
        self.keeps_alive = false;
        match self.at {
            At::Head => Eof::NoHead,
            At::Over => Eof::Clean,
            At::UntilClosed => {
                self.at = At::Over;
                Eof::Clean
            }
            At::Length(_) | At::Chunks(_) => Eof::Truncated,
        }
    }

    /// The head has come.
    pub(super) fn has_head(&self) -> bool {
        !matches!(self.at, At::Head)
    }

    /// The body has come to its end.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.at, At::Over)
    }

    /// Another response may follow on the connection.
    pub(super) fn is_reusable(&self) -> bool {
        self.is_over() && self.keeps_alive && !self.surplus
    }

    fn hold(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        if self.held.len() + bytes.len() > MAX_HEAD_BYTES {
            return Err(Malformed(format!("it is longer than {} KiB", MAX_HEAD_BYTES >> 10)));
        }
        self.held.extend_from_slice(bytes);
        Ok(())
    }

    /// The length of the head at the begin of `bytes`, when all of it is there.
    fn head(&mut self, bytes: &[u8], hear: &mut impl FnMut(Heard<'_>)) -> Result<Option<usize>, Malformed> {
        let mut space = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let Some((head, length)) = Head::parse(bytes, &mut space)? else { return Ok(None) };
        if head.is_interim() {
            return Ok(Some(length));
        }
        self.keeps_alive = head.keeps_alive();
        self.at = match head.framing()? {
            Framing::Length(0) => At::Over,
            Framing::Length(length) => At::Length(length),
            Framing::Chunked => At::Chunks(Chunked::default()),
            Framing::UntilClosed => At::UntilClosed,
        };
        hear(Heard::Head(&head));
        Ok(Some(length))
    }

    fn body(&mut self, bytes: &[u8], hear: &mut impl FnMut(Heard<'_>)) -> Result<(), Malformed> {
        let rest = match &mut self.at {
            At::Head => return Ok(()),
            At::Over => bytes,
            At::UntilClosed => {
                if !bytes.is_empty() {
                    hear(Heard::Body(bytes));
                }
                return Ok(());
            }
            At::Length(left) => {
                let (ours, rest) =
                    bytes.split_at(bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX)));
                if !ours.is_empty() {
                    hear(Heard::Body(ours));
                }
                *left -= ours.len() as u64;
                if *left > 0 {
                    return Ok(());
                }
                rest
            }
            At::Chunks(chunks) => match chunks.push(bytes, &mut |data| hear(Heard::Body(data)))? {
                Some(rest) => rest,
                None => return Ok(()),
            },
        };
        self.at = At::Over;
        self.surplus |= !rest.is_empty();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
