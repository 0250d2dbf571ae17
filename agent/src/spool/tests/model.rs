//! The spool against a model: a list of records for each incarnation, through faults and crashes at every change of
//! the disk.
//!
//! One agent at a time serves a run: it spools trial after trial, delivers to a coordinator that keeps a mark and may
//! lose what it stored, has its trials sealed or taken from it, and dies. Disks get full, write a part, refuse to sync;
//! the power goes after any number of changes. After every step, by the names that the model's assertions use:
//! - *durable is there*: what was said to be durable is in a segment, until its trial is sealed;
//! - *nothing invented*: a segment holds what was spooled, in that order, and behind it at most a block that was under
//!   way or given up, whole; a torn tail is not there;
//! - *numbers are contiguous and used once*: over the segments of an incarnation, whatever a crash left;
//! - *exactly what is missing*: reading from the coordinator's mark gives the next record and every one after it;
//! - *segments stay until the seal*: nothing else removes them.
//!
//! It was seen to fail with: no `sync` in `Spool::append`, `sync_names` left out of `Spool::create` (both: durable is
//! there), `is_delivered` without a look at a torn end (the coordinator got something else), `Numbers::take` going on
//! with the last number when nobody said how far the trial came, and a block's number raised although its write failed
//! (both: numbers are contiguous and used once).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::clock::ManualClock;
use common::disk::SimDisk;
use common::ids::{AgentName, Epoch, Incarnation, Seq, TrialId};
use common::seed::Seed;
use common::trace::segment::{BLOCK_TRACES, Block, BlockOrigin};
use proptest::prelude::*;

use super::{DIR, run_id, trace};
use crate::session::numbers::Numbers;
use crate::spool::held::{self, Backlog};
use crate::spool::writer::Writer;
use crate::spool::{Spool, SpoolState};

/// What happens on the disk during a step.
#[derive(Debug, Clone)]
enum Fault {
    None,
    /// So many bytes more fit.
    Full(u64),
    /// One append writes so many bytes and fails.
    Short(usize),
    SyncsFail,
    /// What is sealed cannot be removed.
    RemovalsFail,
    /// The power goes after so many changes, and the process with it.
    Power(u64, u64),
}

#[derive(Debug, Clone)]
enum Step {
    /// Traces come.
    Append(u64),
    /// The open block is closed.
    Close,
    /// So many batches of about this many bytes go to the coordinator.
    Upload(usize, usize),
    /// The coordinator loses the last of what it stored, but nothing of a sealed trial, and comes back as another.
    Lose(u64),
    /// The trial ends and is sealed, though not everything may have been delivered; the next one begins.
    Seal,
    /// Another coordinator takes over: the trial stays unsealed, the next one begins.
    Another,
    /// The process ends, and another starts.
    Restart,
    /// What processes that are gone left is delivered.
    Collect(usize),
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        6 => Just(Fault::None),
        1 => (0u64..400).prop_map(Fault::Full),
        1 => (0usize..120).prop_map(Fault::Short),
        1 => Just(Fault::SyncsFail),
        1 => Just(Fault::RemovalsFail),
        2 => (0u64..8, any::<u64>()).prop_map(|(after, seed)| Fault::Power(after, seed)),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (1u64..5).prop_map(Step::Append),
        4 => Just(Step::Close),
        3 => (1usize..3, 1usize..500).prop_map(|(batches, budget)| Step::Upload(batches, budget)),
        1 => any::<u64>().prop_map(Step::Lose),
        2 => Just(Step::Seal),
        1 => Just(Step::Another),
        1 => Just(Step::Restart),
        1 => (1usize..500).prop_map(Step::Collect),
    ]
}

/// A trial as the model knows it.
#[derive(Debug, Clone)]
struct Trial {
    incarnation: u64,
    first: u64,
    /// Indexes of the records that were said to be durable, from `first` on.
    durable: Vec<u64>,
    /// The blocks that were tried behind them, and may stand there.
    tried: Vec<Vec<u64>>,
    sealed: bool,
}

impl Trial {
    fn end(&self) -> u64 {
        self.first + self.durable.len() as u64
    }
}

