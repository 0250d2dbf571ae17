//! The ingest against a model in memory, through faults and crashes at every operation.
//!
//! Three agent processes have an endless log of blocks each. Generated steps submit stretches of it, in groups: again,
//! too early, interleaved. Disk and index refuse, the power goes at any operation (also during recovery), the index is
//! lost. After every step the marks are the model's, and after every opening:
//! - *acknowledged is stored*: no mark is below what was acknowledged;
//! - *stored once*: each block is in the index once and in the segment files once, byte for byte as it was sent;
//! - *marks agree*: a process's blocks go from 0 to its mark without a gap.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use common::disk::{Disk, SimDisk};
use common::ids::{AgentName, Epoch, Incarnation, Nanos, Seq, TrialId};
use common::seed::Seed;
use common::trace::segment::{Block, scan};
use proptest::prelude::*;

use super::faults::{Fuse, FusedDisk, FusedIndex};
use crate::ingest::handle::{Ack, Board, IngestError};
use crate::ingest::writer::Writer;
use crate::store::tests::{SIM, agent, block, run_id};
use crate::store::{Failing, MemoryIndex, RunStore, Store, StoreError};

const PROCESSES: usize = 3;
const NAMES: [&str; PROCESSES] = ["x", "x2", "y"];
/// Blocks of a process that belong to one trial.
const PER_TRIAL: u64 = 4;
/// More than any generated run reaches: 24 steps of 4 submissions of 3 blocks.
const TRIALS: u32 = 80;

/// One submission: `length` blocks from `from` blocks after (or before) what the process has written.
#[derive(Debug, Clone)]
struct Send {
    process: usize,
    from: i64,
    length: u64,
}

#[derive(Debug, Clone)]
enum Step {
    /// A group that nothing disturbs.
    Store(Vec<Send>),
    /// The disk takes this many bytes more.
    Full(u64, Vec<Send>),
    /// The index refuses.
    NoIndex(bool, Vec<Send>),
    /// The power goes after so many operations of the group.
    Cut(i64, u64, Vec<Send>),
    /// The process is killed after so many operations of the group; the system keeps what was not synced.
    Kill(i64, u64, Vec<Send>),
    /// The power goes now, and again after so many operations of the recovery.
    Crash(i64, u64),
    /// A restart without a crash.
    Restart,
    /// A restart without the index.
    LoseIndex,
}

fn sends() -> impl Strategy<Value = Vec<Send>> {
    let send = (0..PROCESSES, -2i64..=1, 1u64..4);
    // Mostly in order.
    let send = (send, any::<bool>()).prop_map(|((process, from, length), in_order)| Send {
        process,
        from: if in_order { 0 } else { from },
        length,
    });
    prop::collection::vec(send, 1..5)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => sends().prop_map(Step::Store),
        1 => (0u64..1500, sends()).prop_map(|(room, s)| Step::Full(room, s)),
        1 => (any::<bool>(), sends()).prop_map(|(seen, s)| Step::NoIndex(seen, s)),
        2 => (0i64..9, any::<u64>(), sends()).prop_map(|(after, seed, s)| Step::Cut(after, seed, s)),
        1 => (0i64..9, any::<u64>(), sends()).prop_map(|(after, seed, s)| Step::Kill(after, seed, s)),
        1 => (0i64..12, any::<u64>()).prop_map(|(after, seed)| Step::Crash(after, seed)),
        1 => Just(Step::Restart),
        1 => Just(Step::LoseIndex),
    ]
}

fn count_of(process: usize, number: u64) -> u64 {
    1 + (number * 7 + process as u64) % 3
}

/// Sequence number of the first trace of a block.
fn first_of(process: usize, number: u64) -> u64 {
    (0..number).map(|n| count_of(process, n)).sum()
}

fn block_of(process: usize, number: u64) -> Block {
    let trial = (number / PER_TRIAL) as u32;
    block(NAMES[process], trial, first_of(process, number), count_of(process, number))
}

fn key(process: usize) -> (AgentName, Incarnation) {
    (agent(NAMES[process]), Incarnation(9))
}

/// Numbers of blocks, by process.
type Numbers = [u64; PROCESSES];

struct World {
    disk: SimDisk,
    index: MemoryIndex,
    fuse: Fuse,
    /// None while it is closed.
    open: Option<(Writer, Arc<Board>, RunStore)>,
    acknowledged: Numbers,
    /// In the segments, as the writer knows.
    written: Numbers,
    /// Submitted in order once: of a group that failed, whole blocks may be found after the next opening.
    sent: Numbers,
    /// Written and not in the index yet.
    unindexed: bool,
}

