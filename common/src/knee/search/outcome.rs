//! What a search found, in numbers and in words.

use serde::{Deserialize, Serialize};

use super::steer::Bracket;
use super::{Ended, RateJudgement, Search, SearchSettings, Standing, Step, TrialEvidence};
use crate::knee::Bracket as Ends;
use crate::slo::SloSet;

/// What is known of where the knee lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SearchCase {
    /// Between two rates.
    Bracket,
    /// At or above a rate.
    AtOrAbove,
    /// Below a rate.
    Below,
    /// Nothing is decided.
    Undecided,
}

/// What a search found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SearchResult {
    /// What was asked.
    #[serde(flatten)]
    pub settings: SearchSettings,
    /// What is known.
    pub case: SearchCase,
    /// Decided rates: the knee lies between them with `confidence`.
    pub bracket: Ends,
    /// `fail / pass − 1`; none where an end is missing.
    pub width: Option<f64>,
    /// Rates that the trials lean to, decided or not: the knee seems to lie between them.
    pub leaning: Ends,
    /// Why it is over.
    pub ended: Ended,
    /// What the trials took, about. Seconds.
    pub spent_seconds: f64,
    /// Every rate that was tried, lowest first.
    pub rates: Vec<RateJudgement>,
    /// All of this in words.
    pub text: String,
    /// What would narrow the bracket, in words; none when it is as narrow as was asked for.
    pub would_narrow: Option<String>,
}

impl Search {
    /// What these trials, which are those that count, say of the knee under `slos`.
    #[must_use]
    pub fn result(&self, trials: &[TrialEvidence], slos: &SloSet) -> SearchResult {
        let rates = self.judged(trials);
        let ends = |bracket: Bracket<'_>| Ends {
            pass: bracket.pass.map(|r| r.rate_per_second),
            fail: bracket.fail.map(|r| r.rate_per_second),
        };
        let (bracket, leaning) = (ends(Bracket::decided(&rates)), ends(Bracket::leaning(&rates, self)));
        let ended = match self.next(trials) {
            Step::End(ended) => ended,
            Step::Trial { .. } => Ended::Early,
        };
        let mut result = SearchResult {
            settings: self.settings,
            case: match (bracket.pass, bracket.fail) {
                (Some(_), Some(_)) => SearchCase::Bracket,
                (Some(_), None) => SearchCase::AtOrAbove,
                (None, Some(_)) => SearchCase::Below,
                (None, None) => SearchCase::Undecided,
            },
            bracket,
            width: bracket.pass.zip(bracket.fail).map(|(pass, fail)| fail / pass - 1.0),
            leaning,
            ended,
            spent_seconds: self.spent_seconds(trials),
            rates,
            text: String::new(),
            would_narrow: None,
        };
        result.text = result.sentences(&format!("{slos} for {} of requests", self.target));
        result.would_narrow = result.narrower(self);
        result
    }
}

impl SearchResult {
    fn sentences(&self, objective: &str) -> String {
        let confidence = format!("{}%", (self.settings.confidence * 1e8).round() / 1e6);
        let Ends { pass, fail } = self.bracket;
        let mut text = match (pass, fail) {
            (Some(pass), Some(fail)) => format!(
                "Search: with {confidence} confidence the knee lies in [{pass}, {fail}] requests/s, {} wide: {pass} meets \
                 {objective}, and {fail} does not.",
                percent(fail / pass - 1.0)
            ),
            (Some(pass), None) => format!(
                "Search: with {confidence} confidence the knee is at or above {pass} requests/s, which meets {objective}; no \
                 rate above it is decided."
            ),
            (None, Some(fail)) => format!(
                "Search: with {confidence} confidence the knee is below {fail} requests/s, which misses {objective}; no \
                 rate below it is decided."
            ),
            (None, None) => format!("Search: no rate is decided against {objective}."),
        };
        if self.leaning != self.bracket {
            let shown = |end: Option<f64>| end.map_or_else(|| "?".to_owned(), |rate| rate.to_string());
            text += &format!(
                " The trials lean to [{}, {}], which is not decided.",
                shown(self.leaning.pass),
                shown(self.leaning.fail)
            );
        }
        let between: Vec<String> = self.undecided().map(|r| r.rate_per_second.to_string()).collect();
        if !between.is_empty() {
            text += &format!(" Undecided: {} requests/s.", between.join(", "));
        }
        let spoiled: Vec<String> =
            self.of(Standing::Spoiled).map(|r| r.rate_per_second.to_string()).collect();
        if !spoiled.is_empty() {
            text += &format!(" No valid trial at {} requests/s.", spoiled.join(", "));
        }
        let trials: u32 = self.rates.iter().map(|r| r.trials).sum();
        text += &format!(" It took {trials} trials at {} rates.", self.rates.len());
        text
    }