/// What the coordinator has of an incarnation.
#[derive(Debug, Default)]
struct Stored {
    /// By number from 0.
    records: Vec<u64>,
    /// Where each block ends: one is stored whole or not at all.
    ends: Vec<usize>,
}

/// A trial under way.
type UnderWay = (Epoch, Arc<Spool>, Writer<fn()>);

struct Process {
    numbers: Numbers,
    /// None when its spool could not be made.
    trial: Option<UnderWay>,
    /// Indexes of the records in the open block.
    open: Vec<u64>,
}

struct World {
    disk: SimDisk,
    process: Process,
    trials: BTreeMap<Epoch, Trial>,
    stored: BTreeMap<u64, Stored>,
    next_index: u64,
    next_incarnation: u64,
    next_epoch: u32,
}

fn agent() -> AgentName {
    "a".parse().unwrap()
}

fn index_of(block: &Block) -> Vec<u64> {
    block.facts().unwrap().iter().map(|f| f.index.0).collect()
}

impl World {
    fn new() -> Self {
        let process = Process { numbers: Numbers::new(Incarnation(1)), trial: None, open: Vec::new() };
        let mut world = Self {
            disk: SimDisk::default(),
            process,
            trials: BTreeMap::new(),
            stored: BTreeMap::new(),
            next_index: 0,
            next_incarnation: 2,
            next_epoch: 1,
        };
        world.begin();
        world
    }

    fn draw(&mut self) -> Incarnation {
        self.next_incarnation += 1;
        Incarnation(self.next_incarnation - 1)
    }

    fn restart(&mut self) {
        let numbers = Numbers::new(self.draw());
        self.process = Process { numbers, trial: None, open: Vec::new() };
        self.begin();
    }

    /// The next trial.
    fn begin(&mut self) {
        let (epoch, drawn) = (Epoch(self.next_epoch), self.draw());
        self.next_epoch += 1;
        let (incarnation, first) = self.process.numbers.take(&run_id(), || drawn);
        let origin = BlockOrigin { agent: agent(), incarnation, trial: TrialId(epoch.0), epoch };
        let (dir, run) = (Path::new(DIR), run_id());
        let Ok(spool) = Spool::create(&self.disk, dir, &run, origin, first) else { return };
        let nothing: fn() = || ();
        let writer = Writer::new(spool.clone(), Arc::new(ManualClock::default()), Duration::ZERO, nothing);
        let trial = Trial {
            incarnation: incarnation.0,
            first: first.0,
            durable: Vec::new(),
            tried: Vec::new(),
            sealed: false,
        };
        self.trials.insert(epoch, trial);
        self.process.trial = Some((epoch, spool, writer));
    }

    /// Closes the open block; the model follows what the spool says of it.
    fn close(&mut self) {
        let Some((epoch, spool, writer)) = &mut self.process.trial else { return };
        let trial = self.trials.get_mut(epoch).unwrap();
        let open = std::mem::take(&mut self.process.open);
        let before = writer.state();
        writer.close();
        let SpoolState { next_seq, lost, traces } = writer.state();
        if open.is_empty() {
            assert_eq!(writer.state(), before);
        } else if next_seq > before.next_seq {
            assert_eq!((next_seq.0, lost), (before.next_seq.0 + open.len() as u64, before.lost));
            trial.durable.extend(&open);
            trial.tried.clear();
        } else {
            assert_eq!((next_seq, lost), (before.next_seq, before.lost + open.len() as u64));
            trial.tried.push(open);
        }
        assert_eq!((next_seq.0, traces), (trial.end(), trial.durable.len() as u64));
        assert_eq!(*spool.durable().borrow(), next_seq);
    }

    /// The coordinator takes blocks that follow its mark, and nothing else.
    fn take(&mut self, incarnation: u64, blocks: &[Vec<u8>]) {
        let stored = self.stored.entry(incarnation).or_default();
        for bytes in blocks {
            let block = Block::decode(bytes).unwrap();
            assert_eq!(
                block.header().first_seq.0,
                stored.records.len() as u64,
                "not exactly what is missing"
            );
            stored.records.extend(index_of(&block));
            stored.ends.push(stored.records.len());
        }
    }

    fn mark(&self, incarnation: u64) -> Seq {
        Seq(self.stored.get(&incarnation).map_or(0, |s| s.records.len() as u64))
    }

