//! One timer for all deadlines of a request.

use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use common::ids::Nanos;
use tokio::task::coop::unconstrained;
use tokio::time::{Instant, Sleep, sleep};

use super::trial_clock::TrialClock;

/// Further ahead than a timer is ever set, so that no sum of instants overflows.
const FAR: Duration = Duration::from_secs(30 * 24 * 3600);

/// A timer that is set anew only when it must ring earlier than it was set for, or has rung too early because the
/// deadline has moved: the idle deadline moves with each content event, and setting a timer each time would cost
/// more than reading the event.
pub(super) struct Alarm {
    sleep: Pin<Box<Sleep>>,
    set_for: Option<Nanos>,
}

impl Alarm {
    pub(super) fn new() -> Self {
        Self { sleep: Box::pin(sleep(Duration::ZERO)), set_for: None }
    }

    /// Ready when `deadline` has come. The timer decides, not the clock: the two need not run alike in a simulation.
    pub(super) fn poll_at(&mut self, cx: &mut Context<'_>, deadline: Nanos, clock: &TrialClock) -> Poll<()> {
        if self.set_for.is_none_or(|set_for| deadline < set_for) {
            self.set(deadline, clock);
        }
        loop {
            let ringing = pin!(unconstrained(self.sleep.as_mut())).poll(cx);
            match ringing {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(()) if self.set_for.is_some_and(|set_for| deadline <= set_for) => {
                    return Poll::Ready(());
                }
                Poll::Ready(()) => self.set(deadline, clock),
            }
        }
    }

    fn set(&mut self, deadline: Nanos, clock: &TrialClock) {
        let ahead = deadline.since(clock.now()).to_duration().min(FAR);
        self.sleep.as_mut().reset(Instant::now() + ahead);
        self.set_for = Some(deadline);
    }
}
