//! Whether the agents can carry what the plan asks of them, by what `agent calibrate` found on their hosts. Pure.
//!
//! It exists because a generator that has run out of CPU measures itself: the validity rules find that out after the
//! trial, and this before. It knows costs and no hosts: what an agent shares its host with is not in them. An agent
//! that was never calibrated, or not as it is now, is told of and never refused; nor is a load without a rate, which
//! nobody can hold against a ceiling. docs/calibration.md has the definitions.

use anyhow::bail;
use common::calibration::{CalibrationCard, MOST_SHARE};
use common::ids::AgentName;
use common::plan::Process;

use crate::plan::Plan;

/// Agents that are named one by one in a line.
const NAMED: usize = 3;

/// What an agent said of its host; none: it was never calibrated.
pub(super) type Calibrated = (AgentName, Option<CalibrationCard>);

/// The most that a plan asks, with how many share it.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Demand {
    /// Requests a second, of the whole fleet.
    rate: f64,
    /// `max_tokens` of a request on average.
    tokens: f64,
    /// Agents that send, each its part.
    agents: usize,
}

impl Demand {
    /// Of the highest rate; none where no trial has one.
    fn of(plan: &Plan, agents: usize) -> Option<Self> {
        let highest = |rates: f64, rate: f64| rates.max(rate);
        // Of a search only its first rate is sure to be sent; where the agents end, its trials are late and do not decide.
        let searched = plan.search.map(|search| search.min_rate_per_second);
        let rates = plan.trials.iter().filter_map(|t| t.rate.per_second());
        let rate = searched.or_else(|| rates.reduce(highest))?;
        let rate = match plan.process {
            Process::Ramp { to } => rate.max(to.per_second()),
            _ => rate,
        };
        let rows = &plan.workload.rows.rows;
        let default = plan.target.default_max_tokens;
        let tokens: f64 = rows.iter().map(|row| f64::from(row.max_tokens.unwrap_or(default))).sum();
        Some(Self { rate, tokens: tokens / rows.len().max(1) as f64, agents })
    }

    /// Requests a second of one agent: the split is fair on average.
    fn each(&self) -> f64 {
        self.rate / self.agents.max(1) as f64
    }
}

/// What a person should know; nothing stands in the way.
///
/// # Errors
/// Which agent cannot carry its part, and what to do, unless the plan says to send it all the same.
pub(super) fn check(plan: &Plan, agents: &[Calibrated]) -> anyhow::Result<Vec<String>> {
    let Some(demand) = Demand::of(plan, agents.len()) else { return Ok(Vec::new()) };
    judge(demand, agents, plan.allow_over_ceiling)
}

fn judge(demand: Demand, agents: &[Calibrated], allow: bool) -> anyhow::Result<Vec<String>> {
    let mut notes = Vec::new();
    let mut known: Vec<(&AgentName, &CalibrationCard, f64)> = Vec::new();
    let mut never = Vec::new();
    for (name, card) in agents {
        match card {
            None => never.push(name.as_str()),
            Some(CalibrationCard { stale: Some(why), .. }) => notes.push(format!(
                "headroom     the calibration of {name} is stale: {why}; run agent calibrate there again, and start the agent again"
            )),
            Some(card) => known.push((name, card, card.share(demand.each(), demand.tokens))),
        }
    }
    if !never.is_empty() {
        let (who, were) = (several(&never), if never.len() == 1 { "was" } else { "were" });
        notes.push(format!(
            "headroom     {who} {were} never calibrated: agent calibrate, on its host, finds what it can carry; then start the agent again"
        ));
    }
    // The fullest first.
    known.sort_by(|a, b| b.2.total_cmp(&a.2));
    if let Some(&(name, card, share)) = known.first() {
        let shares: Vec<String> =
            known.iter().map(|(name, _, share)| format!("{name} {}", percent(*share))).collect();
        let shares: Vec<&str> = shares.iter().map(String::as_str).collect();
        notes.push(format!(
            "headroom     {}/s takes of a core: {} (limit {})",
            brief(demand.rate),
            several(&shares),
            percent(MOST_SHARE)
        ));
        if share > MOST_SHARE {
            let ceiling = card.ceiling(demand.tokens);
            let over = format!(
                "agent {name} would need {} of a core for its {} of {} requests/s with up to {:.0} tokens each; its ceiling is {} \
                 requests/s, and above {} of that it may be late by itself",
                percent(share),
                brief(demand.each()),
                brief(demand.rate),
                demand.tokens,
                brief(ceiling),
                percent(MOST_SHARE)
            );
            if !allow {
                let most = brief(MOST_SHARE * ceiling * demand.agents as f64);
                bail!(
                    "{over}: stay below {most} requests/s in all, use more agents, or say --allow-over-ceiling to send it all the same"
                );
            }
            notes.push(format!("warning: {over}"));
        }
    }
    Ok(notes)
}

