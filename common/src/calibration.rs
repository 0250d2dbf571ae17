//! What one host can carry as a load generator: measured by `agent calibrate`, kept on that host, told when its agent
//! joins, and held against what a trial would ask of it.
//!
//! Pure. A ceiling is a whole core: an agent has one thread that reads streams, and when that is full everything is
//! late. What a load takes of it is counted in CPU seconds and not read off a rate that was reached, because those hold
//! for loads of other shapes, too. An estimate refuses before the trial what validity rules would find out after it; it
//! never makes a trial valid. The definitions are those of docs/calibration.md.

use serde::{Deserialize, Serialize};

use crate::fleet::{HostFacts, Lateness};

/// Of the document. Changes when a field changes its meaning or goes.
pub const SCHEMA_VERSION: &str = "1";

/// The share of a core that a load may take. Queueing delay at a server of constant service time grows as
/// u / (2 (1 - u)) of one service: at 0.6 it is three quarters of one, at 0.9 four and a half; and arrivals come in
/// bunches.
pub const MOST_SHARE: f64 = 0.6;

/// What `agent calibrate` keeps, as `calibration.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// [`SCHEMA_VERSION`].
    pub schema_version: String,
    /// Of the agent that was measured.
    pub agent_version: String,
    /// Where.
    pub host: CalibratedHost,
    /// When it ended, in seconds since the Unix epoch.
    pub taken_unix_seconds: u64,
    /// How long it took.
    pub seconds: f64,
    /// It was the short form: fewer samples, a wider error.
    pub quick: bool,
    /// Processes that ran or waited to when it began, over the minute before (the kernel's load average): much above 0,
    /// and the lateness is also that of neighbours. Null where the kernel does not say.
    pub load_before: Option<f64>,
    /// The core that the null engine was kept on; null where there was only one.
    pub engine_core: Option<u32>,
    /// What requests and events cost.
    pub costs: Costs,
    /// The most that was reached.
    pub ceilings: Ceilings,
    /// The load that the levels and the error were measured at.
    pub reference: Reference,
    /// Lateness at shares of that load's ceiling, from the lowest.
    pub levels: Vec<Level>,
    /// What the agent adds to a known time, at half of the ceiling.
    pub error: AddedError,
}

/// The host that was measured, as far as it decides what a measurement is worth.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CalibratedHost {
    /// Its name, for people: it decides nothing.
    pub hostname: String,
    /// As /proc/cpuinfo says.
    pub cpu_model: String,
    /// Cores that the agent may use.
    pub cpus: u32,
    /// Name and release of the kernel.
    pub kernel: String,
}

impl From<&HostFacts> for CalibratedHost {
    fn from(facts: &HostFacts) -> Self {
        let HostFacts { hostname, kernel, cpu_model, cpus, .. } = facts;
        Self { hostname: hostname.clone(), cpu_model: cpu_model.clone(), cpus: *cpus, kernel: kernel.clone() }
    }
}

/// What requests and events cost: a line through two points, answers of one event and of many. Seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// CPU time of the agent's process for a request without its events.
    pub request_cpu_seconds: f64,
    /// CPU time for an event that comes with others in one read.
    pub event_cpu_seconds: f64,
    /// CPU time for an event that comes alone.
    pub paced_event_cpu_seconds: f64,
    /// Wall time between two requests' ends, less their events'.
    pub request_wall_seconds: f64,
    /// Wall time for an event that comes with others.
    pub event_wall_seconds: f64,
}

/// The most that was reached. Rates are a second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Ceilings {
    /// Requests, one after the other on each connection, answers of one event.
    pub requests_per_second: f64,
    /// The same, answers of [`Ceilings::events_per_answer`] events.
    pub long_requests_per_second: f64,
    /// Of those answers.
    pub events_per_answer: u32,
    /// Events of those answers.
    pub events_per_second: f64,
    /// Events that come alone which one core can take, by their cost.
    pub paced_events_per_second: f64,
    /// The most streams of the reference's events whose reads were on time: the 99th percentile of read lateness below
    /// a millisecond. 0 where that did not hold for the fewest that were tried.
    pub streams: u32,
    /// More were tried and were late; otherwise it is only the most that was tried.
    pub more_streams_are_late: bool,
}

/// The load of the levels.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Reference {
    /// Events of an answer.
    pub events_per_answer: u32,
    /// To the first event, from the whole request.
    pub ttft_seconds: f64,
    /// Between two events.
    pub gap_seconds: f64,
    /// Requests a second that would fill a core, by their costs.
    pub ceiling_requests_per_second: f64,
}

/// One level of the reference load.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Level {
    /// Of the ceiling.
    pub share: f64,
    /// Requests a second, Poisson arrivals.
    pub requests_per_second: f64,
    /// CPU time of the agent's process, as a share of a core.
    pub cpu_share: f64,
    /// Sent minus scheduled.
    pub dispatch_lateness_seconds: Lateness,
    /// How late the reading thread got to run; null when it could not be watched.
    pub read_lateness_seconds: Option<Lateness>,
}

/// What the agent adds to a time that is known, because the null engine says when it did what, by the same clock.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AddedError {
    /// Requests a second meanwhile.
    pub requests_per_second: f64,
    /// TTFT as the agent has it, less what the engine says: both ways through sockets, the engine's wake-up among them.
    pub ttft_seconds: Lateness,
    /// Of that, from the engine's write of the first event to the agent's stamp on it.
    pub read_seconds: Lateness,
    /// From first to last event as the agent has it, less what the engine says; without its sign.
    pub gap_seconds: Lateness,
}

