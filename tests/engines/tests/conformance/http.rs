//! Takes an answer apart and feeds it to the agent's reading of streams, read by read. Its own small reading of HTTP:
//! the scripts frame their bodies in one of two ways and make no mistakes in it.

use agent::engine::stream::{BodyEnd, Read, Rules, Stream};
use common::ids::{ArrivalIndex, Nanos};
use common::trace::Trace;
use engines::Reply;

use crate::cases::Case;

/// When the first read came; each next one a nanosecond later.
const FIRST_READ: u64 = 100;

/// The bytes of an answer with the places of its body in them.
pub(crate) struct Framed {
    pub(crate) bytes: Vec<u8>,
    status: u16,
    content_type: Option<String>,
    head_end: usize,
    /// Where body bytes stand.
    body: Vec<(usize, usize)>,
    /// The body ends as HTTP says.
    clean: bool,
}

impl Framed {
    pub(crate) fn new(reply: &Reply) -> Self {
        let bytes = reply.bytes();
        let head_end = bytes.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
        let (mut body, mut clean) = (Vec::new(), false);
        if let Some(length) = reply.header("content-length") {
            body.push((head_end, head_end + length.parse::<usize>().unwrap()));
            clean = true;
        } else {
            let mut at = head_end;
            while at < bytes.len() && !clean {
                let line = bytes[at..].windows(2).position(|w| w == b"\r\n").unwrap();
                let size = std::str::from_utf8(&bytes[at..at + line]).unwrap();
                let size = usize::from_str_radix(size, 16).unwrap();
                let begin = at + line + 2;
                clean = size == 0;
                if !clean {
                    body.push((begin, begin + size));
                }
                at = begin + size + 2;
            }
            assert_eq!(at, bytes.len(), "the framing does not add up");
        }
        let content_type = reply.header("content-type");
        Self { bytes, status: reply.status(), content_type, head_end, body, clean }
    }

    /// The trace of the request when the bytes come in reads that end at `ends`.
    pub(crate) fn read(&self, case: &Case, ends: &[usize]) -> Trace {
        let unsent = case.prepared.unsent(ArrivalIndex(3), Nanos(1), 0);
        let mut stream =
            Stream::new(Rules::of(&case.target), unsent, Nanos(5), false, case.prepared.body.len() as u64);
        stream.on_connected(Nanos(7));
        stream.on_written(Nanos(10));
        let (mut begin, mut chunk, mut headed) = (0, 0, false);
        let mut read = Read { at: Nanos(FIRST_READ), number: 0 };
        for (number, &end) in ends.iter().enumerate() {
            read = Read { at: Nanos(FIRST_READ + number as u64), number: number as u64 };
            if !headed && end >= self.head_end {
                headed = true;
                stream.on_head(read.at, self.status, self.content_type.as_deref().map(str::as_bytes));
            }
            while let Some(&(from, to)) = self.body.get(chunk) {
                let piece = from.max(begin)..to.min(end);
                if !piece.is_empty() {
                    stream.on_read(read, &self.bytes[piece]);
                }
                if to > end {
                    break;
                }
                chunk += 1;
            }
            begin = end;
        }
        stream.on_end(read.at, if self.clean { BodyEnd::Clean } else { BodyEnd::Truncated });
        stream.finish(None)
    }
}

/// The number of the read that brings byte `at`, counted from 1.
pub(crate) fn read_of(ends: &[usize], at: usize) -> u64 {
    ends.partition_point(|&end| end < at) as u64
}

/// When that read came.
pub(crate) fn stamp_of(ends: &[usize], at: usize) -> Nanos {
    Nanos(FIRST_READ + read_of(ends, at))
}