    /// What would narrow the bracket.
    fn narrower(&self, search: &Search) -> Option<String> {
        let most = self.settings.trials_a_rate;
        let highest = self.settings.max_rate_per_second;
        Some(match self.ended {
            Ended::Narrow => return None,
            Ended::HighestPasses => format!("A --max-rate above {highest} would tell where it ends."),
            Ended::LowestFails => {
                format!("A --min-rate below {} would tell where it begins.", self.settings.min_rate_per_second)
            }
            Ended::Budget | Ended::Early => {
                let open = self.rates.iter().filter(|r| {
                    matches!(r.standing, Standing::LeansPass | Standing::LeansFail | Standing::Unclear)
                });
                let (mut trials, mut seconds) = (0, 0.0);
                for rate in open.filter(|r| self.is_at_an_end(r)) {
                    let left = most.saturating_sub(rate.looks).max(1);
                    trials += left;
                    seconds += f64::from(left) * search.trial_seconds(rate.rate_per_second);
                }
                match (self.ended, trials) {
                    (Ended::Early, _) => "It was ended early: `coordinator resume` goes on with it.".to_owned(),
                    (_, 0) => "A longer --budget would narrow it.".to_owned(),
                    (_, trials) => format!(
                        "A longer --budget would narrow it: up to {trials} more trials, about {:.0} min, for the ends \
                         that the trials lean to.",
                        (seconds / 60.0).ceil()
                    ),
                }
            }
            Ended::Undecided if self.of(Standing::Spoiled).next().is_some() => {
                "More agents, or less load beside them, would let the rates without a valid trial be measured.".to_owned()
            }
            Ended::Undecided => {
                let nearest = self.undecided().map(|r| r.rate_per_second.to_string()).collect::<Vec<_>>();
                let around = match nearest.is_empty() {
                    true => String::new(),
                    false => format!(" (at {} requests/s the engine is too near to the target)", nearest.join(", ")),
                };
                format!("Longer trials (--duration) or more of them (--trials-a-rate, now {most}) would narrow it{around}.")
            }
        })
    }

    fn is_at_an_end(&self, rate: &RateJudgement) -> bool {
        [self.leaning.pass, self.leaning.fail].contains(&Some(rate.rate_per_second))
    }

    fn of(&self, standing: Standing) -> impl Iterator<Item = &RateJudgement> {
        self.rates.iter().filter(move |r| r.standing == standing)
    }

    /// Undecided rates that lie within the bracket.
    fn undecided(&self) -> impl Iterator<Item = &RateJudgement> {
        let (low, high) = (self.bracket.pass.unwrap_or(0.0), self.bracket.fail.unwrap_or(f64::INFINITY));
        let within = move |r: &&RateJudgement| r.rate_per_second > low && r.rate_per_second < high;
        self.of(Standing::Undecided).filter(within)
    }
}

/// Rounded up, to a tenth: a width must not be drawn in.
fn percent(share: f64) -> String {
    let tenths = (share * 1000.0 - 1e-9).ceil() / 10.0;
    format!("{tenths}%")
}