impl World {
    fn new() -> Self {
        let (disk, index, fuse) = (SimDisk::default(), MemoryIndex::default(), Fuse::whole());
        let none = Numbers::default();
        let mut world = Self {
            disk,
            index,
            fuse,
            open: None,
            acknowledged: none,
            written: none,
            sent: none,
            unindexed: false,
        };
        world.store().unwrap().create_run(&run_id("r"), Nanos(1)).unwrap();
        world.reopen();
        world
    }

    fn store(&self) -> Result<Store, StoreError> {
        let disk = FusedDisk(self.disk.clone(), self.fuse.clone());
        let index = FusedIndex(self.index.clone(), self.fuse.clone());
        Store::with_index(Path::new(SIM), Arc::new(disk), Arc::new(index))
    }

    fn close(&mut self) {
        if let Some((writer, _, _)) = self.open.take() {
            // As the thread does when it ends.
            let (sender, receiver) = tokio::sync::mpsc::channel(1);
            drop(sender);
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(writer.run(receiver));
        }
    }

    fn power_goes(&mut self, seed: u64) {
        self.open = None;
        let mut random = Seed(seed).stream("crash");
        self.disk.crash(&mut random);
        self.index.crash(&mut random);
        self.fuse.set(i64::MAX);
    }

    /// Opens the store and holds what is there against the model.
    fn reopen(&mut self) {
        let run = self.store().unwrap().run(&run_id("r")).unwrap();
        let (mut writer, board) = Writer::open(&run).unwrap();
        writer.roll_at(2000);
        let stored = self.stored(&run);
        for (process, numbers) in stored.iter().enumerate() {
            let (agent, incarnation) = key(process);
            let mark = board.mark(&agent, incarnation);
            assert_eq!(run.mark(&agent, incarnation).unwrap(), mark);
            let there = numbers.len() as u64;
            assert_eq!(numbers, &(0..there).collect::<Vec<_>>(), "a gap, a double or another order");
            assert_eq!(mark, Seq(first_of(process, there)), "the mark is not where the segments end");
            assert!(there >= self.acknowledged[process], "acknowledged blocks are lost");
            assert!(there <= self.sent[process], "blocks that were never sent");
            self.written[process] = there;
            // It is durable, so it is what agents are told next.
            self.acknowledged[process] = there;
        }
        self.unindexed = false;
        self.check_files(&stored);
        self.open = Some((writer, board, run));
    }

    /// Numbers of the blocks that the index leads to, by process.
    fn stored(&self, run: &RunStore) -> Vec<Vec<u64>> {
        let mut stored = vec![Vec::new(); PROCESSES];
        for trial in 0..TRIALS {
            for block in run.trial_blocks(TrialId(trial), Epoch(trial + 1)).unwrap() {
                let block = block.unwrap();
                let process = NAMES.iter().position(|n| *n == block.header().agent.as_str()).unwrap();
                let number = stored[process].len() as u64;
                assert_eq!(block, block_of(process, number));
                stored[process].push(number);
            }
        }
        stored
    }

    /// Every segment file is whole, and holds each block once.
    fn check_files(&self, stored: &[Vec<u64>]) {
        let mut seen: BTreeMap<(AgentName, Seq), u32> = BTreeMap::new();
        for path in self.disk.list(&Path::new(SIM).join("runs/r/segments")).unwrap() {
            if path.extension().is_some_and(|e| e == "seg") {
                let scan = scan(&self.disk.read(&path).unwrap()).unwrap();
                assert!(scan.damage.is_none());
                for (_, block) in scan.blocks {
                    *seen.entry((block.header().agent.clone(), block.header().first_seq)).or_default() += 1;
                }
            }
        }
        assert!(seen.values().all(|&n| n == 1), "a block is stored twice: {seen:?}");
        assert_eq!(seen.len(), stored.iter().map(Vec::len).sum::<usize>());
    }

