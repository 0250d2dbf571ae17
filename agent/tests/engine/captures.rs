//! Recorded bytes of real engines: each ends in the trace that was worked out from the bytes by other means, and in
//! the same one however the bytes are split.
//!
//! Where a recording has the instants of its reads, the trace's stamps must be among them.

use std::path::PathBuf;

use agent::engine::stream::{BodyEnd, Read, Rules};
use common::ids::Nanos;
use common::trace::{FailureKind, ItlEvidence, Outcome, TokenSource, Trace};
use proptest::prelude::*;

use super::support::{RULES, Wire, written};

/// What is expected of one recording.
struct Case {
    name: &'static str,
    rules: Rules,
    outcome: Result<(), FailureKind>,
    /// Events with text, data events, characters.
    events: (usize, u32, u64),
    tokens: (Option<u64>, TokenSource),
    /// Prompt and cached tokens.
    prompt: (Option<u64>, Option<u64>),
    finish: Option<&'static str>,
    done: bool,
    itl: ItlEvidence,
}

/// llama.cpp, vLLM and SGLang end with `[DONE]`.
fn ok(
    name: &'static str,
    events: (usize, u32, u64),
    tokens: u64,
    prompt: (u64, Option<u64>),
    itl: ItlEvidence,
) -> Case {
    Case {
        name,
        rules: RULES,
        outcome: Ok(()),
        events,
        tokens: (Some(tokens), TokenSource::Usage),
        prompt: (Some(prompt.0), prompt.1),
        finish: Some("length"),
        done: true,
        itl,
    }
}

/// Nothing but events and an outcome.
fn cut(name: &'static str, outcome: FailureKind, events: (usize, u32, u64)) -> Case {
    Case {
        outcome: Err(outcome),
        tokens: (None, TokenSource::Unknown),
        prompt: (None, None),
        finish: None,
        done: false,
        ..ok(name, events, 0, (0, None), ItlEvidence::None)
    }
}

/// No usage was asked for.
fn uncounted(name: &'static str, events: (usize, u32, u64)) -> Case {
    Case { outcome: Ok(()), finish: Some("length"), done: true, ..cut(name, FailureKind::NoContent, events) }
}

