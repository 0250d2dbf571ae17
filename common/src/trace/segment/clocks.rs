//! The column of clocks: how a row of it is packed, and the two ways to read it.
//!
//! [`ClockRow`] gives back every stamp. [`outlines`] reads the same bytes and keeps a few instants a trace and the gaps
//! between its content events: a report of millions of traces needs no more, and making a list of each trace's events
//! would be most of its time. A property test and the fuzzer hold the two against each other.

use serde::{Deserialize, Serialize};

use crate::ids::Nanos;
use crate::trace::{Channel, Clocks, ContentEvent, Outline};

/// [`Clocks`] as differences. Wrapping arithmetic: whatever the stamps are, unpacking gives them back.
#[derive(Serialize, Deserialize)]
pub(super) struct ClockRow {
    scheduled: u64,
    /// released, connected, written, headers, finished: each since the one before that is known.
    stages: [Option<u64>; 4],
    finished: u64,
    /// First since `scheduled`, then since the one before.
    content: Vec<u64>,
    channels: Vec<(Channel, u32)>,
}

impl ClockRow {
    pub(super) fn pack(c: &Clocks) -> Self {
        let mut last = c.scheduled.0;
        let mut since_last = |stamp: Nanos| {
            let gap = stamp.0.wrapping_sub(last);
            last = stamp.0;
            gap
        };
        let stages = [c.released, c.connected, c.written, c.headers].map(|s| s.map(&mut since_last));
        let finished = since_last(c.finished);
        let mut before = c.scheduled.0;
        let mut content = Vec::with_capacity(c.content.len());
        let mut channels: Vec<(Channel, u32)> = Vec::new();
        for event in &c.content {
            content.push(event.at.0.wrapping_sub(before));
            before = event.at.0;
            match channels.last_mut() {
                Some((channel, run)) if *channel == event.channel => *run += 1,
                _ => channels.push((event.channel, 1)),
            }
        }
        Self { scheduled: c.scheduled.0, stages, finished, content, channels }
    }

    pub(super) fn unpack(self) -> Option<Clocks> {
        let mut last = self.scheduled;
        let mut next = |gap: u64| {
            last = last.wrapping_add(gap);
            Nanos(last)
        };
        let [released, connected, written, headers] = self.stages.map(|s| s.map(&mut next));
        let finished = next(self.finished);
        let total: u64 = self.channels.iter().map(|&(_, run)| u64::from(run)).sum();
        if total != self.content.len() as u64 {
            return None;
        }
        let channels =
            self.channels.iter().flat_map(|&(channel, run)| std::iter::repeat_n(channel, run as usize));
        let mut before = self.scheduled;
        let content = self
            .content
            .iter()
            .zip(channels)
            .map(|(gap, channel)| {
                before = before.wrapping_add(*gap);
                ContentEvent { at: Nanos(before), channel }
            })
            .collect();
        let scheduled = Nanos(self.scheduled);
        Some(Clocks { scheduled, released, connected, written, headers, finished, content })
    }
}

/// Reads the rows that postcard made of a `Vec<ClockRow>`, and tells `each` of them. None where they are not `count`, or
/// no rows at all.
pub(super) fn outlines(raw: &[u8], count: u32, mut each: impl FnMut(Outline, &[u64])) -> Option<()> {
    let mut reader = Reader(raw);
    if reader.varint()? != u64::from(count) {
        return None;
    }
    let mut stamps = Vec::new();
    for _ in 0..count {
        let outline = reader.row(&mut stamps)?;
        // In their place: nobody asks for the stamps any more.
        for i in 1..stamps.len() {
            stamps[i - 1] = stamps[i].saturating_sub(stamps[i - 1]);
        }
        let gaps = stamps.get(..stamps.len().saturating_sub(1))?;
        each(Outline { largest_gap: gaps.iter().max().map(|&gap| Nanos(gap)), ..outline }, gaps);
    }
    Some(())
}

/// What is left of bytes in postcard's format.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    #[inline]
    fn varint(&mut self) -> Option<u64> {
        let first = self.byte()?;
        let mut value = u64::from(first & 0x7f);
        let (mut shift, mut last) = (7, first);
        while last & 0x80 != 0 {
            last = self.byte()?;
            // The tenth byte holds the one bit that is left.
            if shift == 63 && last > 1 {
                return None;
            }
            value |= u64::from(last & 0x7f) << shift;
            shift += 7;
        }
        Some(value)
    }

    /// A number of 32 bits: five bytes, of the last one four bits.
    fn short_varint(&mut self) -> Option<u32> {
        let before = self.0.len();
        let value = u32::try_from(self.varint()?).ok()?;
        (before - self.0.len() <= 5).then_some(value)
    }

    fn stage(&mut self, last: &mut u64) -> Option<Option<Nanos>> {
        match self.byte()? {
            0 => Some(None),
            1 => {
                *last = last.wrapping_add(self.varint()?);
                Some(Some(Nanos(*last)))
            }
            _ => None,
        }
    }

    /// A row without its largest gap; the stamps of its content events replace `stamps`.
    fn row(&mut self, stamps: &mut Vec<u64>) -> Option<Outline> {
        let scheduled = self.varint()?;
        let mut last = scheduled;
        let released = self.stage(&mut last)?;
        let connected = self.stage(&mut last)?;
        let written = self.stage(&mut last)?;
        let _headers = self.stage(&mut last)?;
        let finished = Nanos(last.wrapping_add(self.varint()?));
        let content_events = self.varint()?;
        stamps.clear();
        let mut before = scheduled;
        for _ in 0..content_events {
            before = before.wrapping_add(self.varint()?);
            stamps.push(before);
        }
        let content = |at: Option<&u64>| at.map(|&at| Nanos(at));
        let outline = Outline {
            scheduled: Nanos(scheduled),
            released,
            connected,
            written,
            finished,
            first_content: content(stamps.first()),
            last_content: content(stamps.last()),
            content_events,
            ..Outline::default()
        };
        self.channels(outline, stamps)
    }

    fn channels(&mut self, mut outline: Outline, stamps: &[u64]) -> Option<Outline> {
        let mut position: u64 = 0;
        for _ in 0..self.varint()? {
            let channel = match self.short_varint()? {
                0 => Channel::Answer,
                1 => Channel::Reasoning,
                2 => Channel::ToolCall,
                _ => return None,
            };
            let run = u64::from(self.short_varint()?);
            let at = usize::try_from(position).ok().and_then(|i| stamps.get(i));
            if let Some(&at) = at.filter(|_| run > 0) {
                outline.begins(channel, Nanos(at));
            }
            position = position.saturating_add(run);
        }
        (position == outline.content_events).then_some(outline)
    }
}
