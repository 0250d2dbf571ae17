//! A sweep: rates × repeats, in a seeded order; or a search, which asks for its rates as it goes.

pub mod search;

use common::ids::TrialId;
use common::plan::OfferedRate;
use common::seed::Seed;
use serde::{Deserialize, Serialize};

/// One trial to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PlannedTrial {
    /// Its number, in the order of sending.
    pub trial: TrialId,
    /// λ.
    #[serde(with = "as_text")]
    pub rate: OfferedRate,
    /// Which repeat of the rate, from 0.
    pub repeat: u32,
    /// Of its schedule. The same for every rate of a repeat: the same shape, faster.
    pub seed: Seed,
    /// The trial that it is sent again for, because that was disturbed: the same schedule, a number of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rerun_of: Option<TrialId>,
}

/// A rate as it is typed.
mod as_text {
    use common::plan::OfferedRate;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(rate: &OfferedRate, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(rate)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<OfferedRate, D::Error> {
        String::deserialize(d)?.parse().map_err(D::Error::custom)
    }
}

/// Every trial of a sweep, in the order in which they are sent. The order is shuffled by the seed, so that what
/// drifts over the hours (a GPU that warms up, a neighbour that wakes up) does not line up with the rate.
#[must_use]
pub fn order(rates: &[OfferedRate], repeats: u32, seed: Seed) -> Vec<PlannedTrial> {
    let mut trials: Vec<PlannedTrial> = (0..repeats)
        .flat_map(|repeat| {
            let seed = seed_of_repeat(seed, repeat);
            rates.iter().map(move |&rate| PlannedTrial {
                trial: TrialId(0),
                rate,
                repeat,
                seed,
                rerun_of: None,
            })
        })
        .collect();
    seed.stream("trial order").shuffle(&mut trials);
    for (number, trial) in (0..).zip(&mut trials) {
        trial.trial = TrialId(number);
    }
    trials
}

/// The seed of a repeat, whatever the rate.
fn seed_of_repeat(seed: Seed, repeat: u32) -> Seed {
    seed.derive(&format!("repeat {repeat}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rate_comes_as_often_as_asked_in_an_order_that_the_seed_decides() {
        let rates: Vec<OfferedRate> = ["1", "2", "4", "inf"].iter().map(|r| r.parse().unwrap()).collect();
        let trials = order(&rates, 3, Seed(7));
        assert_eq!(trials.len(), 12);
        assert_eq!(trials, order(&rates, 3, Seed(7)));
        let key = |t: &PlannedTrial| (t.rate.to_string(), t.repeat);
        let other: Vec<_> = order(&rates, 3, Seed(8)).iter().map(key).collect();
        assert_ne!(trials.iter().map(key).collect::<Vec<_>>(), other);
        for rate in &rates {
            let mut repeats: Vec<u32> = trials.iter().filter(|t| t.rate == *rate).map(|t| t.repeat).collect();
            repeats.sort_unstable();
            assert_eq!(repeats, [0, 1, 2]);
        }
        let seeds: std::collections::BTreeSet<_> = trials.iter().map(|t| (t.repeat, t.seed.0)).collect();
        assert_eq!(seeds.len(), 3, "one seed a repeat, whatever the rate");
    }
}
