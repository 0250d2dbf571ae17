//! Queues whose truth is known in closed form, for tests: M/M/1 and M/M/c with service of mean 1, first come first
//! served, empty at the start as an engine is.

use super::Observation;
use crate::seed::Seed;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Queue {
    pub(crate) servers: usize,
    /// Arrival rate over the rate of all servers together.
    pub(crate) load: f64,
}

impl Queue {
    pub(crate) fn arrival_rate(self) -> f64 {
        self.load * self.servers as f64
    }

    /// L of a trial of `requests`.
    pub(crate) fn length(self, requests: usize) -> f64 {
        requests as f64 / self.arrival_rate()
    }

    /// Arrival and sojourn of each request. With one server this is Lindley's recursion.
    pub(crate) fn sojourns(self, requests: usize, seed: u64) -> Vec<Observation> {
        let mut random = Seed(seed).stream("a queue of the tests");
        let mut free = vec![0.0f64; self.servers];
        let mut at = 0.0;
        let one = |i: usize| {
            at += if i == 0 { 0.0 } else { random.unit_exponential() / self.arrival_rate() };
            let server = free.iter_mut().min_by(|a, b| a.total_cmp(b)).unwrap();
            *server = server.max(at) + random.unit_exponential();
            Observation { at, value: *server - at }
        };
        (0..requests).map(one).collect()
    }

    /// Erlang's C: the probability of having to wait.
    fn waits(self) -> f64 {
        let offered = self.arrival_rate();
        let (mut term, mut sum) = (1.0, 1.0);
        for i in 1..self.servers {
            term *= offered / i as f64;
            sum += term;
        }
        let last = term * offered / self.servers as f64 / (1.0 - self.load);
        last / (sum + last)
    }

    pub(crate) fn mean_sojourn(self) -> f64 {
        1.0 + self.waits() / (self.servers as f64 - self.arrival_rate())
    }

    /// P(sojourn > t): a service, and with probability C an exponential wait of rate c − λ before it.
    fn tail(self, t: f64) -> f64 {
        let (waits, drain) = (self.waits(), self.servers as f64 - self.arrival_rate());
        if self.servers == 1 {
            return (-drain * t).exp();
        }
        let after_a_wait = (drain * (-t).exp() - (-drain * t).exp()) / (drain - 1.0);
        (1.0 - waits) * (-t).exp() + waits * after_a_wait
    }

    /// The sojourn that a share of `beyond` exceeds.
    pub(crate) fn sojourn_exceeded_by(self, beyond: f64) -> f64 {
        let (mut low, mut high) = (0.0, 1e6);
        for _ in 0..100 {
            let middle = f64::midpoint(low, high);
            if self.tail(middle) > beyond { low = middle } else { high = middle }
        }
        low
    }

    /// The time after which the queue has forgotten where it was: 1/(μ(1 − √ρ)²) with μ the rate of all servers.
    pub(crate) fn relaxation(self) -> f64 {
        1.0 / (1.0 - self.load.sqrt()).powi(2) / self.servers as f64
    }
}

pub(crate) const MM1_50: Queue = Queue { servers: 1, load: 0.5 };
pub(crate) const MM1_70: Queue = Queue { servers: 1, load: 0.7 };
pub(crate) const MM1_90: Queue = Queue { servers: 1, load: 0.9 };
pub(crate) const MM4_70: Queue = Queue { servers: 4, load: 0.7 };
pub(crate) const MM4_90: Queue = Queue { servers: 4, load: 0.9 };
