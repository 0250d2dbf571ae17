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
mod tests;