fn cases() -> Vec<Case> {
    use FailureKind::{ErrorEvent, HttpStatus, MalformedStream, TruncatedStream};
    use ItlEvidence::{ManyPerEvent, None as No, Proven, SumDiffers};
    let no_done = Rules { sends_done: false, ..RULES };
    let hf = |name, events, tokens, prompt| Case {
        rules: no_done,
        done: false,
        ..ok(name, events, tokens, (prompt, None), No)
    };
    let unmarked = |case: Case| Case { rules: RULES, outcome: Err(TruncatedStream), ..case };
    let stopped = |case: Case| Case { finish: Some("stop"), ..case };
    let status = |name| cut(name, HttpStatus, (0, 0, 0));
    let timings = |name, events, tokens| Case {
        tokens: (Some(tokens), TokenSource::StreamCounts),
        ..uncounted(name, events)
    };
    let listed = |name, events, tokens, itl| Case { itl, ..timings(name, events, tokens) };
    vec![
        // llama.cpp: 400 tokens in as many events, or with 66 held back (partial UTF-8) in 334.
        ok("ascii_lp1", (400, 401, 834), 400, (8, Some(7)), Proven),
        ok("ascii_lpNone", (400, 401, 834), 400, (8, Some(7)), No),
        ok("tpt_ascii", (400, 401, 834), 400, (8, Some(7)), Proven),
        ok("utf8_lp1", (334, 335, 605), 400, (8, Some(7)), SumDiffers),
        ok("utf8_lpNone", (334, 335, 605), 400, (8, Some(7)), No),
        ok("tpt_utf8", (334, 335, 605), 400, (8, Some(7)), ManyPerEvent),
        // An error event, then a clean end without [DONE].
        cut("kvu_0", ErrorEvent, (196, 197, 392)),
        cut("kvu_1", ErrorEvent, (195, 196, 413)),
        // The server was stopped: a ping after 30 s, then the connection is closed in mid-body.
        cut("sigterm", TruncatedStream, (120, 120, 249)),
        ok("ping", (3, 4, 3), 3, (35002, Some(0)), No),
        ok("lc_chat_usage", (4, 7, 6), 4, (21, Some(20)), No),
        timings("lc_chat_nousage", (4, 6, 6), 4),
        ok("lc_chat_usage_timings", (3, 8, 5), 3, (21, Some(20)), Proven),
        ok("lc_chat_max1", (1, 4, 1), 1, (21, Some(20)), No),
        ok("lc_cmpl_usage_lp", (3, 4, 3), 4, (8, Some(7)), SumDiffers),
        ok("lc_cmpl_nousage", (3, 4, 3), 4, (8, Some(7)), No),
        stopped(ok("lc_cmpl_stop", (18, 20, 27), 19, (4, Some(3)), No)),
        // Two prompts: `data: null` first, and only choice 0 is ours.
        ok("lc_cmpl_batch2", (3, 9, 3), 3, (4, Some(3)), No),
        ok("lc_ctx_overflow", (58, 59, 113), 62, (962, Some(961)), No),
        ok("lc_max_tokens_0", (1, 2, 1), 1, (4, Some(3)), No),
        ok("lc_err_wrongmodel", (2, 3, 3), 2, (3, Some(2)), No),
        status("lc_err_badjson"),
        status("lc_err_badparam"),
        status("lc_err_toolong"),
        status("loading_503"),
        // The rest of what was recorded. `smol`: a trained model; `spec`: with and without speculation, one token for each
        // event either way.
        cut("kvu_2", ErrorEvent, (195, 196, 395)),
        cut("kvu_3", ErrorEvent, (194, 195, 406)),
        ok("lc_cmpl_cached", (2, 3, 6), 2, (122, Some(8)), No),
        ok("lc_cmpl_cached2", (2, 3, 2), 2, (122, Some(121)), No),
        ok("lc_cmpl_cont_usage", (3, 4, 5), 3, (8, Some(7)), No),
        ok("lc_cmpl_min_tokens", (5, 6, 8), 5, (4, Some(3)), No),
        ok("lc_cmpl_n2", (3, 8, 5), 3, (4, Some(3)), No),
        ok("lc_cmpl_nocache", (1, 2, 3), 2, (122, Some(0)), No),
        ok("lc_cmpl_tokens_prompt", (2, 3, 2), 3, (5, Some(1)), No),
        ok("lc_max_tokens_1", (1, 2, 3), 1, (4, Some(3)), No),
        ok("smol1", (24, 25, 99), 24, (5, Some(0)), No),
        ok("smol_chat", (27, 30, 56), 40, (40, Some(0)), ManyPerEvent),
        ok("spec_plain", (300, 301, 456), 300, (11, Some(5)), Proven),
        ok("spec_spec", (300, 301, 456), 300, (11, Some(0)), Proven),
        // transformers serve never sends [DONE]: who does not know that takes its streams for cut.
        hf("hf_chat", (3, 5, 4), 6, 19),
        hf("hf_chat_opts", (1, 3, 3), 4, 19),
        hf("hf_cmpl", (5, 6, 7), 6, 2),
        unmarked(hf("hf_cmpl", (5, 6, 7), 6, 2)),
        status("hf_unknown_field"),
        // vLLM: the fifth and the eleventh of twelve tokens come in events without text.
        ok("vllm_comp_usage", (10, 13, 64), 12, (9, Some(0)), No),
        uncounted("vllm_comp_nousage", (10, 12, 64)),
        ok("vllm_comp_usage_cont", (10, 13, 64), 12, (9, Some(0)), SumDiffers),
        ok("vllm_comp_logprobs", (10, 13, 64), 12, (9, Some(0)), SumDiffers),
        ok("vllm_comp_tokenids", (10, 13, 64), 12, (9, Some(0)), SumDiffers),
        ok("vllm_comp_all", (10, 13, 64), 12, (9, Some(0)), SumDiffers),
        ok("vllm_comp_max1", (1, 2, 7), 1, (9, Some(0)), No),
        ok("vllm_comp_echo", (10, 13, 91), 12, (9, Some(0)), No),
        ok("vllm_chat_usage", (10, 14, 43), 12, (13, Some(0)), No),
        uncounted("vllm_chat_nousage", (10, 13, 43)),
        ok("vllm_chat_usage_cont", (10, 14, 43), 12, (13, Some(0)), SumDiffers),
        ok("vllm_chat_logprobs", (10, 14, 43), 12, (13, Some(0)), SumDiffers),
        ok("vllm_chat_tokenids", (10, 14, 43), 12, (13, Some(0)), SumDiffers),
        ok("vllm_chat_all", (10, 14, 43), 12, (13, Some(0)), SumDiffers),
        ok("vllm_chat_max1", (1, 3, 3), 1, (13, Some(0)), No),
        stopped(ok("vllm_chat_stopstr", (5, 7, 23), 5, (13, Some(0)), No)),
        ok("vllm_chat_http10", (10, 14, 43), 12, (13, Some(0)), No),
        ok("vllm_chat_keepalive", (10, 14, 43), 12, (13, Some(0)), No),
        ok("vllm_cache_2_warm", (3, 5, 27), 4, (151, Some(128)), No),
        // --stream-interval 4.
        ok("vllm_epoll24_comp_00", (25, 26, 377), 96, (41, Some(0)), ManyPerEvent),
        ok("vllm_epoll24_chat_12", (25, 27, 484), 96, (16, Some(0)), ManyPerEvent),
        // Under load: 76 of the events come in one read.
        ok("vllm_load24_comp_07", (88, 97, 452), 96, (41, Some(0)), SumDiffers),
        cut("vllm_abort_midstream", TruncatedStream, (8, 10, 28)),
        cut("vllm_chat_nonstream", MalformedStream, (0, 0, 0)),
        status("vllm_chat_badjson"),
        status("vllm_comp_toolong"),
        status("vllm_comp_maxtok_too_big"),
        status("vllm_unauthorized"),
        status("vllm_comp_unknown_model"),
        status("vllm_get_404"),
        // Without --enable-prompt-tokens-details.
        listed("vllm_bf16nodev_chat_logprobs", (7, 9, 34), 8, SumDiffers),
        ok("vllm_bf16nodev_chat_usage_0", (7, 10, 34), 8, (13, None), No),
        ok("vllm_bf16nodev_chat_usage_1", (7, 10, 34), 8, (13, None), No),
        listed("vllm_bf16nodev_comp_logprobs", (5, 8, 35), 8, SumDiffers),
        ok("vllm_bf16nodev_comp_usage_0", (5, 9, 35), 8, (4, None), No),
        ok("vllm_bf16nodev_comp_usage_1", (5, 9, 35), 8, (4, None), No),
        // A prefix that is in the cache only the second time, and not after a reset.
        ok("vllm_cache_1_cold", (3, 5, 27), 4, (151, Some(0)), No),
        ok("vllm_cache_1_cold_chat", (3, 6, 13), 4, (132, Some(0)), No),
        ok("vllm_cache_2_warm_chat", (3, 6, 13), 4, (132, Some(128)), No),
        ok("vllm_cache_3_after_reset", (3, 5, 27), 4, (151, Some(0)), No),
        ok("vllm_cache_3_after_reset_chat", (3, 6, 13), 4, (132, Some(0)), No),
        // A token that was merged with the next one under load: `load24_chat_00`.
        uncounted("vllm_chat_warm", (10, 13, 43)),
        ok("vllm_comp_http10", (10, 13, 64), 12, (9, Some(0)), No),
        ok("vllm_comp_keepalive", (10, 13, 64), 12, (9, Some(0)), No),
        ok("vllm_comp_min_tokens", (10, 13, 64), 12, (9, Some(0)), No),
        ok("vllm_comp_noeos_nat", (259, 301, 1464), 300, (9, Some(0)), No),
        ok("vllm_comp_promptids", (12, 13, 76), 12, (31, Some(0)), No),
        uncounted("vllm_comp_warm", (10, 12, 64)),
        ok("vllm_epoll24_chat_00", (24, 27, 450), 96, (15, Some(0)), ManyPerEvent),
        ok("vllm_epoll24_chat_23", (25, 27, 447), 96, (16, Some(0)), ManyPerEvent),
        ok("vllm_epoll24_comp_12", (25, 26, 412), 96, (41, Some(0)), ManyPerEvent),
        ok("vllm_epoll24_comp_23", (24, 26, 400), 96, (41, Some(0)), ManyPerEvent),
        ok("vllm_idle_epoll24_chat_00", (88, 98, 450), 96, (15, Some(0)), SumDiffers),
        ok("vllm_idle_epoll24_chat_12", (78, 98, 484), 96, (16, Some(0)), SumDiffers),
        ok("vllm_idle_epoll24_chat_23", (85, 98, 447), 96, (16, Some(0)), SumDiffers),
        ok("vllm_idle_epoll24_comp_00", (83, 97, 377), 96, (41, Some(0)), SumDiffers),
        ok("vllm_idle_epoll24_comp_12", (85, 97, 412), 96, (41, Some(0)), SumDiffers),
        ok("vllm_idle_epoll24_comp_23", (80, 97, 400), 96, (41, Some(0)), SumDiffers),
        ok("vllm_load24_chat_00", (88, 97, 450), 96, (15, Some(0)), ManyPerEvent),
        ok("vllm_load24_chat_07", (87, 98, 452), 96, (15, Some(0)), SumDiffers),
        ok("vllm_load24_chat_08", (87, 98, 438), 96, (15, Some(0)), SumDiffers),
        ok("vllm_load24_chat_23", (85, 98, 447), 96, (16, Some(0)), SumDiffers),
        ok("vllm_load24_comp_00", (83, 97, 377), 96, (41, Some(0)), SumDiffers),
        ok("vllm_load24_comp_08", (81, 97, 413), 96, (41, Some(0)), SumDiffers),
        ok("vllm_load24_comp_23", (80, 97, 400), 96, (41, Some(0)), SumDiffers),
        ok("vllm_stream_during_reset", (265, 301, 1265), 300, (41, Some(0)), No),
        status("vllm_chat_badtype"),
        status("vllm_chat_max0"),
        status("vllm_chat_maxtok_too_big"),
        status("vllm_chat_toolong"),
        status("vllm_chat_unknown_model"),
        status("vllm_comp_badjson"),
        status("vllm_comp_badtype"),
        status("vllm_comp_max0"),
        ok("sglang_comp_usage", (10, 13, 64), 12, (9, None), No),
        uncounted("sglang_comp_nousage", (10, 12, 64)),
        ok("sglang_comp_usage_cont", (10, 13, 64), 12, (9, None), SumDiffers),
        ok("sglang_comp_logprobs", (10, 13, 64), 12, (9, None), SumDiffers),
        ok("sglang_comp_max1", (1, 2, 7), 1, (9, None), No),
        ok("sglang_chat_usage", (10, 13, 43), 12, (13, None), No),
        uncounted("sglang_chat_nousage", (10, 12, 43)),
        // A parser swallows the events without text: their tokens come with the next event.
        ok("sglang_chat_usage_cont", (10, 13, 43), 12, (13, None), ManyPerEvent),
        ok("sglang_chat_logprobs", (10, 13, 43), 12, (13, None), SumDiffers),
        ok("sglang_chat_max1", (1, 4, 3), 1, (13, None), No),
        stopped(ok("sglang_chat_stopstr", (3, 6, 8), 3, (13, None), No)),
        cut("sglang_abort_midstream", TruncatedStream, (9, 10, 62)),
        status("sglang_chat_badtype"),
        status("sglang_comp_toolong"),
        ok("sglang_cache_1", (10, 13, 60), 12, (151, None), No),
        ok("sglang_cache_2", (10, 13, 60), 12, (151, None), No),
        uncounted("sglang_chat_unknown_model", (10, 12, 43)),
        uncounted("sglang_chat_warm", (10, 12, 43)),
        uncounted("sglang_comp_unknown_model", (10, 12, 64)),
        uncounted("sglang_comp_warm", (10, 12, 64)),
        status("sglang_chat_badjson"),
        status("sglang_chat_toolong"),
        status("sglang_comp_badjson"),
        status("sglang_comp_badtype"),
    ]
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/captures")
}