    /// What the group's answers are if nothing goes wrong, and what is written after it.
    fn expect(&self, sends: &[Send]) -> (Vec<Vec<Block>>, Vec<Ack>, Numbers) {
        let mut written = self.written;
        let mut answers = Vec::new();
        let mut group = Vec::new();
        for send in sends {
            // Relative to what the process knows to be written, earlier submissions of the group included.
            let at = written[send.process];
            let from = at.saturating_add_signed(send.from);
            let end = from + send.length;
            group.push((from..end).map(|n| block_of(send.process, n)).collect());
            if from > at {
                answers.push(Ack::ResumeFrom(Seq(first_of(send.process, at))));
            } else {
                written[send.process] = at.max(end);
                answers.push(Ack::UpTo(Seq(first_of(send.process, written[send.process]))));
            }
        }
        (group, answers, written)
    }

    fn commit(&mut self, group: &[Vec<Block>]) -> Result<Vec<Ack>, IngestError> {
        let (writer, _, _) = self.open.as_mut().unwrap();
        let answers = writer.commit(group);
        let all: Result<Vec<_>, _> = answers.iter().cloned().collect();
        assert!(all.is_ok() || answers.iter().all(Result::is_err), "only a part of a group failed");
        all
    }

    /// Commits a group and lets the model follow. Of a failure it says what would be written.
    fn group(&mut self, sends: &[Send]) -> Result<(), (IngestError, Numbers)> {
        let (group, expected, written) = self.expect(sends);
        for (sent, written) in self.sent.iter_mut().zip(written) {
            *sent = written.max(*sent);
        }
        match self.commit(&group) {
            Ok(answers) => {
                assert_eq!(answers, expected);
                self.written = written;
                self.acknowledged = written;
                self.unindexed = false;
                Ok(())
            }
            Err(e) => Err((e, written)),
        }
    }

    /// The marks that agents see are those that were acknowledged (or recovered), no more and no less.
    fn check_marks(&self) {
        let Some((_, board, _)) = &self.open else { return };
        for process in 0..PROCESSES {
            let (agent, incarnation) = key(process);
            let expected = Seq(first_of(process, self.acknowledged[process]));
            assert_eq!(board.mark(&agent, incarnation), expected);
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Store(sends) => {
                self.group(sends).unwrap();
            }
            Step::Full(room, sends) => {
                let used: usize = self.files().iter().map(|f| self.disk.read(f).unwrap().len()).sum();
                self.disk.set_capacity(used as u64 + room);
                if let Err((e, _)) = self.group(sends) {
                    assert!(matches!(e, IngestError::Disk { full: true, .. }), "{e}");
                    if self.unindexed {
                        // The index was caught up before the disk refused.
                        self.unindexed = false;
                        self.acknowledged = self.written;
                    }
                }
                self.disk.set_capacity(u64::MAX);
            }
            Step::NoIndex(seen, sends) => {
                self.index.set_failing(Some(if *seen { Failing::Flushes } else { Failing::Everything }));
                if let Err((e, written)) = self.group(sends) {
                    assert!(matches!(e, IngestError::Index(_)), "{e}");
                    if !self.unindexed {
                        self.written = written;
                        self.unindexed = true;
                    }
                }
                self.index.set_failing(None);
            }
            Step::Cut(after, seed, sends) => {
                self.fuse.set(*after);
                // Either way: what is there after it is looked at when it is opened again.
                let _ = self.group(sends);
                self.power_goes(*seed);
                self.reopen();
            }
            Step::Kill(after, seed, sends) => {
                self.fuse.set(*after);
                let _ = self.group(sends);
                self.open = None;
                self.index.crash(&mut Seed(*seed).stream("kill"));
                self.fuse.set(i64::MAX);
                self.reopen();
            }
            Step::Crash(after, seed) => {
                self.power_goes(*seed);
                self.fuse.set(*after);
                let half_way = self.store().and_then(|s| s.run(&run_id("r")));
                drop(half_way);
                self.power_goes(seed.wrapping_add(1));
                self.reopen();
            }
            Step::Restart => {
                self.close();
                self.reopen();
            }
            Step::LoseIndex => {
                self.close();
                self.index.clear();
                self.reopen();
            }
        }
        self.check_marks();
    }

    fn files(&self) -> Vec<std::path::PathBuf> {
        self.disk.list(&Path::new(SIM).join("runs/r/segments")).unwrap()
    }
}

proptest! {
    #[test]
    fn nothing_acknowledged_is_lost_and_nothing_is_stored_twice(steps in prop::collection::vec(step(), 1..25)) {
        let mut world = World::new();
        steps.iter().for_each(|step| world.step(step));
        world.close();
        world.reopen();
    }
}
