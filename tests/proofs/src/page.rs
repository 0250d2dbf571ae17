//! The page: every proof with its numbers, and whether it holds.
//!
//! Owns the list of claims, so that what is printed and what is judged are the same thing. Must never round a failure
//! into a success: the judgements are made on the numbers, not on what is shown of them.

use std::fmt::Write as _;

use crate::arrivals::{self, Split, Tests};
use crate::coverage::{self, CASES, Coverage, LEAST_COVERAGE, Tally};
use crate::latency::{self, LIMITED, Limited, Loops};
use crate::losses::{self, Drain, Failures};

/// Everything that was measured.
#[derive(Debug)]
pub struct Page {
    seeds: u64,
    coverage: Vec<Coverage>,
    limited: Limited,
    loops: Loops,
    loops_closed: Loops,
    failures: Failures,
    drain: Drain,
    arrivals: Vec<(&'static str, Tests, bool)>,
    exact: bool,
}

impl Page {
    /// Runs all proofs; `progress` hears what is being run.
    ///
    /// # Errors
    /// When one cannot be run.
    pub fn measure(seeds: u64, mut progress: impl FnMut(&str)) -> anyhow::Result<Self> {
        let mut measured = Vec::new();
        for case in &CASES {
            progress(&case.name());
            measured.push(coverage::measure(case, seeds)?);
        }
        progress("latency, loops, losses");
        let limited = latency::limited(seeds)?;
        let loops = latency::loops(seeds)?;
        let loops_closed = latency::loops_that_are_both_closed(seeds)?;
        let failures = losses::failures(seeds)?;
        let drain = losses::drain(seeds)?;
        progress("arrivals");
        let arrivals = vec![
            ("poisson", arrivals::poisson(seeds)?, true),
            ("gamma, CV 0.5", arrivals::gamma(seeds, 0.5, 0.5)?, true),
            ("gamma, CV 2", arrivals::gamma(seeds, 2.0, 2.0)?, true),
            ("*gamma, CV 2, taken for poisson*", arrivals::gamma(seeds, 2.0, 1.0)?, false),
            ("ramp, 100/s to 300/s, on its own time scale", arrivals::ramp(seeds, 300.0, false)?, true),
            ("*the same ramp taken for a constant rate*", arrivals::ramp(seeds, 300.0, true)?, false),
            ("poisson from 5 agents, clocks ±50 ms wrong", arrivals::merged(seeds, Split::Rendezvous)?, true),
            ("*the same, split by index modulo agents*", arrivals::merged(seeds, Split::Modulo)?, false),
        ];
        let exact = arrivals::exact()?;
        Ok(Self { seeds, coverage: measured, limited, loops, loops_closed, failures, drain, arrivals, exact })
    }

    /// Every claim that turned out false.
    #[must_use]
    pub fn failed(&self) -> Vec<String> {
        self.claims().into_iter().filter(|(_, holds)| !holds).map(|(claim, _)| claim).collect()
    }

    fn claims(&self) -> Vec<(String, bool)> {
        let mut claims = Vec::new();
        let mut claim = |text: String, holds: bool| claims.push((text, holds));
        for case in &self.coverage {
            for (metric, _, tally) in case.tallies() {
                let name = format!("{}, {metric}", case.case.name());
                claim(format!("{name}: coverage"), tally.holds());
                claim(format!("{name}: an interval is given often"), tally.is_given_often());
            }
            let name = case.case.name();
            claim(
                format!("{name}: intervals as if independent are rejected"),
                !case.independent_mean.holds(),
            );
            claim(
                format!("{name}: shares as if independent are rejected"),
                !case.independent_attainment.holds(),
            );
        }
        let limited = &self.limited;
        claim("behind a limit: mean".into(), limited.mean.holds());
        claim("behind a limit: p99".into(), limited.p99.holds());
        claim(
            "behind a limit: the mean from dispatch is rejected".into(),
            !limited.mean_from_dispatch.holds(),
        );
        claim("behind a limit: the p99 from dispatch is rejected".into(), !limited.p99_from_dispatch.holds());
        claim("an open loop shows what a closed one hides".into(), self.loops.holds());
        claim("two closed loops show nothing".into(), !self.loops_closed.holds());
        claim("failures count".into(), self.failures.attainment.holds());
        claim("failures left out are rejected".into(), !self.failures.without_failures.holds());
        claim("the drain counts".into(), self.drain.holds(self.drain.throughput));
        claim("the drain left out is rejected".into(), !self.drain.holds(self.drain.without_drain));
        for (name, tests, right) in &self.arrivals {
            claim(format!("arrivals: {name}"), tests.holds() == *right);
        }
        claim("arrivals: constant and burst".into(), self.exact);
        claims
    }