fn raw(name: &str) -> Vec<u8> {
    std::fs::read(folder().join(name).with_extension("raw")).expect(name)
}

/// The recorded reads: instant and size of each, if they were recorded.
fn reads(name: &str) -> Option<Vec<(Nanos, usize)>> {
    let text = std::fs::read_to_string(folder().join(name).with_extension("segs.json")).ok()?;
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let list = json.get("segs").unwrap_or(&json).as_array().unwrap().clone();
    let read = |s: &serde_json::Value| {
        (Nanos::from_secs_f64(s[0].as_f64().unwrap()), s[1].as_u64().unwrap() as usize)
    };
    Some(list.iter().map(read).filter(|r| r.1 > 0).collect())
}

fn replay(rules: Rules, bytes: &[u8], reads: impl IntoIterator<Item = (Nanos, usize)>) -> Trace {
    let mut stream = written(rules);
    let mut wire = Wire::default();
    let mut rest = bytes;
    let mut last = Read { at: Nanos(10), number: 0 };
    for (at, size) in reads {
        let (now, later) = rest.split_at(size.min(rest.len()));
        rest = later;
        last = Read { at: at + Nanos(20), number: last.number + 1 };
        wire.feed(&mut stream, last, now);
    }
    assert!(rest.is_empty(), "the reads do not add up");
    stream.on_end(last.at, if wire.ended { BodyEnd::Clean } else { BodyEnd::Truncated });
    stream.finish(None)
}

