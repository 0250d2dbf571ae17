//! The head of a response: what it says of the body that follows, and the few headers that are asked for.
//!
//! Which framing a body has follows RFC 9112, section 6.3, and where that leaves a choice, the strict one.

use std::str;

use httparse::{Header, ParserConfig, Response, Status};

use super::Malformed;

/// How a body's end is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    Length(u64),
    Chunked,
    UntilClosed,
}

/// A response head. All of it lies in the bytes that were read.
pub(in crate::engine) struct Head<'a> {
    /// Its status.
    pub(in crate::engine) status: u16,
    /// HTTP/1.1 rather than 1.0.
    is_1_1: bool,
    headers: &'a [Header<'a>],
}

impl<'a> Head<'a> {
    /// The head at the begin of `bytes` with its length, or none when its end is missing.
    pub(super) fn parse(
        bytes: &'a [u8],
        space: &'a mut [Header<'a>],
    ) -> Result<Option<(Self, usize)>, Malformed> {
        let mut response = Response::new(space);
        let parsed = ParserConfig::default().parse_response(&mut response, bytes);
        let Status::Complete(length) = parsed.map_err(|e| Malformed(e.to_string()))? else { return Ok(None) };
        let status = response.code.unwrap_or_default();
        if status < 100 {
            return Err(Malformed::new("its status is none"));
        }
        let is_1_1 = response.version == Some(1);
        Ok(Some((Self { status, is_1_1, headers: response.headers }, length)))
    }

    /// A head that another one follows. Switching protocols was not asked for, so that it is an answer.
    pub(super) fn is_interim(&self) -> bool {
        matches!(self.status, 100 | 102..200)
    }

    /// The first value of a header.
    pub(in crate::engine) fn header(&self, name: &str) -> Option<&'a [u8]> {
        self.all(name).next()
    }

    /// Every value of a header.
    fn all(&self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.headers.iter().filter(move |h| h.name.eq_ignore_ascii_case(name)).map(|h| h.value)
    }

    /// The elements of a header that is a list.
    fn elements(&self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.all(name).flat_map(|value| value.split(|&b| b == b',')).map(<[u8]>::trim_ascii)
    }

    fn says(&self, name: &str, element: &[u8]) -> bool {
        self.elements(name).any(|e| e.eq_ignore_ascii_case(element))
    }

    /// The connection may be used again after the body.
    pub(super) fn keeps_alive(&self) -> bool {
        // After a 101 it speaks something else.
        self.status != 101
            && !self.says("connection", b"close")
            && (self.is_1_1 || self.says("connection", b"keep-alive"))
    }

    pub(super) fn framing(&self) -> Result<Framing, Malformed> {
        if matches!(self.status, 101 | 204 | 304) {
            return Ok(Framing::Length(0));
        }
        if let Some(coding) = self.elements("transfer-encoding").last() {
            if !self.is_1_1 {
                return Err(Malformed::new("a transfer coding in HTTP/1.0"));
            }
            let chunked = coding.eq_ignore_ascii_case(b"chunked");
            return Ok(if chunked { Framing::Chunked } else { Framing::UntilClosed });
        }
        let mut length = None;
        for value in self.elements("content-length") {
            let number = str::from_utf8(value).ok().filter(|v| v.bytes().all(|b| b.is_ascii_digit()));
            let number: Option<u64> = number.and_then(|v| v.parse().ok());
            let number = number.ok_or_else(|| Malformed::new("its content-length is not a number"))?;
            if length.is_some_and(|known| known != number) {
                return Err(Malformed::new("it has several lengths"));
            }
            length = Some(number);
        }
        Ok(length.map_or(Framing::UntilClosed, Framing::Length))
    }

    /// The coding of a body that is not the bytes themselves, such as gzip, as short text. It is never taken off: a
    /// kilobyte may hold a gigabyte, and nobody asked for it.
    pub(in crate::engine) fn coding(&self) -> Option<String> {
        let plain = |coding: &&[u8]| {
            [&b""[..], b"identity", b"chunked"].iter().any(|p| coding.eq_ignore_ascii_case(p))
        };
        let mut codings = self.elements("content-encoding").chain(self.elements("transfer-encoding"));
        let coding = codings.find(|coding| !plain(coding))?;
        let shown = coding.iter().map(|b| char::from(*b)).filter(char::is_ascii_graphic).take(20);
        Some(shown.collect())
    }
}
