//! The stored blocks of a trial, read and decoded by several threads, and handed over in the order in which they are
//! stored: whatever is made of them is the same for any number of threads.

use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use common::ids::{AgentName, TrialId};
use common::metrics::RequestMetrics;
use common::summary::Gaps;
use common::trace::segment::{Block, SegmentError};
use common::trace::{Facts, Outline, OutputTokens, Text, TokenSource, Trace};

use crate::report::{TraceRow, write_trace};
use crate::retokenize::{Retokenizer, Uncountable};
use crate::store::{StoreError, TrialBlocks};
use crate::trial::seal::SealError;

/// Blocks that are handed over together: waking whoever waits for them takes as long as a part of a block.
const TOGETHER: usize = 8;

/// How often a thread hands over before it is asked for more. Some 50 KB a block without lines: enough that it need not
/// wait while those of another are taken.
const AHEAD: usize = 4;

/// What is made of each block.
#[derive(Clone, Copy)]
pub(super) struct Reading<'a> {
    pub(super) trial: TrialId,
    /// Counts the texts of the successes.
    pub(super) tokenizer: Option<&'a Retokenizer>,
    /// Whether there is a line for each trace.
    pub(super) lines: bool,
    /// Whether gaps between content events are counted; not where what comes of them is known.
    pub(super) gaps: bool,
    /// Arrivals from this one on do not count.
    pub(super) counted: u64,
}

/// A block, as far as numbers need it.
pub(super) struct Decoded {
    pub(super) agent: AgentName,
    pub(super) rows: Vec<Row>,
    /// The traces' lines one after the other, where they are wanted.
    pub(super) lines: Vec<u8>,
}

/// A trace, as far as numbers need it.
pub(super) struct Row {
    pub(super) metrics: RequestMetrics,
    pub(super) facts: Facts,
    /// Its output tokens as the engine told them, and its text's, where both are known.
    pub(super) compared: Option<(u64, u64)>,
    /// Why its text could not be counted.
    pub(super) uncountable: Option<Uncountable>,
    /// Gaps between content events, of a synthetic success only: whether it counts is not known here.
    pub(super) gaps: Vec<u64>,
    /// Bytes of its line.
    pub(super) line: usize,
}

impl Reading<'_> {
    /// Decodes a block. The gaps of what surely counts go to `gaps`.
    fn block(&self, block: &Block, gaps: &mut Gaps) -> Result<Decoded, SegmentError> {
        let agent = block.header().agent.clone();
        let facts = block.facts()?;
        let wanted = self.lines || self.tokenizer.is_some();
        let texts = if wanted { block.texts()? } else { Vec::new() };
        let mut decoded = Decoded { agent, rows: Vec::with_capacity(facts.len()), lines: Vec::new() };
        let mut texts = texts.into_iter();
        let mut facts = facts.into_iter();
        if self.lines {
            for ((clocks, facts), text) in block.clocks()?.into_iter().zip(facts).zip(texts) {
                let between: Vec<u64> = clocks.chunk_gaps().map(|gap| gap.0).collect();
                let (row, retokenized) = self.row((&clocks).into(), facts, Some(&text), &between, gaps);
                let trace = Trace { clocks, facts: row.facts, text };
                let before = decoded.lines.len();
                let of = TraceRow { trial: self.trial, agent: &decoded.agent, trace: &trace, retokenized };
                write_trace(&mut decoded.lines, of).map_err(|_| SegmentError::Content("line"))?;
                let line = decoded.lines.len() - before;
                decoded.rows.push(Row { facts: trace.facts, line, ..row });
            }
            return Ok(decoded);
        }
        block.outlines(|outline, between| {
            if let Some(facts) = facts.next() {
                decoded.rows.push(self.row(outline, facts, texts.next().as_ref(), between, gaps).0);
            }
        })?;
        Ok(decoded)
    }

    /// A trace, and the tokens of its text.
    fn row(
        &self,
        outline: Outline,
        mut facts: Facts,
        text: Option<&Text>,
        between: &[u64],
        gaps: &mut Gaps,
    ) -> (Row, Option<u64>) {
        let known = facts.output_tokens.count;
        let (retokenized, uncountable) = match self.count(&mut facts, text) {
            Ok(counted) => (counted, None),
            // It is evidence that is missing: no reason to lose the trial's numbers.
            Err(why) => (None, Some(why)),
        };
        let metrics = RequestMetrics::of_outline(outline, &facts);
        let mut held = Vec::new();
        match self.gaps && facts.outcome.is_success() && facts.index.0 < self.counted {
            true if facts.synthetic => held = between.to_vec(),
            true => gaps.add(&metrics, between.iter().copied()),
            false => {}
        }
        let compared = known.zip(retokenized);
        (Row { metrics, facts, compared, uncountable, gaps: held, line: 0 }, retokenized)
    }

    /// The tokens of a success's text. Where its output tokens are unknown, they become that estimate.
    fn count(&self, facts: &mut Facts, text: Option<&Text>) -> Result<Option<u64>, Uncountable> {
        let tokenizer = self.tokenizer.filter(|_| facts.outcome.is_success());
        let Some((tokenizer, text)) = tokenizer.zip(text) else { return Ok(None) };
        let counted = tokenizer.count(text)?;
        if let Some(n) = counted.filter(|_| facts.output_tokens.count.is_none()) {
            facts.output_tokens = OutputTokens { count: Some(n), source: TokenSource::RetokenizedText };
        }
        Ok(counted)
    }

    fn stored(&self, block: Result<Block, StoreError>, gaps: &mut Gaps) -> Result<Decoded, SealError> {
        Ok(self.block(&block?, gaps)?)
    }

    /// Gives `take` each of the blocks, in order, decoded by so many `threads`. Says what gaps there are.
    pub(super) fn all<E: From<SealError>>(
        self,
        blocks: TrialBlocks,
        threads: usize,
        mut take: impl FnMut(Decoded) -> Result<(), E>,
    ) -> Result<Gaps, E> {
        let mut gaps = Gaps::default();
        if threads < 2 {
            for block in blocks {
                take(self.stored(block, &mut gaps)?)?;
            }
            return Ok(gaps);
        }
        thread::scope(|scope| {
            let (mut readers, mut decoded) = (Vec::new(), Vec::new());
            for mut part in blocks.split(threads, TOGETHER) {
                let (give, get) = sync_channel(AHEAD);
                decoded.push(get);
                readers.push(scope.spawn(move || {
                    let mut gaps = Gaps::default();
                    loop {
                        let next = part.by_ref().take(TOGETHER);
                        let blocks: Vec<_> = next.map(|block| self.stored(block, &mut gaps)).collect();
                        // Where nobody takes any more there was an error.
                        if blocks.is_empty() || give.send(blocks).is_err() {
                            break;
                        }
                    }
                    gaps
                }));
            }
            take_in_turn(decoded, &mut take)?;
            for reader in readers {
                gaps.absorb(reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
            Ok(gaps)
        })
    }
}

/// The first of each, the second of each, and so on up to the one that has no more: as [`TrialBlocks::split`] deals them
/// out.
fn take_in_turn<E: From<SealError>>(
    decoded: Vec<Receiver<Vec<Result<Decoded, SealError>>>>,
    take: &mut impl FnMut(Decoded) -> Result<(), E>,
) -> Result<(), E> {
    for next in decoded.iter().cycle() {
        match next.recv() {
            Ok(blocks) => blocks.into_iter().try_for_each(|block| take(block?))?,
            Err(_) => break,
        }
    }
    Ok(())
}
