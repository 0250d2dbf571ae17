//! The options of a search → what is asked of it. What cannot be searched for is said before anything is sent.

use anyhow::{anyhow, bail};
use common::knee::search::{Search, SearchSettings};
use common::plan::{ArrivalPlan, Extent, OfferedRate, Process, Rate};
use common::slo::{SloSet, Target};

use super::time;
use crate::cli::options::{Arrival, Common, SearchOptions};

/// Rates, time, width, confidence and trials when nobody says so.
const DEFAULTS: (&str, &str, &str, &str, &str) = ("1", "500", "30m", "10%", "95%");
/// Trials at one rate when nobody says so.
const DEFAULT_TRIALS_A_RATE: u32 = 6;
/// More trials at one rate are a slip: each look leaves less for the others.
const MOST_TRIALS_A_RATE: u32 = 100;

/// What is searched for; none without --find-knee.
///
/// # Errors
/// The first thing that is wrong.
pub(super) fn settings(
    options: &SearchOptions,
    common: &Common,
    (process, extent): (Process, Extent),
) -> anyhow::Result<Option<SearchSettings>> {
    if !options.find_knee {
        return ignored(options)
            .map_or(Ok(None), |option| bail!("{option} would be ignored without --find-knee"));
    }
    match common.arrival {
        Arrival::Closed => bail!("--find-knee needs an open loop: a closed one has no rate to search for"),
        Arrival::Ramp => {
            bail!("--find-knee needs trials of one rate each: --arrival ramp changes it within a trial")
        }
        _ => {}
    }
    let or = |given: &Option<String>, default: &str| given.clone().unwrap_or_else(|| default.to_owned());
    let (min, max, budget, width, confidence) = DEFAULTS;
    let min = rate("--min-rate", &or(&options.min_rate, min))?;
    let max = rate("--max-rate", &or(&options.max_rate, max))?;
    if min >= max {
        bail!(
            "--min-rate {} is not below --max-rate {}: there is nothing to search",
            min.per_second(),
            max.per_second()
        );
    }
    for (option, rate) in [("--min-rate", min), ("--max-rate", max)] {
        let plan = ArrivalPlan { process, rate: OfferedRate::PerSecond(rate), extent };
        plan.validate().map_err(|e| anyhow!("{option} {}: {e}", rate.per_second()))?;
    }
    let trials_a_rate = options.trials_a_rate.unwrap_or(DEFAULT_TRIALS_A_RATE);
    if trials_a_rate == 0 || trials_a_rate > MOST_TRIALS_A_RATE {
        bail!("--trials-a-rate {trials_a_rate}: say a number from 1 to {MOST_TRIALS_A_RATE}");
    }
    let settings = SearchSettings {
        min_rate_per_second: min.per_second(),
        max_rate_per_second: max.per_second(),
        relative_width: share("--bracket-width", &or(&options.bracket_width, width), 0.001, 1.0)?,
        confidence: share("--confidence", &or(&options.confidence, confidence), 0.5, 0.9999)?,
        trials_a_rate,
        budget_seconds: time("--budget", &or(&options.budget, budget))?.as_secs_f64(),
    };
    let search = Search { settings, target: Target::default(), process, extent };
    let takes = search.trial_seconds(settings.min_rate_per_second);
    if takes > settings.budget_seconds {
        bail!(
            "--budget {}: the first trial alone takes {takes:.0} s; make it longer, or the trials shorter (--duration)",
            or(&options.budget, budget)
        );
    }
    Ok(Some(settings))
}

/// An option that says nothing without a search.
fn ignored(options: &SearchOptions) -> Option<&'static str> {
    let given = [
        ("--min-rate", options.min_rate.is_some()),
        ("--max-rate", options.max_rate.is_some()),
        ("--budget", options.budget.is_some()),
        ("--bracket-width", options.bracket_width.is_some()),
        ("--confidence", options.confidence.is_some()),
        ("--trials-a-rate", options.trials_a_rate.is_some()),
    ];
    given.iter().find(|(_, given)| *given).map(|(option, _)| *option)
}

/// What a search can decide by.
///
/// # Errors
/// Objectives that it cannot.
pub(super) fn decides_by(given: bool, slos: &SloSet, target: Target) -> anyhow::Result<()> {
    if !given || slos.is_empty() {
        bail!(
            "--find-knee needs to know what the engine has to meet: say so with --slo, as in --slo ttft=1s"
        );
    }
    if let Some(slo) = slos.over_trial().next() {
        bail!(
            "--find-knee decides by the share of requests that meet their objectives: instead of --slo {slo} ask it of each \
             request (--slo {}={}) and say of how many with --slo-target",
            slo.metric.name(),
            common::slo::shown_time(slo.limit)
        );
    }
    if target.share() >= 1.0 {
        bail!(
            "--slo-target {target}: no number of requests can show that none will ever miss; ask for 99.9%, say"
        );
    }
    Ok(())
}

fn rate(option: &str, text: &str) -> anyhow::Result<Rate> {
    match text.parse::<OfferedRate>().map_err(|e| anyhow!("{option}: {e}"))? {
        OfferedRate::PerSecond(rate) => Ok(rate),
        OfferedRate::Infinite => bail!("{option} inf: a search needs a finite rate, requests per second"),
        OfferedRate::Closed(_) => bail!("{option} {text}: a search needs a rate, requests per second"),
    }
}

fn share(option: &str, text: &str, least: f64, most: f64) -> anyhow::Result<f64> {
    let (number, of) = text.trim().strip_suffix('%').map_or((text.trim(), 1.0), |n| (n.trim(), 100.0));
    let share = number.parse::<f64>().ok().map(|n| n / of).filter(|share| (least..=most).contains(share));
    share.ok_or_else(|| anyhow!("{option} {text}: say a share from {}% to {}%", least * 100.0, most * 100.0))
}