impl Calibration {
    /// Why it says nothing about this host and agent any more; none when it does.
    #[must_use]
    pub fn stale(&self, host: &CalibratedHost, agent_version: &str) -> Option<String> {
        let was = |what: &str, then: &dyn std::fmt::Display, now: &dyn std::fmt::Display| {
            Some(format!("it was taken {what} {then}, and this is {now}"))
        };
        let taken = &self.host;
        if self.schema_version != SCHEMA_VERSION {
            Some(format!("its form is version {}, not {SCHEMA_VERSION}", self.schema_version))
        } else if self.agent_version != agent_version {
            was("with agent", &self.agent_version, &agent_version)
        } else if taken.cpu_model != host.cpu_model {
            was("on a CPU", &taken.cpu_model, &host.cpu_model)
        } else if taken.cpus != host.cpus {
            was("with cores:", &taken.cpus, &host.cpus)
        } else if taken.kernel != host.kernel {
            was("under", &taken.kernel, &host.kernel)
        } else {
            None
        }
    }

    /// What a coordinator is told of it.
    #[must_use]
    pub fn card(&self, host: &CalibratedHost, agent_version: &str) -> CalibrationCard {
        CalibrationCard {
            request_cpu_seconds: self.costs.request_cpu_seconds,
            paced_event_cpu_seconds: self.costs.paced_event_cpu_seconds,
            stale: self.stale(host, agent_version),
        }
    }
}

/// What an agent tells a coordinator of its calibration.
#[derive(Debug, Clone, PartialEq)]
pub struct CalibrationCard {
    /// See [`Costs::request_cpu_seconds`].
    pub request_cpu_seconds: f64,
    /// See [`Costs::paced_event_cpu_seconds`].
    pub paced_event_cpu_seconds: f64,
    /// Why it says nothing any more.
    pub stale: Option<String>,
}

impl CalibrationCard {
    /// The share of a core that `rate` requests a second take, of `tokens` tokens each: an event a token.
    #[must_use]
    pub fn share(&self, rate: f64, tokens: f64) -> f64 {
        rate * self.request_seconds(tokens)
    }

    /// The rate of such requests that would fill a core.
    #[must_use]
    pub fn ceiling(&self, tokens: f64) -> f64 {
        1.0 / self.request_seconds(tokens)
    }

    fn request_seconds(&self, tokens: f64) -> f64 {
        self.request_cpu_seconds + tokens * self.paced_event_cpu_seconds
    }

    /// Costs that a host can have: nobody is held against others.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let sound = |seconds: f64| seconds.is_finite() && (0.0..1.0).contains(&seconds);
        sound(self.request_cpu_seconds)
            && sound(self.paced_event_cpu_seconds)
            && self.request_cpu_seconds + self.paced_event_cpu_seconds > 0.0
    }
}

/// Cost of a request and of an event, from the cost of requests with one event and with `n`: the line through both
/// points. Neither is negative, whatever noise makes of the points.
#[must_use]
pub fn line(with_one: f64, with_many: f64, n: u32) -> (f64, f64) {
    let event = ((with_many - with_one) / f64::from(n.saturating_sub(1).max(1))).max(0.0);
    ((with_one - event).max(0.0), event)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn card() -> CalibrationCard {
        CalibrationCard { request_cpu_seconds: 50e-6, paced_event_cpu_seconds: 10e-6, stale: None }
    }

    #[test]
    fn a_load_takes_what_its_requests_and_events_cost() {
        // 50 us and 95 events of 10 us: a millisecond a request.
        assert!((card().share(200.0, 95.0) - 0.2).abs() < 1e-12);
        assert!((card().ceiling(95.0) - 1000.0).abs() < 1e-9);
        assert!(card().is_sound());
        for bad in [f64::NAN, -1e-6, 1.0, f64::INFINITY] {
            assert!(!CalibrationCard { request_cpu_seconds: bad, ..card() }.is_sound(), "{bad}");
        }
        let nothing = CalibrationCard { request_cpu_seconds: 0.0, paced_event_cpu_seconds: 0.0, stale: None };
        assert!(!nothing.is_sound());
    }

    proptest! {
        /// At its ceiling a load takes the whole core; a share grows with rate and tokens.
        #[test]
        fn ceiling_and_share_are_one_measure(rate in 0.1f64..1e5, tokens in 1f64..4096.0, more in 1f64..3.0) {
            let card = card();
            prop_assert!((card.share(card.ceiling(tokens), tokens) - 1.0).abs() < 1e-9);
            prop_assert!(card.share(rate * more, tokens) >= card.share(rate, tokens));
            prop_assert!(card.share(rate, tokens * more) >= card.share(rate, tokens));
        }

        /// The line gives back the costs that the points were made of, and never a negative one.
        #[test]
        fn the_line_goes_through_both_points(request in 0f64..1e-3, event in 0f64..1e-4, n in 2u32..1000, noise in -1e-3f64..1e-3) {
            let with = |events: f64| request + events * event;
            let (a, b) = line(with(1.0), with(f64::from(n)), n);
            prop_assert!((a - request).abs() < 1e-9 && (b - event).abs() < 1e-9);
            let (a, b) = line(with(1.0), with(f64::from(n)) + noise, n);
            prop_assert!(a >= 0.0 && b >= 0.0);
        }
    }
}
