//! The writer itself: a group of submissions in, durable traces and their answers out.
//!
//! [`Writer::commit`] is the whole of it and knows no thread; [`Writer::run`] is the loop around it, on a thread of its own.

use std::sync::Arc;

use common::ids::{AgentName, Incarnation, Seq};
use common::simulated::{Sabotage, is_sabotaged};
use common::trace::segment::Block;
use tokio::sync::{mpsc, watch};

use super::admit::{Admission, Confusion, admit};
use super::handle::{Ack, Board, IngestError, Skip, Submission, Work, count};
use crate::store::{IndexBatch, Marks, RunStore, SegmentWriter, StoreError};

/// A group is closed at this many bytes: it bounds how long the first of it waits for its answer.
const GROUP_BYTES: usize = 16 << 20;

pub(super) struct Writer {
    run: RunStore,
    segments: SegmentWriter,
    /// What the segments hold. Ahead of the durable marks on the board only while `unindexed` is not empty.
    written: Marks,
    /// What a failed commit of the index left to do. It must not be undone in the segments, because the index may
    /// have it all the same; so it is committed before anything else is written.
    unindexed: IndexBatch,
    /// The marks of that.
    moved: Vec<((AgentName, Incarnation), Seq)>,
    board: Arc<Board>,
    changed: watch::Sender<()>,
}

impl Writer {
    /// Takes the one writer of a run.
    pub(super) fn open(run: &RunStore) -> Result<(Self, Arc<Board>), StoreError> {
        let segments = run.take_writer()?;
        let written = match run.marks() {
            Ok(marks) => marks,
            Err(e) => {
                run.return_writer(segments);
                return Err(e);
            }
        };
        let (board, changed) = Board::new(written.clone());
        let unindexed = IndexBatch::default();
        let (run, moved) = (run.clone(), Vec::new());
        let writer = Self { run, segments, written, unindexed, moved, board: board.clone(), changed };
        Ok((writer, board))
    }

    /// Begins new segment files at another size.
    #[cfg(test)]
    pub(super) fn roll_at(&mut self, bytes: u64) {
        self.segments.roll_at(bytes);
    }

    /// Serves submissions until every sender is gone, then gives the segments back to the run.
    pub(super) async fn run(mut self, mut receiver: mpsc::Receiver<Work>) {
        let mut waits = None;
        loop {
            let first = match waits.take() {
                Some(first) => Some(first),
                None => receiver.recv().await,
            };
            let Some(first) = first else { break };
            let first = match first {
                Work::Store(submission) => submission,
                Work::Skip(Skip { process, to, reply }) => {
                    // Whoever asked has gone: nothing to tell.
                    let _ = reply.send(self.skip(process, to));
                    continue;
                }
            };
            let mut bytes = size(&first.blocks);
            let mut group = vec![first];
            // Group commit: whatever waits shares the sync.
            while bytes < GROUP_BYTES
                && let Ok(next) = receiver.try_recv()
            {
                match next {
                    Work::Store(submission) => {
                        bytes += size(&submission.blocks);
                        group.push(submission);
                    }
                    skip @ Work::Skip(_) => {
                        waits = Some(skip);
                        break;
                    }
                }
            }
            self.serve(group).await;
        }
        let Self { run, segments, .. } = self;
        run.return_writer(segments);
    }

    async fn serve(&mut self, group: Vec<Submission>) {
        let (blocks, replies): (Vec<_>, Vec<_>) = group.into_iter().map(|s| (s.blocks, s.reply)).unzip();
        // A submitter that went away does not hear its answer; its agent asks again when it comes back.
        let answer = |answers: Vec<_>| {
            replies.into_iter().zip(answers).for_each(|(reply, answer)| _ = reply.send(answer));
        };
        if is_sabotaged(Sabotage::AcknowledgeEarly) {
            answer(blocks.iter().map(|b| self.promise(b)).collect());
            self.run.slowness().wait().await;
            self.commit(&blocks);
            return;
        }
        self.run.slowness().wait().await;
        answer(self.commit(&blocks));
    }

    /// What would be answered if nothing could go wrong.
    fn promise(&self, blocks: &[Block]) -> Result<Ack, IngestError> {
        let admission = self.admit(&mut Marks::new(), blocks).map_err(IngestError::Confused)?;
        Ok(if admission.gap { Ack::ResumeFrom(admission.mark) } else { Ack::UpTo(admission.mark) })
    }

