//! Shapes that engines are reported to send, one small stream each, named after the report in the engine notes
//! (`B01` …), and the rules of the specification on which no engine's recording bears.

use agent::engine::stream::{BodyEnd, Read, Rules};
use common::ids::Nanos;
use common::trace::{Channel, Failure, FailureKind, ItlEvidence, TokenSource, Trace};

use super::support::{RULES, streamed, written};

const DONE: &str = "data: [DONE]\n\n";
const TEXT: &str = "data: {\"choices\":[{\"index\":0,\"text\":\"a\"}]}\n\n";
const FINISH: &str = "data: {\"choices\":[{\"index\":0,\"text\":\"\",\"finish_reason\":\"stop\"}]}\n\n";
const ROLE: &str =
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n";

/// The trace of a body that ends cleanly. Every event comes in a read of its own.
fn trace(parts: &[&str]) -> Trace {
    ended(parts, BodyEnd::Clean)
}

fn ended(parts: &[&str], end: BodyEnd) -> Trace {
    let body = parts.concat();
    let trace = streamed(RULES, body.split_inclusive("\n\n").map(str::as_bytes), end.clone());
    let bytewise = streamed(RULES, body.as_bytes().chunks(1), end);
    assert_eq!(bytewise.facts.outcome, trace.facts.outcome, "{body}");
    assert_eq!(bytewise.facts.output_tokens, trace.facts.output_tokens, "{body}");
    assert_eq!(bytewise.text, trace.text, "{body}");
    trace
}

fn kind(trace: &Trace) -> Option<FailureKind> {
    trace.facts.outcome.failure().map(|f| f.kind)
}

fn chat(delta: &str) -> String {
    format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{delta}}}]}}\n\n")
}

fn usage(n: u64) -> String {
    format!("data: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":4,\"completion_tokens\":{n}}}}}\n\n")
}

/// A text event with cumulative usage.
fn counted(text: &str, n: u64) -> String {
    format!(
        "data: {{\"choices\":[{{\"index\":0,\"text\":\"{text}\"}}],\"usage\":{{\"prompt_tokens\":4,\"completion_tokens\":{n}}}}}\n\n"
    )
}

/// A text event with as many token ids as said.
fn with_ids(text: &str, n: usize) -> String {
    format!("data: {{\"choices\":[{{\"index\":0,\"text\":\"{text}\",\"token_ids\":{:?}}}]}}\n\n", vec![7; n])
}

#[test]
fn streams_that_are_failures_in_spite_of_their_status() {
    use FailureKind::{EngineAborted, ErrorEvent, MalformedStream, NoContent, TruncatedStream};
    let error = "data: {\"error\":{\"message\":\"x\",\"type\":\"GatewayTimeout\",\"code\":504}}\n\n";
    let aborted = |reason: &str| FINISH.replace("stop", reason);
    let table: &[(&str, &[&str], FailureKind)] = &[
        ("B01 only an error, then the end mark", &[error, DONE], ErrorEvent),
        ("B02 only the end mark", &[DONE], NoContent),
        ("B03 only an error, then the end", &[error], ErrorEvent),
        ("B29 error as event name and comment", &[TEXT, "event: error\n: it broke\n\n"], ErrorEvent),
        ("B29 error as event name with text", &[TEXT, "event: error\ndata: it broke\n\n"], ErrorEvent),
        ("B29 error as a field line", &[TEXT, "error: {\"code\":500}\n\n"], ErrorEvent),
        ("B32 tokens, then an error, no end mark", &[TEXT, TEXT, error], ErrorEvent),
        ("B32 an error counts after a finish reason too", &[TEXT, FINISH, error, DONE], ErrorEvent),
        (
            "B40 an error that is not valid JSON",
            &[TEXT, "data: {\"error\": \"raw \" text\"}\n\n"],
            MalformedStream,
        ),
        ("B28 no end mark from an engine that has one", &[TEXT, FINISH], TruncatedStream),
        ("B28 no finish reason and no end mark", &[TEXT, TEXT], TruncatedStream),
        ("role, finish and usage only", &[ROLE, FINISH, &usage(3), DONE], NoContent),
        ("nothing at all", &[], NoContent),
        ("comments only", &[": ping\n\n", ": ping\n\n"], NoContent),
        ("the engine gave up", &[TEXT, &aborted("abort"), DONE], EngineAborted),
        ("the engine gave up", &[TEXT, &aborted("error"), DONE], EngineAborted),
        ("the engine gave up", &[TEXT, &aborted("canceled"), DONE], EngineAborted),
        ("the engine gave up, without an end", &[TEXT, &aborted("abort")], EngineAborted),
        ("not JSON", &[TEXT, "data: oops\n\n", DONE], MalformedStream),
        ("half JSON", &[TEXT, "data: {\"choices\":[{\"te\n\n", DONE], MalformedStream),
        ("not an object", &[TEXT, "data: [1]\n\n", DONE], MalformedStream),
        (
            "negative count",
            &[TEXT, "data: {\"usage\":{\"completion_tokens\":-1}}\n\n", DONE],
            MalformedStream,
        ),
        (
            "fractional count",
            &[TEXT, "data: {\"usage\":{\"completion_tokens\":1.5}}\n\n", DONE],
            MalformedStream,
        ),
        (
            "count in words",
            &[TEXT, "data: {\"usage\":{\"prompt_tokens\":\"many\"}}\n\n", DONE],
            MalformedStream,
        ),
    ];
    for (what, parts, expected) in table {
        let trace = trace(parts);
        assert_eq!(kind(&trace), Some(*expected), "{what}: {:?}", trace.facts.outcome);
        let message = &trace.facts.outcome.failure().unwrap().message;
        assert!(
            !message.is_empty() && !message.contains('\n') && !message.contains("broke"),
            "{what}: {message}"
        );
    }
}

