//! Whether the bracket that the search for the knee claims holds the true knee.
//!
//! The engine is M/M/c with an objective on the time to the first token, which is the wait, whose distribution is known
//! ([`MmcQueue::wait_tail`]): so the rate at which exactly the target share of requests is good is known, too.
//! The search is the real one: it asks for trials, gets what the real analysis says of them, and ends by itself.
//!
//! The sabotage: the search that one would write at first, with one trial a rate, of a tenth of the requests, which passes
//! when its attainment is at the target. Its brackets are as narrow as was asked for, and hold the knee far less often.

use common::ids::Nanos;
use common::knee::search::{Ended, Search, SearchResult, SearchSettings, Step, TrialEvidence};
use common::plan::{Extent, Process};
use common::seed::Seed;
use common::slo::{SloSet, Target};
use sim_engine::closed_form::MmcQueue;

use crate::parallel;
use crate::statistics::too_few;
use crate::trial::{Case, SERVICE, Trial};

/// The share of brackets that has to hold the knee.
pub const LEAST_HOLDING: f64 = 0.93;
/// The median relative width of the brackets has to be at most this.
pub const WIDEST_MEDIAN: f64 = 0.15;

/// An engine, and what is asked of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KneeCase {
    /// Servers.
    pub servers: u32,
    /// The objective on the time to the first token, milliseconds.
    pub ttft_millis: u32,
    /// The share of requests that has to meet it.
    pub target: f64,
    /// Requests of each trial.
    pub requests: u64,
    /// The lowest rate, requests per second.
    pub min: f64,
    /// The highest rate, requests per second.
    pub max: f64,
}

/// Engines whose knees lie at different loads, and at different places between two rates of the doubling.
pub const CASES: [KneeCase; 2] = [
    KneeCase { servers: 16, ttft_millis: 5, target: 0.99, requests: 30_000, min: 20.0, max: 500.0 },
    KneeCase { servers: 32, ttft_millis: 10, target: 0.95, requests: 10_000, min: 10.0, max: 1000.0 },
];

impl KneeCase {
    /// As queueing theory writes it, with the objective.
    #[must_use]
    pub fn name(&self) -> String {
        format!("M/M/{}, ttft={}ms for {}%", self.servers, self.ttft_millis, self.target * 100.0)
    }

    /// The share of requests that misses the objective at a rate, requests per second.
    fn misses(&self, rate: f64) -> f64 {
        let queue = MmcQueue::new(rate, 1.0 / SERVICE.as_secs_f64(), self.servers);
        let limit = f64::from(self.ttft_millis) / 1000.0;
        queue.map_or(1.0, |queue| queue.wait_tail(limit))
    }

    /// The knee: the rate at which as many miss as may. Requests per second.
    #[must_use]
    pub fn truth(&self) -> f64 {
        let may_miss = 1.0 - self.target;
        let (mut low, mut high) = (0.0, f64::from(self.servers) / SERVICE.as_secs_f64());
        // The share that misses grows with the rate: halving a hundred times leaves nothing to choose.
        for _ in 0..100 {
            let middle = f64::midpoint(low, high);
            if self.misses(middle) > may_miss { high = middle } else { low = middle }
        }
        low
    }

    /// What is asked of the search.
    ///
    /// # Errors
    /// When the target is none.
    pub fn search(&self) -> anyhow::Result<Search> {
        Ok(Search {
            settings: SearchSettings {
                min_rate_per_second: self.min,
                max_rate_per_second: self.max,
                relative_width: 0.1,
                confidence: 0.95,
                trials_a_rate: 6,
                budget_seconds: Nanos::from_secs(1_000_000).as_secs_f64(),
            },
            target: Target::try_from(self.target)?,
            process: Process::Poisson,
            extent: Extent::Requests(self.requests),
        })
    }
}

/// What one search found.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// Its result.
    pub result: SearchResult,
    /// The sabotage's bracket: a rate whose one trial met the target, and one whose did not. Requests per second.
    pub naive: (f64, f64),
}

/// What the seeds said of one case.
#[derive(Debug, Clone, PartialEq)]
pub struct Knees {
    /// The case.
    pub case: KneeCase,
    /// The true knee, requests per second.
    pub truth: f64,
    /// Each search, in the order of the seeds.
    pub found: Vec<Found>,
}

impl Knees {
    /// Brackets that hold the knee. One that has no end on a side holds everything there.
    #[must_use]
    pub fn holding(&self) -> u64 {
        self.found.iter().filter(|f| holds(ends(&f.result), self.truth)).count() as u64
    }

