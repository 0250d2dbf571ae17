use super::*;
use crate::summary::fixture::{failure, success};
use crate::trace::{ContentEvent, EngineTime, TokenSource};

fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

/// Scheduled at 100 ms, with a wait of 5, a connection after 2 more, and text at 130, 140, 140 and 170.
fn example() -> Trace {
    let mut t = success(0, 100, 30, 80, 4);
    t.clocks.released = Some(ms(105));
    t.clocks.connected = Some(ms(107));
    t.clocks.written = Some(ms(108));
    t.clocks.content =
        [130, 140, 140, 170].map(|at| ContentEvent { at: ms(at), channel: Channel::Answer }).to_vec();
    t
}

#[test]
fn every_metric_is_the_specifications() {
    let t = example();
    let m = RequestMetrics::of_trace(&t);
    assert_eq!(m.ttft, Some(ms(30)));
    assert_eq!(m.service_ttft, Some(ms(22)));
    assert_eq!(m.e2e, ms(80));
    assert_eq!(m.connect, Some(ms(2)));
    assert_eq!(m.tpot, Some(Tpot { span: ms(40), gaps: 3 }));
    assert_eq!(t.clocks.chunk_gaps().collect::<Vec<_>>(), [ms(10), ms(0), ms(30)]);
}

#[test]
fn a_wait_for_a_permit_is_client_queue_and_any_other_delay_is_lateness() {
    let mut t = example();
    let m = RequestMetrics::of_trace(&t);
    assert_eq!((m.client_queue, m.dispatch_lateness), (Some(ms(0)), Some(ms(5))));
    t.facts.waited_for_permit = true;
    let m = RequestMetrics::of_trace(&t);
    assert_eq!((m.client_queue, m.dispatch_lateness), (Some(ms(5)), None));
    t.clocks.released = None;
    let m = RequestMetrics::of_trace(&t);
    assert_eq!((m.client_queue, m.dispatch_lateness, m.connect), (None, None, None));
}

#[test]
fn what_is_undefined_is_none_and_never_zero() {
    let t = failure(0, 100, 10, FailureKind::Connect);
    let m = RequestMetrics::of_trace(&t);
    assert_eq!((m.ttft, m.service_ttft, m.connect, m.tpot), (None, None, None, None));
    assert_eq!(m.e2e, ms(10));
    assert_eq!(t.clocks.chunk_gaps().count(), 0);

    let tpot = |change: fn(&mut Trace)| {
        let mut t = example();
        change(&mut t);
        RequestMetrics::of_trace(&t).tpot
    };
    assert_eq!(tpot(|t| t.facts.output_tokens.count = None), None);
    assert_eq!(tpot(|t| t.facts.output_tokens.count = Some(1)), None);
    assert_eq!(tpot(|t| t.facts.output_tokens.count = Some(0)), None);
    assert_eq!(tpot(|t| t.clocks.content.iter_mut().for_each(|e| e.at = Nanos::from_millis(130))), None);
    assert_eq!(tpot(|t| t.clocks.content.truncate(1)), None);
    assert_eq!(tpot(|t| t.facts.output_tokens.source = TokenSource::RetokenizedText).unwrap().gaps, 3);
}

#[test]
fn the_engines_own_time_is_held_against_what_was_sent_and_not_against_a_wait_in_the_client() {
    // Written at 108 ms and finished at 180.
    let of = |queue, first_token, generation, outcome: Outcome| {
        let mut t = example();
        t.facts.engine_time = EngineTime { queue, first_token, generation };
        t.facts.outcome = outcome;
        let m = RequestMetrics::of_trace(&t);
        (m.engine_time, m.engine_overhead)
    };
    let some = |n| Some(ms(n));
    assert_eq!(of(some(10), some(20), some(30), Outcome::Success), (some(60), some(12)));
    assert_eq!(
        of(None, some(20), some(30), Outcome::Success),
        (some(50), some(22)),
        "no queue that it knows of"
    );
    assert_eq!(
        of(some(90), some(20), some(30), Outcome::Success),
        (some(140), some(0)),
        "two clocks: never negative"
    );
    for (first_token, generation) in [(None, some(30)), (some(20), None), (None, None)] {
        assert_eq!(
            of(some(10), first_token, generation, Outcome::Success),
            (None, None),
            "a part is no whole"
        );
    }
    let aborted = failure(0, 100, 10, FailureKind::EngineAborted).facts.outcome;
    assert_eq!(of(some(10), some(20), some(30), aborted), (some(60), None));

    let mut t = example();
    t.facts.engine_time.first_token = some(1);
    t.facts.engine_time.generation = some(1);
    t.clocks.written = None;
    assert_eq!(RequestMetrics::of_trace(&t).engine_overhead, None);
}

