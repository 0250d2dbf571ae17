//! Stamps and counts are the word of an agent, which may be broken or worse: whatever they are, a summary is made of them,
//! and nothing overflows on the way.

use common::ids::{ArrivalIndex, Nanos};
use common::plan::OfferedRate;
use common::slo::SloSet;
use common::summary::{AgentInput, Sample, TrialInput, summarise};
use common::trace::{
    Channel, ContentEvent, Failure, FailureKind, Outcome, OutputTokens, TokenSource, Trace, Unsent,
};
use common::validity::ValidityLimits;
use proptest::prelude::*;

fn stamp() -> impl Strategy<Value = Nanos> {
    prop_oneof![
        Just(Nanos(0)),
        Just(Nanos::MAX),
        Just(Nanos(u64::MAX - 1)),
        Just(Nanos(1 << 63)),
        (0u64..10_000_000_000).prop_map(Nanos),
        any::<u64>().prop_map(Nanos),
    ]
}

fn trace(index: u64) -> impl Strategy<Value = Trace> {
    let stages = prop::array::uniform4(prop::option::of(stamp()));
    let counts = prop_oneof![Just(0u64), Just(u64::MAX), 1u64..100];
    (stamp(), stages, stamp(), prop::collection::vec(stamp(), 0..6), counts, any::<bool>()).prop_map(
        move |(scheduled, [released, connected, written, headers], finished, content, count, fine)| {
            let unsent = Unsent { index: ArrivalIndex(index), scheduled, ..Unsent::default() };
            let mut t = Trace::unsent(unsent, Failure::new(FailureKind::AgentLost, "x"), finished);
            (t.clocks.released, t.clocks.connected) = (released, connected);
            (t.clocks.written, t.clocks.headers) = (written, headers);
            t.clocks.content =
                content.into_iter().map(|at| ContentEvent { at, channel: Channel::Answer }).collect();
            if fine {
                t.facts.outcome = Outcome::Success;
            }
            t.facts.output_tokens = OutputTokens { count: Some(count), source: TokenSource::Usage };
            t.facts.prompt_tokens = Some(count);
            t.facts.cached_tokens = Some(count);
            t.facts.stream_tokens = Some(count);
            (t.facts.request_bytes, t.facts.response_bytes) = (count, count);
            t
        },
    )
}

proptest! {
    #[test]
    fn a_summary_is_made_of_whatever_an_agent_says(
        traces in (0u64..8).prop_flat_map(|n| (0..n).map(trace).collect::<Vec<_>>()),
    ) {
        let slos = SloSet::new(["ttft=1s", "tpot=50ms"].iter().map(|s| s.parse().unwrap()).collect()).unwrap();
        let agents = [AgentInput { name: "a".parse().unwrap(), clock: None, start_skew: None, lost: false, health: None }];
        let input = TrialInput {
            scheduled: traces.len() as u64,
            offered: OfferedRate::Infinite,
            length: None,
            slos: &slos,
            agents: &agents,
            limits: ValidityLimits::default(),
            findings: &[],
        };
        let samples = traces.iter().map(|t| Sample { agent: 0, clocks: &t.clocks, facts: &t.facts });
        let summary = summarise(input, samples);
        prop_assert_eq!(summary.requests, traces.len() as u64);
        prop_assert!(traces.is_empty() || summary.numbers.is_some(), "the books do not balance: {:?}", summary.conservation);
        // JSON has no number for what is none, so nothing of that kind may be there.
        prop_assert!(serde_json::to_string(&summary).is_ok());
    }
}
