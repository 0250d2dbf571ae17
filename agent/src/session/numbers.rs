//! Which sequence numbers the next trial's traces get.
//!
//! The coordinator takes the traces of one (run, agent, incarnation) in the order of their numbers and without a gap.
//! So numbers go on from trial to trial only where the coordinator has everything before; otherwise the next trial
//! begins at 0 under an incarnation of its own. Otherwise it could never be delivered (the coordinator would wait for
//! numbers of a trial that it has sealed without them), or, where nobody knows how far the last trial came, numbers
//! would be used twice.
//!
//! Pure but for the randomness that it is given. The tests below guard it.

use common::ids::{Incarnation, RunId, Seq};
use common::simulated::{Sabotage, is_sabotaged};

/// What is known of the numbers used so far.
#[derive(Debug)]
pub(crate) struct Numbers {
    /// The run that they are of; none before the first.
    run: Option<RunId>,
    incarnation: Incarnation,
    /// None when they cannot go on.
    next: Option<Seq>,
}

impl Numbers {
    /// Nothing is used yet of `incarnation`.
    pub(crate) fn new(incarnation: Incarnation) -> Self {
        Self { run: None, incarnation, next: Some(Seq(0)) }
    }

    /// For a trial of `run`: its incarnation and first number. Until [`Numbers::go_on`] says how far it came, they
    /// count as used up. `draw` gives a new incarnation.
    pub(crate) fn take(&mut self, run: &RunId, draw: impl FnOnce() -> Incarnation) -> (Incarnation, Seq) {
        let same = self.run.as_ref().is_none_or(|last| last == run);
        let first = match self.next.take().filter(|_| same) {
            Some(next) => next,
            None => {
                self.incarnation = draw();
                Seq(0)
            }
        };
        self.run = Some(run.clone());
        (self.incarnation, first)
    }

    /// The trial is over, and the coordinator has all numbers below `next`.
    pub(crate) fn go_on(&mut self, next: Seq) {
        self.next = Some(if is_sabotaged(Sabotage::ReuseNumber) { Seq(0) } else { next });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_on_only_where_everything_before_was_delivered() {
        let (a, b): (RunId, RunId) = ("a".parse().unwrap(), "b".parse().unwrap());
        let never = || panic!("no new incarnation is needed");
        let mut numbers = Numbers::new(Incarnation(1));
        assert_eq!(numbers.take(&a, never), (Incarnation(1), Seq(0)));
        numbers.go_on(Seq(10));
        assert_eq!(numbers.take(&a, never), (Incarnation(1), Seq(10)));
        // Nobody said how far it came.
        assert_eq!(numbers.take(&a, || Incarnation(2)), (Incarnation(2), Seq(0)));
        numbers.go_on(Seq(3));
        // Another run, and back: what was used of the first is not remembered.
        assert_eq!(numbers.take(&b, || Incarnation(3)), (Incarnation(3), Seq(0)));
        numbers.go_on(Seq(4));
        assert_eq!(numbers.take(&a, || Incarnation(4)), (Incarnation(4), Seq(0)));
    }
}