    fn upload(&mut self, batches: usize, budget: usize) {
        for _ in 0..batches {
            let Some((epoch, spool, _)) = &self.process.trial else { return };
            let (spool, incarnation) = (spool.clone(), self.trials[epoch].incarnation);
            let mark = self.mark(incarnation);
            assert!(mark >= spool.first(), "what was before this trial is not here");
            let blocks = spool.read_from(mark, budget).unwrap();
            assert_eq!(blocks.is_empty(), mark == *spool.durable().borrow(), "exactly what is missing");
            self.take(incarnation, &blocks);
            assert_eq!(spool.next_after(mark, blocks.len()), self.mark(incarnation));
            spool.note_delivered(self.mark(incarnation));
        }
    }

    fn seal(&mut self) {
        self.close();
        let Some((epoch, spool, _)) = self.process.trial.take() else { return };
        let trial = self.trials.get_mut(&epoch).unwrap();
        trial.sealed = true;
        // As the session does.
        if spool.is_delivered() {
            self.process.numbers.go_on(*spool.durable().borrow());
        }
        // What cannot be removed stays, and is looked at as what is not sealed.
        let _ = spool.remove(&self.disk);
        self.process.open.clear();
        self.begin();
    }

    fn another(&mut self) {
        self.close();
        self.process.trial = None;
        self.process.open.clear();
        self.begin();
    }

    /// Everything that processes left which are gone goes to the coordinator.
    fn collect(&mut self, budget: usize) {
        let live = self.process.trial.as_ref().map(|(epoch, ..)| self.trials[epoch].incarnation);
        for backlog in held::backlogs(&self.disk, Path::new(DIR), &agent(), &run_id()).unwrap() {
            if Some(backlog.incarnation.0) != live {
                self.deliver(&backlog, budget);
            }
        }
    }

    fn deliver(&mut self, backlog: &Backlog, budget: usize) {
        let incarnation = backlog.incarnation.0;
        while self.mark(incarnation) < backlog.next() {
            let mark = self.mark(incarnation);
            assert_eq!(backlog.held_from(mark), Some(mark), "what is between was neither stored nor sealed");
            let (blocks, next) = backlog.read_from(&self.disk, mark, budget).unwrap();
            self.take(incarnation, &blocks);
            assert_eq!(self.mark(incarnation), next);
        }
    }

    fn lose(&mut self, random: u64) {
        let incarnations: Vec<u64> = self.stored.keys().copied().collect();
        for incarnation in incarnations {
            let sealed = self.trials.values().filter(|t| t.incarnation == incarnation && t.sealed);
            let kept = sealed.map(Trial::end).max().unwrap_or(0);
            let stored = self.stored.get_mut(&incarnation).unwrap();
            let ends: Vec<usize> = stored.ends.iter().copied().filter(|end| *end as u64 >= kept).collect();
            let Some(last) = ends.len().checked_sub(1) else { continue };
            let end = ends[Seed(random).stream("lose").below(last as u64 + 1) as usize];
            stored.records.truncate(end);
            stored.ends.retain(|e| *e <= end);
        }
        self.another();
    }

    fn step(&mut self, step: &Step, fault: &Fault) {
        match fault {
            Fault::None => {}
            Fault::Full(room) => self.disk.set_capacity(self.used() + room),
            Fault::Short(bytes) => self.disk.cut_next_append(*bytes),
            Fault::RemovalsFail => self.disk.set_removals_failing(true),
            Fault::SyncsFail => self.disk.set_syncs_failing(true),
            Fault::Power(after, _) => self.disk.set_fuse(*after),
        }
        match step {
            Step::Append(count) => {
                for _ in 0..*count {
                    // Before the writer does by itself.
                    if self.process.open.len() + 1 >= BLOCK_TRACES {
                        self.close();
                    }
                    if let Some((_, _, writer)) = &mut self.process.trial {
                        writer.take(trace(self.next_index));
                        self.process.open.push(self.next_index);
                        self.next_index += 1;
                    }
                }
            }
            Step::Close => self.close(),
            Step::Upload(batches, budget) => self.upload(*batches, *budget),
            Step::Lose(random) => self.lose(*random),
            Step::Seal => self.seal(),
            Step::Another => self.another(),
            Step::Restart => self.restart(),
            Step::Collect(budget) => self.collect(*budget),
        }
        self.disk.mend();
        if let Fault::Power(_, seed) = fault {
            self.disk.crash(&mut Seed(*seed).stream("power"));
            self.restart();
        }
        self.check();
    }

