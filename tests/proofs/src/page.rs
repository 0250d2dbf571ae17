//! The page: every proof with its numbers, and whether it holds.
//!
//! Owns the list of claims, so that what is printed and what is judged are the same thing. Must never round a failure
//! into a success: the judgements are made on the numbers, not on what is shown of them.

use std::fmt::Write as _;

use crate::arrivals::{self, Split, Tests};
use crate::coverage::{self, CASES, Coverage, ENOUGH, LEAST_COVERAGE, MOST_WRONG, SHORT_CASES};
use crate::knee::{self, Knees, LEAST_HOLDING, WIDEST_MEDIAN};
use crate::latency::{self, LIMITED, Limited, Loops};
use crate::losses::{self, Drain, Failures};
use crate::markdown::{coverage_table, paragraph, percent};

/// Everything that was measured.
#[derive(Debug)]
pub struct Page {
    seeds: u64,
    coverage: Vec<Coverage>,
    short: Vec<Coverage>,
    limited: Limited,
    loops: Loops,
    loops_closed: Loops,
    failures: Failures,
    drain: Drain,
    arrivals: Vec<(&'static str, Tests, bool)>,
    exact: bool,
    knees: Vec<Knees>,
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
        progress("short trials");
        let short = SHORT_CASES.iter().map(|case| coverage::measure(case, seeds));
        let short = short.collect::<anyhow::Result<Vec<Coverage>>>()?;
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
        progress("searches for the knee");
        let knees = knee::CASES.iter().map(|case| knee::measure(case, seeds));
        let knees = knees.collect::<anyhow::Result<Vec<Knees>>>()?;
        Ok(Self {
            seeds,
            coverage: measured,
            short,
            limited,
            loops,
            loops_closed,
            failures,
            drain,
            arrivals,
            exact,
            knees,
        })
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
        for case in &self.short {
            for (metric, _, tally) in case.tallies() {
                let name = format!("{}, {} requests, {metric}", case.case.name(), case.case.requests);
                claim(format!("{name}: a wrong interval is rare"), tally.is_rarely_wrong());
            }
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
        for found in &self.knees {
            let name = found.case.name();
            claim(format!("{name}: brackets hold the knee"), found.holds_often(found.holding()));
            claim(format!("{name}: brackets are narrow"), found.median_width() <= WIDEST_MEDIAN);
            claim(
                format!("{name}: a search of one trial a rate is rejected"),
                !found.holds_often(found.holding_naive()),
            );
        }
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
        text.push_str(&knee_part(&self.knees));
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
        text.push_str("# Why the numbers can be believed\n\n");
        paragraph(
            text,
            &format!(
                "Queues whose truth is known in closed form are put under load in virtual time, and what Plimsoll says \
                 of the traces is held against that truth: the real schedule, split, trace and summary, with agents \
                 that are never late. Seeds 1 to {seeds}. {verdict}"
            ),
        );
        let printed = format!("cargo run --release -p proofs -- --seeds {seeds}");
        let _ = write!(
            text,
            "```\n\
             {:<52} # writes this page, with 1,000 seeds (about half an hour of processor time)\n\
             {printed:<52} # prints it\n\
             {:<52} # the same judgements with 100 seeds, in CI\n\
             ```\n\n",
            "make proofs", "cargo nextest run -p proofs"
        );
        paragraph(
            text,
            &format!(
                "The page is a function of the seeds: the same on every machine. The closed forms and their sources are \
                 in `examples/sim-engine/src/closed_form.rs`. From {ENOUGH} intervals on, their coverage has to be at \
                 the bound; with fewer it may be two standard deviations below it."
            ),
        );
    }

    fn coverage_part(&self, text: &mut String) {
        text.push_str("## Intervals hold the truth\n\n");
        paragraph(
            text,
            &format!(
                "A 95% interval has to hold the truth in at least {:.0}% of the trials for which one is given. `no \
                 interval` is an answer too: how often it was said stands beside, with the reasons. *As if independent* \
                 is the sabotage: the textbook's mean ± 1.96 standard errors. The half width is a share of the truth.",
                LEAST_COVERAGE * 100.0
            ),
        );
        coverage_table(text, &self.coverage);
        paragraph(
            text,
            "Trials too short for most intervals. **The few that get one hold the truth less often than 93%**, most of all near \
             saturation: they are the trials that happened to see no long queue, and nothing in them shows it. So an \
             interval from a short trial is worth less than it says; what is judged here is only that a wrong one is rare \
             among all trials.",
        );
        coverage_table(text, &self.short);
        let wrong = self.short.iter().flat_map(|case| case.tallies().map(|(_, _, tally)| tally.wrong()));
        let worst = wrong.fold(0.0, f64::max);
        paragraph(
            text,
            &format!(
                "A wrong interval: at most {:.1}% of all trials of a row; {:.0}% are allowed. Test: \
                 `short_trials_rarely_get_a_wrong_interval`.",
                worst * 100.0,
                MOST_WRONG * 100.0
            ),
        );
    }

    fn sabotage_part(&self, text: &mut String) {
        let (limited, failures, drain) = (&self.limited, &self.failures, &self.drain);
        text.push_str("## What is known to be wrong is rejected\n\n");
        paragraph(
            text,
            "A proof that cannot fail proves nothing. Each line computes a number the right way and a wrong one, and judges \
             both alike; the test is in `tests/proofs/tests/proofs.rs`.",
        );
        text.push_str("| what | right | wrong | test |\n| --- | --- | --- | --- |\n");
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
        text.push_str("## What a closed loop hides\n\n");
        let said = format!(
            "{}, {} requests: the p99 of the E2E in the open loop is {:.0} times that of a closed loop of {} workers on \
             the same work (median over the seeds; {:.1} times at least; {:.1} s against {:.2} s with seed 1). At least \
             {:.0} times is asked for. The sabotage, two closed loops, shows a ratio of {:.1}. Test: \
             `an_open_loop_shows_what_a_closed_one_hides`.",
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
        paragraph(text, &said);
    }

    fn arrivals_part(&self, text: &mut String) {
        text.push_str("## Arrivals are the process that they say they are\n\n");
        let said = format!(
            "10,000 arrivals at 100/s a seed. Each test rejects 1% of honest seeds by chance; the columns show how many \
             of {} it rejected. Sabotages are in italics, and must be rejected. `constant` and `burst` are exact to the \
             nanosecond: {}. Tests: `arrivals_are_the_process_that_they_say_they_are`, \
             `arrivals_of_another_process_are_rejected`, `five_agents_with_wrong_clocks_are_still_poisson`.",
            self.seeds,
            if self.exact { "yes" } else { "**no**" }
        );
        paragraph(text, &said);
        text.push_str(
            "| arrivals | gaps (Kolmogorov–Smirnov) | counts (dispersion) | neighbours (lag 1) | mean dispersion | \
             mean lag 1 |\n| --- | ---: | ---: | ---: | ---: | ---: |\n",
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

/// What the page says of the searches.
#[must_use]
pub fn knee_part(knees: &[Knees]) -> String {
    let mut text = String::from("\n## A search finds the knee\n\n");
    let seeds = knees.first().map_or(0, |found| found.found.len());
    paragraph(
        &mut text,
        &format!(
            "The real search ([knee.md](knee.md)), with its defaults but for rates and trials, on engines whose first token \
             comes after the wait alone: then the knee is known in closed form. The bracket, with 95% confidence, has to hold \
             the knee in at least {:.0}% of {seeds} searches, and the median of `fail / pass − 1` has to be at most {:.0}%; a \
             search that decides no end counts as infinitely wide. *One trial a rate* is the sabotage: the same rates, each \
             decided by the attainment of one trial of a tenth of the requests. Tests: `a_bracket_holds_the_knee_of_99_percent`, \
             `a_bracket_holds_the_knee_of_95_percent_and_one_trial_a_rate_is_rejected`.",
            LEAST_HOLDING * 100.0,
            WIDEST_MEDIAN * 100.0
        ),
    );
    text.push_str(
        "| engine, objective | requests a trial | knee | brackets that hold it | *one trial a rate* | median width | trials a \
         search |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for found in knees {
        let share = |holding: u64| percent(Some(holding as f64 / found.found.len().max(1) as f64));
        let _ = writeln!(
            text,
            "| {} | {} | {:.2}/s | {} | *{}* | {:.1}% | {:.1} |",
            found.case.name(),
            found.case.requests,
            found.truth,
            share(found.holding()),
            share(found.holding_naive()),
            found.median_width() * 100.0,
            found.mean_trials()
        );
    }
    text
}
