//! Which loads are carried out, and the numbers that are made of them.

use std::collections::HashMap;
use std::path::Path;

use common::calibration::{AddedError, Ceilings, Costs, Level, Reference, line};
use common::fleet::Lateness;
use common::ids::Nanos;
use common::plan::{ArrivalPlan, Extent, Process};
use common::schedule::Schedule;
use common::seed::Seed;
use common::stats::percentile;

use super::target::NullEngine;
use super::trial::{Bench, Carried, Load, evenly};
use crate::null_engine::Arrival;

/// Workers of the closed loops: enough that one always has something to read.
const WORKERS: u32 = 64;
/// Events of a long answer.
const LONG: u32 = 128;
/// Of an engine whose answers come an event at a time.
const TTFT_MS: u64 = 20;
const GAP_MS: u64 = 10;
/// Streams at once while the cost of such an event is measured.
const PACED_STREAMS: u32 = 256;
/// Events of an answer of the reference load.
const REFERENCE_EVENTS: u32 = 32;
/// Read lateness below which streams count as read on time, seconds.
const ON_TIME: f64 = 1e-3;
/// Shares of the ceiling; the error is measured at the second.
const SHARES: [f64; 3] = [0.1, 0.5, 0.8];
/// Requests by which the length of a closed loop is found.
const PILOT: u64 = 500;
/// Of a closed loop: fewer than wait for the spool's disk at the most, so that it decides nothing.
const MOST_REQUESTS: f64 = 15_000.0;

/// How long it may take.
pub(super) struct Effort {
    /// Turns of the closed loops; medians are taken.
    turns: usize,
    /// Of each loop.
    loop_seconds: f64,
    /// Answers of each paced stream.
    paced_rounds: u64,
    /// Numbers of streams that are tried.
    streams: &'static [u32],
    /// Of a level.
    level_seconds: u64,
}

/// Under a minute.
pub(super) const FULL: Effort = Effort {
    turns: 5,
    loop_seconds: 1.0,
    paced_rounds: 3,
    streams: &[32, 128, 256, 512, 1024, 2048, 4096],
    level_seconds: 5,
};

/// Some ten seconds.
pub(super) const QUICK: Effort =
    Effort { turns: 1, loop_seconds: 0.7, paced_rounds: 1, streams: &[32, 128, 512], level_seconds: 1 };

/// What was measured.
pub(super) struct Measured {
    pub(super) costs: Costs,
    pub(super) ceilings: Ceilings,
    pub(super) reference: Reference,
    pub(super) levels: Vec<Level>,
    pub(super) error: AddedError,
}

/// Measures, and says how it goes.
pub(super) struct Measurement<'a> {
    pub(super) folder: &'a Path,
    pub(super) core: Option<u32>,
    pub(super) effort: Effort,
    pub(super) open_files: u64,
    pub(super) say: &'a dyn Fn(&str),
}

/// CPU and wall time of one thing, seconds.
#[derive(Clone, Copy)]
struct Each {
    cpu: f64,
    wall: f64,
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    percentile(&values, 50.0).unwrap_or(0.0)
}

fn lateness(mut seconds: Vec<f64>) -> Lateness {
    seconds.sort_unstable_by(f64::total_cmp);
    let at = |p| percentile(&seconds, p).unwrap_or(0.0);
    Lateness { n: seconds.len() as u64, p50: at(50.0), p99: at(99.0), max: at(100.0) }
}