#[test]
fn a_channel_begins_with_its_first_event_or_never() {
    let mut t = example();
    let first = |t: &Trace| {
        let m = RequestMetrics::of_trace(t);
        [Channel::Answer, Channel::Reasoning, Channel::ToolCall].map(|channel| m.first_in(channel))
    };
    assert_eq!(first(&t), [Some(ms(30)), None, None]);
    t.clocks.content[0].channel = Channel::Reasoning;
    t.clocks.content[1].channel = Channel::Reasoning;
    t.clocks.content[2].channel = Channel::ToolCall;
    assert_eq!(first(&t), [Some(ms(70)), Some(ms(30)), Some(ms(40))]);
}

#[test]
fn gaps_are_inter_token_latencies_only_with_proof() {
    let mut t = example();
    for (evidence, largest) in [
        (ItlEvidence::None, None),
        (ItlEvidence::ManyPerEvent, None),
        (ItlEvidence::SumDiffers, None),
        (ItlEvidence::Proven, Some(ms(30))),
    ] {
        t.facts.itl_evidence = evidence;
        let m = RequestMetrics::of_trace(&t);
        assert_eq!(m.largest_itl(), largest, "{evidence:?}");
        assert_eq!(m.itl_proven(), largest.is_some());
    }
    t.clocks.content.truncate(1);
    assert_eq!(RequestMetrics::of_trace(&t).largest_itl(), None);
}

#[test]
fn a_request_is_lost_to_each_objective_that_it_misses() {
    let mut t = example();
    for (slos, short, causes) in [
        ("", false, &[][..]),
        ("ttft=30ms e2e=80ms", false, &[]),
        ("tpot=13333334ns", false, &[]),
        ("tpot=13333333ns", false, &["tpot"]),
        ("ttft=29ms", false, &["ttft"]),
        ("ttft=29ms tpot=1ms e2e=79ms itl=1s", true, &["ttft", "tpot", "e2e", "itl", "short_output"]),
        ("p99:ttft=1ns", false, &[]),
        ("", true, &["short_output"]),
    ] {
        t.facts.short_output = short;
        let losses = RequestMetrics::of_trace(&t).losses(&t.facts, &slos.parse().unwrap());
        assert_eq!(losses.iter().map(LossCause::name).collect::<Vec<_>>(), causes, "{slos}");
        assert_eq!(losses.is_good(), causes.is_empty());
    }
    t.facts.short_output = false;
    t.facts.output_tokens.count = None;
    let losses = RequestMetrics::of_trace(&t).losses(&t.facts, &"tpot=1s".parse().unwrap());
    assert_eq!(losses.iter().collect::<Vec<_>>(), [LossCause::TpotUndefined]);
}

#[test]
fn a_failure_is_lost_to_its_kind_alone() {
    let slos = "ttft=1ns tpot=1ns e2e=1ns".parse().unwrap();
    for &kind in FailureKind::ALL {
        let t = failure(0, 0, 1000, kind);
        let losses = RequestMetrics::of_trace(&t).losses(&t.facts, &slos);
        assert_eq!(losses.iter().collect::<Vec<_>>(), [LossCause::Failure(kind)]);
    }
}

#[test]
fn causes_fit_the_bit_set_and_have_names_of_their_own() {
    let names: std::collections::BTreeSet<_> = LossCause::all().map(LossCause::name).collect();
    assert_eq!(names.len(), LossCause::all().count());
    assert!(names.len() <= 32);
}