#[test]
fn errors_keep_what_the_engine_said() {
    let t = trace(&[TEXT, "event: error\n: it broke\n\n"]);
    assert_eq!(t.text.error_body.as_deref(), Some("it broke"));
    let t = trace(&[
        "data: {\"error\":{\"message\":\"full\",\"type\":\"SERVICE_UNAVAILABLE\",\"code\":503}}\n\n",
        DONE,
    ]);
    assert_eq!(t.facts.outcome.failure().unwrap().message, "error event (SERVICE_UNAVAILABLE 503)");
    assert!(t.text.error_body.unwrap().contains("full"));
    let t = trace(&[TEXT, "data: {\"error\": \"raw \" text\"}\n\n"]);
    assert!(t.text.error_body.unwrap().contains("raw"));
}

#[test]
fn odd_streams_that_are_successes() {
    let crlf = |s: &str| s.replace('\n', "\r\n");
    let table: &[(&str, &[&str])] = &[
        ("end mark without finish reason", &[TEXT, DONE]),
        (
            "what follows the end mark is ignored",
            &[TEXT, DONE, "data: {\"error\":{\"message\":\"late\"}}\n\n", "data: oops\n\n"],
        ),
        ("B07 comments for minutes", &[":\n\n", ":\n\n", ":\n\n", TEXT, ":\n\n", FINISH, DONE]),
        (
            "B13 usage null in every event",
            &["data: {\"choices\":[{\"text\":\"a\"}],\"usage\":null}\n\n", DONE],
        ),
        ("B14 usage without choices", &[TEXT, "data: {\"usage\":{\"completion_tokens\":1}}\n\n", DONE]),
        ("B18 CRLF", &[&crlf(TEXT), &crlf(DONE)]),
        ("B18 CR", &[&TEXT.replace('\n', "\r"), &DONE.replace('\n', "\r")]),
        ("B18 no blank after the colon", &["data:{\"choices\":[{\"text\":\"a\"}]}\n\n", "data:[DONE]\n\n"]),
        ("blanks at the end of a line", &["data: {\"choices\":[{\"text\":\"a\"}]} \n\n", DONE]),
        (
            "B29 error that says that there is none",
            &["data: {\"error\":null,\"choices\":[{\"text\":\"a\"}]}\n\n", DONE],
        ),
        ("B38 null first", &["data: null\n\n", TEXT, FINISH, DONE]),
        ("two end marks", &[TEXT, FINISH, DONE, DONE]),
        ("an event split over two data lines", &["data: {\"choices\":\ndata: [{\"text\":\"a\"}]}\n\n", DONE]),
        ("no blank line after the end mark", &[TEXT, "data: [DONE]"]),
        (
            "events under names of their own",
            &[TEXT, "event: tool_progress\ndata: 3 of 7\n\n", "event: ids\ndata: {\"ids\":[1]}\n\n", DONE],
        ),
        ("unknown fields and ids", &["id: 1\nretry: 5\nfoo: bar\n", TEXT, DONE]),
        (
            "two objects for a choice that is not ours",
            &["data: {\"choices\":[{\"index\":1,\"text\":\"b\"}]}\n\n", TEXT, DONE],
        ),
    ];
    for (what, parts) in table {
        let trace = trace(parts);
        assert_eq!(kind(&trace), None, "{what}: {:?}", trace.facts.outcome);
        assert!(trace.facts.done_seen, "{what}");
        assert_eq!(trace.text.output.as_deref(), Some("a"), "{what}");
        assert_eq!(trace.clocks.content.len(), 1, "{what}");
    }
}