impl Measurement<'_> {
    /// All of it.
    ///
    /// # Errors
    /// When a load could not be carried out.
    pub(super) fn run(&self) -> anyhow::Result<Measured> {
        let mut bench = Bench::new(self.folder)?;
        let engine = NullEngine::start(self.folder, self.core, &[])?;
        (self.say)("back to back: requests of 1 event, and of 128");
        let (short, long) = self.back_to_back(&mut bench, &engine)?;
        engine.end()?;
        let options = [("--ttft-ms", TTFT_MS), ("--interval-ms", GAP_MS)];
        let options: Vec<String> =
            options.iter().flat_map(|(o, ms)| [(*o).to_owned(), ms.to_string()]).collect();
        let engine = NullEngine::start(self.folder, self.core, &options)?;
        (self.say)(&format!("paced: {PACED_STREAMS} streams, an event every {GAP_MS} ms"));
        let (request_cpu, event_cpu) = line(short.cpu, long.cpu, LONG);
        let (request_wall, event_wall) = line(short.wall, long.wall, LONG);
        let paced = self.paced(&mut bench, &engine, (request_cpu, event_cpu))?;
        let costs = Costs {
            request_cpu_seconds: request_cpu,
            event_cpu_seconds: event_cpu,
            paced_event_cpu_seconds: paced,
            request_wall_seconds: request_wall,
            event_wall_seconds: event_wall,
        };
        let (streams, more_streams_are_late) = self.streams(&mut bench, &engine)?;
        let ceilings = Ceilings {
            requests_per_second: 1.0 / short.wall,
            long_requests_per_second: 1.0 / long.wall,
            events_per_answer: LONG,
            events_per_second: f64::from(LONG) / long.wall,
            paced_events_per_second: 1.0 / paced,
            streams,
            more_streams_are_late,
        };
        let reference = Reference {
            events_per_answer: REFERENCE_EVENTS,
            ttft_seconds: Nanos::from_millis(TTFT_MS).as_secs_f64(),
            gap_seconds: Nanos::from_millis(GAP_MS).as_secs_f64(),
            ceiling_requests_per_second: 1.0 / (request_cpu + f64::from(REFERENCE_EVENTS) * paced),
        };
        let mut levels = Vec::new();
        let mut half = None;
        for share in SHARES {
            let rate = (share * reference.ceiling_requests_per_second).max(1.0).round();
            (self.say)(&format!("{:.0}% of the ceiling: {rate:.0} requests/s", share * 100.0));
            let carried = self.level(&mut bench, &engine, rate)?;
            levels.push(Level {
                share,
                requests_per_second: rate,
                cpu_share: carried.cpu.as_secs_f64() / carried.wall.as_secs_f64(),
                dispatch_lateness_seconds: lateness(dispatch(&carried).collect()),
                read_lateness_seconds: carried.health.read_lateness,
            });
            if share == SHARES[1] {
                half = Some((rate, carried));
            }
        }
        let arrivals = engine.end()?;
        let (rate, carried) = half.unwrap_or_else(|| unreachable!("half is one of the shares"));
        let error = added_error(rate, &carried, &arrivals);
        Ok(Measured { costs, ceilings, reference, levels, error })
    }

    /// Time of a request with one event and with many. The two take turns, because what a neighbour does to one it will
    /// mostly do to the other.
    fn back_to_back(&self, bench: &mut Bench, engine: &NullEngine) -> anyhow::Result<(Each, Each)> {
        let mut requests = Vec::new();
        for tokens in [1, LONG] {
            let pilot = bench.carry(engine.url(), &Load::closed(PILOT, WORKERS, tokens))?;
            let rate = PILOT as f64 / pilot.wall.as_secs_f64().max(1e-6);
            requests
                .push((tokens, (rate * self.effort.loop_seconds).clamp(PILOT as f64, MOST_REQUESTS) as u64));
        }
        let mut seen: HashMap<u32, Vec<Each>> = HashMap::new();
        for _ in 0..self.effort.turns {
            for &(tokens, n) in &requests {
                let carried = bench.carry(engine.url(), &Load::closed(n, WORKERS, tokens))?;
                let each = |t: Nanos| t.as_secs_f64() / n as f64;
                seen.entry(tokens)
                    .or_default()
                    .push(Each { cpu: each(carried.cpu), wall: each(carried.wall) });
            }
        }
        let of = |tokens| {
            let of = |value: fn(&Each) -> f64| middle(seen[&tokens].iter().map(value).collect());
            Each { cpu: of(|each| each.cpu), wall: of(|each| each.wall) }
        };
        Ok((of(1), of(LONG)))
    }

    /// CPU time of an event that comes alone, seconds, where those of a request and of an event among others are known.
    fn paced(
        &self,
        bench: &mut Bench,
        engine: &NullEngine,
        (request_cpu, event_cpu): (f64, f64),
    ) -> anyhow::Result<f64> {
        let requests = u64::from(PACED_STREAMS) * self.effort.paced_rounds;
        // Workers and not arrivals that are due: nobody waits by yielding, so all of it is requests and events.
        let carried = bench.carry(engine.url(), &Load::closed(requests, PACED_STREAMS, LONG))?;
        // On a busy host some events wait for the reader and come together after all: those cost what such events cost,
        // and would make the others look cheap.
        let together: u64 = carried.traces.iter().map(|(_, facts)| u64::from(facts.coalesced_events)).sum();
        let alone = (requests * u64::from(LONG)).saturating_sub(together).max(1);
        let cpu = carried.cpu.as_secs_f64() - requests as f64 * request_cpu - together as f64 * event_cpu;
        Ok((cpu / alone as f64).max(event_cpu).max(1e-9))
    }

    /// The most streams that were read on time, and whether more were not.
    fn streams(&self, bench: &mut Bench, engine: &NullEngine) -> anyhow::Result<(u32, bool)> {
        let mut most = 0;
        for &streams in self.effort.streams {
            if self.open_files < u64::from(streams) + 64 {
                (self.say)(&format!(
                    "no more than {most} streams: only {} files may be open; raise the limit (ulimit -n)",
                    self.open_files
                ));
                break;
            }
            // They begin within a second, and all of them are there for another.
            let gap = Nanos(1_000_000_000 / u64::from(streams));
            let tokens = u32::try_from(2000 / GAP_MS).unwrap_or(LONG);
            let load = Load { slice: evenly(u64::from(streams), gap), tokens, workers: None, warm: streams };
            let late = bench.carry(engine.url(), &load)?.health.read_lateness;
            let p99 = late.map_or(f64::INFINITY, |l| l.p99);
            (self.say)(&format!("{streams} streams: read lateness p99 {:.2} ms", p99 * 1e3));
            if p99 >= ON_TIME {
                return Ok((most, true));
            }
            most = streams;
        }
        Ok((most, false))
    }

    fn level(&self, bench: &mut Bench, engine: &NullEngine, rate: f64) -> anyhow::Result<Carried> {
        let plan = ArrivalPlan {
            process: Process::Poisson,
            rate: format!("{rate:.0}").parse()?,
            extent: Extent::Duration(Nanos::from_secs(self.effort.level_seconds)),
        };
        let slice = Schedule::generate(&plan, Seed(7), 1)?.arrivals;
        let life = (TTFT_MS + GAP_MS * u64::from(REFERENCE_EVENTS)) as f64 / 1e3;
        // As many as are open at once, and half as many again.
        let warm = (rate * life * 1.5).clamp(1.0, 8192.0) as u32;
        bench.carry(engine.url(), &Load { slice, tokens: REFERENCE_EVENTS, workers: None, warm })
    }
}

