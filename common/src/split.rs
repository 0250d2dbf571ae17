//! Who sends what: the schedule split over the agents without changing when anything is sent.
//!
//! The owner of an arrival is found by rendezvous hashing. Not by index modulo agents: then each agent carries an
//! Erlang stream, and when host clocks differ by a few gaps the sum is smoother than Poisson, which flatters the
//! engine's tail. A random thinning of a Poisson stream stays Poisson under any constant shift. (Measured for the
//! design with 4 agents, 100/s and ±50 ms: gap CV 0.84 with modulo, 1.00 with thinning.)

use crate::ids::AgentName;
use crate::schedule::Schedule;
use crate::seed::Seed;

/// An agent's part of the load.
#[derive(Debug, Clone, PartialEq)]
pub struct Share {
    /// Who.
    pub agent: AgentName,
    /// Relative to the other agents' weights; above 0.
    pub weight: f64,
}

/// Index into `shares` of the owner of each arrival. `shares` must not be empty.
///
/// Depends on the agents' names and weights, not on their order.
#[must_use]
pub fn owners(schedule: &Schedule, seed: Seed, shares: &[Share]) -> Vec<usize> {
    let salt = seed.derive("split").0;
    let agents: Vec<(u64, f64)> = shares.iter().map(|s| (text_hash(s.agent.as_str()), s.weight)).collect();
    let keys = schedule.arrivals.iter().map(|a| mix(a.ownership_key() ^ salt));
    if shares.windows(2).all(|pair| pair[0].weight == pair[1].weight) {
        let names: Vec<u64> = agents.iter().map(|(name, _)| *name).collect();
        return keys.map(|key| equal_owner(key, &names)).collect();
    }
    keys.map(|key| owner(key, &agents)).collect()
}

/// 53 bits that arrival and agent decide.
fn cell(key: u64, name: u64) -> u64 {
    mix(key ^ name) >> 11
}

