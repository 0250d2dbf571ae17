//! Joining, preparing, running and draining.

use common::calibration::CalibrationCard;
use common::fleet::{
    CollectOrder, CollectReport, DrainReport, Health, Held, HostFacts, Introduction, Lateness, Progress,
    ReadyReport, TrialOrder, Upload,
};
use common::ids::{ArrivalIndex, Epoch, Incarnation, Nanos, Seq, TrialId};
use common::offset::{Drift, Estimate};
use common::schedule::Arrival;

use super::limits::{
    MAX_CARD_TEXT, MAX_LIST, MAX_NAME, MAX_TEXT, MAX_WARMUP_ROWS, MAX_WARNINGS, at_most, shown, text,
};
use super::{WireError, digest, required, run_id};
use crate::v1;

impl From<&Introduction> for v1::Hello {
    fn from(i: &Introduction) -> Self {
        Self {
            protocol_version: crate::PROTOCOL_VERSION,
            agent_version: i.version.clone(),
            name: i.name.to_string(),
            incarnation: i.incarnation.0,
            host: Some(v1::HostFacts {
                hostname: i.host.hostname.clone(),
                kernel: i.host.kernel.clone(),
                cpu_model: i.host.cpu_model.clone(),
                cpus: i.host.cpus,
                memory_bytes: i.host.memory_bytes,
                open_files_limit: i.host.open_files_limit,
            }),
            observer: i.observer,
            engine: i.engine.as_ref().map(Into::into),
            gpu: i.gpu,
            courier: false,
            calibration: i.calibration.as_ref().map(Into::into),
        }
    }
}

/// The version is not looked at here: it is compared before anything else is.
impl TryFrom<v1::Hello> for Introduction {
    type Error = WireError;
    fn try_from(h: v1::Hello) -> Result<Self, WireError> {
        let host = required(h.host, "Hello", "host")?;
        let engine = h.engine.map(TryInto::try_into).transpose()?;
        Ok(Self {
            version: text(h.agent_version, MAX_NAME, "Hello", "agent_version")?,
            name: h.name.parse().map_err(|e| WireError::new("Hello", "name", e))?,
            incarnation: Incarnation(h.incarnation),
            host: HostFacts {
                hostname: text(host.hostname, MAX_NAME, "HostFacts", "hostname")?,
                kernel: text(host.kernel, MAX_CARD_TEXT, "HostFacts", "kernel")?,
                cpu_model: text(host.cpu_model, MAX_CARD_TEXT, "HostFacts", "cpu_model")?,
                cpus: host.cpus,
                memory_bytes: host.memory_bytes,
                open_files_limit: host.open_files_limit,
            },
            observer: h.observer,
            engine,
            gpu: h.gpu,
            calibration: h.calibration.map(TryInto::try_into).transpose()?,
        })
    }
}

impl From<&CalibrationCard> for v1::Calibration {
    fn from(c: &CalibrationCard) -> Self {
        Self {
            request_cpu_seconds: c.request_cpu_seconds,
            paced_event_cpu_seconds: c.paced_event_cpu_seconds,
            stale: c.stale.as_deref().map(|why| shown(why, MAX_CARD_TEXT)),
        }
    }
}

impl TryFrom<v1::Calibration> for CalibrationCard {
    type Error = WireError;
    fn try_from(c: v1::Calibration) -> Result<Self, WireError> {
        let v1::Calibration { request_cpu_seconds, paced_event_cpu_seconds, stale } = c;
        // Two descriptions of a host may be in it.
        let stale = stale.map(|why| text(why, MAX_TEXT, "Calibration", "stale")).transpose()?;
        let stale = stale.map(|why| shown(&why, MAX_CARD_TEXT));
        let card = Self { request_cpu_seconds, paced_event_cpu_seconds, stale };
        if card.is_sound() {
            Ok(card)
        } else {
            Err(WireError::new("Calibration", "request_cpu_seconds", "no costs that a host can have"))
        }
    }
}

impl From<&Progress> for v1::Progress {
    fn from(p: &Progress) -> Self {
        Self {
            epoch: p.epoch.0,
            scheduled: p.scheduled,
            dispatched: p.dispatched,
            in_flight: p.in_flight,
            succeeded: p.succeeded,
            failed: p.failed,
            waiting: p.waiting,
            lateness_p99_ns: p.lateness_p99.0,
            traces_lost: p.traces_lost,
        }
    }
}

