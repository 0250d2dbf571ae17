//! The chunked coding (RFC 9112, section 7.1), taken off in place.

use memchr::memchr;

use super::{MAX_HEAD_BYTES, Malformed};

/// What all chunk extensions of a body may amount to: they say nothing to us.
const MAX_EXTENSION_BYTES: usize = 16 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before the first digit of a size.
    Start,
    Size(u64),
    /// Blanks after a size.
    Blank(u64),
    Extension(u64),
    SizeLf(u64),
    Data(u64),
    DataCr,
    DataLf,
    /// At the begin of a line after the last chunk.
    Trailer,
    /// In such a line.
    TrailerLine,
    EndLf,
}

/// Where a chunked body is.
#[derive(Debug)]
pub(super) struct Chunked {
    state: State,
    extensions: usize,
    trailers: usize,
}

impl Default for Chunked {
    fn default() -> Self {
        Self { state: State::Start, extensions: 0, trailers: 0 }
    }
}

impl Chunked {
    /// Hands the data in `bytes` to `hear`. When the body ends in them, gives what comes after it.
    ///
    /// # Errors
    /// [`Malformed`].
    pub(super) fn push<'a>(
        &mut self,
        bytes: &'a [u8],
        hear: &mut impl FnMut(&'a [u8]),
    ) -> Result<Option<&'a [u8]>, Malformed> {
        let mut rest = bytes;
        while let [first, tail @ ..] = rest {
            if let State::Data(left) = self.state {
                let (data, after) =
                    rest.split_at(rest.len().min(usize::try_from(left).unwrap_or(usize::MAX)));
                hear(data);
                let left = left - data.len() as u64;
                self.state = if left > 0 { State::Data(left) } else { State::DataCr };
                rest = after;
            } else if self.state == State::TrailerLine {
                let line = memchr(b'\n', rest).map_or(rest.len(), |end| end + 1);
                self.trailers += line;
                if self.trailers > MAX_HEAD_BYTES {
                    return Err(Malformed::new("its trailers are too long"));
                }
                if rest[line - 1] == b'\n' {
                    self.state = State::Trailer;
                }
                rest = &rest[line..];
            } else {
                let ended = self.state == State::EndLf && *first == b'\n';
                if ended {
                    return Ok(Some(tail));
                }
                self.state = self.framing(*first)?;
                if self.state != State::TrailerLine {
                    rest = tail;
                }
            }
        }
        Ok(None)
    }

    /// The state after one byte of framing.
    fn framing(&mut self, byte: u8) -> Result<State, Malformed> {
        use State as S;
        let size = |size: u64| if size == 0 { S::Trailer } else { S::Data(size) };
        Ok(match (self.state, byte) {
            (S::Start, _) => S::Size(digit(byte)?),
            (S::Size(n) | S::Blank(n), b';') => S::Extension(n),
            (S::Size(n) | S::Blank(n), b'\r') => S::SizeLf(n),
            (S::Size(n) | S::Blank(n), b' ' | b'\t') => S::Blank(n),
            (S::Size(n), _) => {
                let next = n.checked_mul(16).and_then(|n| n.checked_add(digit(byte).ok()?));
                S::Size(next.ok_or_else(|| match digit(byte) {
                    Ok(_) => Malformed::new("a chunk's size is too large"),
                    Err(e) => e,
                })?)
            }
            (S::Extension(n), b'\r') => S::SizeLf(n),
            (S::Extension(n), _) if byte != b'\n' => {
                self.extensions += 1;
                if self.extensions > MAX_EXTENSION_BYTES {
                    return Err(Malformed::new("its chunk extensions are too long"));
                }
                S::Extension(n)
            }
            (S::SizeLf(n), b'\n') => size(n),
            (S::DataCr, b'\r') => S::DataLf,
            (S::DataLf, b'\n') => S::Start,
            (S::Trailer, b'\r') => S::EndLf,
            (S::Trailer, _) => S::TrailerLine,
            (S::DataCr | S::DataLf, _) => {
                return Err(Malformed::new("a chunk is not followed by a line end"));
            }
            _ => return Err(Malformed::new("the line of a chunk's size does not end as one")),
        })
    }
}

fn digit(byte: u8) -> Result<u64, Malformed> {
    let digit = char::from(byte).to_digit(16).map(u64::from);
    digit.ok_or_else(|| Malformed::new("a chunk's size is not a number"))
}
