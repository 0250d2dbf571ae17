//! Says that the coordinator's disk is full, or does not answer: at once, again now and then, and when it is over.
//!
//! On a thread of its own, because whoever else could say it may be waiting for that disk. A disk that does not answer
//! at all ends the process as a kill would, which everything here is made for: `coordinator resume` goes on.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use common::disk::OsDisk;

use super::exit;
use super::terminal::tell;
use crate::store::{DiskWatch, Standing, Store, StoreError};

/// Between two looks. Time is counted in looks: a process that was stopped itself has not waited for a disk.
const LOOK: Duration = Duration::from_millis(500);
/// A call that is seen so often has not been answered for 5 s: a disk that is only busy is faster.
const SLOW: u32 = 10;
/// The same is said again after 30 s.
const SAY_AGAIN: u32 = 60;
/// After 90 s nobody waits any more: longer than a trial's last traces are waited for.
const GIVE_UP: u32 = 180;
/// After ten minutes of reading: an index may be large.
const GIVE_UP_READING: u32 = 1200;

/// Opens the store in `data`, and watches its disk as long as it is open.
pub(super) fn open_store(data: &Path) -> Result<Store, StoreError> {
    let watch = DiskWatch::default();
    let watched = watch.clone();
    let thread = std::thread::Builder::new().name("disk-watch".into()).spawn(move || watch_over(&watched));
    if let Err(e) = thread {
        tracing::warn!("nobody watches the disk: {e}");
    }
    Store::open_watched(data, Arc::new(OsDisk), &watch)
}

/// Until the process ends.
fn watch_over(watch: &DiskWatch) {
    let mut attention = Attention::default();
    loop {
        std::thread::sleep(LOOK);
        match attention.look(&watch.standing()) {
            None => {}
            Some(Say::Trouble(trouble)) => {
                tell!(
                    "disk         {trouble}; sending goes on, and traces wait with the agents for about a minute"
                );
                tracing::error!("{trouble}");
            }
            Some(Say::Over) => {
                tell!("disk         it stores again");
                tracing::warn!("the disk stores again");
            }
            Some(Say::GiveUp(trouble)) => {
                tracing::error!("{trouble}: giving up");
                tell!(
                    "coordinator: {trouble}; the run ends here: see to that disk, then coordinator resume RUN"
                );
                super::screen::restore();
                std::process::exit(i32::from(exit::ERROR));
            }
        }
    }
}

/// What is to be said.
#[derive(Debug, PartialEq, Eq)]
enum Say {
    Trouble(String),
    Over,
    GiveUp(String),
}

/// What is wrong with the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Trouble {
    NoAnswer(PathBuf),
    Refuses(PathBuf, String),
}

/// What was seen and said so far.
#[derive(Debug, Default)]
struct Attention {
    /// The oldest call, and in how many looks in a row it was that.
    call: Option<(u64, u32)>,
    trouble: Option<Trouble>,
    /// Looks since it was said.
    silent: u32,
}

impl Attention {
    fn look(&mut self, standing: &Standing) -> Option<Say> {
        self.call = standing.oldest.as_ref().map(|(number, _)| match self.call {
            Some((before, looks)) if before == *number => (before, looks + 1),
            _ => (*number, 0),
        });
        let looks = self.call.map_or(0, |(_, looks)| looks);
        let stalled = standing.oldest.as_ref().filter(|_| looks >= SLOW);
        let trouble = match (stalled, &standing.refused) {
            (Some((_, path)), _) => Some(Trouble::NoAnswer(path.clone())),
            (None, Some((folder, why))) => Some(Trouble::Refuses(folder.clone(), why.clone())),
            (None, None) => None,
        };
        let seconds = looks as u64 * LOOK.as_millis() as u64 / 1000;
        let told = trouble.as_ref().map(|trouble| match trouble {
            Trouble::NoAnswer(path) => format!("no answer from the disk for {seconds} s: {}", path.display()),
            Trouble::Refuses(folder, why) => format!("nothing can be stored in {}: {why}", folder.display()),
        });
        self.silent += 1;
        let changed = trouble != self.trouble;
        self.trouble = trouble;
        match told {
            None => changed.then_some(Say::Over),
            Some(told) if looks >= if standing.reads { GIVE_UP_READING } else { GIVE_UP } => {
                Some(Say::GiveUp(told))
            }
            Some(told) if changed || self.silent >= SAY_AGAIN => {
                self.silent = 0;
                Some(Say::Trouble(told))
            }
            Some(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(call: Option<u64>, refused: Option<&str>) -> Standing {
        Standing {
            oldest: call.map(|number| (number, "/data/runs/r/segments/00000001.seg".into())),
            reads: false,
            refused: refused.map(|why| ("/data/runs/r/segments".into(), why.into())),
        }
    }

    #[test]
    fn a_full_disk_is_said_at_once_seldom_again_and_when_it_is_over() {
        let (mut attention, full) = (Attention::default(), standing(None, Some("no space left")));
        let told = "nothing can be stored in /data/runs/r/segments: no space left".to_owned();
        assert_eq!(attention.look(&standing(None, None)), None);
        assert_eq!(attention.look(&full), Some(Say::Trouble(told.clone())));
        let minute: Vec<Say> = (0..120).filter_map(|_| attention.look(&full)).collect();
        assert_eq!(minute, [Say::Trouble(told.clone()), Say::Trouble(told)]);
        assert_eq!(attention.look(&standing(Some(7), None)), Some(Say::Over));
        assert_eq!(attention.look(&standing(Some(7), None)), None);
    }

    #[test]
    fn a_call_that_does_not_come_back_is_named_and_not_waited_for_for_ever() {
        let (mut attention, stalled) = (Attention::default(), standing(Some(7), None));
        let said: Vec<(u32, Say)> =
            (0..=GIVE_UP).filter_map(|n| attention.look(&stalled).map(|say| (n, say))).collect();
        let told = |seconds: u32| {
            format!("no answer from the disk for {seconds} s: /data/runs/r/segments/00000001.seg")
        };
        let trouble = |look: u32| (look, Say::Trouble(told(look / 2)));
        let expected = [trouble(10), trouble(70), trouble(130), (180, Say::GiveUp(told(90)))];
        assert_eq!(said, expected);
    }

    /// Each call is answered, and there is always one under way.
    #[test]
    fn a_disk_that_is_busy_is_not_called_dead() {
        let mut attention = Attention::default();
        assert!((0..2000).all(|n| attention.look(&standing(Some(n / 9), None)).is_none()));
    }

    #[test]
    fn what_changes_is_said_at_once() {
        let mut attention = Attention::default();
        assert!(attention.look(&standing(None, Some("no space left"))).is_some());
        assert!(attention.look(&standing(None, Some("input/output error"))).is_some());
    }
}