    fn used(&self) -> u64 {
        let segments = held::segments(&self.disk, Path::new(DIR), &agent()).unwrap();
        segments.iter().map(|s| s.bytes).sum()
    }

    /// Everything that is on the disk against everything that the model knows.
    fn check(&self) {
        let segments = held::segments(&self.disk, Path::new(DIR), &agent()).unwrap();
        let mut found: BTreeMap<Epoch, Vec<u64>> = BTreeMap::new();
        let mut ends: BTreeMap<u64, u64> = BTreeMap::new();
        for segment in &segments {
            let (epoch, incarnation) = (segment.origin.epoch, segment.origin.incarnation.0);
            let (Some(first), Some(next)) = (segment.first(), segment.next()) else { continue };
            let trial = &self.trials[&epoch];
            assert_eq!((trial.incarnation, trial.first), (incarnation, first.0), "numbers are used once");
            let end = ends.entry(incarnation).or_insert(first.0);
            assert!(*end <= first.0, "numbers are used once: {first} of {epoch} after {end}");
            *end = next.0;
            let backlog = Backlog {
                run: run_id(),
                agent: agent(),
                incarnation: segment.origin.incarnation,
                segments: vec![segment.clone()],
            };
            let (blocks, after) = backlog.read_from(&self.disk, first, usize::MAX).unwrap();
            let records: Vec<u64> =
                blocks.iter().flat_map(|b| index_of(&Block::decode(b).unwrap())).collect();
            assert_eq!((after, records.len() as u64), (next, segment.traces), "numbers are contiguous");
            let (durable, behind) = records.split_at(trial.durable.len().min(records.len()));
            assert_eq!(durable, &trial.durable[..durable.len()], "nothing invented");
            // A block that was under way when the power went was tried, too.
            let allowed = behind.is_empty() || trial.tried.iter().any(|t| t == behind);
            assert!(allowed, "nothing invented: {behind:?} behind trial {trial:?}");
            found.insert(epoch, durable.to_vec());
        }
        for (epoch, trial) in self.trials.iter().filter(|(_, t)| !t.sealed) {
            let there = found.get(epoch).cloned().unwrap_or_default();
            assert_eq!(there, trial.durable, "durable is there, until the seal");
        }
        for (incarnation, stored) in &self.stored {
            self.check_stored(*incarnation, &stored.records);
        }
    }

    /// The coordinator has what the trials of the incarnation have spooled, in their order.
    fn check_stored(&self, incarnation: u64, stored: &[u64]) {
        let mut trials: Vec<&Trial> = self.trials.values().filter(|t| t.incarnation == incarnation).collect();
        trials.sort_by_key(|t| t.first);
        let spooled: Vec<u64> = trials.iter().flat_map(|t| t.durable.iter().copied()).collect();
        let (durable, behind) = stored.split_at(spooled.len().min(stored.len()));
        assert_eq!(durable, &spooled[..durable.len()], "the coordinator got something else");
        // Behind all of it, a block that any of the trials that end there gave up: of one that was sealed, too, when its
        // file could not be removed and the next one is empty.
        let last = trials.iter().filter(|t| t.end() == spooled.len() as u64);
        let tried = last.flat_map(|t| &t.tried).any(|t| t == behind);
        assert!(behind.is_empty() || tried, "the coordinator got what was never spooled: {behind:?}");
    }
}

proptest! {
    #[test]
    fn the_spool_keeps_its_word(steps in prop::collection::vec((step(), fault()), 1..40)) {
        let mut world = World::new();
        steps.iter().for_each(|(step, fault)| world.step(step, fault));
        // The last process ends, and what all of them left is collected: nothing durable is missing then.
        world.restart();
        world.collect(1 << 20);
        world.check();
        for trial in world.trials.values().filter(|t| !t.sealed) {
            assert!(world.mark(trial.incarnation).0 >= trial.end(), "durable and not delivered: {trial:?}");
        }
    }
}
