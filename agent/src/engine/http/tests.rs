//! Responses as they come and as they must not come; whatever the split, the same is heard.

use proptest::prelude::*;

use super::*;

/// What was heard of a response: status, body, and how it stood when the bytes and then the connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Answer {
    status: Option<u16>,
    body: Vec<u8>,
    over: bool,
    reusable: bool,
    end: Eof,
}

fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<Answer, String> {
    let mut reader = Reader::default();
    let (mut status, mut body) = (None, Vec::new());
    for piece in pieces {
        reader
            .push(piece, &mut |heard| match heard {
                Heard::Head(head) => assert!(status.replace(head.status).is_none(), "two heads"),
                Heard::Body(bytes) => {
                    assert!(
                        status.is_some() && !bytes.is_empty(),
                        "a body before its head, or nothing of one"
                    );
                    body.extend_from_slice(bytes);
                }
            })
            .map_err(|e| e.0)?;
    }
    let (over, reusable) = (reader.is_over(), reader.is_reusable());
    let end = reader.eof();
    assert!(!reader.is_reusable(), "after the end of the connection");
    Ok(Answer { status, body, over, reusable, end })
}

fn whole(text: &str) -> Result<Answer, String> {
    read([text.as_bytes()])
}

#[track_caller]
fn answers(text: &str, status: u16, body: &str, over: bool, reusable: bool, end: Eof) {
    let expected = Answer { status: Some(status), body: body.as_bytes().to_vec(), over, reusable, end };
    assert_eq!(whole(text), Ok(expected.clone()), "{text:?}");
    assert_eq!(read(text.as_bytes().chunks(1)), Ok(expected), "{text:?} byte for byte");
}

#[test]
fn each_framing_ends_where_it_says() {
    let ok = "HTTP/1.1 200 OK\r\n";
    answers(&format!("{ok}content-length: 3\r\n\r\nabc"), 200, "abc", true, true, Eof::Clean);
    answers(&format!("{ok}content-length: 4\r\n\r\nabc"), 200, "abc", false, false, Eof::Truncated);
    answers(
        &format!("{ok}Content-Length: 3, 3\r\ncontent-length: 3\r\n\r\nabc"),
        200,
        "abc",
        true,
        true,
        Eof::Clean,
    );
    answers(&format!("{ok}content-length: 0\r\n\r\n"), 200, "", true, true, Eof::Clean);
    answers(&format!("{ok}\r\nabc"), 200, "abc", false, false, Eof::Clean);
    answers("HTTP/1.1 204 No\r\n\r\n", 204, "", true, true, Eof::Clean);
    let chunked = format!("{ok}Transfer-Encoding: Chunked\r\ncontent-length: 1\r\n\r\n");
    let body = "3\r\nabc\r\n00A;x=y\r\n0123456789\r\n1 \t\r\n!\r\n0\r\n\r\n";
    answers(&format!("{chunked}{body}"), 200, "abc0123456789!", true, true, Eof::Clean);
    answers(&format!("{chunked}1\r\na\r\n0\r\nx: y\r\nz: \r\n\r\n"), 200, "a", true, true, Eof::Clean);
    answers(&format!("{chunked}1\r\na\r\n0\r\n"), 200, "a", false, false, Eof::Truncated);
    answers(
        &format!("{ok}transfer-encoding: chunked, gzip\r\n\r\nabc"),
        200,
        "abc",
        false,
        false,
        Eof::Clean,
    );
}

#[test]
fn a_connection_is_kept_only_when_both_want_it_and_nothing_else_came() {
    let reusable = |head: &str, after: &str| {
        whole(&format!("{head}content-length: 1\r\n\r\na{after}")).map(|a| (a.over, a.reusable))
    };
    assert_eq!(reusable("HTTP/1.1 200 OK\r\n", ""), Ok((true, true)));
    assert_eq!(reusable("HTTP/1.1 200 OK\r\nconnection: x, Close\r\n", ""), Ok((true, false)));
    assert_eq!(reusable("HTTP/1.0 200 OK\r\n", ""), Ok((true, false)));
    assert_eq!(reusable("HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\n", ""), Ok((true, true)));
    assert_eq!(reusable("HTTP/1.1 200 OK\r\n", "H"), Ok((true, false)));
}

#[test]
fn interim_heads_are_passed_over() {
    let interim = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n";
    let text = format!("{interim}HTTP/1.1 404 No\r\ncontent-length: 1\r\n\r\na");
    answers(&text, 404, "a", true, true, Eof::Clean);
    // Nobody asked to switch.
    answers("HTTP/1.1 101 Switching\r\n\r\n", 101, "", true, false, Eof::Clean);
    assert_eq!(whole(interim).map(|a| (a.status, a.end)), Ok((None, Eof::NoHead)));
}