/// What must not depend on how the bytes came: everything but stamps and coalescing.
fn timeless(mut trace: Trace) -> Trace {
    trace.clocks.headers = None;
    trace.clocks.finished = Nanos::ZERO;
    trace.clocks.content.iter_mut().for_each(|e| e.at = Nanos::ZERO);
    trace.facts.coalesced_events = 0;
    trace.facts.stream_coalesced = false;
    trace
}

fn check(case: &Case, trace: &Trace) {
    let name = case.name;
    let facts = &trace.facts;
    let outcome = match &facts.outcome {
        Outcome::Success => Ok(()),
        Outcome::Failure(f) => Err(f.kind),
    };
    assert_eq!(outcome, case.outcome, "{name}: {:?}", facts.outcome);
    let events = (trace.clocks.content.len(), facts.data_events, trace.text.output_chars);
    assert_eq!(events, case.events, "{name}");
    assert_eq!((facts.output_tokens.count, facts.output_tokens.source), case.tokens, "{name}");
    assert_eq!((facts.prompt_tokens, facts.cached_tokens), case.prompt, "{name}");
    assert_eq!((facts.finish_reason.as_deref(), facts.done_seen), (case.finish, case.done), "{name}");
    assert_eq!(facts.itl_evidence, case.itl, "{name}");
    let failed = case.outcome.is_err_and(|k| k != FailureKind::TruncatedStream);
    assert_eq!(trace.text.error_body.is_some(), failed, "{name}: {:?}", trace.text.error_body);
}

