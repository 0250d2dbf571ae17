//! Which part of a series is a trial's.

use super::*;

fn clock(at: u64, offset_ns: i64) -> ClockSample {
    ClockSample { at: Nanos(at), offset_ns, bound_ns: 5 }
}

#[test]
fn a_window_is_mapped_by_the_nearest_estimate() {
    let clocks = [clock(100, 1_000), clock(900, 1_010)];
    // 1,900 by the coordinator is about 890 here: the second estimate is nearer.
    let (window, bound) = mapped(&clocks, Window { from: Nanos(1_850), to: Nanos(1_950) }).unwrap();
    assert_eq!((window, bound), (Window { from: Nanos(840), to: Nanos(940) }, Nanos(5)));
    // A long way from the estimate to an edge.
    let long = Window { from: Nanos(1_110), to: Nanos(1_000_001_110) };
    assert_eq!(mapped(&clocks, long).unwrap().1, Nanos(5 + 499_999));
    let (window, _) = mapped(&clocks, Window { from: Nanos(1_100), to: Nanos(1_200) }).unwrap();
    assert_eq!(window, Window { from: Nanos(100), to: Nanos(200) });
    assert_eq!(mapped(&[], window), None);
    assert_eq!(on_coordinator(Nanos(100), &clocks[1]), Nanos(1_110));
}

/// The clock of the host began anew between two trials: what was recorded then lies at the same instants as the first
/// trial, and is not of it.
#[test]
fn a_trial_is_not_given_what_was_recorded_in_another_boot() {
    use common::ids::{Digest, Epoch, Incarnation, Seq};
    use common::telemetry::HostSample;
    use common::telemetry::series::{Frame, encode};

    use crate::store::tests::{agent, run_id, sim};

    let (_disk, _index, store) = sim();
    let (run, x) = (store.create_run(&run_id("r"), Nanos(1)).unwrap(), agent("x"));
    let at = Nanos::from_secs(100);
    let records =
        vec![Record::Clock(clock(at.0, 0)), Record::Host(HostSample { at, ..HostSample::default() })];
    let frame = Frame { agent: x.clone(), incarnation: Incarnation(1), first_seq: Seq(0), records };
    run.telemetry_of(1).unwrap().append(&x, Incarnation(1), &[encode(&frame).unwrap()]).unwrap();
    let traces = [crate::report::tests::failed(0), crate::report::tests::failed(1)];
    let mut reports = [0, 1].map(|n| crate::report::tests::trial(n, "4", 0, &traces, &[]));
    let kept_trial = |n: u32| KeptTrial {
        planned: crate::sweep::PlannedTrial {
            trial: TrialId(n),
            rate: "4".parse().unwrap(),
            repeat: 0,
            seed: common::seed::Seed(1),
            rerun_of: None,
        },
        epoch: Epoch(n),
        scheduled: 2,
        schedule_sha256: Digest([0; 32]),
        workload_sha256: Digest([0; 32]),
        agents: Vec::new(),
        findings: Vec::new(),
        cut: None,
        start: Some(at),
        boot: n as usize,
        gaps: None,
    };
    let mut kept = KeptRun { boot: Some("a".into()), ..crate::kept::tests::empty() };
    kept.trials.push(kept_trial(0));
    assert!(kept.is_booted_anew(Some("b".into())));
    kept.trials.push(kept_trial(1));
    attach(&run, &kept, &mut reports).unwrap();
    assert_eq!(reports.each_ref().map(|r| r.telemetry.is_some()), [false, true]);
    let mut lines = Vec::new();
    for boot in 0..=kept.restarts() {
        let series = run.telemetry_series_of(boot).unwrap();
        let trials: Vec<_> = kept.trials.iter().filter(|t| t.boot == boot).collect();
        export(&series, &trials, &mut lines).unwrap();
    }
    let lines = String::from_utf8(lines).unwrap();
    assert!(lines.contains("\"trial\":1") && !lines.contains("\"trial\":0"), "{lines}");
}