#[test]
fn a_dialect_without_end_mark_ends_with_a_finish_reason_and_a_clean_end() {
    let rules = Rules { sends_done: false, ..RULES };
    let run = |parts: &[&str], end| kind(&streamed(rules, parts.iter().map(|p| p.as_bytes()), end));
    assert_eq!(run(&[TEXT, FINISH], BodyEnd::Clean), None);
    assert_eq!(run(&[TEXT, FINISH, DONE], BodyEnd::Clean), None);
    assert_eq!(run(&[TEXT], BodyEnd::Clean), Some(FailureKind::TruncatedStream));
    assert_eq!(run(&[TEXT, FINISH], BodyEnd::Truncated), Some(FailureKind::TruncatedStream));
    assert_eq!(run(&[FINISH], BodyEnd::Clean), Some(FailureKind::NoContent));
}

#[test]
fn an_empty_finish_reason_is_none() {
    // B28: TGI and old Ollama send "" in every event.
    let empty = "data: {\"choices\":[{\"text\":\"a\",\"finish_reason\":\"\"}]}\n\n";
    assert_eq!(trace(&[empty, DONE]).facts.finish_reason, None);
    let rules = Rules { sends_done: false, ..RULES };
    let cut = streamed(rules, [empty.as_bytes()], BodyEnd::Clean);
    assert_eq!(kind(&cut), Some(FailureKind::TruncatedStream));
}

#[test]
fn first_content_is_the_first_visible_text() {
    // B25, B26, B36: role, empty deltas, comments, usage and finish chunks are not content.
    let reasoning = chat("{\"reasoning_content\":\"hm\",\"content\":null}");
    let answer = chat("{\"content\":\"a\"}");
    let tool = chat("{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{}\"}}]}");
    let empty = chat("{\"content\":\"\"}");
    let t = trace(&[ROLE, ": ping\n\n", &empty, &reasoning, &answer, &tool, FINISH, &usage(9), DONE]);
    let channels: Vec<_> = t.clocks.content.iter().map(|e| (e.at, e.channel)).collect();
    let expected = [(103, Channel::Reasoning), (104, Channel::Answer), (105, Channel::ToolCall)];
    assert_eq!(channels, expected.map(|(at, channel)| (Nanos(at), channel)));
    assert_eq!(t.clocks.first_in(Channel::Answer), Some(Nanos(104)));
    assert_eq!(t.clocks.last_content(), Some(Nanos(105)));
    assert_eq!(t.clocks.finished, Nanos(108));
    assert_eq!((t.text.output.as_deref(), t.text.reasoning.as_deref()), (Some("a{}"), Some("hm")));
    assert_eq!(t.facts.data_events, 7);
}