    /// In Markdown.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        self.head(&mut text);
        self.coverage_part(&mut text);
        self.sabotage_part(&mut text);
        self.loops_part(&mut text);
        self.arrivals_part(&mut text);
        text
    }

    fn head(&self, text: &mut String) {
        let seeds = self.seeds;
        let failed = self.failed();
        let verdict = if failed.is_empty() {
            format!("All {} claims hold.", self.claims().len())
        } else {
            format!("**{} claims fail: {}.**", failed.len(), failed.join("; "))
        };
        let _ = write!(
            text,
            "# Why the numbers can be believed\n\n\
             Queues whose truth is known in closed form are put under load in virtual time, and what Plimsoll says of \
             the traces is held against that truth: the real schedule, split, trace and summary, with agents that are \
             never late. Seeds 1 to {seeds}. {verdict}\n\n\
             ```\n\
             make proofs                                      # writes this page, with 1,000 seeds\n\
             cargo run --release -p proofs -- --seeds {seeds}    # prints it\n\
             cargo nextest run -p proofs                      # the same judgements with 100 seeds, in CI\n\
             ```\n\n\
             The page is a function of the seeds: the same on every machine. Closed forms: \
             `examples/sim-engine/src/closed_form.rs`, with their sources. A number is judged with its noise: a share \
             fails when it is more than two standard deviations below its bound.\n\n"
        );
    }

    fn coverage_part(&self, text: &mut String) {
        let _ = write!(
            text,
            "## Intervals hold the truth\n\n\
             A 95% interval has to hold the truth in at least {:.0}% of the trials for which one is given. \
             `no interval` is an answer too: how often it was said stands beside, with the reasons. *As if \
             independent* is the sabotage: the textbook's mean ± 1.96 standard errors.\n\n\
             | queue | requests a trial | number | truth | holds it | half width | no interval | as if independent |\n\
             | --- | ---: | --- | ---: | ---: | ---: | --- | ---: |\n",
            LEAST_COVERAGE * 100.0
        );
        for case in &self.coverage {
            for (metric, truth, tally) in case.tallies() {
                let wrong = match metric {
                    "mean E2E" => percent(case.independent_mean.coverage()),
                    "attainment" => percent(case.independent_attainment.coverage()),
                    _ => String::new(),
                };
                let shown = match metric {
                    "attainment" => format!("{:.2}%", truth * 100.0),
                    _ => format!("{truth:.3} s"),
                };
                let _ = writeln!(
                    text,
                    "| {} | {} | {metric} | {shown} | {} | {} | {} | {wrong} |",
                    case.case.name(),
                    case.case.requests,
                    percent(tally.coverage()),
                    percent(tally.relative_half_width()),
                    none(tally),
                );
            }
        }
        text.push('\n');
    }