impl From<v1::Progress> for Progress {
    fn from(p: v1::Progress) -> Self {
        Self {
            epoch: Epoch(p.epoch),
            scheduled: p.scheduled,
            dispatched: p.dispatched,
            in_flight: p.in_flight,
            succeeded: p.succeeded,
            failed: p.failed,
            waiting: p.waiting,
            lateness_p99: Nanos(p.lateness_p99_ns),
            traces_lost: p.traces_lost,
        }
    }
}

impl From<&TrialOrder> for v1::Prepare {
    fn from(o: &TrialOrder) -> Self {
        Self {
            run_id: o.run.to_string(),
            trial: o.trial.0,
            epoch: o.epoch.0,
            target: Some((&o.target).into()),
            workload_sha256: o.workload.to_string(),
            workload_bytes: o.workload_bytes,
            schedule_sha256: o.schedule.to_string(),
            slice_sha256: o.slice.to_string(),
            slice_count: o.slice_count,
            permits: o.permits.unwrap_or(0),
            warmup: o.warmup.iter().map(|&(row, altered)| v1::WarmupRow { row, altered }).collect(),
            warm_connections: o.warm_connections,
            closed: o.closed,
            upload_after: o.upload == Upload::After,
        }
    }
}

impl TryFrom<v1::Prepare> for TrialOrder {
    type Error = WireError;
    fn try_from(p: v1::Prepare) -> Result<Self, WireError> {
        at_most(&p.warmup, MAX_WARMUP_ROWS, "Prepare", "warmup")?;
        Ok(Self {
            run: run_id(&p.run_id, "Prepare")?,
            trial: TrialId(p.trial),
            epoch: Epoch(p.epoch),
            target: required(p.target, "Prepare", "target")?.try_into()?,
            workload: digest(&p.workload_sha256, "Prepare", "workload_sha256")?,
            workload_bytes: p.workload_bytes,
            schedule: digest(&p.schedule_sha256, "Prepare", "schedule_sha256")?,
            slice: digest(&p.slice_sha256, "Prepare", "slice_sha256")?,
            slice_count: p.slice_count,
            permits: (p.permits > 0).then_some(p.permits),
            warmup: p.warmup.iter().map(|w| (w.row, w.altered)).collect(),
            warm_connections: p.warm_connections,
            closed: p.closed,
            upload: if p.upload_after { Upload::After } else { Upload::During },
        })
    }
}

impl From<Estimate> for v1::ClockEstimate {
    fn from(e: Estimate) -> Self {
        let drift = e.drift.map(|d| v1::ClockDrift { ppb: d.ppb, bound_ppb: d.bound_ppb });
        Self { offset_ns: e.offset_ns, bound_ns: e.bound_ns, drift }
    }
}

impl From<v1::ClockEstimate> for Estimate {
    fn from(e: v1::ClockEstimate) -> Self {
        let drift = e.drift.map(|d| Drift { ppb: d.ppb, bound_ppb: d.bound_ppb });
        Self { offset_ns: e.offset_ns, bound_ns: e.bound_ns, drift }
    }
}

impl From<&ReadyReport> for v1::Ready {
    fn from(r: &ReadyReport) -> Self {
        Self {
            epoch: r.epoch.0,
            slice_sha256: r.slice.to_string(),
            slice_count: r.slice_count,
            clock: Some(r.clock.into()),
            warnings: r.warnings.iter().take(MAX_WARNINGS).map(|w| shown(w, MAX_CARD_TEXT)).collect(),
        }
    }
}

impl TryFrom<v1::Ready> for ReadyReport {
    type Error = WireError;
    fn try_from(r: v1::Ready) -> Result<Self, WireError> {
        at_most(&r.warnings, MAX_WARNINGS, "Ready", "warnings")?;
        let warnings = r.warnings.into_iter().map(|w| text(w, MAX_TEXT, "Ready", "warnings"));
        Ok(Self {
            epoch: Epoch(r.epoch),
            slice: digest(&r.slice_sha256, "Ready", "slice_sha256")?,
            slice_count: r.slice_count,
            clock: required(r.clock, "Ready", "clock")?.into(),
            warnings: warnings.collect::<Result<_, _>>()?,
        })
    }
}