#[test]
fn counts_have_a_source_and_unknown_stays_unknown() {
    use TokenSource::{StreamCounts, Unknown, Usage};
    let zero =
        "data: {\"choices\":[{\"text\":\"a\"}],\"usage\":{\"prompt_tokens\":0,\"completion_tokens\":0}}\n\n";
    let timing = "data: {\"choices\":[{\"text\":\"a\"}],\"timings\":{\"predicted_n\":5}}\n\n";
    let table: &[(&str, &[&str], Option<u64>, TokenSource)] = &[
        ("no counts: never the number of events", &[TEXT, TEXT, DONE], None, Unknown),
        ("B06 usage without being asked", &[TEXT, FINISH, &usage(7), DONE], Some(7), Usage),
        (
            "B10 usage in every event is not summed",
            &[&counted("a", 1), &counted("b", 2), &usage(2), DONE],
            Some(2),
            Usage,
        ),
        ("zeros until it knows (Ollama)", &[zero, zero, &usage(4), DONE], Some(4), Usage),
        ("only zeros", &[zero, zero, DONE], None, Unknown),
        ("zeros at the end do not undo a count", &[&counted("a", 1), zero, DONE], Some(1), Usage),
        ("a usage that counts no output", &[TEXT, &usage(0), DONE], None, Unknown),
        ("usage comes before the stream's own counts", &[&with_ids("a", 2), &usage(3), DONE], Some(3), Usage),
        ("token ids", &[&with_ids("a", 2), &with_ids("", 1), DONE], Some(3), StreamCounts),
        ("token ids that do not cover the text", &[&with_ids("a", 2), TEXT, DONE], None, Unknown),
        ("llama.cpp's timings", &[TEXT, timing, DONE], Some(5), StreamCounts),
        ("text after the last count", &[timing, TEXT, DONE], None, Unknown),
    ];
    for (what, parts, count, source) in table {
        let tokens = trace(parts).facts.output_tokens;
        assert_eq!((tokens.count, tokens.source), (*count, *source), "{what}");
    }
}

#[test]
fn itl_is_proven_by_one_token_for_each_event_and_a_matching_sum() {
    use ItlEvidence::{ManyPerEvent, None as No, Proven, SumDiffers};
    let one = with_ids("a", 1);
    let last = with_ids("", 1);
    let table: &[(&str, &[&str], ItlEvidence)] = &[
        ("nothing is shown", &[TEXT, TEXT, &usage(2), DONE], No),
        ("every event one token", &[&one, &one, &usage(2), DONE], Proven),
        ("without usage the sum is the evidence's own", &[&one, &one, DONE], Proven),
        ("B20 B21 several in an event", &[&one, &with_ids("ab", 2), &usage(3), DONE], ManyPerEvent),
        ("none in an event", &[&one, &with_ids("a", 0), &usage(1), DONE], ManyPerEvent),
        ("the sum differs", &[&one, &one, &usage(3), DONE], SumDiffers),
        ("some events show nothing", &[&one, TEXT, &usage(2), DONE], No),
        ("a last token without text", &[&one, &one, &last, &usage(3), DONE], Proven),
        ("the last event need not count", &[&one, &one, &last, &usage(2), DONE], Proven),
        ("a token without text in the middle", &[&one, &last, &one, &usage(3), DONE], SumDiffers),
        ("two tokens without text at the end", &[&one, &last, &last, &usage(3), DONE], SumDiffers),
        ("a last event of two tokens", &[&one, &with_ids("", 2), &usage(3), DONE], SumDiffers),
        ("B10 cumulative usage", &[&counted("a", 1), &counted("b", 2), &usage(2), DONE], Proven),
        (
            "cumulative usage, last token without text",
            &[&counted("a", 1), &counted("b", 2), &usage(3), DONE],
            Proven,
        ),
        ("B22 tokens without events", &[&counted("a", 1), &counted("b", 17), &usage(17), DONE], ManyPerEvent),
        (
            "counts that go down show nothing",
            &[&counted("a", 1), &counted("b", 2), &counted("c", 1), DONE],
            No,
        ),
        ("one final count is no evidence for events", &[TEXT, TEXT, &usage(2), DONE], No),
        ("no text", &[DONE], No),
    ];
    for (what, parts, expected) in table {
        assert_eq!(trace(parts).facts.itl_evidence, *expected, "{what}");
    }
}

