use super::*;
use crate::fleet::{Health, Lateness};
use crate::trace::{FailureClass, FailureKind};

fn name() -> AgentName {
    "gpu-01".parse().unwrap()
}

/// The verdict and reason kinds for one agent with the given failures.
fn judged(change: impl FnOnce(&mut Evidence<'_>), failures: &[(FailureKind, u64)]) -> Validity {
    let (name, failures) = (name(), failures.iter().copied().collect());
    let agent = AgentEvidence {
        name: &name,
        lateness_p99: Some(0.0005),
        lateness_n: 1000,
        clock_bound: Some(Nanos::from_millis(2)),
        lost: false,
        health: None,
        failures: &failures,
    };
    let mut evidence = Evidence { agents: vec![agent], ..Evidence::default() };
    evidence.conservation = Conservation { scheduled: 10, recorded: 10, ..Conservation::default() };
    change(&mut evidence);
    judge(&evidence, &ValidityLimits::default())
}

fn kinds(validity: &Validity) -> Vec<ReasonKind> {
    validity.reasons.iter().map(|r| r.kind).collect()
}

#[test]
fn nothing_against_it_is_valid() {
    let v = judged(|_| {}, &[(FailureKind::TimeoutTotal, 9), (FailureKind::Reset, 1)]);
    assert_eq!(v, Validity::default(), "the engine's and the network's failures are the result, not a doubt");
}

#[test]
fn lateness_above_the_budget_is_late_and_names_the_agent() {
    let v = judged(|e| e.agents[0].lateness_p99 = Some(0.00234), &[]);
    assert_eq!((v.verdict, kinds(&v)), (Verdict::Late, vec![ReasonKind::DispatchLateness]));
    assert_eq!(v.reasons[0].agent, Some(name()));
    let says =
        "agent gpu-01: dispatch lateness p99 of 2.340 ms over 1000 requests is above the budget of 1.000 ms";
    assert_eq!(v.reasons[0].message, says);
    assert!(
        judged(|e| e.agents[0].lateness_p99 = Some(0.001), &[]).is_valid(),
        "the budget itself is within it"
    );
    assert!(judged(|e| e.agents[0].lateness_p99 = None, &[]).is_valid());
}

#[test]
fn each_generator_failure_is_invalid_and_no_other_is() {
    for &kind in FailureKind::ALL {
        let v = judged(|_| {}, &[(kind, 3)]);
        let expected = match (kind, kind.class()) {
            (FailureKind::AgentLost, _) => Some(ReasonKind::AgentLost),
            (_, FailureClass::Generator) => Some(ReasonKind::GeneratorFailure),
            (_, FailureClass::Limit) => Some(ReasonKind::ClientQueueTimeout),
            _ => None,
        };
        assert_eq!(kinds(&v), Vec::from_iter(expected), "{}", kind.name());
        assert_eq!(v.verdict, expected.map_or(Verdict::Valid, ReasonKind::verdict));
        if expected == Some(ReasonKind::GeneratorFailure) {
            assert!(v.reasons[0].message.contains(kind.name()));
        }
        assert!(v.reasons.iter().all(|r| r.message.contains("3 requests") && r.agent == Some(name())));
    }
}

#[test]
fn an_agent_that_is_gone_is_invalid_even_if_it_had_finished_its_work() {
    let v = judged(|e| e.agents[0].lost = true, &[]);
    assert_eq!((v.verdict, kinds(&v)), (Verdict::Invalid, vec![ReasonKind::AgentLost]));
}

#[test]
fn books_that_do_not_balance_are_invalid() {
    for (missing, duplicates, unknown, kind) in [
        (1, 0, 0, ReasonKind::Conservation),
        (0, 2, 0, ReasonKind::DuplicateTraces),
        (1, 1, 0, ReasonKind::Conservation),
        (0, 0, 1, ReasonKind::Conservation),
    ] {
        let recorded = 10 - missing + duplicates + unknown;
        let c = Conservation { scheduled: 10, recorded, missing, duplicates, unknown };
        let v = judged(|e| e.conservation = c, &[]);
        assert_eq!((v.verdict, kinds(&v)), (Verdict::Invalid, vec![kind]));
        assert!(v.reasons[0].message.contains("10 arrivals were scheduled"));
    }
}

#[test]
fn a_wide_clock_and_a_growing_client_queue_are_degraded() {
    let v = judged(|e| e.agents[0].clock_bound = Some(Nanos(5_000_001)), &[]);
    assert_eq!((v.verdict, kinds(&v)), (Verdict::Degraded, vec![ReasonKind::ClockBound]));
    let growth = QueueGrowth { second_quarter: 0.1, last_quarter: 0.4 };
    let v = judged(|e| e.queue_growth = Some(growth), &[]);
    assert_eq!((v.verdict, kinds(&v)), (Verdict::Degraded, vec![ReasonKind::ClientQueueGrew]));
}

#[test]
fn the_worst_wins_and_every_reason_is_kept() {
    static FINDINGS: std::sync::OnceLock<[Reason; 1]> = std::sync::OnceLock::new();
    let restarted =
        || [Reason::new(ReasonKind::EngineRestarted, "the engine was restarted during the trial")];
    let findings = FINDINGS.get_or_init(restarted);
    let v = judged(
        |e| {
            e.agents[0].lateness_p99 = Some(1.0);
            e.agents[0].clock_bound = Some(Nanos::from_secs(1));
            e.findings = findings;
        },
        &[(FailureKind::ClientQueueTimeout, 1)],
    );
    assert_eq!(v.verdict, Verdict::Invalid);
    let expected = [
        ReasonKind::EngineRestarted,
        ReasonKind::ClientQueueTimeout,
        ReasonKind::ClockBound,
        ReasonKind::DispatchLateness,
    ];
    assert_eq!(kinds(&v), expected);
    assert!(Verdict::ALL.is_sorted());
}

/// Reads that are stamped late are the generator's fault as much as sends that are.
#[test]
fn late_reads_make_a_trial_late_and_say_why() {
    let (name, failures) = ("a1".parse().unwrap(), std::collections::BTreeMap::new());
    let reads = |p99| Lateness { n: 9_000, p50: 0.0001, p99, max: 0.5 };
    let verdict = |p99| {
        let health = Health {
            read_lateness: Some(reads(p99)),
            reader_run_queue_seconds: Some(5.0),
            seconds: 10.0,
            cores: 2,
            ..Health::default()
        };
        let agent = AgentEvidence {
            name: &name,
            lateness_p99: Some(0.0005),
            lateness_n: 1000,
            clock_bound: None,
            lost: false,
            health: Some(health),
            failures: &failures,
        };
        judge(&Evidence { agents: vec![agent], ..Evidence::default() }, &ValidityLimits::default())
    };
    assert!(verdict(0.0009).is_valid());
    let late = verdict(0.0021);
    assert_eq!(late.verdict, Verdict::Late);
    let message = &late.reasons[0].message;
    assert!(message.contains("a1") && message.contains("read lateness p99 of 2.100 ms"), "{message}");
    assert!(message.contains("its reading thread waited for a core 50%"), "{message}");
}
