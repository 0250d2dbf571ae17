//! What mathematics knows of the M/M/c queue in its steady state.
//!
//! Owns the closed forms that [`crate::mmc`] is a simulation of: Poisson arrivals at rate λ, `c` servers of rate μ
//! each, first in, first out. M/M/1 is `c` = 1. Sources: A. K. Erlang, "Solution of some problems in the theory of
//! probabilities of significance in automatic telephone exchanges" (1917), for the probability of a wait; D. Gross,
//! J. F. Shortle, J. M. Thompson, C. M. Harris, "Fundamentals of Queueing Theory", 4th edition (2008), sections 2.2
//! and 2.3, for waits and sojourns. It must never simulate anything: it is what a simulation is checked against.

/// An M/M/c queue whose load is below its capacity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MmcQueue {
    arrival_rate: f64,
    service_rate: f64,
    servers: u32,
}

impl MmcQueue {
    /// λ arrivals per second, `servers` servers that each complete μ jobs per second while busy. None for what has no
    /// steady state: a load of 1 or more, or rates that are not positive.
    #[must_use]
    pub fn new(arrival_rate: f64, service_rate: f64, servers: u32) -> Option<Self> {
        let positive = arrival_rate > 0.0 && service_rate > 0.0 && servers > 0;
        let queue = Self { arrival_rate, service_rate, servers };
        (positive && queue.load() < 1.0).then_some(queue)
    }

    /// ρ = λ/(cμ), the share of time that a server is busy.
    #[must_use]
    pub fn load(&self) -> f64 {
        self.arrival_rate / (f64::from(self.servers) * self.service_rate)
    }

    /// The probability that an arrival finds every server busy: Erlang's C formula. ρ for one server.
    #[must_use]
    pub fn wait_probability(&self) -> f64 {
        let offered = self.arrival_rate / self.service_rate;
        // Erlang's B formula by its recursion over the servers: neither factorials nor powers overflow.
        let blocked = (1..=self.servers)
            .fold(1.0, |blocked, servers| offered * blocked / (f64::from(servers) + offered * blocked));
        blocked / (1.0 - self.load() * (1.0 - blocked))
    }

    /// cμ − λ: a wait that is not zero is exponential with this rate.
    fn drain_rate(&self) -> f64 {
        f64::from(self.servers) * self.service_rate - self.arrival_rate
    }

    /// Mean time in the queue, seconds.
    #[must_use]
    pub fn mean_wait(&self) -> f64 {
        self.wait_probability() / self.drain_rate()
    }

    /// The probability that a wait lasts longer than `seconds`.
    #[must_use]
    pub fn wait_tail(&self, seconds: f64) -> f64 {
        if seconds < 0.0 { 1.0 } else { self.wait_probability() * (-self.drain_rate() * seconds).exp() }
    }

    /// Mean time from arrival to departure, seconds.
    #[must_use]
    pub fn mean_sojourn(&self) -> f64 {
        self.mean_wait() + 1.0 / self.service_rate
    }

    /// The probability that a sojourn lasts longer than `seconds`.
    #[must_use]
    pub fn sojourn_tail(&self, seconds: f64) -> f64 {
        if seconds <= 0.0 {
            return 1.0;
        }
        let (service, drain) = (self.service_rate, self.drain_rate());
        let waits = self.wait_probability();
        let served = (-service * seconds).exp();
        // A wait that is not zero and the service after it: the sum of two exponentials.
        let both = if (service - drain).abs() < 1e-9 * service {
            (1.0 + service * seconds) * served
        } else {
            (drain * served - service * (-drain * seconds).exp()) / (drain - service)
        };
        (1.0 - waits) * served + waits * both
    }

    /// The sojourn, in seconds, that a share `p` (above 0, below 1) of jobs does not exceed.
    #[must_use]
    pub fn sojourn_quantile(&self, p: f64) -> f64 {
        let tail = 1.0 - p;
        let (mut low, mut high) = (0.0, self.mean_sojourn());
        while self.sojourn_tail(high) > tail && high.is_finite() {
            low = high;
            high *= 2.0;
        }
        // The tail is continuous and falls: halving a hundred times leaves nothing to choose.
        for _ in 0..100 {
            let middle = low + (high - low) / 2.0;
            if self.sojourn_tail(middle) > tail { low = middle } else { high = middle }
        }
        high
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-9 * b.abs().max(1e-12)
    }

    #[test]
    fn one_server_has_an_exponential_sojourn() {
        for load in [0.1, 0.5, 0.7, 0.9, 0.99] {
            let queue = MmcQueue::new(load * 20.0, 20.0, 1).unwrap();
            let rate = 20.0 * (1.0 - load);
            assert!(close(queue.wait_probability(), load));
            assert!(close(queue.mean_sojourn(), 1.0 / rate));
            for t in [0.001, 0.05, 0.2, 1.0] {
                assert!(close(queue.sojourn_tail(t), (-rate * t).exp()), "load {load} at {t}");
            }
            assert!(close(queue.sojourn_quantile(0.99), 100f64.ln() / rate));
        }
    }

    /// Textbook values of Erlang's C: two servers at an offered load of 1, five at 4, and the equal-rates case.
    #[test]
    fn several_servers_wait_by_erlang_c() {
        assert!(close(MmcQueue::new(1.0, 1.0, 2).unwrap().wait_probability(), 1.0 / 3.0));
        let five = MmcQueue::new(4.0, 1.0, 5).unwrap();
        assert!((five.wait_probability() - 0.554_113).abs() < 1e-6, "{}", five.wait_probability());
        // cμ − λ = μ: the two exponentials of a sojourn have the same rate.
        let equal = MmcQueue::new(3.0, 1.0, 4).unwrap();
        let near = MmcQueue::new(3.0 - 1e-6, 1.0, 4).unwrap();
        assert!((equal.sojourn_tail(2.0) - near.sojourn_tail(2.0)).abs() < 1e-5);
    }

    /// The mean is the integral of the tail, and the quantile is the tail's inverse.
    #[test]
    fn the_parts_agree_with_each_other() {
        for (load, servers) in [(0.3, 1), (0.7, 4), (0.95, 16)] {
            let queue = MmcQueue::new(load * f64::from(servers) * 5.0, 5.0, servers).unwrap();
            let step = queue.mean_sojourn() / 1000.0;
            let integral: f64 =
                (0..60_000).map(|i| queue.sojourn_tail((f64::from(i) + 0.5) * step) * step).sum();
            assert!((integral / queue.mean_sojourn() - 1.0).abs() < 1e-5, "{integral}");
            let waits: f64 = (0..60_000).map(|i| queue.wait_tail((f64::from(i) + 0.5) * step) * step).sum();
            assert!((waits / queue.mean_wait() - 1.0).abs() < 1e-3, "{waits}");
            assert_eq!((queue.wait_tail(-1.0), queue.wait_tail(0.0)), (1.0, queue.wait_probability()));
            for p in [0.01, 0.5, 0.99, 0.999] {
                assert!((queue.sojourn_tail(queue.sojourn_quantile(p)) - (1.0 - p)).abs() < 1e-9);
            }
        }
    }

    #[test]
    fn what_has_no_steady_state_is_refused() {
        for (arrival, service, servers) in
            [(1.0, 1.0, 1), (8.0, 1.0, 4), (0.0, 1.0, 1), (1.0, f64::NAN, 1), (1.0, 1.0, 0)]
        {
            assert_eq!(MmcQueue::new(arrival, service, servers), None);
        }
    }
}
