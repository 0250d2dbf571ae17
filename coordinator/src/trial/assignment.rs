//! Who sends what: the slices of a trial's schedule, the permits, the warm-up.

use std::collections::BTreeMap;
use std::sync::Arc;

use common::ids::{AgentName, Digest, Nanos};
use common::plan::{ArrivalError, ArrivalPlan};
use common::schedule::{self, Arrival, Schedule};
use common::seed::Seed;
use common::split::{Share, owners, split_concurrency};

/// One agent's part of a trial.
#[derive(Debug, Clone, PartialEq)]
pub struct Assignment {
    /// Its arrivals, in order of time.
    pub slice: Arc<[Arrival]>,
    /// Their digest.
    pub digest: Digest,
    /// Its part of the concurrency limit.
    pub permits: Option<u32>,
    /// Rows that it warms up with; true: the prompt must be altered.
    pub warmup: Vec<(u32, bool)>,
}

/// A trial's schedule, assigned.
#[derive(Debug, Clone, PartialEq)]
pub struct Assigned {
    /// Of the whole schedule.
    pub digest: Digest,
    /// Arrivals in all.
    pub count: u64,
    /// When the last arrival is due.
    pub last: Nanos,
    /// Each agent's part, by name.
    pub agents: BTreeMap<AgentName, Assignment>,
}

/// Why a trial cannot be assigned.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum AssignmentError {
    /// The schedule cannot be made.
    #[error(transparent)]
    Arrivals(#[from] ArrivalError),
    /// An agent would never be allowed to send.
    #[error(
        "--max-concurrency {limit} is less than one for each of {agents} agents; raise it or use fewer agents"
    )]
    Permits {
        /// The limit.
        limit: u32,
        /// The agents.
        agents: usize,
    },
}

/// Makes the schedule and splits it over the agents, each with the same weight.
///
/// # Errors
/// See [`AssignmentError`].
pub fn assign(
    plan: &ArrivalPlan,
    seed: Seed,
    rows: u32,
    agents: &[AgentName],
    max_concurrency: Option<u32>,
    warmup: u32,
) -> Result<Assigned, AssignmentError> {
    let schedule = Schedule::generate(plan, seed, rows)?;
    let shares: Vec<Share> = agents.iter().map(|agent| Share { agent: agent.clone(), weight: 1.0 }).collect();
    let permits = match max_concurrency {
        None => vec![None; shares.len()],
        Some(limit) => split_concurrency(limit, &shares)
            .ok_or(AssignmentError::Permits { limit, agents: agents.len() })?
            .into_iter()
            .map(Some)
            .collect(),
    };
    let owners = owners(&schedule, seed, &shares);
    let mut counts = vec![0; shares.len()];
    owners.iter().for_each(|owner| counts[*owner] += 1);
    // As large as they will be: slices that grow would take twice as much for a moment.
    let mut slices: Vec<Vec<Arrival>> = counts.into_iter().map(Vec::with_capacity).collect();
    for (arrival, owner) in schedule.arrivals.iter().zip(owners) {
        slices[owner].push(*arrival);
    }
    // Dealt out in turn: --warmup counts requests of the fleet.
    let mut warmups: Vec<Vec<(u32, bool)>> = vec![Vec::new(); shares.len()];
    for (turn, row) in schedule::warmup_rows(&schedule, rows, warmup).into_iter().enumerate() {
        warmups[turn % shares.len()].push(row);
    }
    let parts = agents.iter().zip(slices).zip(permits).zip(warmups);
    let agents = parts
        .map(|(((agent, slice), permits), warmup)| {
            let digest = schedule::digest(&slice);
            (agent.clone(), Assignment { slice: slice.into(), digest, permits, warmup })
        })
        .collect();
    let last = schedule.arrivals.last().map_or(Nanos::ZERO, |a| a.at);
    Ok(Assigned { digest: schedule.digest, count: schedule.arrivals.len() as u64, last, agents })
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::plan::{Extent, Process};

    fn names(n: usize) -> Vec<AgentName> {
        (0..n).map(|i| format!("a{i}").parse().unwrap()).collect()
    }

    fn plan() -> ArrivalPlan {
        ArrivalPlan { process: Process::Poisson, rate: "20".parse().unwrap(), extent: Extent::Requests(200) }
    }

    /// The schedule does not know how many agents there are, and the slices are the schedule again.
    #[test]
    fn the_schedule_is_the_same_for_any_number_of_agents() {
        let assigned: Vec<Assigned> =
            [1, 2, 5].iter().map(|&n| assign(&plan(), Seed(7), 9, &names(n), None, 4).unwrap()).collect();
        assert!(assigned.windows(2).all(|w| w[0].digest == w[1].digest));
        for a in &assigned {
            let mut all: Vec<Arrival> = a.agents.values().flat_map(|x| x.slice.iter().copied()).collect();
            all.sort_by_key(|x| x.index);
            assert_eq!(schedule::digest(&all), a.digest);
            assert_eq!(a.agents.values().map(|x| x.warmup.len()).sum::<usize>(), 4);
        }
    }

    #[test]
    fn a_limit_below_the_number_of_agents_is_refused() {
        let refused = assign(&plan(), Seed(7), 9, &names(3), Some(2), 0).unwrap_err();
        assert!(refused.to_string().contains("--max-concurrency 2"));
        let split = assign(&plan(), Seed(7), 9, &names(3), Some(256), 0).unwrap();
        assert_eq!(split.agents.values().filter_map(|a| a.permits).sum::<u32>(), 256);
    }
}