    fn sabotage_part(&self, text: &mut String) {
        let (limited, failures, drain) = (&self.limited, &self.failures, &self.drain);
        let _ = write!(
            text,
            "## What is known to be wrong is rejected\n\n\
             A proof that cannot fail proves nothing. Each line computes a number the right way and a wrong one, and \
             judges both alike.\n\n\
             | what | right | wrong | test |\n\
             | --- | --- | --- | --- |\n"
        );
        let mut line = |what: &str, right: String, wrong: String, test: &str| {
            let _ = writeln!(text, "| {what} | {right} | {wrong} | `{test}` |");
        };
        for case in &self.coverage {
            line(
                &format!(
                    "{}: the interval of the mean by batches, or as if requests were independent",
                    case.case.name()
                ),
                format!("holds the truth in {}", percent(case.mean.coverage())),
                format!("in {}", percent(case.independent_mean.coverage())),
                "an_interval_as_if_requests_were_independent_is_rejected",
            );
        }
        line(
            &format!(
                "{} behind a limit of {}: E2E from the schedule, or from the dispatch",
                LIMITED.name(),
                latency::PERMITS
            ),
            format!(
                "mean held in {}, p99 in {}",
                percent(limited.mean.coverage()),
                percent(limited.p99.coverage())
            ),
            format!(
                "mean in {}, p99 in {}",
                percent(limited.mean_from_dispatch.coverage()),
                percent(limited.p99_from_dispatch.coverage())
            ),
            "latency_from_dispatch_is_rejected",
        );
        line(
            &format!(
                "{} cut after {:.3} s ({:.1}% fail): attainment over all scheduled, or over the successes",
                losses::CUT.name(),
                failures.timeout,
                failures.failed * 100.0
            ),
            format!(
                "{:.2}% held in {}",
                failures.truth.attainment * 100.0,
                percent(failures.attainment.coverage())
            ),
            format!("in {}", percent(failures.without_failures.coverage())),
            "failures_left_out_are_rejected",
        );
        line(
            &format!(
                "{}, {} requests: throughput over the window, or over the time of the arrivals",
                losses::OVERLOADED.name(),
                losses::OVERLOADED.requests
            ),
            format!("{:.2}/s of {:.2}/s", drain.throughput, drain.truth),
            format!("{:.2}/s", drain.without_drain),
            "the_drain_left_out_is_rejected",
        );
        text.push('\n');
    }

    fn loops_part(&self, text: &mut String) {
        let loops = &self.loops;
        let _ = write!(
            text,
            "## What a closed loop hides\n\n\
             {}, {} requests: the p99 of the E2E in the open loop is {:.0} times that of a closed loop of {} workers on \
             the same work (median over the seeds; at least {:.1} times in each; {:.1} s against {:.2} s with seed 1). \
             At least {:.0} times is asked for. The sabotage, two closed loops, shows a ratio of {:.1}.\n\n",
            latency::OVERLOADED.name(),
            latency::OVERLOADED.requests,
            loops.median(),
            latency::WORKERS,
            loops.least(),
            loops.first.0,
            loops.first.1,
            latency::LEAST_RATIO,
            self.loops_closed.median(),
        );
    }

    fn arrivals_part(&self, text: &mut String) {
        let _ = write!(
            text,
            "## Arrivals are the process that they say they are\n\n\
             10,000 arrivals at 100/s a seed. Each test rejects 1% of honest seeds by chance; the columns show how many \
             of {} it rejected. Sabotages are in italics, and must be rejected. `constant` and `burst` are exact to the \
             nanosecond: {}.\n\n\
             | arrivals | gaps (Kolmogorov–Smirnov) | counts (dispersion) | neighbours (lag 1) | mean dispersion | mean lag 1 |\n\
             | --- | ---: | ---: | ---: | ---: | ---: |\n",
            self.seeds,
            if self.exact { "yes" } else { "**no**" }
        );
        for (name, tests, _) in &self.arrivals {
            let counts = tests.counts.map_or_else(|| "–".to_owned(), |counts| counts.to_string());
            let _ = writeln!(
                text,
                "| {name} | {} | {counts} | {} | {:.3} | {:+.4} |",
                tests.gaps, tests.neighbours, tests.dispersion, tests.lag_1
            );
        }
    }
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "–".to_owned(), |share| format!("{:.1}%", share * 100.0))
}

fn none(tally: &Tally) -> String {
    let all = tally.trials() as f64;
    let reasons: Vec<String> = tally
        .none
        .iter()
        .map(|(reason, count)| format!("{:.1}% {reason}", *count as f64 / all * 100.0))
        .collect();
    if reasons.is_empty() { "never".to_owned() } else { reasons.join(", ") }
}