/// Sent minus scheduled, seconds.
fn dispatch(carried: &Carried) -> impl Iterator<Item = f64> {
    carried.traces.iter().filter_map(|(c, _)| Some((c.released? - c.scheduled).as_secs_f64()))
}

/// What the agent says, less what the engine says it did.
fn added_error(rate: f64, carried: &Carried, arrivals: &HashMap<Box<str>, Arrival>) -> AddedError {
    let (mut ttft, mut read, mut gap) = (Vec::new(), Vec::new(), Vec::new());
    for (clocks, facts) in &carried.traces {
        let arrival = arrivals.get(&*format!("{}/{}", carried.id, facts.index));
        let stamps = (clocks.written, clocks.first_content(), clocks.last_content());
        let (Some(arrival), (Some(written), Some(first), Some(last))) = (arrival, stamps) else { continue };
        let seconds = |ns: i128| ns as f64 / 1e9;
        let [theirs_read, theirs_first, theirs_last] =
            [arrival.read_ns, arrival.first_ns, arrival.last_ns].map(i128::from);
        let [written, first, last, start] = [written, first, last, carried.start].map(|n| i128::from(n.0));
        ttft.push(seconds((first - written) - (theirs_first - theirs_read)));
        read.push(seconds(start + first - theirs_first));
        gap.push(seconds((last - first) - (theirs_last - theirs_first)).abs());
    }
    AddedError {
        requests_per_second: rate,
        ttft_seconds: lateness(ttft),
        read_seconds: lateness(read),
        gap_seconds: lateness(gap),
    }
}

#[cfg(test)]
mod tests {
    use common::fleet::Health;
    use common::ids::ArrivalIndex;
    use common::trace::{Channel, ContentEvent, Trace, Unsent};

    use super::*;

    /// An engine that took 20 ms to its first event and 10 ms to the next, and a client that saw the one 30 us and the
    /// other 50 us later, having been read 40 us after it wrote.
    #[test]
    fn the_error_is_what_the_client_says_less_what_the_engine_did() {
        let unsent = Unsent {
            index: ArrivalIndex(4),
            scheduled: Nanos(0),
            row: 0,
            requested_tokens: 2,
            prompt_tokens: None,
        };
        let failure = common::trace::Failure::new(common::trace::FailureKind::NotDispatched, "");
        let Trace { mut clocks, facts, .. } = Trace::unsent(unsent, failure, Nanos(1));
        let at = |us: u64| ContentEvent { at: Nanos(us * 1000), channel: Channel::Answer };
        clocks.written = Some(Nanos(100_000));
        clocks.content = vec![at(20_170), at(30_190)];
        let carried = Carried {
            id: "calibrate/0".into(),
            start: Nanos(7_000_000),
            wall: Nanos(1),
            cpu: Nanos(1),
            traces: vec![(clocks, facts)],
            health: Health::default(),
        };
        let arrival = Arrival {
            id: "calibrate/0/4".into(),
            read_ns: 7_140_000,
            first_ns: 27_140_000,
            last_ns: 37_140_000,
            events: 2,
        };
        let error = added_error(10.0, &carried, &HashMap::from([(arrival.id.clone(), arrival)]));
        let near = |lateness: Lateness, us: f64| (lateness.p50 - us / 1e6).abs() < 1e-12 && lateness.n == 1;
        assert!(near(error.ttft_seconds, 70.0), "{error:?}");
        assert!(near(error.read_seconds, 30.0), "{error:?}");
        assert!(near(error.gap_seconds, 20.0), "{error:?}");
        assert_eq!(added_error(10.0, &carried, &HashMap::new()).ttft_seconds.n, 0);
    }
}
