//! What is seen while a run goes on: a bar on a terminal, plain lines elsewhere. All of it on stderr.

use std::collections::BTreeMap;
use std::io::IsTerminal;

use common::fleet::Progress as Counters;
use common::ids::{AgentName, Nanos};
use common::plan::OfferedRate;
use indicatif::{ProgressBar, ProgressStyle};

use super::terminal::tell;
use crate::plan::Plan;
use crate::report::TrialReport;
use crate::run::{Note, Ui};
use crate::sweep::PlannedTrial;
use crate::trial::drive::{Standing, Watch};

/// Between two plain lines of one trial.
const LINE_EVERY: Nanos = Nanos(5_000_000_000);

/// Where a trial stands.
#[derive(Default)]
struct TrialStanding {
    under_way: bool,
    title: String,
    arrivals: u64,
    length: Option<Nanos>,
    said: Nanos,
}

/// Shows a run.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    terminal: bool,
    /// Somebody else shows what goes on.
    quiet: bool,
    trial: TrialStanding,
}

impl Progress {
    pub(super) fn new() -> Self {
        let terminal = std::io::stderr().is_terminal();
        Self { bar: None, terminal, quiet: false, trial: TrialStanding::default() }
    }

    /// Shows nothing in between, or shows it again.
    pub(super) fn set_quiet(&mut self, quiet: bool) {
        self.quiet = quiet;
        match quiet {
            true => self.end(),
            false if self.trial.under_way => self.bar(),
            false => {}
        }
    }

    /// Puts the bar up, on a terminal.
    fn bar(&mut self) {
        if !self.terminal || self.quiet {
            return;
        }
        let bar = ProgressBar::new(self.trial.arrivals);
        // The template is a constant: it is valid or a test would fail.
        if let Ok(style) = ProgressStyle::with_template("{prefix}  [{bar:24}] {pos}/{len}  {msg}") {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_prefix(self.trial.title.clone());
        self.bar = Some(bar);
    }

    /// Takes the bar away.
    pub(super) fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| tell!("{text}")),
            None => tell!("{text}"),
        }
    }
}

/// A rate with its unit, where it has one.
fn shown_rate(rate: OfferedRate) -> String {
    if rate.per_second().is_some() { format!("{rate}/s") } else { rate.to_string() }
}

/// The fleet's counters in a line.
fn counted(fleet: &BTreeMap<AgentName, Counters>) -> (u64, String) {
    let sum = |field: fn(&Counters) -> u64| fleet.values().map(field).sum::<u64>();
    let sent = sum(|c| c.dispatched);
    let late = fleet.values().map(|c| c.lateness_p99).max().unwrap_or_default();
    let mut text = format!(
        "sent {sent}, in flight {}, ok {}, failed {}",
        sum(|c| c.in_flight),
        sum(|c| c.succeeded),
        sum(|c| c.failed)
    );
    if sum(|c| c.waiting) > 0 {
        text += &format!(", waiting {}", sum(|c| c.waiting));
    }
    text += &format!(", late p99 {:.2} ms", late.as_secs_f64() * 1e3);
    if sum(|c| c.traces_lost) > 0 {
        text += &format!(", TRACES LOST {}", sum(|c| c.traces_lost));
    }
    (sent, text)
}

impl Watch for Progress {
    fn ready(&mut self, warnings: &[String]) {
        warnings.iter().for_each(|w| self.line(&format!("warning      {w}")));
    }

    fn starting(&mut self, _lead: Nanos) {
        self.trial.said = Nanos::ZERO;
    }

    fn stands(&mut self, _: &AgentName, _: &Standing) {}

    fn lost(&mut self, _: &AgentName, _: &str) {}

    fn progress(&mut self, since_start: Nanos, fleet: &BTreeMap<AgentName, Counters>) {
        let (sent, text) = counted(fleet);
        if let Some(bar) = &self.bar {
            bar.set_position(sent);
            bar.set_message(text);
        } else if !self.quiet && since_start - self.trial.said >= LINE_EVERY {
            self.trial.said = since_start;
            let of = self.trial.length.map_or(String::new(), |l| format!(" of {:.0}", l.as_secs_f64()));
            self.line(&format!("             {:.0}{of} s: {text}", since_start.as_secs_f64()));
        }
    }
}

impl Note for Progress {
    fn note(&mut self, text: &str) {
        self.line(text);
    }
}

impl Ui for Progress {
    fn trial_begins(&mut self, trial: &PlannedTrial, of: usize, plan: &Plan, arrivals: u64) {
        let PlannedTrial { trial: number, rate, repeat, rerun_of, .. } = *trial;
        let place = match (rerun_of, plan.search) {
            (Some(first), _) => format!("again for trial {first}"),
            (None, Some(_)) => "of a search".to_owned(),
            (None, None) => format!("{} of {of}", number.0 + 1),
        };
        let title = format!("trial {number} ({place}): {}, repeat {repeat}", shown_rate(rate));
        let length = plan.arrivals(trial.rate).length();
        self.trial = TrialStanding { under_way: true, title, arrivals, length, said: Nanos::ZERO };
        if self.terminal && !self.quiet {
            self.bar();
        } else {
            self.line(&format!("{}: {arrivals} requests", self.trial.title));
        }
    }

    fn trial_ended(&mut self, report: &TrialReport) {
        self.end();
        self.trial.under_way = false;
        let verdict = &report.summary.validity.verdict;
        let numbers = report.summary.numbers.as_ref().map(|n| {
            let attained =
                n.slo_attainment.map_or(String::new(), |a| format!(", attainment {:.1}%", a * 100.0));
            format!("ok {}, failed {}{attained}", n.successful, n.failed)
        });
        let numbers = numbers.unwrap_or_else(|| "its books do not balance".into());
        tell!("{}: {} scheduled, {numbers}, {verdict}", self.trial.title, self.trial.arrivals);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fleet_is_summed_and_the_worst_lateness_shown() {
        let counters = |n: u64| Counters {
            dispatched: n,
            succeeded: n,
            lateness_p99: Nanos(n * 1_000_000),
            ..Counters::default()
        };
        let fleet =
            [("a", 2), ("b", 3)].map(|(name, n)| (name.parse().unwrap(), counters(n))).into_iter().collect();
        let (sent, text) = counted(&fleet);
        assert_eq!((sent, text.as_str()), (5, "sent 5, in flight 0, ok 5, failed 0, late p99 3.00 ms"));
        assert!(ProgressStyle::with_template("{prefix}  [{bar:24}] {pos}/{len}  {msg}").is_ok());
    }
}
