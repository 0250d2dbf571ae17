//! What the model shows: the state of the second, the sweep so far, and what a reader lacks.

use common::fleet::Upload;
use common::ids::{Nanos, RunId};
use common::plan::OfferedRate;
use common::slo::SloMetric;

use super::lines::Lines;
use super::model::{Current, Model};
use super::view::{About, Known, News, State, Sweep, TrialNow};
use crate::plan::Plan;

/// Lines of the story that a reader gets.
const NOTES_SHOWN: usize = 50;

impl Model {
    fn stage(&self, now: Nanos) -> &'static str {
        let started = |c: &Current| c.start.is_some_and(|start| start <= now);
        match &self.current {
            _ if self.outcome.is_some() => "over",
            None if self.closing => "closing",
            None => "gathering",
            Some(c) if c.start.is_none() => "preparing",
            Some(c) if !started(c) => "starting",
            Some(c) => match (c.start, c.length) {
                (Some(start), Some(length)) if now.since(start) > length => "draining",
                _ if self.stop > 0 => "draining",
                _ => "sending",
            },
        }
    }

    fn trial_now(&self, current: &Current, now: Nanos) -> TrialNow {
        let (planned, totals) = (&current.planned, &current.totals);
        let (traced, good) = current.traced;
        let late = (totals.dispatched > 0).then(|| totals.lateness_p99.as_secs_f64());
        TrialNow {
            trial: planned.trial.0,
            offered: planned.rate.to_string(),
            offered_per_second: planned.rate.per_second(),
            repeat: planned.repeat,
            rerun_of: planned.rerun_of.map(|t| t.0),
            arrivals: current.arrivals,
            length_seconds: current.length.map(Nanos::as_secs_f64),
            since_start_seconds: current.start.filter(|s| *s <= now).map(|s| (now - s).as_secs_f64()),
            dispatched: totals.dispatched,
            in_flight: totals.in_flight,
            waiting: totals.waiting,
            succeeded: totals.succeeded,
            failed: totals.failed,
            lateness_p99_seconds: late,
            attainment_so_far: (traced > 0 && self.sources.goodput).then(|| good as f64 / traced as f64),
        }
    }

    /// What changes from second to second.
    #[must_use]
    pub fn state(&self, now: Nanos) -> State {
        let current: Option<(OfferedRate, u32, Nanos)> =
            self.current.as_ref().map(|c| (c.planned.rate, c.planned.repeat, now.since(c.began)));
        let left = self.outlook.left(current).filter(|_| self.outcome.is_none() && self.stop == 0);
        State {
            stage: self.stage(now),
            stop: self.stop,
            outcome: self.outcome.clone(),
            elapsed_seconds: self.passed(now),
            left_seconds: left.map(Nanos::as_secs_f64),
            trials_planned: self.outlook.total(),
            trials_done: self.outlook.done(),
            trial: self.current.as_ref().map(|c| self.trial_now(c, now)),
            agents: self.agents.rows().cloned().collect(),
            agents_beyond: self.agents.beyond,
            gpus: self.machines.gpus().cloned().collect(),
            engine_now: self.machines.engine,
            warnings: self.messages.warnings(),
            notes: self.messages.notes(NOTES_SHOWN),
            missed: self.missed,
            late_requests: self.seconds.late,
        }
    }

    /// The sweep so far.
    #[must_use]
    pub fn sweep(&self) -> Sweep {
        let (trials, rates) = (self.trials.rows(), self.trials.rates.clone());
        Sweep { about: self.about.clone(), trials, rates, knee: self.trials.knee.clone() }
    }

    /// The time lines.
    #[must_use]
    pub fn lines(&self) -> &Lines {
        &self.lines
    }

    /// What a reader lacks who has `known`; all of it where that is not what is kept any more.
    #[must_use]
    pub fn news(&self, known: Known, now: Nanos) -> News {
        let since = self.lines.since(known.point);
        let sweep = (known.sweep != self.sweep_version).then(|| self.sweep());
        News {
            anew: since.is_none() || known.point == 0,
            points: since.unwrap_or_else(|| self.lines.all().copied().collect()),
            state: self.state(now),
            sweep,
            known: Known { point: self.lines.last_number(), sweep: self.sweep_version },
        }
    }
}

/// What a run is about.
pub(super) fn about(run: &RunId, plan: &Plan) -> About {
    let limit = plan.slos.each_request().find(|(metric, _)| *metric == SloMetric::Ttft);
    About {
        run: run.to_string(),
        version: env!("CARGO_PKG_VERSION"),
        engine: match plan.target.engines().count() {
            1 => plan.target.base_url.to_string(),
            n => format!("{} and {} more", plan.target.base_url, n - 1),
        },
        model: plan.target.model.clone(),
        // Its folder says nothing to others who look.
        workload: plan.workload.source.rsplit('/').next().unwrap_or_default().to_owned(),
        arrivals: plan.process.to_string(),
        searches: plan.search.is_some(),
        slos: plan.slos.iter().map(|slo| slo.to_string()).collect(),
        ttft_limit_seconds: limit.map(|(_, limit)| limit.as_secs_f64()),
        slo_target: plan.slo_target.share(),
        live_latencies: plan.upload == Upload::During,
        lateness_budget_seconds: plan.limits.lateness_budget.as_secs_f64(),
    }
}
