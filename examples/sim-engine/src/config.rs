//! What was typed ([`Options`]) and what it means ([`Config`]).
//!
//! Owns the command line, its defaults and its help. Must never start anything.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use crate::batch::BatchTiming;
use crate::engine::Timing;
use crate::fault::{self, FaultRule};
use crate::fixed::FixedTiming;
use crate::mmc::MmcTiming;
use crate::prefix::BLOCK_TOKENS;

/// A simulated LLM serving engine: OpenAI-compatible completions and chat, without a model.
///
/// It answers with made-up words at the pace of an engine that batches continuously: slots, a queue, a prefill that
/// stalls everybody else, decode steps that grow with the batch. Offered more than it can carry, its queue grows
/// without end; a sweep over rates shows where. A prompt counts one token per 4 characters.
///
/// It prints `sim-engine listening on http://HOST:PORT` (https:// with TLS) when it is ready, and ends on SIGTERM or ctrl-c.
#[derive(Debug, Clone, Parser)]
#[command(name = "sim-engine", version, args_override_self = true, after_long_help = fault::help())]
pub struct Options {
    /// Where to listen; port 0 takes a free one.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8000")]
    pub listen: String,

    /// PEM file of a certificate: serve inside TLS.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,

    /// PEM file of its key.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,

    /// PEM file of authorities: let in only clients with a certificate of one of them.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_client_ca: Option<PathBuf>,

    /// The one model that is served.
    #[arg(long, value_name = "NAME", default_value = "sim")]
    pub model: String,

    /// Seed of output lengths and words; with the same seed a request gets the same answer.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Sequences that run at once.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = at_least_one::<usize>, help_heading = "Engine model")]
    pub slots: usize,

    /// Sequences that may wait for a slot; beyond it, HTTP 503.
    #[arg(long, value_name = "N", default_value_t = 4096, help_heading = "Engine model")]
    pub max_queue: usize,

    /// Prompt tokens prefilled per second.
    #[arg(
        long,
        value_name = "TOKENS",
        default_value_t = 8000.0,
        value_parser = rate,
        help_heading = "Engine model"
    )]
    pub prefill_rate: f64,

    /// What a prefill costs whatever its length.
    #[arg(long, value_name = "MS", default_value = "5", value_parser = millis, help_heading = "Engine model")]
    pub prefill_base_ms: Duration,

    /// What a decode step costs whatever its batch.
    #[arg(long, value_name = "MS", default_value = "12", value_parser = millis, help_heading = "Engine model")]
    pub step_ms: Duration,

    /// What each sequence of the batch adds to a decode step.
    #[arg(long, value_name = "MS", default_value = "2", value_parser = millis, help_heading = "Engine model")]
    pub step_per_seq_ms: Duration,

    /// Tokens that the KV cache has room for. A sequence holds its prompt and its generated tokens; when a step would
    /// need more, the youngest is preempted and recomputed later. Default: no bound.
    #[arg(long, value_name = "N", value_parser = at_least_one::<u32>, help_heading = "Engine model")]
    pub kv_tokens: Option<u32>,

    /// Tokens that the prefix cache has room for (blocks of 16, least recently used first out). A prompt's cached
    /// tokens cost no prefill, and usage says how many they were. 0: no prefix cache.
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Engine model")]
    pub prefix_cache_tokens: u32,

    /// Instead of the engine model: so many servers with exponential service times, the queue M/M/c. A request holds
    /// one server; its tokens come evenly over its service time.
    #[arg(long, value_name = "C", value_parser = at_least_one::<usize>, help_heading = "Known queue",
        conflicts_with_all = ["fixed_ttft_ms", "kv_tokens", "prefix_cache_tokens"])]
    pub mmc_servers: Option<usize>,

    /// With --mmc-servers: mean service time of a request.
    #[arg(
        long,
        value_name = "MS",
        default_value = "100",
        value_parser = millis,
        requires = "mmc_servers",
        help_heading = "Known queue"
    )]
    pub service_mean_ms: Duration,

    /// With --mmc-servers: --service-mean-ms is for each output token.
    #[arg(long, requires = "mmc_servers", help_heading = "Known queue")]
    pub service_per_token: bool,

    /// Instead of the engine model: the first token exactly so long after each request's arrival.
    #[arg(long, value_name = "MS", value_parser = millis, help_heading = "Fixed delays")]
    pub fixed_ttft_ms: Option<Duration>,

    /// With --fixed-ttft-ms: from one token to the next; 0: all tokens with the first.
    #[arg(
        long,
        value_name = "MS",
        default_value = "0",
        value_parser = millis,
        requires = "fixed_ttft_ms",
        help_heading = "Fixed delays"
    )]
    pub fixed_itl_ms: Duration,

    /// Generate max_tokens always, as for a request with `ignore_eos`. Without it other requests stop after a seeded
    /// number of tokens, at most max_tokens.
    #[arg(long, help_heading = "Answers")]
    pub always_max: bool,

    /// The shortest seeded answer, as a share of max_tokens (and never below `min_tokens`); 0: a single token.
    #[arg(long, value_name = "SHARE", default_value_t = 0.5, value_parser = share, help_heading = "Answers")]
    pub shortest_share: f64,

    /// max_tokens of a request that names none.
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = at_least_one::<u32>, help_heading = "Answers")]
    pub default_max_tokens: u32,

    /// The context limit: prompt plus max_tokens beyond it is HTTP 400.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 32768,
        value_parser = at_least_one::<u32>,
        help_heading = "Answers"
    )]
    pub max_model_len: u32,

    /// Tokens per stream event; the first token comes alone at once.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_one::<u32>, help_heading = "Answers")]
    pub tokens_per_event: u32,

    /// Misbehave: `KIND[:every=N][:after=K]`. May be repeated; the first whose turn it is wins. --help lists the kinds.
    #[arg(long = "fault", value_name = "KIND", help_heading = "Faults")]
    pub faults: Vec<FaultRule>,

    /// Entries kept for GET /log; beyond it the oldest go.
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = at_least_one::<usize>)]
    pub log_limit: usize,
}

