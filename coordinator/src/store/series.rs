//! What agents recorded beside a run, to be looked at a part at a time.
//!
//! Hours of eight GPUs are tens of millions of records, so files stay as they are in memory, compressed, and a frame is
//! decoded when somebody looks at its time. It must never show records of one agent under another's name.

use std::collections::BTreeMap;
use std::ops::Range;

use common::ids::{AgentName, Nanos};
use common::telemetry::series::{Frame, Frames, decode};
use common::telemetry::{ClockSample, GpuInfo, Record};

/// What an agent recorded, whichever of its processes did.
#[derive(Debug, Clone)]
pub struct AgentSeries {
    agent: AgentName,
    /// Of its processes, the earlier first.
    files: Vec<Vec<u8>>,
    frames: Vec<KeptFrame>,
    clocks: Vec<ClockSample>,
    /// Each with the number of the frame that it is in.
    inventories: Vec<(usize, Vec<GpuInfo>)>,
}

/// Where a frame stands, and of what time its records are by the agent's clock; none without any that has a time.
#[derive(Debug, Clone)]
struct KeptFrame {
    file: usize,
    bytes: Range<usize>,
    time: Option<(Nanos, Nanos)>,
}

/// When the first record of a process was made, and its file.
type Process = (Option<Nanos>, Vec<u8>);

impl AgentSeries {
    /// The agents of these files, by name. A file that is damaged is taken up to there.
    pub(super) fn of(files: Vec<Vec<u8>>) -> Vec<Self> {
        let mut processes: BTreeMap<AgentName, Vec<Process>> = BTreeMap::new();
        for file in files {
            let Ok(mut frames) = Frames::new(&file) else { continue };
            let Some((_, first)) = frames.next() else { continue };
            let begun = first
                .records
                .iter()
                .find_map(Record::at)
                .or_else(|| frames.find_map(|(_, frame)| frame.records.iter().find_map(Record::at)));
            processes.entry(first.agent).or_default().push((begun, file));
        }
        let of_agent = |(agent, mut files): (AgentName, Vec<Process>)| {
            // Processes of one host have one clock: the earlier began earlier.
            files.sort_by_key(|(begun, _)| *begun);
            let (frames, clocks, inventories) = (Vec::new(), Vec::new(), Vec::new());
            let mut series = Self { agent, files: Vec::new(), frames, clocks, inventories };
            files.into_iter().for_each(|(_, file)| series.take(file));
            series
        };
        processes.into_iter().map(of_agent).collect()
    }

    fn take(&mut self, file: Vec<u8>) {
        let number = self.files.len();
        let Ok(mut frames) = Frames::new(&file) else { return };
        while let Some((offset, Frame { agent, records, .. })) = frames.next() {
            if agent != self.agent {
                continue;
            }
            let mut time: Option<(Nanos, Nanos)> = None;
            for record in records {
                if let Some(at) = record.at() {
                    time = Some(time.map_or((at, at), |(first, last)| (first.min(at), last.max(at))));
                }
                match record {
                    Record::Clock(clock) => self.clocks.push(clock),
                    Record::Inventory(gpus) => self.inventories.push((self.frames.len(), gpus)),
                    _ => {}
                }
            }
            let bytes = offset as usize..frames.good_len() as usize;
            self.frames.push(KeptFrame { file: number, bytes, time });
        }
        self.files.push(file);
    }

    /// The agent.
    #[must_use]
    pub fn agent(&self) -> &AgentName {
        &self.agent
    }

    /// Estimates of its clock, in the order in which they were made.
    #[must_use]
    pub fn clocks(&self) -> &[ClockSample] {
        &self.clocks
    }

    /// The GPUs as they were last found; none when none were.
    #[must_use]
    pub fn inventory(&self) -> Option<&[GpuInfo]> {
        self.inventories.last().map(|(_, gpus)| gpus.as_slice())
    }

    /// Every record, in the order in which they were taken.
    pub fn records(&self) -> impl Iterator<Item = Record> + '_ {
        self.frames.iter().flat_map(|frame| self.decoded(frame))
    }

    /// Records from `from` to `to` by the agent's clock, with some before and after; first the GPUs as they were found
    /// before.
    #[must_use]
    pub fn between(&self, from: Nanos, to: Nanos) -> Vec<Record> {
        let within = |frame: &&KeptFrame| frame.time.is_some_and(|(first, last)| first <= to && last >= from);
        let Some(first) = self.frames.iter().position(|frame| within(&frame)) else { return Vec::new() };
        let before = self.inventories.iter().rev().find(|(frame, _)| *frame < first);
        let mut records: Vec<Record> =
            before.map(|(_, gpus)| Record::Inventory(gpus.clone())).into_iter().collect();
        // One without a time may hold an inventory.
        let wanted = |frame: &&KeptFrame| frame.time.is_none() || within(frame);
        records.extend(self.frames[first..].iter().filter(wanted).flat_map(|frame| self.decoded(frame)));
        records
    }

    fn decoded(&self, frame: &KeptFrame) -> Vec<Record> {
        let bytes = self.files.get(frame.file).and_then(|file| file.get(frame.bytes.clone()));
        bytes.and_then(|bytes| decode(bytes).ok()).map_or_else(Vec::new, |(frame, _)| frame.records)
    }
}