fn owner(key: u64, agents: &[(u64, f64)]) -> usize {
    // Weighted rendezvous: the score −w/ln(u) is the largest for agent i with probability w_i/Σw.
    let score = |&(name, weight): &(u64, f64)| {
        let u = (cell(key, name) as f64 + 0.5) / (1u64 << 53) as f64;
        -weight / libm::log(u)
    };
    let scored = agents.iter().map(|agent| (score(agent), agent.0)).enumerate();
    // Names break the (practically impossible) tie, so that the order of the list does not matter.
    let best = scored.max_by(|(_, a), (_, b)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    best.map_or(0, |(index, _)| index)
}

/// The same where all weights are: the score grows with the cell, so that it need not be computed. With a thousand agents
/// and a million arrivals that is two seconds instead of most of a minute, before each trial.
pub(crate) fn equal_owner(key: u64, names: &[u64]) -> usize {
    let best = names.iter().enumerate().max_by_key(|(_, name)| (cell(key, **name), **name));
    best.map_or(0, |(index, _)| index)
}

/// 64 bits that stand for a name.
pub(crate) fn text_hash(text: &str) -> u64 {
    crate::ids::Digest::of(text.as_bytes()).first_64_bits()
}

/// Finaliser of SplitMix64 (Steele, Lea, Flood 2014): every input bit changes every output bit with probability ½.
pub(crate) fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Splits a fleet-wide concurrency limit by weight (largest remainder), in the order of `shares`. None when an agent
/// would get no permit: it could never send.
#[must_use]
pub fn split_concurrency(limit: u32, shares: &[Share]) -> Option<Vec<u32>> {
    let total: f64 = shares.iter().map(|s| s.weight).sum();
    let exact: Vec<f64> = shares.iter().map(|s| f64::from(limit) * s.weight / total).collect();
    let mut parts: Vec<u32> = exact.iter().map(|x| x.floor() as u32).collect();
    let mut by_remainder: Vec<usize> = (0..shares.len()).collect();
    by_remainder.sort_by(|&a, &b| {
        (exact[b] - exact[b].floor())
            .total_cmp(&(exact[a] - exact[a].floor()))
            .then_with(|| shares[a].agent.cmp(&shares[b].agent))
    });
    let missing = limit.saturating_sub(parts.iter().sum());
    for &i in by_remainder.iter().cycle().take(missing as usize) {
        parts[i] += 1;
    }
    parts.iter().all(|&p| p > 0).then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{ArrivalPlan, Extent, Process};
    use proptest::prelude::*;

    fn shares(weights: &[f64]) -> Vec<Share> {
        (0..)
            .zip(weights)
            .map(|(i, &weight)| Share { agent: format!("agent-{i}").parse().unwrap(), weight })
            .collect()
    }

    fn schedule(n: u64, seed: u64) -> Schedule {
        let plan = ArrivalPlan {
            process: Process::Poisson,
            rate: "100".parse().unwrap(),
            extent: Extent::Requests(n),
        };
        Schedule::generate(&plan, Seed(seed), 10).unwrap()
    }

    proptest! {
        /// Whether the score is computed or not.
        #[test]
        fn equal_shares_are_those_of_equal_weights(seed: u64, agents in 1usize..40, weight in 0.1f64..9.0) {
            let names: Vec<u64> = shares(&vec![1.0; agents]).iter().map(|s| text_hash(s.agent.as_str())).collect();
            let weighted: Vec<(u64, f64)> = names.iter().map(|name| (*name, weight)).collect();
            for index in 0..200 {
                let key = mix(index ^ seed);
                prop_assert_eq!(equal_owner(key, &names), owner(key, &weighted));
            }
        }

        /// Binomial: each agent's count lies within 5 standard deviations of its weight's part.
        #[test]
        fn shares_follow_the_weights(seed: u64, weights in prop::collection::vec(0.2f64..5.0, 1..6)) {
            let s = schedule(4_000, seed);
            let shares = shares(&weights);
            let owners = owners(&s, Seed(seed), &shares);
            let total: f64 = weights.iter().sum();
            for (i, w) in weights.iter().enumerate() {
                let p = w / total;
                let n = owners.iter().filter(|&&o| o == i).count() as f64;
                let sigma = (4_000.0 * p * (1.0 - p)).sqrt();
                prop_assert!((n - 4_000.0 * p).abs() <= 5.0 * sigma + 1e-9, "agent {} has {}", i, n);
            }
        }

        /// An agent that leaves moves only its own arrivals, and the order of the list does not matter.
        #[test]
        fn others_keep_their_arrivals(seed: u64, n in 2usize..6) {
            let s = schedule(300, seed);
            let all = shares(&vec![1.0; n]);
            let before = owners(&s, Seed(seed), &all);
            let after = owners(&s, Seed(seed), &all[..n - 1]);
            for (b, a) in before.iter().zip(&after) {
                prop_assert!(*b == n - 1 || a == b);
            }
            let reversed: Vec<Share> = all.iter().rev().cloned().collect();
            let again: Vec<usize> = owners(&s, Seed(seed), &reversed).iter().map(|o| n - 1 - o).collect();
            prop_assert_eq!(before, again);
        }

        #[test]
        fn concurrency_is_split_without_loss(limit in 1u32..5_000, weights in prop::collection::vec(0.1f64..9.0, 1..8)) {
            if let Some(parts) = split_concurrency(limit, &shares(&weights)) {
                prop_assert_eq!(parts.iter().sum::<u32>(), limit);
                prop_assert!(parts.iter().all(|&p| p > 0));
            }
        }
    }

    #[test]
    fn an_agent_without_a_permit_is_refused() {
        assert_eq!(split_concurrency(1, &shares(&[1.0, 1.0])), None);
        assert_eq!(split_concurrency(5, &shares(&[1.0, 1.0])), Some(vec![3, 2]));
    }

    /// Thinning keeps a Poisson stream Poisson even when each agent's clock is off: the merged gaps keep CV 1.
    #[test]
    fn the_merge_stays_poisson_under_clock_offsets() {
        let s = schedule(40_000, 5);
        let shares = shares(&[1.0; 5]);
        let offsets = [0u64, 25_000_000, 100_000_000, 75_000_000, 50_000_000];
        let owners = owners(&s, Seed(5), &shares);
        let mut sent: Vec<u64> = s.arrivals.iter().zip(owners).map(|(a, o)| a.at.0 + offsets[o]).collect();
        sent.sort_unstable();
        let gaps: Vec<f64> = sent.windows(2).map(|w| (w[1] - w[0]) as f64).collect();
        let n = gaps.len() as f64;
        let mean = gaps.iter().sum::<f64>() / n;
        let cv = (gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / n).sqrt() / mean;
        assert!((cv - 1.0).abs() < 5.0 / n.sqrt(), "cv {cv}");
    }
}
