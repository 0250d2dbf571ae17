//! Energy and power, at a fifth of the period of the energy counters.
//!
//! The period is found first, by readings every few milliseconds; samples of that time are handed on at the usual
//! distance. Whether a counter is still the one of before, and whether a GPU is gone, is `fleet`'s to say.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use common::ids::Nanos;
use common::telemetry::{EventKind, PowerSample, Record};

use super::super::pace::{self, Steps, Ticks};
use super::super::{Batch, GpuSource};
use super::{Shared, lock};

/// Reads until the end.
pub(super) fn run(shared: &Arc<Shared>, source: Box<dyn GpuSource>, interval: Option<Nanos>, looking: Nanos) {
    let mut reader = Reader { shared, source, batch: Batch::default() };
    let interval = match interval {
        Some(interval) => interval,
        None => match reader.find(looking) {
            Some(interval) => interval,
            None => return,
        },
    };
    shared.interval.store(interval.0.max(1), Ordering::Relaxed);
    shared.tell(None, EventKind::Running, running(shared, interval));
    let mut ticks = Ticks::new(shared.now(), interval);
    let mut left_out = 0;
    while !shared.threads.until(&*shared.clock, ticks.next(shared.now())) {
        shared.late.fetch_add(ticks.skipped() - left_out, Ordering::Relaxed);
        left_out = ticks.skipped();
        if reader.pass() {
            shared.queue.push(reader.batch.samples.drain(..).map(Record::Power));
        }
    }
}

struct Reader<'a> {
    shared: &'a Arc<Shared>,
    source: Box<dyn GpuSource>,
    batch: Batch<PowerSample>,
}

impl Reader<'_> {
    /// One pass over the GPUs, into the batch; false when nobody could be asked.
    fn pass(&mut self) -> bool {
        let lost = lock(&self.shared.fleet).lost();
        self.batch.clear();
        if self.source.power(lost, &mut self.batch).is_err() {
            // The library is being opened again. Where that takes long, the watch says so.
            return false;
        }
        let now = self.shared.now();
        let events = lock(&self.shared.fleet).power(now, &mut self.batch);
        self.shared.tell_all(events);
        self.shared.passes.fetch_add(1, Ordering::Relaxed);
        self.shared.beats.fast(now);
        true
    }

    /// The distance between two readings, once the counters were watched; none at the end.
    fn find(&mut self, looking: Nanos) -> Option<Nanos> {
        let mut steps = vec![Steps::default(); lock(&self.shared.inventory).len()];
        let start = self.shared.now();
        let (mut ticks, mut handed_on) = (Ticks::new(start, pace::LOOKING), start);
        while self.shared.now() - start < looking {
            if self.shared.threads.until(&*self.shared.clock, ticks.next(self.shared.now())) {
                return None;
            }
            if !self.pass() {
                continue;
            }
            for sample in &self.batch.samples {
                if let (Some(steps), Some(energy)) =
                    (steps.get_mut(usize::from(sample.gpu)), sample.energy_mj)
                {
                    steps.read(sample.at, energy);
                }
            }
            let now = self.shared.now();
            if now - handed_on >= pace::USUAL {
                handed_on = now;
                self.shared.queue.push(self.batch.samples.drain(..).map(Record::Power));
            }
        }
        let periods: Vec<Option<Nanos>> = steps.iter().map(Steps::period).collect();
        self.shared.amend(|position, gpu| {
            let period = periods.get(usize::from(position)).copied().flatten();
            gpu.counter_period = period.or(gpu.counter_period);
        });
        Some(pace::interval(periods.into_iter().flatten()))
    }
}

fn running(shared: &Shared, interval: Nanos) -> String {
    let inventory = lock(&shared.inventory);
    let milliseconds = |t: Nanos| format!("{:.0} ms", t.as_secs_f64() * 1e3);
    let periods: Vec<String> =
        inventory.iter().filter_map(|gpu| gpu.counter_period).map(milliseconds).collect();
    let counters = if periods.is_empty() {
        "no energy counter was seen to move".to_owned()
    } else {
        format!("energy counters move every {}", periods.join(", "))
    };
    format!("{} GPUs, read every {}; {counters}", inventory.len(), milliseconds(interval))
}