    /// Stores a group of submissions and answers each. After an error of disk or index it can be called again.
    pub(super) fn commit(&mut self, group: &[Vec<Block>]) -> Vec<Result<Ack, IngestError>> {
        let mut marks = Marks::new();
        let admissions: Vec<_> = group
            .iter()
            .map(|blocks| self.admit(&mut marks, blocks).map_err(IngestError::Confused))
            .collect();
        let taken: Vec<&Block> = group
            .iter()
            .zip(&admissions)
            .filter_map(|(blocks, admission)| admission.as_ref().ok().map(|a| &blocks[a.take.clone()]))
            .flatten()
            .collect();
        let stored = self.store(&taken, &marks);
        let counters = &self.board.counters;
        if let Err(e) = &stored {
            count(&counters.failures, 1);
            tracing::debug!(run = %self.run.id(), error = %e, "traces were not stored and not acknowledged");
        }
        let answer = |admission: Result<Admission, IngestError>| {
            let admission = admission.inspect_err(|_| count(&counters.confused, 1))?;
            stored.clone()?;
            count(&counters.duplicates, admission.duplicates);
            if admission.gap {
                count(&counters.gaps, 1);
                return Ok(Ack::ResumeFrom(admission.mark));
            }
            Ok(Ack::UpTo(admission.mark))
        };
        admissions.into_iter().map(answer).collect()
    }

    /// Sorts out one submission. `marks` holds what the submissions before it in the group changed.
    fn admit(&self, marks: &mut Marks, blocks: &[Block]) -> Result<Admission, Confusion> {
        let header = blocks.first().ok_or(Confusion::Empty)?.header();
        let process = (header.agent.clone(), header.incarnation);
        let mark = marks.get(&process).or_else(|| self.written.get(&process)).copied().unwrap_or_default();
        let admission = admit(mark, blocks)?;
        if !admission.take.is_empty() {
            marks.insert(process, admission.mark);
        }
        Ok(admission)
    }

    /// Segments first, then the index, then the marks that are acknowledged.
    fn store(&mut self, taken: &[&Block], marks: &Marks) -> Result<(), IngestError> {
        self.index()?;
        if taken.is_empty() {
            return Ok(());
        }
        let places = self.segments.append(taken).map_err(|e| disk_error(&self.segments, e))?;
        self.unindexed = self.run.naming(taken, &places, marks, self.segments.end());
        self.moved.extend(marks.iter().map(|(process, mark)| (process.clone(), *mark)));
        self.written.extend(self.moved.iter().cloned());
        let counters = &self.board.counters;
        count(&counters.groups, 1);
        count(&counters.traces, taken.iter().map(|b| u64::from(b.header().count)).sum());
        count(&counters.bytes, taken.iter().map(|b| b.bytes().len() as u64).sum());
        self.index()
    }

    /// Moves a mark over numbers that cannot come any more. Never back.
    pub(super) fn skip(&mut self, process: (AgentName, Incarnation), to: Seq) -> Result<(), IngestError> {
        self.index()?;
        let mark = self.written.get(&process).copied().unwrap_or_default();
        if mark >= to {
            return Ok(());
        }
        let (agent, incarnation) = &process;
        tracing::warn!(%agent, %incarnation, from = %mark, %to, "traces of sealed trials are lost and not waited for");
        let marks = Marks::from([(process.clone(), to)]);
        self.unindexed = self.run.naming(&[], &[], &marks, self.segments.end());
        self.moved.push((process.clone(), to));
        self.written.insert(process, to);
        self.index()
    }

    /// Makes the index say what the segments hold, and lets everybody see it.
    fn index(&mut self) -> Result<(), IngestError> {
        if self.unindexed.is_empty() {
            return Ok(());
        }
        self.run.index().commit(&self.unindexed)?;
        self.unindexed = IndexBatch::default();
        // Only those that moved: there may be a thousand agents, and a group is of some of them.
        self.board.marks().extend(self.moved.drain(..));
        self.changed.send_replace(());
        Ok(())
    }
}

fn size(blocks: &[Block]) -> usize {
    blocks.iter().map(|b| b.bytes().len()).sum()
}

fn disk_error(segments: &SegmentWriter, error: StoreError) -> IngestError {
    match error {
        StoreError::Disk { path, source } => {
            let full =
                matches!(source.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded);
            IngestError::Disk { path, reason: source.to_string(), full }
        }
        other => IngestError::Disk { path: segments.path(), reason: other.to_string(), full: false },
    }
}