/// What the server needs to know.
#[derive(Debug, Clone)]
pub struct Config {
    /// The model's name.
    pub model: String,
    /// Seed of lengths and words.
    pub seed: u64,
    /// How the engine spends time.
    pub timing: Timing,
    /// Ignore the drawn length.
    pub always_max: bool,
    /// The shortest drawn length, as a share of `max_tokens`.
    pub shortest_share: f64,
    /// For requests that name no `max_tokens`.
    pub default_max_tokens: u32,
    /// Context limit in tokens.
    pub max_model_len: u32,
    /// Tokens per event after the first.
    pub tokens_per_event: u32,
    /// The command line's faults.
    pub faults: Vec<FaultRule>,
    /// Entries kept in the log.
    pub log_limit: usize,
}

impl Default for Config {
    /// The command line's defaults.
    fn default() -> Self {
        Options::parse_from(["sim-engine"]).config()
    }
}

impl Config {
    /// Whether usage can say how much of a prompt was cached.
    #[must_use]
    pub(crate) fn has_prefix_cache(&self) -> bool {
        matches!(self.timing, Timing::Batch(timing) if timing.prefix_cache_tokens >= BLOCK_TOKENS)
    }
}

impl Options {
    /// What was meant.
    #[must_use]
    pub fn config(&self) -> Config {
        let timing = match (self.fixed_ttft_ms, self.mmc_servers) {
            (Some(ttft), _) => Timing::Fixed(FixedTiming { ttft, itl: self.fixed_itl_ms }),
            (None, Some(servers)) => Timing::Mmc(MmcTiming {
                servers,
                max_queue: self.max_queue,
                mean_service: self.service_mean_ms,
                per_token: self.service_per_token,
                seed: self.seed,
            }),
            (None, None) => Timing::Batch(BatchTiming {
                slots: self.slots,
                max_queue: self.max_queue,
                prefill_rate: self.prefill_rate,
                prefill_base: self.prefill_base_ms,
                step: self.step_ms,
                step_per_seq: self.step_per_seq_ms,
                kv_tokens: self.kv_tokens,
                prefix_cache_tokens: self.prefix_cache_tokens,
            }),
        };
        Config {
            model: self.model.clone(),
            seed: self.seed,
            timing,
            always_max: self.always_max,
            shortest_share: self.shortest_share,
            default_max_tokens: self.default_max_tokens,
            // What can never fit into the KV cache is refused, as vLLM refuses such a context limit.
            max_model_len: self.max_model_len.min(self.kv_tokens.unwrap_or(u32::MAX)),
            tokens_per_event: self.tokens_per_event,
            faults: self.faults.clone(),
            log_limit: self.log_limit,
        }
    }
}

fn number(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "expected a number".to_owned())?;
    if number.is_finite() { Ok(number) } else { Err("expected a finite number".to_owned()) }
}

fn millis(text: &str) -> Result<Duration, String> {
    let millis = number(text)?;
    if millis < 0.0 {
        return Err("a time cannot be negative".to_owned());
    }
    Duration::try_from_secs_f64(millis / 1000.0).map_err(|error| error.to_string())
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = number(text)?;
    if rate > 0.0 { Ok(rate) } else { Err("a rate must be above 0".to_owned()) }
}

fn share(text: &str) -> Result<f64, String> {
    let share = number(text)?;
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err("a share is between 0 and 1".to_owned()) }
}

fn at_least_one<T: std::str::FromStr + PartialOrd + From<u8>>(text: &str) -> Result<T, String> {
    let number: T = text.parse().map_err(|_| "expected a whole number".to_owned())?;
    if number >= T::from(1) { Ok(number) } else { Err("must be at least 1".to_owned()) }
}