impl From<&DrainReport> for v1::Drained {
    fn from(d: &DrainReport) -> Self {
        Self {
            epoch: d.epoch.0,
            manifest: Some(v1::Manifest {
                incarnation: d.incarnation.0,
                traces: d.traces,
                next_seq: d.next_seq.0,
                traces_lost: d.traces_lost,
            }),
            clock: Some(d.clock.into()),
            start_skew_ns: d.start_skew.0,
            health: Some((&d.health).into()),
        }
    }
}

impl From<&Health> for v1::Health {
    fn from(h: &Health) -> Self {
        let lateness = |l: Lateness| v1::Lateness { n: l.n, p50: l.p50, p99: l.p99, max: l.max };
        Self {
            read_lateness: h.read_lateness.map(lateness),
            reader_run_queue_seconds: h.reader_run_queue_seconds,
            pacer_run_queue_seconds: h.pacer_run_queue_seconds,
            cpu_pressure_seconds: h.cpu_pressure_seconds,
            steal_seconds: h.steal_seconds,
            process_cpu_seconds: h.process_cpu_seconds,
            seconds: h.seconds,
            cores: h.cores,
        }
    }
}

/// Refuses seconds that are none: they would go through every sum, and out as what JSON has no word for.
fn sane(h: &v1::Health) -> Result<(), WireError> {
    let l = h.read_lateness.unwrap_or_default();
    let given = [
        h.reader_run_queue_seconds,
        h.pacer_run_queue_seconds,
        h.cpu_pressure_seconds,
        h.steal_seconds,
        h.process_cpu_seconds,
    ];
    let mut all = given.into_iter().flatten().chain([h.seconds, l.p50, l.p99, l.max]);
    match all.find(|s| !s.is_finite() || *s < 0.0) {
        Some(s) => Err(WireError::new("Drained", "health", format!("{s} seconds"))),
        None => Ok(()),
    }
}

impl From<v1::Health> for Health {
    fn from(h: v1::Health) -> Self {
        let lateness = |l: v1::Lateness| Lateness { n: l.n, p50: l.p50, p99: l.p99, max: l.max };
        Self {
            read_lateness: h.read_lateness.map(lateness),
            reader_run_queue_seconds: h.reader_run_queue_seconds,
            pacer_run_queue_seconds: h.pacer_run_queue_seconds,
            cpu_pressure_seconds: h.cpu_pressure_seconds,
            steal_seconds: h.steal_seconds,
            process_cpu_seconds: h.process_cpu_seconds,
            seconds: h.seconds,
            cores: h.cores,
        }
    }
}

impl TryFrom<v1::Drained> for DrainReport {
    type Error = WireError;
    fn try_from(d: v1::Drained) -> Result<Self, WireError> {
        let manifest = required(d.manifest, "Drained", "manifest")?;
        let health = d.health.unwrap_or_default();
        sane(&health)?;
        Ok(Self {
            epoch: Epoch(d.epoch),
            incarnation: Incarnation(manifest.incarnation),
            traces: manifest.traces,
            next_seq: Seq(manifest.next_seq),
            traces_lost: manifest.traces_lost,
            clock: required(d.clock, "Drained", "clock")?.into(),
            start_skew: Nanos(d.start_skew_ns),
            health: health.into(),
        })
    }
}

impl From<&CollectOrder> for v1::Collect {
    fn from(c: &CollectOrder) -> Self {
        Self { run_id: c.run.to_string(), trial: c.trial.0, epoch: c.epoch.0 }
    }
}

impl TryFrom<v1::Collect> for CollectOrder {
    type Error = WireError;
    fn try_from(c: v1::Collect) -> Result<Self, WireError> {
        Ok(Self { run: run_id(&c.run_id, "Collect")?, trial: TrialId(c.trial), epoch: Epoch(c.epoch) })
    }
}

impl From<&CollectReport> for v1::Collected {
    fn from(c: &CollectReport) -> Self {
        let held = |h: &Held| v1::HeldSpool {
            incarnation: h.incarnation.0,
            first_seq: h.first_seq.0,
            next_seq: h.next_seq.0,
        };
        Self {
            run_id: c.run.to_string(),
            epoch: c.epoch.0,
            held: c.held.iter().map(held).collect(),
            problems: c.problems.clone(),
        }
    }
}