#[test]
fn events_of_one_read_are_coalesced() {
    // B05, B17, B36.
    let all = [ROLE, TEXT, TEXT, TEXT, DONE].concat();
    let t = streamed(RULES, [all.as_bytes()], BodyEnd::Clean);
    assert_eq!((t.facts.coalesced_events, t.facts.stream_coalesced), (2, true));
    assert!(t.clocks.content.iter().all(|e| e.at == Nanos(100)));
    let t =
        streamed(RULES, [[TEXT, TEXT].concat().as_bytes(), TEXT.as_bytes(), DONE.as_bytes()], BodyEnd::Clean);
    assert_eq!((t.facts.coalesced_events, t.facts.stream_coalesced), (1, false));
    // One event, but several tokens: when they came is not known.
    let t = trace(&[TEXT, &usage(5), DONE]);
    assert_eq!((t.facts.coalesced_events, t.facts.stream_coalesced), (0, true));
    let t = trace(&[TEXT, &usage(1), DONE]);
    assert!(!t.facts.stream_coalesced);
    // Two reads may carry the same stamp, and are two.
    let mut stream = written(RULES);
    stream.on_head(Nanos(99), 200, Some(b"text/event-stream"));
    stream.on_read(Read { at: Nanos(100), number: 1 }, TEXT.as_bytes());
    stream.on_read(Read { at: Nanos(100), number: 2 }, TEXT.as_bytes());
    stream.on_read(Read { at: Nanos(100), number: 2 }, DONE.as_bytes());
    assert_eq!(stream.finish(None).facts.coalesced_events, 0);
}

#[test]
fn characters_and_events_may_be_cut_anywhere() {
    // B15: inside a character; `trace` compares with a read for each byte.
    let t = trace(&["data: {\"choices\":[{\"text\":\"ä€😀 \\ud83d\\ude00\"}]}\n\n", DONE]);
    assert_eq!(t.text.output.as_deref(), Some("ä€😀 😀"));
    assert_eq!(t.text.output_chars, 5);
    // B34: bytes that are no UTF-8 become replacement characters, as in a browser.
    let body = b"data: {\"choices\":[{\"text\":\"a\xff\"}]}\n\ndata: [DONE]\n\n";
    let t = streamed(RULES, [body.as_slice()], BodyEnd::Clean);
    assert_eq!(t.text.output.as_deref(), Some("a\u{fffd}"));
}

#[test]
fn short_output_is_a_success_and_marked() {
    let rules = Rules { ignore_eos: true, ..RULES };
    let run = |rules, n| streamed(rules, [TEXT, &usage(n), DONE].map(str::as_bytes), BodyEnd::Clean);
    for (rules, n, short) in [(rules, 11, true), (rules, 12, false), (RULES, 11, false)] {
        let t = run(rules, n);
        assert!(t.facts.outcome.is_success());
        assert_eq!(t.facts.short_output, short, "{n}");
    }
    let unknown = streamed(rules, [TEXT, DONE].map(str::as_bytes), BodyEnd::Clean);
    assert!(!unknown.facts.short_output);
}

#[test]
fn a_cut_connection_is_truncation_or_what_broke_it() {
    // B31, B43: no end of the body; an unfinished event is not looked at.
    let t = ended(&[TEXT, "data: {\"choi"], BodyEnd::Truncated);
    assert_eq!(kind(&t), Some(FailureKind::TruncatedStream));
    assert!(t.facts.outcome.failure().unwrap().message.contains("after 1 content events"));
    let reset = Failure::new(FailureKind::Reset, "connection reset by peer");
    assert_eq!(kind(&ended(&[TEXT], BodyEnd::Broken(reset.clone()))), Some(FailureKind::Reset));
    // The end mark is the end, whatever happens to the connection after it.
    assert_eq!(kind(&ended(&[TEXT, DONE], BodyEnd::Broken(reset))), None);
    assert_eq!(kind(&ended(&[TEXT, DONE], BodyEnd::Truncated)), None);
}

