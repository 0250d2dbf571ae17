//! The options of a search for the knee.

use clap::Args;

/// Options that a search has no use for: they are about rates that are known before, or would end it where it begins.
const NOT_WITH: &[&str] = &["rates", "repeats", "concurrency", "stop_after_knee", "max_failures", "gate"];

/// What is searched for, as typed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Args)]
pub struct SearchOptions {
    /// Search for the knee instead of testing given rates: rates double until one fails, then the bracket is halved, with
    /// as many trials at its ends as decide them (see docs/knee.md). Needs --slo
    #[arg(long, conflicts_with_all = NOT_WITH, help_heading = "Search")]
    pub find_knee: bool,

    /// The first rate of the search, requests per second [default: 1]
    #[arg(
        long,
        value_name = "RATE",
        allow_hyphen_values = true,
        requires = "find_knee",
        help_heading = "Search"
    )]
    pub min_rate: Option<String>,

    /// The highest rate of the search [default: 500]
    #[arg(
        long,
        value_name = "RATE",
        allow_hyphen_values = true,
        requires = "find_knee",
        help_heading = "Search"
    )]
    pub max_rate: Option<String>,

    /// How long the search may go on: no trial begins that would end later [default: 30m]
    #[arg(long, value_name = "TIME", help_heading = "Search")]
    pub budget: Option<String>,

    /// The bracket is narrow enough when its upper end is at most so much above its lower one [default: 10%]
    #[arg(long, value_name = "SHARE", help_heading = "Search")]
    pub bracket_width: Option<String>,

    /// The probability with which the bracket holds the knee, at least [default: 95%]
    #[arg(long, value_name = "SHARE", help_heading = "Search")]
    pub confidence: Option<String>,

    /// Trials at one rate, at most; after each it is looked whether they decide [default: 6]
    #[arg(long, value_name = "N", help_heading = "Search")]
    pub trials_a_rate: Option<u32>,
}