impl TryFrom<v1::Collected> for CollectReport {
    type Error = WireError;
    fn try_from(c: v1::Collected) -> Result<Self, WireError> {
        let held = |h: v1::HeldSpool| Held {
            incarnation: Incarnation(h.incarnation),
            first_seq: Seq(h.first_seq),
            next_seq: Seq(h.next_seq),
        };
        at_most(&c.held, MAX_LIST, "Collected", "held")?;
        at_most(&c.problems, MAX_LIST, "Collected", "problems")?;
        Ok(Self {
            run: run_id(&c.run_id, "Collected")?,
            epoch: Epoch(c.epoch),
            held: c.held.into_iter().map(held).collect(),
            problems: c.problems.iter().map(|text| shown(text, MAX_CARD_TEXT)).collect(),
        })
    }
}

impl From<&[Arrival]> for v1::SlicePage {
    fn from(arrivals: &[Arrival]) -> Self {
        Self {
            index: arrivals.iter().map(|a| a.index.0).collect(),
            at_ns: arrivals.iter().map(|a| a.at.0).collect(),
            row: arrivals.iter().map(|a| a.row).collect(),
        }
    }
}

impl TryFrom<v1::SlicePage> for Vec<Arrival> {
    type Error = WireError;
    fn try_from(page: v1::SlicePage) -> Result<Self, WireError> {
        if page.index.len() != page.at_ns.len() || page.index.len() != page.row.len() {
            return Err(WireError::new("SlicePage", "index", "the columns differ in length"));
        }
        let rows = page.index.iter().zip(&page.at_ns).zip(&page.row);
        Ok(rows.map(|((&i, &at), &row)| Arrival { index: ArrivalIndex(i), at: Nanos(at), row }).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::ids::Digest;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_slice_page_gives_back_what_it_took(rows in prop::collection::vec(any::<(u64, u64, u32)>(), 0..50)) {
            let arrivals: Vec<Arrival> =
                rows.into_iter().map(|(i, at, row)| Arrival { index: ArrivalIndex(i), at: Nanos(at), row }).collect();
            let page = v1::SlicePage::from(arrivals.as_slice());
            prop_assert_eq!(Vec::<Arrival>::try_from(page).unwrap(), arrivals);
        }
    }

    fn order() -> TrialOrder {
        TrialOrder {
            run: "r-1".parse().unwrap(),
            trial: TrialId(2),
            epoch: Epoch(3),
            target: common::plan::Target {
                base_url: "http://h:1/x/v1".parse().unwrap(),
                dialect: common::dialect::Dialect::OPENAI,
                model: Some("m".into()),
                api: common::plan::Api::Chat,
                ignore_eos: true,
                logprobs: true,
                token_counts: false,
                extra_body: serde_json::from_str(r#"{"top_p":0.5,"stop":["a"]}"#).unwrap(),
                headers: vec![("x-a".into(), "b".into())],
                default_max_tokens: 7,
                connect_timeout: Nanos(1),
                total_timeout: Nanos(2),
                idle_timeout: Nanos(3),
                keep_text: true,
            },
            workload: Digest::of(b"w"),
            workload_bytes: 9,
            schedule: Digest::of(b"s"),
            slice: Digest::of(b"t"),
            slice_count: 4,
            permits: Some(5),
            warmup: vec![(1, true), (2, false)],
            warm_connections: 6,
            closed: true,
            upload: Upload::After,
        }
    }

    #[test]
    fn an_order_survives_the_wire() {
        let order = order();
        assert_eq!(TrialOrder::try_from(v1::Prepare::from(&order)).unwrap(), order);
    }

    /// What is wrong is said with message and field.
    #[test]
    fn errors_name_message_and_field() {
        let broken = |change: fn(&mut v1::Prepare)| {
            let mut wire = v1::Prepare::from(&order());
            change(&mut wire);
            TrialOrder::try_from(wire).unwrap_err().to_string()
        };
        assert_eq!(broken(|p| p.target = None), "Prepare.target: missing");
        assert!(broken(|p| p.run_id = "../x".into()).starts_with("Prepare.run_id: "));
        assert!(broken(|p| p.slice_sha256.clear()).starts_with("Prepare.slice_sha256: "));
        assert!(broken(|p| p.target.as_mut().unwrap().api = 0).starts_with("Target.api: "));
        assert!(
            broken(|p| p.target.as_mut().unwrap().base_url = "x".into()).starts_with("Target.base_url: ")
        );
        assert!(
            broken(|p| p.target.as_mut().unwrap().extra_body_json = "[]".into()).starts_with("Target.extra")
        );
    }

    /// Every field that a peer fills has an end, and the error names it.
    #[test]
    fn fields_that_are_too_long_are_refused_by_name() {
        let hello = |change: fn(&mut v1::Hello)| {
            let mut hello =
                v1::Hello { name: "a".into(), host: Some(v1::HostFacts::default()), ..v1::Hello::default() };
            change(&mut hello);
            Introduction::try_from(hello).map(|i| i.host.hostname).map_err(|e| e.to_string())
        };
        assert!(hello(|_| {}).is_ok());
        let long = |text: Result<String, String>, field: &str| {
            let text = text.unwrap_err();
            assert!(text.starts_with(field) && text.contains("more than"), "{text}");
        };
        long(hello(|h| h.agent_version = "1".repeat(MAX_NAME + 1)), "Hello.agent_version: ");
        let held = vec![v1::HeldSpool::default(); MAX_LIST + 1];
        let collected = v1::Collected { run_id: "r".into(), held, ..v1::Collected::default() };
        let collected = CollectReport::try_from(collected).map(|c| c.run.to_string());
        long(collected.map_err(|e| e.to_string()), "Collected.held: ");
        long(hello(|h| h.host.as_mut().unwrap().hostname = "h".repeat(MAX_NAME + 1)), "HostFacts.hostname: ");
        long(
            hello(|h| h.host.as_mut().unwrap().kernel = "k".repeat(MAX_CARD_TEXT + 1)),
            "HostFacts.kernel: ",
        );
        long(
            hello(|h| {
                let stale = Some("s".repeat(MAX_TEXT + 1));
                h.calibration =
                    Some(v1::Calibration { request_cpu_seconds: 1e-5, stale, ..Default::default() });
            }),
            "Calibration.stale: ",
        );
        for (request_cpu_seconds, paced_event_cpu_seconds) in
            [(f64::NAN, 0.1), (-1.0, 0.1), (0.0, 0.0), (1e9, 0.0)]
        {
            let costs = v1::Calibration { request_cpu_seconds, paced_event_cpu_seconds, stale: None };
            assert!(CalibrationCard::try_from(costs.clone()).is_err(), "{costs:?}");
        }
        let name = hello(|h| h.name = "\u{1b}[2J".repeat(100_000)).unwrap_err();
        assert!(name.starts_with("Hello.name: ") && name.len() < 2 * MAX_NAME && !name.contains('\u{1b}'));
        assert_eq!(hello(|h| h.host.as_mut().unwrap().hostname = "a\u{1b}b".into()).unwrap(), "a\u{fffd}b");
        let ready = v1::Ready {
            slice_sha256: Digest::of(b"").to_string(),
            clock: Some(v1::ClockEstimate::default()),
            warnings: vec![String::new(); MAX_WARNINGS + 1],
            ..v1::Ready::default()
        };
        assert!(ReadyReport::try_from(ready).unwrap_err().to_string().starts_with("Ready.warnings: "));
        for seconds in [f64::NAN, f64::INFINITY, -1.0] {
            let health = v1::Health { steal_seconds: Some(seconds), ..v1::Health::default() };
            let drained = v1::Drained {
                manifest: Some(v1::Manifest::default()),
                clock: Some(v1::ClockEstimate::default()),
                health: Some(health),
                ..v1::Drained::default()
            };
            assert!(DrainReport::try_from(drained).unwrap_err().to_string().starts_with("Drained.health: "));
        }
        let mut prepare = v1::Prepare::from(&order());
        prepare.warmup = vec![v1::WarmupRow::default(); MAX_WARMUP_ROWS + 1];
        assert!(TrialOrder::try_from(prepare).unwrap_err().to_string().starts_with("Prepare.warmup: "));
    }
}