    /// The sabotage's brackets that hold it.
    #[must_use]
    pub fn holding_naive(&self) -> u64 {
        self.found.iter().filter(|f| holds(f.naive, self.truth)).count() as u64
    }

    /// The median of the relative widths; one without an end is infinitely wide.
    #[must_use]
    pub fn median_width(&self) -> f64 {
        let mut widths: Vec<f64> =
            self.found.iter().map(|f| f.result.width.unwrap_or(f64::INFINITY)).collect();
        widths.sort_by(f64::total_cmp);
        widths.get(widths.len() / 2).copied().unwrap_or(f64::INFINITY)
    }

    /// Trials of a search, on average.
    #[must_use]
    pub fn mean_trials(&self) -> f64 {
        let trials: u32 = self.found.iter().flat_map(|f| &f.result.rates).map(|r| r.trials).sum();
        f64::from(trials) / self.found.len().max(1) as f64
    }

    /// Searches that ended as narrow as was asked for.
    #[must_use]
    pub fn narrow(&self) -> u64 {
        self.found.iter().filter(|f| f.result.ended == Ended::Narrow).count() as u64
    }

    /// The judgement: enough brackets hold the knee (to within their noise where there are few), and they are narrow.
    #[must_use]
    pub fn is_proven(&self) -> bool {
        self.holds_often(self.holding()) && self.median_width() <= WIDEST_MEDIAN
    }

    /// The same judgement of how often a bracket holds, for so many of them.
    #[must_use]
    pub fn holds_often(&self, holding: u64) -> bool {
        let n = self.found.len() as u64;
        match n >= crate::coverage::ENOUGH {
            true => holding as f64 >= LEAST_HOLDING * n as f64,
            false => !too_few(holding, n, LEAST_HOLDING),
        }
    }
}

fn ends(result: &SearchResult) -> (f64, f64) {
    (result.bracket.pass.unwrap_or(0.0), result.bracket.fail.unwrap_or(f64::INFINITY))
}

fn holds((pass, fail): (f64, f64), truth: f64) -> bool {
    pass <= truth && truth <= fail
}

/// Searches for the knee with so many seeds.
///
/// # Errors
/// When a trial cannot be run.
pub fn measure(case: &KneeCase, seeds: u64) -> anyhow::Result<Knees> {
    let found = parallel::map(seeds, |seed| look_for(case, seed));
    let found = found.into_iter().collect::<anyhow::Result<Vec<Found>>>()?;
    Ok(Knees { case: *case, truth: case.truth(), found })
}

fn look_for(case: &KneeCase, seed: Seed) -> anyhow::Result<Found> {
    let search = case.search()?;
    let slos = format!("ttft={}ms", case.ttft_millis).parse()?;
    let engine = Sent { case, seed, slos };
    let mut trials: Vec<TrialEvidence> = Vec::new();
    while let Step::Trial { rate, repeat, .. } = search.next(&trials) {
        trials.push(engine.send(rate.per_second().unwrap_or_default(), repeat, case.requests)?);
    }
    let result = search.result(&trials, &engine.slos);
    Ok(Found { result, naive: naive(&search, &engine)? })
}

/// An engine, and where its chance comes from.
struct Sent<'a> {
    case: &'a KneeCase,
    seed: Seed,
    slos: SloSet,
}

impl Sent<'_> {
    fn send(&self, rate: f64, repeat: u32, requests: u64) -> anyhow::Result<TrialEvidence> {
        let servers = self.case.servers;
        let capacity = f64::from(servers) / SERVICE.as_secs_f64();
        let sent = Case { servers, load: rate / capacity, requests };
        let mut trial = Trial::open(&sent, self.seed.derive(&format!("repeat {repeat}")), usize::MAX)?;
        trial.answer_at_once();
        Ok(TrialEvidence::of(rate, &trial.summary(&self.slos), None))
    }
}

fn naive(search: &Search, engine: &Sent<'_>) -> anyhow::Result<(f64, f64)> {
    let meets = |rate: f64| {
        let trial = engine.send(rate, 0, engine.case.requests / 10)?;
        anyhow::Ok(search.target.is_met_by(trial.scheduled - trial.missed, trial.scheduled))
    };
    let (mut pass, mut fail) = (0.0, f64::INFINITY);
    for rate in search.ladder() {
        match meets(rate)? {
            true => pass = rate,
            false => {
                fail = rate;
                break;
            }
        }
    }
    while pass > 0.0 && fail.is_finite() && fail / pass - 1.0 > search.settings.relative_width {
        let middle = (pass * fail).sqrt();
        if meets(middle)? { pass = middle } else { fail = middle }
    }
    Ok((pass, fail))
}
