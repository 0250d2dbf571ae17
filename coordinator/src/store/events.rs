//! The log of a run: what the coordinator decided, written before it acted.
//!
//! After a restart the log says where the run stood. It must never say more than happened: an event is appended and
//! flushed first, then acted upon, so the last event may not have had its effect yet.

use common::ids::{Epoch, TrialId};
use serde::{Deserialize, Serialize};

use super::keys::RunState;

/// A decision about a run. Variants and fields are only added at the end: their order is the format.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunEvent {
    /// Agents are about to be told to prepare a trial.
    TrialPrepared {
        /// The trial.
        trial: TrialId,
        /// Under which it is prepared; higher than any before in this run.
        epoch: Epoch,
    },
    /// Agents are about to be armed: from here on requests may have been sent.
    TrialStarted {
        /// The trial.
        trial: TrialId,
        /// Under which it was prepared.
        epoch: Epoch,
    },
    /// A trial's traces are complete; what arrives later is refused.
    TrialSealed {
        /// The trial.
        trial: TrialId,
        /// Under which it was prepared.
        epoch: Epoch,
        /// The verdict with its reasons, for people.
        verdict: String,
        /// Arrivals of the schedule.
        scheduled: u64,
        /// Arrivals with a trace.
        recorded: u64,
    },
    /// A trial was given up before its start: nothing was sent.
    TrialCancelled {
        /// The trial.
        trial: TrialId,
        /// Under which it was prepared.
        epoch: Epoch,
        /// Why, for people.
        reason: String,
    },
    /// Every trial is sealed.
    RunFinished,
    /// The run ends before its last trial.
    RunInterrupted {
        /// Why, for people.
        reason: String,
    },
    /// What the index says of the segments was lost and made anew from them. As the first event of a log it says that
    /// the whole log before it is gone.
    IndexRebuilt {
        /// Blocks that were found.
        blocks: u64,
    },
}

impl RunEvent {
    /// The state of a run after this event, where it changes it.
    #[must_use]
    pub fn state(&self) -> Option<RunState> {
        match self {
            Self::RunFinished => Some(RunState::Finished),
            Self::RunInterrupted { .. } => Some(RunState::Interrupted),
            // A resumed run runs again.
            Self::TrialPrepared { .. } => Some(RunState::Running),
            Self::TrialStarted { .. }
            | Self::TrialSealed { .. }
            | Self::TrialCancelled { .. }
            | Self::IndexRebuilt { .. } => None,
        }
    }

    /// The epoch that the event names.
    #[must_use]
    pub fn epoch(&self) -> Option<Epoch> {
        match self {
            Self::TrialPrepared { epoch, .. }
            | Self::TrialStarted { epoch, .. }
            | Self::TrialSealed { epoch, .. }
            | Self::TrialCancelled { epoch, .. } => Some(*epoch),
            Self::RunFinished | Self::RunInterrupted { .. } | Self::IndexRebuilt { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of format 1, pinned: another order of the variants needs another format.
    #[test]
    fn the_format_is_pinned() {
        let (trial, epoch) = (TrialId(1), Epoch(2));
        let sealed = RunEvent::TrialSealed { trial, epoch, verdict: "ok".into(), scheduled: 3, recorded: 4 };
        let bytes = |e: &RunEvent| postcard::to_stdvec(e).unwrap();
        assert_eq!(bytes(&RunEvent::TrialPrepared { trial, epoch }), [0, 1, 2]);
        assert_eq!(bytes(&RunEvent::TrialStarted { trial, epoch }), [1, 1, 2]);
        assert_eq!(bytes(&sealed), [2, 1, 2, 2, b'o', b'k', 3, 4]);
        assert_eq!(bytes(&RunEvent::TrialCancelled { trial, epoch, reason: String::new() }), [3, 1, 2, 0]);
        assert_eq!(bytes(&RunEvent::RunFinished), [4]);
        assert_eq!(bytes(&RunEvent::RunInterrupted { reason: String::new() }), [5, 0]);
        assert_eq!(bytes(&RunEvent::IndexRebuilt { blocks: 9 }), [6, 9]);
    }
}