#[test]
fn an_answer_that_is_no_stream_says_so() {
    let body = |content_type: &str, body: &[u8]| {
        let mut stream = written(RULES);
        stream.on_head(Nanos(99), 200, Some(content_type.as_bytes()));
        stream.on_read(Read { at: Nanos(100), number: 1 }, body);
        stream.on_end(Nanos(101), BodyEnd::Clean);
        stream.finish(None)
    };
    let json = body("application/json", b"{\"choices\":[{\"text\":\"a\"}]}");
    assert_eq!(kind(&json), Some(FailureKind::MalformedStream));
    assert!(json.text.error_body.is_some());
    assert_eq!(kind(&body("text/html", b"<html>hello")), Some(FailureKind::MalformedStream));
    let error = body("application/json", b"{\"error\":{\"message\":\"full\",\"code\":503}}");
    assert_eq!(kind(&error), Some(FailureKind::ErrorEvent));
    assert_eq!(kind(&body("text/plain", TEXT.as_bytes())), Some(FailureKind::TruncatedStream));
    let plain = body("text/plain", [TEXT, DONE].concat().as_bytes());
    assert_eq!(kind(&plain), None, "a stream is a stream under any name");
}

#[test]
fn refusals_of_every_kind_keep_a_short_body() {
    // B41: five envelopes.
    for (status, body, message) in [
        (400, "{\"error\":\"<string>\"}", "status 400"),
        (
            404,
            "{\"error\":{\"message\":\"m\",\"type\":\"NotFoundError\",\"code\":404}}",
            "status 404 (NotFoundError 404)",
        ),
        (
            400,
            "{\"object\":\"error\",\"message\":\"m\",\"type\":\"BadRequest\",\"code\":400}",
            "status 400 (BadRequest 400)",
        ),
        (422, "{\"detail\":[{\"msg\":\"m\",\"input\":\"prompt\"}]}", "status 422"),
        (429, "{\"error\":\"Model is overloaded\",\"error_type\":\"overloaded\"}", "status 429 (overloaded)"),
        (529, "busy", "status 529"),
        (302, "", "status 302"),
    ] {
        let mut stream = written(RULES);
        stream.on_head(Nanos(99), status, Some(b"application/json"));
        stream.on_read(Read { at: Nanos(100), number: 1 }, body.as_bytes());
        stream.on_end(Nanos(100), BodyEnd::Clean);
        let t = stream.finish(None);
        assert_eq!(t.facts.outcome.failure(), Some(&Failure::new(FailureKind::HttpStatus, message)));
        assert_eq!(t.text.error_body.as_deref().unwrap_or_default(), body);
        assert_eq!(t.facts.http_status, Some(status));
    }
    let mut stream = written(RULES);
    stream.on_head(Nanos(99), 500, None);
    let mut reads = 0;
    while !stream.is_decided() {
        reads += 1;
        stream.on_read(Read { at: Nanos(100), number: reads }, &[b'x'; 1000]);
        assert!(reads < 1000, "an endless error body is not read to its end");
    }
    assert_eq!(stream.finish(None).text.error_body.unwrap().len(), 2048);
}

#[test]
fn without_text_nothing_that_was_said_is_kept() {
    let rules = Rules { keep_text: false, ..RULES };
    let error = "data: {\"error\":{\"message\":\"your prompt was: secret\",\"code\":500}}\n\n";
    for parts in [[TEXT, DONE], [TEXT, error]] {
        let t = streamed(rules, parts.map(str::as_bytes), BodyEnd::Clean);
        assert_eq!((t.text.output.as_ref(), t.text.error_body.as_ref()), (None, None));
        assert_eq!((t.text.output_chars, t.text.output_hash.as_ref().map(String::len)), (1, Some(16)));
        assert!(!format!("{t:?}").contains("secret"));
    }
}

#[test]
fn more_bytes_after_the_verdict_change_nothing_but_their_count() {
    let mut stream = written(RULES);
    stream.on_head(Nanos(99), 200, Some(b"text/event-stream"));
    stream.on_read(Read { at: Nanos(100), number: 1 }, [TEXT, DONE].concat().as_bytes());
    assert!(stream.is_decided() && stream.deadline().is_none());
    stream.on_read(Read { at: Nanos(200), number: 2 }, TEXT.as_bytes());
    stream.fail(Nanos(300), Failure::new(FailureKind::Cancelled, "late"));
    stream.on_end(Nanos(300), BodyEnd::Truncated);
    let t = stream.finish(None);
    assert!(t.facts.outcome.is_success());
    assert_eq!((t.clocks.finished, t.clocks.content.len()), (Nanos(100), 1));
    assert_eq!(t.facts.response_bytes as usize, 2 * TEXT.len() + DONE.len());
}
