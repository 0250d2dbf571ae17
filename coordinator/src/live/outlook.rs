//! What is planned, what of it is done, and how long the rest may take.
//!
//! The time left is an estimate, and an upper bound where rates may be skipped: what is left of the schedules, and for
//! each trial what the trials so far took beyond theirs (warm-up, barrier, drain, computation).

use common::ids::Nanos;
use common::plan::OfferedRate;

use crate::plan::Plan;
use crate::sweep::PlannedTrial;

/// What a trial takes beyond its schedule, until one has shown it.
const AROUND_A_TRIAL: Nanos = Nanos::from_secs(3);

#[derive(Debug, Clone)]
struct Planned {
    rate: OfferedRate,
    repeat: u32,
    length: Option<Nanos>,
    done: bool,
}

/// The plan and how far it is carried out.
#[derive(Debug, Clone, Default)]
pub(super) struct Outlook {
    planned: Vec<Planned>,
    /// Rates are searched for: how many trials there will be, nobody knows.
    searches: bool,
    /// Of trials that are over: what they took beyond their schedule, and in all.
    took: Vec<(Nanos, Nanos)>,
}

impl Outlook {
    /// Of a plan.
    #[must_use]
    pub(super) fn of(plan: &Plan) -> Self {
        let planned = plan.trials.iter().map(|t| Planned {
            rate: t.rate,
            repeat: t.repeat,
            length: plan.arrivals(t.rate).length(),
            done: false,
        });
        Self { planned: planned.collect(), searches: plan.search.is_some(), took: Vec::new() }
    }

    fn place(&mut self, rate: OfferedRate, repeat: u32) -> Option<&mut Planned> {
        self.planned.iter_mut().find(|p| p.rate == rate && p.repeat == repeat)
    }

    /// A trial begins. One that is sent again is not done any more; one that nobody planned before is planned now.
    pub(super) fn begins(&mut self, trial: &PlannedTrial, length: Option<Nanos>) {
        match self.place(trial.rate, trial.repeat) {
            Some(planned) => planned.done = false,
            None => {
                let (rate, repeat) = (trial.rate, trial.repeat);
                self.planned.push(Planned { rate, repeat, length, done: false });
            }
        }
    }

    /// A trial is over, after so long.
    pub(super) fn ended(&mut self, rate: OfferedRate, repeat: u32, took: Option<Nanos>) {
        let Some(planned) = self.place(rate, repeat) else { return };
        planned.done = true;
        let length = planned.length.unwrap_or_default();
        // Bounded by the plan, but for reruns: the newest tell most.
        if self.took.len() == 64 {
            self.took.remove(0);
        }
        self.took.extend(took.map(|took| (took - length, took)));
    }

    /// Trials that are done.
    #[must_use]
    pub(super) fn done(&self) -> usize {
        self.planned.iter().filter(|p| p.done).count()
    }

    /// Trials in all.
    #[must_use]
    pub(super) fn total(&self) -> usize {
        self.planned.len()
    }

    /// How long a trial may take in all; none where nobody knows.
    fn takes(&self, planned: &Planned) -> Option<Nanos> {
        let mean = |of: fn(&(Nanos, Nanos)) -> Nanos| {
            let sum: u128 = self.took.iter().map(|t| u128::from(of(t).0)).sum();
            let mean = sum.checked_div(self.took.len() as u128)?;
            Some(Nanos(u64::try_from(mean).unwrap_or(u64::MAX)))
        };
        match planned.length {
            Some(length) => Some(length + mean(|t| t.0).unwrap_or(AROUND_A_TRIAL)),
            None => mean(|t| t.1),
        }
    }

    /// What is left, when this trial has been under way for so long; none where nobody knows.
    #[must_use]
    pub(super) fn left(&self, current: Option<(OfferedRate, u32, Nanos)>) -> Option<Nanos> {
        if self.searches {
            return None;
        }
        let mut left = Nanos::ZERO;
        for planned in self.planned.iter().filter(|p| !p.done) {
            let is = |(rate, repeat, _): &(OfferedRate, u32, Nanos)| {
                *rate == planned.rate && *repeat == planned.repeat
            };
            let passed = current.filter(is).map_or(Nanos::ZERO, |(.., passed)| passed);
            left = left + self.takes(planned)?.since(passed);
        }
        Some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outlook(rates: &[&str]) -> (Outlook, Vec<OfferedRate>) {
        let rates: Vec<OfferedRate> = rates.iter().map(|r| r.parse().unwrap()).collect();
        let length = |rate: &OfferedRate| rate.per_second().map(|_| Nanos::from_secs(10));
        let planned = rates.iter().map(|r| Planned { rate: *r, repeat: 0, length: length(r), done: false });
        (Outlook { planned: planned.collect(), searches: false, took: Vec::new() }, rates)
    }

    #[test]
    fn what_is_left_learns_from_the_trials_that_are_over() {
        let (mut outlook, rates) = outlook(&["1", "2", "4"]);
        let secs = Nanos::from_secs;
        assert_eq!(outlook.left(None), Some(secs(39)));
        assert_eq!(outlook.left(Some((rates[0], 0, secs(5)))), Some(secs(34)));
        outlook.ended(rates[0], 0, Some(secs(11)));
        assert_eq!((outlook.left(None), outlook.done(), outlook.total()), (Some(secs(22)), 1, 3));
        assert_eq!(outlook.left(Some((rates[1], 0, secs(60)))), Some(secs(11)), "never below nothing");
    }

    #[test]
    fn without_a_length_nobody_knows_before_one_is_over() {
        let (mut outlook, rates) = outlook(&["inf", "4"]);
        assert_eq!(outlook.left(None), None);
        outlook.ended(rates[1], 0, Some(Nanos::from_secs(14)));
        assert_eq!(outlook.left(None), Some(Nanos::from_secs(14)));
        outlook.searches = true;
        assert_eq!(outlook.left(None), None);
    }
}
