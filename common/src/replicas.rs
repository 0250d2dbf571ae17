//! Which of several engines an arrival goes to.
//!
//! A random thinning, as over the agents and for the same reason (see [`crate::split`]): each engine sees Poisson
//! arrivals where the whole is Poisson. In turn they would be smoother than that, and flatter the engines. It follows from
//! the schedule's digest and the engines' addresses, so that whoever knows a trial's record knows where each of its
//! requests went: agents and report ask the same function, and nothing about it is sent or stored with a trace.
//!
//! Must never look at how an engine fares: that would be a load balancer, and a part of what is measured.

use crate::ids::Digest;
use crate::plan::BaseUrl;
use crate::seed::Seed;
use crate::split::{equal_owner, mix, text_hash};

/// More engines than this are no replicas of one but a fleet behind a load balancer, which is then what to measure.
pub const MAX_ENGINES: usize = 64;

/// The engines of one trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replicas {
    salt: u64,
    names: Vec<u64>,
}

impl Replicas {
    /// The engines at `urls`, which must not be empty, for the schedule with this digest.
    #[must_use]
    pub fn new<'a>(schedule: Digest, urls: impl IntoIterator<Item = &'a BaseUrl>) -> Self {
        let salt = Seed(schedule.first_64_bits()).derive("replica").0;
        let names = urls.into_iter().map(|url| text_hash(&url.to_string())).collect();
        Self { salt, names }
    }

    /// Position, among the engines, of the one to which the arrival with this [`ownership_key`] goes.
    ///
    /// [`ownership_key`]: crate::schedule::Arrival::ownership_key
    #[must_use]
    pub fn of(&self, key: u64) -> usize {
        equal_owner(mix(key ^ self.salt), &self.names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{ArrivalPlan, Extent, Process};
    use crate::schedule::Schedule;
    use crate::split::{Share, owners};

    fn urls(n: usize) -> Vec<BaseUrl> {
        (0..n).map(|i| format!("http://10.0.0.{i}:8000").parse().unwrap()).collect()
    }

    fn schedule(n: u64) -> Schedule {
        let process = Process::Poisson;
        let plan = ArrivalPlan { process, rate: "100".parse().unwrap(), extent: Extent::Requests(n) };
        Schedule::generate(&plan, Seed(5), 10).unwrap()
    }

    /// Each engine's gaps are as irregular as those of the whole: their CV is 1, and 1/√3 were they dealt out in turn.
    #[test]
    fn each_engine_sees_poisson_arrivals_and_its_part() {
        let (schedule, urls) = (schedule(60_000), urls(3));
        let replicas = Replicas::new(schedule.digest, &urls);
        for which in 0..3 {
            let its = schedule.arrivals.iter().filter(|a| replicas.of(a.ownership_key()) == which);
            let at: Vec<f64> = its.map(|a| a.at.as_secs_f64()).collect();
            assert!((at.len() as f64 / 20_000.0 - 1.0).abs() < 0.03, "{} of 60000", at.len());
            let gaps: Vec<f64> = at.windows(2).map(|w| w[1] - w[0]).collect();
            let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
            let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
            assert!((variance.sqrt() / mean - 1.0).abs() < 0.04, "CV {}", variance.sqrt() / mean);
        }
    }

    /// An agent's part is spread over all engines: who sends and where to are drawn apart.
    #[test]
    fn the_engine_does_not_depend_on_the_agent() {
        let (schedule, urls) = (schedule(40_000), urls(2));
        let replicas = Replicas::new(schedule.digest, &urls);
        let names = ["a", "b"].map(|a| Share { agent: a.parse().unwrap(), weight: 1.0 });
        let owners = owners(&schedule, Seed(5), &names);
        let mut cells = [[0_u32; 2]; 2];
        for (arrival, owner) in schedule.arrivals.iter().zip(owners) {
            cells[owner][replicas.of(arrival.ownership_key())] += 1;
        }
        assert!(cells.iter().flatten().all(|n| (9_600..10_400).contains(n)), "{cells:?}");
    }

    #[test]
    fn another_schedule_and_another_order_of_the_addresses() {
        let (urls, keys) = (urls(3), 0..300_u64);
        let places = |replicas: &Replicas| keys.clone().map(|key| replicas.of(key)).collect::<Vec<_>>();
        let one = Replicas::new(Digest::of(b"one"), &urls);
        assert_ne!(places(&one), places(&Replicas::new(Digest::of(b"two"), &urls)));
        let turned = Replicas::new(Digest::of(b"one"), urls.iter().rev());
        let back: Vec<usize> = places(&turned).into_iter().map(|at| 2 - at).collect();
        assert_eq!(places(&one), back, "the address decides, and not its place in the list");
    }
}