/// A list, cut where it is long.
fn several(items: &[&str]) -> String {
    let named = items.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    match items.len().checked_sub(NAMED) {
        None | Some(0) => named,
        Some(more) => format!("{named} and {more} more"),
    }
}

fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent < 1.0 { format!("{percent:.1}%") } else { format!("{percent:.0}%") }
}

/// A rate with as many digits as say something.
fn brief(rate: f64) -> String {
    if rate < 10.0 { format!("{rate:.1}") } else { format!("{rate:.0}") }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// 1 ms a request of 95 tokens.
    fn card(stale: Option<&str>) -> Option<CalibrationCard> {
        let stale = stale.map(str::to_owned);
        Some(CalibrationCard { request_cpu_seconds: 50e-6, paced_event_cpu_seconds: 10e-6, stale })
    }

    fn agents(cards: Vec<Option<CalibrationCard>>) -> Vec<Calibrated> {
        (1..).zip(cards).map(|(n, card)| (format!("load-{n}").parse().unwrap(), card)).collect()
    }

    fn demand(rate: f64, agents: usize) -> Demand {
        Demand { rate, tokens: 95.0, agents }
    }

    #[test]
    fn a_part_above_the_limit_is_refused_with_what_to_do() {
        let two = agents(vec![card(None), card(None)]);
        let notes = judge(demand(1000.0, 2), &two, false).unwrap();
        assert_eq!(notes, ["headroom     1000/s takes of a core: load-1 50%, load-2 50% (limit 60%)"]);
        let refused = judge(demand(1400.0, 2), &two, false).unwrap_err().to_string();
        for part in [
            "agent load-1 would need 70% of a core",
            "its 700 of 1400 requests/s",
            "ceiling is 1000 requests/s",
            "below 1200 requests/s in all",
            "--allow-over-ceiling",
        ] {
            assert!(refused.contains(part), "{part}: {refused}");
        }
        let allowed = judge(demand(1400.0, 2), &two, true).unwrap();
        assert!(allowed[1].starts_with("warning: agent load-1 would need 70%"), "{allowed:?}");
    }

    #[test]
    fn who_is_not_known_is_told_of_and_never_refused() {
        let three = agents(vec![None, card(Some("it was taken with agent 0.0.9, and this is 0.1.0")), None]);
        let notes = judge(demand(1e6, 3), &three, false).unwrap();
        assert_eq!(notes.len(), 2);
        assert!(notes[0].contains("load-2 is stale: it was taken with agent 0.0.9"), "{notes:?}");
        assert!(notes[1].contains("load-1, load-3 were never calibrated: agent calibrate"), "{notes:?}");
    }

    #[test]
    fn a_long_list_is_cut() {
        let notes = judge(demand(10.0, 9), &agents(vec![card(None); 9]), false).unwrap();
        assert!(notes[0].len() <= 100 && notes[0].contains(" and 6 more"), "{notes:?}");
    }

    proptest! {
        /// Refused is exactly what is above the limit; and what is refused is refused at a higher rate, too.
        #[test]
        fn the_limit_is_a_line(rate in 1f64..1e5, count in 1usize..8) {
            let all = agents(vec![card(None); count]);
            let share = rate / count as f64 * 1e-3;
            prop_assume!((share - MOST_SHARE).abs() > 1e-9);
            let refused = judge(demand(rate, count), &all, false).is_err();
            prop_assert_eq!(refused, share > MOST_SHARE);
            prop_assert!(!refused || judge(demand(rate * 1.5, count), &all, false).is_err());
            prop_assert!(judge(demand(rate, count), &all, true).is_ok());
        }
    }
}
