//! Checks of messages from the network: see [`common::fuzz`].

use std::fmt::Debug;

use common::fleet::{
    CollectOrder, CollectReport, DrainReport, EngineCard, EngineOrder, EngineState, Introduction,
    Observation, ReadyReport, TargetCheck, TargetReport, TrialFate, TrialOrder,
};
use common::fuzz::Target;
use common::ids::{Epoch, RunId, TrialId};
use common::schedule::Arrival;
use prost::Message;

use crate::v1;

/// Reads a message and turns it into the domain's; what is refused is refused by a message and field.
fn inward<W, D>(bytes: &[u8]) -> Option<D>
where
    W: Message + Default,
    D: TryFrom<W>,
    D::Error: ToString,
{
    let wire = W::decode(bytes).ok()?;
    match D::try_from(wire) {
        Ok(domain) => Some(domain),
        Err(e) => {
            let said = e.to_string();
            let (field, _) = said.split_once(": ").unwrap_or_default();
            assert!(field.split_once('.').is_some(), "{said:?} names no message and field");
            assert!(said.len() <= 10 * bytes.len() + 1000, "an error longer than what it is about");
            None
        }
    }
}

/// The same, and out again: what was understood is understood in the same way.
fn both<W, D>(bytes: &[u8], outward: impl Fn(&D) -> W)
where
    W: Message + Default,
    D: TryFrom<W> + Debug,
    D::Error: ToString,
{
    if let Some(domain) = inward::<W, D>(bytes) {
        let again = inward::<W, D>(&outward(&domain).encode_to_vec());
        // By their words: a number that is none is not equal to itself.
        assert_eq!(format!("{again:?}"), format!("{:?}", Some(&domain)));
    }
}

/// Every message that is turned into the domain's.
pub const WIRE: Target = Target {
    name: "wire",
    valid,
    check: |bytes| {
        both::<v1::Hello, Introduction>(bytes, |d| d.into());
        both::<v1::EngineCard, EngineCard>(bytes, |d| d.into());
        both::<v1::EngineState, EngineState>(bytes, |d| d.into());
        both::<v1::Observe, Observation>(bytes, |d| d.into());
        both::<v1::Target, common::plan::Target>(bytes, |d| d.into());
        both::<v1::Prepare, TrialOrder>(bytes, |d| d.into());
        both::<v1::Ready, ReadyReport>(bytes, |d| d.into());
        both::<v1::Drained, DrainReport>(bytes, |d| d.into());
        both::<v1::Collect, CollectOrder>(bytes, |d| d.into());
        both::<v1::Collected, CollectReport>(bytes, |d| d.into());
        both::<v1::CheckTarget, TargetCheck>(bytes, |d| d.into());
        both::<v1::TargetReport, TargetReport>(bytes, |d| v1::TargetReport::answer(0, d));
        both::<v1::SlicePage, Vec<Arrival>>(bytes, |d| d.as_slice().into());
        both::<v1::FatesRequest, (RunId, Vec<(TrialId, Epoch)>)>(bytes, |(run, trials)| {
            v1::FatesRequest::of(run, trials)
        });
        both::<v1::EngineOrder, (u64, EngineOrder)>(bytes, |(id, order)| {
            v1::EngineOrder::numbered(*id, order)
        });
        if let Ok(reply) = v1::FatesReply::decode(bytes) {
            let (count, fates) = (reply.fates.len(), Vec::<TrialFate>::from(reply));
            assert_eq!(fates.len(), count);
        }
        // Those that have no other form are only read.
        let _ = (v1::AgentMessage::decode(bytes), v1::CoordinatorMessage::decode(bytes));
        let _ = (v1::TraceBatch::decode(bytes), v1::RecordBatch::decode(bytes), v1::Progress::decode(bytes));
    },
};

