//! Holds a trace against what the script expects.

use common::trace::{Channel, FailureKind, ItlEvidence, Outcome, TokenSource, Trace};
use engines::{Expected, Itl};

use crate::cases::Case;

/// Everything that does not depend on how the bytes came.
#[track_caller]
pub(crate) fn check(case: &Case, trace: &Trace, expected: &Expected) {
    let told = case.told();
    let facts = &trace.facts;
    let outcome = match &facts.outcome {
        Outcome::Success => "success",
        Outcome::Failure(failure) => failure.kind.name(),
    };
    assert_eq!(outcome, expected.outcome.name(), "{told}: {:?}", facts.outcome);
    assert_eq!(facts.http_status, Some(expected.status), "{told}");
    let channels: Vec<Channel> = trace.clocks.content.iter().map(|e| e.channel).collect();
    let theirs: Vec<Channel> = expected.content.iter().map(|c| channel(c.channel)).collect();
    assert_eq!(channels, theirs, "{told}: content events");
    assert_eq!(facts.data_events, expected.data_events, "{told}: data events");
    assert_eq!(trace.text.output.as_deref().unwrap_or_default(), expected.output, "{told}: output");
    assert_eq!(trace.text.reasoning.as_deref().unwrap_or_default(), expected.reasoning, "{told}: reasoning");
    assert_eq!(facts.output_tokens.count, expected.output_tokens, "{told}: output tokens");
    assert_eq!(facts.output_tokens.source.name(), expected.token_source.name(), "{told}: their source");
    assert_eq!(facts.prompt_tokens, expected.prompt_tokens, "{told}: prompt tokens");
    assert_eq!(facts.cached_tokens, expected.cached_tokens, "{told}: cached tokens");
    assert_eq!(facts.stream_tokens, expected.stream_tokens, "{told}: tokens that the events count");
    let (ours, theirs) = (facts.event_tokens, expected.event_tokens);
    assert_eq!(
        (ours.one, ours.many, ours.none, ours.unknown, ours.textless),
        (theirs.one, theirs.many, theirs.none, theirs.unknown, theirs.textless),
        "{told}: events with one token, many, none, unknown, and without text"
    );
    assert_eq!(facts.itl_evidence, itl(expected.itl), "{told}: ITL");
    assert_eq!(facts.finish_reason, expected.finish_reason, "{told}: finish reason");
    assert_eq!(facts.done_seen, expected.done_seen, "{told}: end mark");
    let time = facts.engine_time;
    let said = time.first_token.zip(time.generation).map(|(first, rest)| (first.0, rest.0));
    assert_eq!(said, expected.engine_time, "{told}: the engine's own time");
    let few = expected.output_tokens.is_some_and(|n| n < u64::from(case.prepared.max_tokens));
    let short = case.flavour.ignore_eos && few && facts.outcome.is_success();
    assert_eq!(facts.short_output, short, "{told}: short output");
    let says_why = matches!(
        facts.outcome.failure().map(|f| f.kind),
        Some(FailureKind::ErrorEvent | FailureKind::HttpStatus | FailureKind::MalformedStream)
    );
    assert_eq!(trace.text.error_body.is_some(), says_why, "{told}: {:?}", trace.text.error_body);
    if facts.output_tokens.source == TokenSource::Unknown {
        assert_eq!(facts.output_tokens.count, None, "{told}");
    }
}

fn channel(channel: engines::Channel) -> Channel {
    match channel {
        engines::Channel::Answer => Channel::Answer,
        engines::Channel::Reasoning => Channel::Reasoning,
        engines::Channel::ToolCall => Channel::ToolCall,
    }
}

fn itl(itl: Itl) -> ItlEvidence {
    match itl {
        Itl::Proven => ItlEvidence::Proven,
        Itl::None => ItlEvidence::None,
        Itl::ManyPerEvent => ItlEvidence::ManyPerEvent,
        Itl::SumDiffers => ItlEvidence::SumDiffers,
    }
}