#[test]
fn what_is_no_http_is_named_and_not_quoted() {
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let too_many: String = (0..101).map(|i| format!("h{i}: x\r\n")).collect();
    for bad in [
        "220 smtp ready\r\n\r\n".to_owned(),
        "HTTP/2 200 OK\r\n\r\n".to_owned(),
        "HTTP/1.1 secret\r\n\r\n".to_owned(),
        "HTTP/1.1 000 OK\r\n\r\n".to_owned(),
        "HTTP/1.1 099 OK\r\n\r\n".to_owned(),
        format!("HTTP/1.1 200 OK\r\n{too_many}\r\n"),
        "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n".to_owned(),
        "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_owned(),
        format!("{chunked}secret\r\n"),
        format!("{chunked}\r\n"),
        format!("{chunked}1\na\r\n"),
        format!("{chunked}1 1\r\na\r\n"),
        format!("{chunked}1\r\naX\r\n"),
        format!("{chunked}1\r\na\rX"),
        format!("{chunked}1;x\n"),
        format!("{chunked}ffffffffffffffff1\r\n"),
        format!("{chunked}0\r\n\rX"),
    ] {
        let words = whole(&bad).expect_err(&bad);
        assert!(!words.is_empty() && words.len() < 100 && !words.contains("secret"), "{bad:?}: {words}");
        assert_eq!(read(bad.as_bytes().chunks(1)), Err(words), "{bad:?} byte for byte");
    }
}

/// Two reads: a piece of the head, then all the rest of a buffer's size. The body is none of the head's length.
#[test]
fn a_head_that_is_cut_before_a_full_read_is_one() {
    let head = format!("HTTP/1.1 200 OK\r\nx: {}\r\ncontent-length: 65000\r\n\r\n", "y".repeat(400));
    let text = format!("{head}{}", "b".repeat(65_000));
    let (first, second) = text.as_bytes().split_at(200);
    assert_eq!(read([first, second]).map(|a| (a.body.len(), a.reusable)), Ok((65_000, true)));
}

/// What follows bytes that are no HTTP is no answer, even where it would be one by itself.
#[test]
fn after_an_error_nothing_is_reusable() {
    let mut reader = Reader::default();
    let broken = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\naXX";
    assert!(reader.push(broken, &mut |_| ()).is_err());
    let _ = reader.push(b"\r\n0\r\n\r\n", &mut |_| ());
    assert!(!reader.is_reusable());
}

#[test]
fn nothing_grows_without_bound() {
    let endless = |begin: &str, more: &str| {
        let mut reader = Reader::default();
        let pieces = std::iter::once(begin).chain(std::iter::repeat_n(more, 10_000));
        let mut read = 0;
        for piece in pieces {
            read += piece.len();
            assert!(reader.held.len() <= MAX_HEAD_BYTES);
            if reader.push(piece.as_bytes(), &mut |_| ()).is_err() {
                return Some(read);
            }
        }
        None
    };
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let long = "x".repeat(1000);
    for (begin, more) in [
        ("HTTP/1.1 200 OK\r\nx: ", long.as_str()),
        (&format!("{chunked}1;"), &long),
        (&format!("{chunked}0\r\n"), "trailer: of the same, of the same, of the same\r\n"),
    ] {
        assert!(endless(begin, more).is_some_and(|read| read < 70_000), "{begin:?}");
    }
}

fn response() -> impl Strategy<Value = Vec<u8>> {
    let heads = prop::sample::select(vec![
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 Busy\r\ncontent-length: 20\r\n\r\n",
        "HTTP/1.0 200 OK\r\nx: y\r\n\r\n",
    ]);
    let piece = prop_oneof![
        Just(b"4\r\nabcd\r\n".to_vec()),
        Just(b"a;ext=1\r\n0123456789\r\n".to_vec()),
        Just(b"0\r\n\r\n".to_vec()),
        Just(b"0\r\ntrailer: x\r\n\r\n".to_vec()),
        Just(b"\r\n".to_vec()),
        prop::collection::vec(any::<u8>(), 0..4),
    ];
    (heads, prop::collection::vec(piece, 0..8))
        .prop_map(|(head, pieces)| [head.as_bytes(), &pieces.concat()].concat())
}

proptest! {
    #[test]
    fn any_split_is_heard_alike(bytes in response(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8)) {
        let expected = read([bytes.as_slice()]);
        prop_assert_eq!(&read(bytes.chunks(1)), &expected);
        let mut at: Vec<usize> = cuts.iter().map(|i| i.index(bytes.len() + 1)).collect();
        at.extend([0, bytes.len()]);
        at.sort_unstable();
        prop_assert_eq!(&read(at.windows(2).map(|w| &bytes[w[0]..w[1]])), &expected);
    }
}