#[test]
fn recordings_end_in_the_expected_traces() {
    for case in cases() {
        let bytes = raw(case.name);
        let whole = replay(case.rules, &bytes, [(Nanos(0), bytes.len())]);
        check(&case, &whole);
        let several = case.events.0 > 1 || whole.facts.output_tokens.count.is_some_and(|n| n > 1);
        assert_eq!(whole.facts.stream_coalesced, several && case.events.0 > 0, "{}", case.name);
        assert_eq!(whole.facts.coalesced_events as usize, case.events.0.saturating_sub(1), "{}", case.name);
    }
}

#[test]
fn any_split_of_a_recording_ends_in_the_same_trace() {
    for case in cases() {
        let bytes = raw(case.name);
        let whole = timeless(replay(case.rules, &bytes, [(Nanos(0), bytes.len())]));
        let single = replay(case.rules, &bytes, (0..bytes.len()).map(|i| (Nanos(i as u64), 1)));
        assert_eq!(single.facts.coalesced_events, 0, "{}", case.name);
        assert_eq!(timeless(single), whole, "{}", case.name);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    #[test]
    fn random_splits_of_a_recording_end_in_the_same_trace(sizes in proptest::collection::vec(1usize..2000, 1..40)) {
        for case in cases() {
            let bytes = raw(case.name);
            let whole = timeless(replay(case.rules, &bytes, [(Nanos(0), bytes.len())]));
            let mut left = bytes.len();
            let mut at = 0;
            let reads = sizes.iter().cycle().map_while(|&size| {
                let size = size.min(left);
                left -= size;
                at += 1;
                (size > 0).then_some((Nanos(at), size))
            });
            prop_assert_eq!(timeless(replay(case.rules, &bytes, reads)), whole, "{}", case.name);
        }
    }
}

#[test]
fn stamps_are_those_of_the_recorded_reads() {
    let mut seen = 0;
    for case in cases() {
        let Some(reads) = reads(case.name) else { continue };
        seen += 1;
        let bytes = raw(case.name);
        let trace = replay(case.rules, &bytes, reads.iter().copied());
        check(&case, &trace);
        let instants: Vec<Nanos> = reads.iter().map(|r| r.0 + Nanos(20)).collect();
        for event in &trace.clocks.content {
            assert!(instants.contains(&event.at), "{}", case.name);
        }
        assert_eq!(trace.clocks.headers, Some(instants[0]), "{}", case.name);
        assert!(instants.contains(&trace.clocks.finished), "{}", case.name);
    }
    assert!(seen > 30, "only {seen} recordings have their reads");
}

#[test]
fn reads_that_bring_many_events_are_seen_as_such() {
    let reads = reads("vllm_load24_comp_07").unwrap();
    let trace = replay(RULES, &raw("vllm_load24_comp_07"), reads);
    let last = trace.clocks.last_content().unwrap();
    let together = trace.clocks.content.iter().filter(|e| e.at == last).count();
    assert!(together > 50, "{together}");
    assert!(trace.facts.coalesced_events as usize >= together - 1);
    assert!(!trace.facts.stream_coalesced);
}

#[test]
fn the_message_of_a_refusal_names_its_type_and_quotes_nothing() {
    for (name, message) in [
        ("loading_503", "status 503 (unavailable_error 503)"),
        ("lc_err_toolong", "status 400 (exceed_context_size_error 400)"),
        ("vllm_comp_unknown_model", "status 404 (NotFoundError 404)"),
        ("vllm_unauthorized", "status 401"),
        ("sglang_comp_toolong", "status 400 (BadRequestError 400)"),
        ("hf_unknown_field", "status 422"),
    ] {
        let bytes = raw(name);
        let trace = replay(RULES, &bytes, [(Nanos(0), bytes.len())]);
        assert_eq!(trace.facts.outcome.failure().unwrap().message, message, "{name}");
    }
}