fn valid() -> Vec<Vec<u8>> {
    let digest = common::ids::Digest::of(b"x").to_string();
    let target = v1::Target {
        base_url: "http://h:1/x/v1".into(),
        model: Some("m".into()),
        api: v1::target::Api::Chat.into(),
        extra_body_json: "{\"top_p\":0.5}".into(),
        headers: vec![v1::Header { name: "x-a".into(), value: "b".into() }],
        default_max_tokens: 7,
        connect_timeout_ns: 1,
        dialect: "openai".into(),
        ..v1::Target::default()
    };
    let engine = v1::EngineCard { name: "e".into(), dialect: "vllm".into(), base_url: "http://h:1".into() };
    let hello = v1::Hello {
        protocol_version: 1,
        name: "a".into(),
        incarnation: 7,
        host: Some(v1::HostFacts { hostname: "h".into(), cpus: 2, ..v1::HostFacts::default() }),
        engine: Some(engine.clone()),
        calibration: Some(v1::Calibration {
            request_cpu_seconds: 5e-5,
            paced_event_cpu_seconds: 1e-5,
            stale: Some("s".into()),
        }),
        ..v1::Hello::default()
    };
    let prepare = v1::Prepare {
        run_id: "r".into(),
        epoch: 3,
        target: Some(target.clone()),
        workload_sha256: digest.clone(),
        schedule_sha256: digest.clone(),
        slice_sha256: digest.clone(),
        permits: 5,
        warmup: vec![v1::WarmupRow { row: 1, altered: true }],
        ..v1::Prepare::default()
    };
    let clock = v1::ClockEstimate {
        offset_ns: -5,
        bound_ns: 7,
        drift: Some(v1::ClockDrift { ppb: -9, bound_ppb: 3 }),
    };
    let ready = v1::Ready {
        epoch: 1,
        slice_sha256: digest,
        slice_count: 2,
        clock: Some(clock),
        warnings: vec!["w".into()],
    };
    let drained = v1::Drained {
        epoch: 1,
        manifest: Some(v1::Manifest { incarnation: 7, traces: 3, next_seq: 3, traces_lost: 0 }),
        clock: Some(clock),
        start_skew_ns: 5,
        health: Some(v1::Health { seconds: 1.5, cores: 2, ..v1::Health::default() }),
    };
    let collected = v1::Collected {
        run_id: "r".into(),
        epoch: 2,
        held: vec![v1::HeldSpool { incarnation: 7, first_seq: 3, next_seq: 9 }],
        problems: vec!["p".into()],
    };
    let page = v1::SlicePage { index: vec![1, 2], at_ns: vec![3, 4], row: vec![0, 1] };
    let check = v1::CheckTarget {
        id: 4,
        target: Some(target.clone()),
        row_json: "{\"prompt\":\"x\"}".into(),
        probe: v1::Probe::Full.into(),
        find_dialect: true,
    };
    let report = v1::TargetReport {
        models: vec!["m".into()],
        failure_kind: Some("reset".into()),
        http_status: Some(503),
        ..v1::TargetReport::default()
    };
    let observe = v1::Observe { run_id: "r".into(), engine: Some(target.clone()), ..v1::Observe::default() };
    let fates = v1::FatesRequest { run_id: "r".into(), trials: vec![v1::TrialKey { trial: 1, epoch: 2 }] };
    let state = v1::EngineState {
        stage: v1::engine_state::Stage::Ready.into(),
        record_json: Some("{}".into()),
        ..v1::EngineState::default()
    };
    vec![
        target.encode_to_vec(),
        engine.encode_to_vec(),
        hello.encode_to_vec(),
        prepare.encode_to_vec(),
        ready.encode_to_vec(),
        drained.encode_to_vec(),
        collected.encode_to_vec(),
        v1::Collect { run_id: "r".into(), trial: 1, epoch: 2 }.encode_to_vec(),
        page.encode_to_vec(),
        check.encode_to_vec(),
        report.encode_to_vec(),
        observe.encode_to_vec(),
        fates.encode_to_vec(),
        state.encode_to_vec(),
    ]
}

/// Every check of this crate.
pub const TARGETS: &[Target] = &[WIRE];

#[cfg(test)]
mod tests {
    use super::*;

    common::fuzz_twin!(messages_of_any_bytes, WIRE, 1024);
}
