//! What the metrics of a request need of its clocks: a few instants, and no list of its content events.

use super::{Channel, Clocks};
use crate::ids::Nanos;

/// [`Clocks`] without the content events: when they began and ended, how many there were and how far apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outline {
    /// See [`Clocks::scheduled`].
    pub scheduled: Nanos,
    /// See [`Clocks::released`].
    pub released: Option<Nanos>,
    /// See [`Clocks::connected`].
    pub connected: Option<Nanos>,
    /// See [`Clocks::written`].
    pub written: Option<Nanos>,
    /// See [`Clocks::finished`].
    pub finished: Nanos,
    /// See [`Clocks::first_content`].
    pub first_content: Option<Nanos>,
    /// See [`Clocks::last_content`].
    pub last_content: Option<Nanos>,
    /// Content events.
    pub content_events: u64,
    /// The largest gap between two of them that follow each other. None with fewer than two.
    pub largest_gap: Option<Nanos>,
    pub(super) first_in: [Option<Nanos>; 3],
}

impl Outline {
    /// The first event with visible text in `channel`.
    #[must_use]
    pub fn first_in(&self, channel: Channel) -> Option<Nanos> {
        self.first_in[place(channel)]
    }

    /// An event in `channel`: the first that is named counts.
    pub(super) fn begins(&mut self, channel: Channel, at: Nanos) {
        self.first_in[place(channel)].get_or_insert(at);
    }
}

fn place(channel: Channel) -> usize {
    match channel {
        Channel::Answer => 0,
        Channel::Reasoning => 1,
        Channel::ToolCall => 2,
    }
}

impl From<&Clocks> for Outline {
    fn from(clocks: &Clocks) -> Self {
        let mut outline = Self {
            scheduled: clocks.scheduled,
            released: clocks.released,
            connected: clocks.connected,
            written: clocks.written,
            finished: clocks.finished,
            first_content: clocks.first_content(),
            last_content: clocks.last_content(),
            content_events: clocks.content.len() as u64,
            largest_gap: clocks.chunk_gaps().max(),
            first_in: [None; 3],
        };
        clocks.content.iter().for_each(|event| outline.begins(event.channel, event.at));
        outline
    }
}
