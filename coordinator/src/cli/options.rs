//! The options as typed, with their defaults and their help.

mod apart;
mod search;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use common::dialect::Dialect;

pub(super) use apart::{
    CaptureOptions, ExportFormat, ExportOptions, ExportTable, Format, ProbeFormat, ProbeOptions,
    ReportOptions, ResumeOptions, RmOptions, RunsOptions, ShowOptions,
};
pub(super) use search::SearchOptions;

/// Finds the highest request rate at which an LLM serving engine still meets its latency objectives.
///
/// The load is an open-loop schedule: requests are sent at their instants whatever the engine does, by one agent or
/// by several on several hosts, and every latency counts from the scheduled instant.
#[derive(Debug, Parser)]
#[command(name = "coordinator", version, about, long_about)]
pub struct Options {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,

    /// How to log, to stderr. RUST_LOG says how much [default level: warn]
    #[arg(long, value_name = "FORMAT", default_value = "text", global = true)]
    pub log: LogFormat,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Send trials at several rates and find the knee
    ///
    /// `coordinator sweep --rates 1,2,4,8` alone works: it starts one agent here and tries the engine at
    /// http://127.0.0.1:8000 with a built-in workload. For agents on other hosts, say how many and where to listen
    /// (`--agents 4 --listen 0.0.0.0:7000`) and start `agent --join THIS-HOST:7000` on each.
    Sweep {
        /// Rates to test, requests per second, separated by commas; inf sends everything at once
        #[arg(
            long,
            value_name = "RATES",
            allow_hyphen_values = true,
            value_delimiter = ',',
            required_unless_present_any = ["concurrency", "config", "find_knee"],
            help_heading = "Load"
        )]
        rates: Vec<String>,

        /// Trials at each rate, each with a schedule of its own
        #[arg(long, value_name = "N", default_value_t = 3, help_heading = "Load")]
        repeats: u32,

        /// Or a search
        #[command(flatten)]
        search: SearchOptions,

        /// Everything else
        #[command(flatten)]
        common: Box<Common>,
    },
    /// Send one trial at one rate
    Run {
        /// Requests per second, or inf to send everything at once
        #[arg(long, value_name = "RATE", allow_hyphen_values = true, required_unless_present_any = ["concurrency", "config"], help_heading = "Load")]
        rate: Option<String>,

        /// Everything else
        #[command(flatten)]
        common: Box<Common>,
    },
    /// Find out what the engine is and what it can do; a dozen small requests are sent
    Probe(Box<ProbeOptions>),
    /// Record GPUs, hosts and the engine's metrics for a while, without sending anything
    Capture(Box<CaptureOptions>),
    /// Go on with a run whose coordinator was lost, or that was ended early
    ///
    /// The trial that was under way is closed with what the agents have of it, and sent again; then the rest is sent.
    /// Agents elsewhere come back by themselves, to the same address and with the same token.
    Resume(ResumeOptions),
    /// Compute a finished run's report again, with other objectives if you like; nothing is sent
    Report(ReportOptions),
    /// Write a run's traces, events and telemetry as tables for other programs; nothing is sent
    Export(ExportOptions),
    /// List the runs that are kept
    Runs(RunsOptions),
    /// Remove runs and everything that is kept of them
    Rm(RmOptions),
}

/// Rates and repeats, as typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rates {
    /// As typed.
    pub rates: Vec<String>,
    /// Trials at each.
    pub repeats: u32,
    /// Or a search.
    pub search: SearchOptions,
    /// The option's name, for messages.
    pub option: &'static str,
}

impl Command {
    /// Of `sweep` and `run`: what both share, and the rates.
    #[must_use]
    pub fn sending(&self) -> Option<(&Common, Rates)> {
        match self {
            Self::Sweep { rates, repeats, search, common } => {
                let (rates, search) = (rates.clone(), search.clone());
                Some((common, Rates { rates, repeats: *repeats, search, option: "--rates" }))
            }
            Self::Run { rate, common } => {
                let (rates, search) = (rate.iter().cloned().collect(), SearchOptions::default());
                Some((common, Rates { rates, repeats: 1, search, option: "--rate" }))
            }
            Self::Probe(_)
            | Self::Capture(_)
            | Self::Report(_)
            | Self::Export(_)
            | Self::Runs(_)
            | Self::Rm(_)
            | Self::Resume(_) => None,
        }
    }
}

/// Shape of the arrivals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Arrival {
    /// Exponential gaps: independent users
    Poisson,
    /// Equal gaps
    Constant,
    /// Groups at one instant, equally far apart
    Burst,
    /// Gaps of a gamma distribution: clusters and lulls, as strong as --cv says
    Gamma,
    /// Poisson with a rate that moves to --rate-end
    Ramp,
    /// No schedule: --concurrency workers, each sending its next request when its last ends. For comparison: it hides
    /// the queue that users would stand in
    Closed,
}

/// What is done to the engine before each trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Between {
    /// Nothing
    Nothing,
    /// Its prefix cache is emptied, where it has a way to do that
    Flush,
    /// It is restarted by the agent that launches it
    Restart,
}

/// When agents deliver the traces of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum UploadOption {
    /// As they come
    #[default]
    During,
    /// After the trial's last response
    After,
}

/// Which endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ApiOption {
    /// /v1/completions
    Completions,
    /// /v1/chat/completions
    Chat,
}

/// Options of `sweep` and `run`.
#[derive(Debug, Args)]
pub struct Common {
    /// TOML file with any of these options under their names (rates = [1, 2], base-url = "…"); what is typed wins
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// The engine and how it is asked
    #[command(flatten)]
    pub engine: EngineOptions,

    /// What is done to the engine before each trial, so that trials do not fill its prefix cache for each other
    #[arg(long, value_name = "WHAT", default_value = "nothing", help_heading = "Engine")]
    pub between_trials: Between,

    /// Send nothing unless the power of a GPU is recorded
    #[arg(long, help_heading = "Agents")]
    pub require_gpu: bool,

    /// Look only briefly at the engine before the first trial: do not try what it can do
    #[arg(long, help_heading = "Engine")]
    pub brief_probe: bool,

    /// Do not read the engine's metrics while trials run: each second's page costs the engine something
    #[arg(long, help_heading = "Engine")]
    pub no_engine_metrics: bool,

    /// JSON Lines file, {"prompt": …, "max_tokens": …}, {"messages": …} or {"prompt_token_ids": …} a line [default: a
    /// built-in mixed workload]
    #[arg(long, value_name = "FILE", help_heading = "Load")]
    pub workload: Option<PathBuf>,

    /// max_tokens of rows that say none
    #[arg(long, value_name = "N", default_value_t = 128, help_heading = "Load")]
    pub max_tokens: u32,

    /// Requests in each trial, instead of --duration
    #[arg(long, value_name = "N", conflicts_with = "duration", help_heading = "Load")]
    pub requests: Option<u64>,

    /// Length of each trial's schedule
    #[arg(long, value_name = "TIME", default_value = "60s", help_heading = "Load")]
    pub duration: String,

    /// Shape of the arrivals
    #[arg(long, value_name = "SHAPE", default_value = "poisson", help_heading = "Load")]
    pub arrival: Arrival,

    /// Requests in a burst, with --arrival burst [default: 16]
    #[arg(long, value_name = "N", help_heading = "Load")]
    pub burst_size: Option<u32>,

    /// Standard deviation of a gap over its mean, with --arrival gamma [default: 2]
    #[arg(long, value_name = "CV", help_heading = "Load")]
    pub cv: Option<f64>,

    /// Rate at the end of the schedule, requests per second, with --arrival ramp
    #[arg(long, value_name = "RATE", allow_hyphen_values = true, help_heading = "Load")]
    pub rate_end: Option<String>,

    /// Workers, with --arrival closed instead of a rate; several, separated by commas, are a sweep
    #[arg(long, value_name = "N", value_delimiter = ',', help_heading = "Load")]
    pub concurrency: Vec<u32>,

    /// Of schedules, rows, split and order
    #[arg(long, value_name = "N", default_value_t = 7, help_heading = "Load")]
    pub seed: u64,

    /// Limit of requests in flight, for the whole fleet; the rest waits, and its wait counts [default: none]
    #[arg(long, value_name = "N", help_heading = "Load")]
    pub max_concurrency: Option<u32>,

    /// Requests before each trial that enter no number
    #[arg(long, value_name = "N", default_value_t = 4, help_heading = "Load")]
    pub warmup: u32,

    /// Connections that each agent opens before a trial
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Load")]
    pub warm_connections: u32,

    /// When agents deliver the traces of a trial: as they come, or after its last response, so that no traces are on the
    /// network while it is measured. They wait in the agents' spools, which must have room for them
    #[arg(long, value_name = "WHEN", value_enum, default_value_t, help_heading = "Load")]
    pub upload: UploadOption,

    /// What is asked of the engine
    #[command(flatten)]
    pub objectives: Objectives,

    /// Skip rates above one that fails: they cannot move the knee
    #[arg(long, help_heading = "Objectives")]
    pub stop_after_knee: bool,

    /// End the sweep after a trial of which more than this share of requests failed, such as 20%
    #[arg(long, value_name = "SHARE", help_heading = "Objectives")]
    pub max_failures: Option<String>,

    /// Exit with 3 unless every tested rate meets the objectives
    #[arg(long, help_heading = "Objectives")]
    pub gate: bool,

    /// Exit with 4 on late and degraded trials too, not only on invalid ones
    #[arg(long, help_heading = "Objectives")]
    pub strict: bool,

    /// Dispatch lateness (p99 of an agent) above which a trial is late
    #[arg(long, value_name = "TIME", default_value = "1ms", help_heading = "Objectives")]
    pub late_budget: String,

    /// Who sends
    #[command(flatten)]
    pub agents: AgentOptions,

    /// How it is shown
    #[command(flatten)]
    pub show: ShowOptions,

    /// JSON object that is merged into the experiment record
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    pub metadata: Option<PathBuf>,

    /// Data directory; it holds many runs
    #[arg(long, value_name = "DIR", default_value = "plimsoll-data", help_heading = "Results")]
    pub data: PathBuf,

    /// Where report.json and traces.jsonl go [default: the run's folder in the data directory]
    #[arg(long, value_name = "DIR", help_heading = "Results")]
    pub out: Option<PathBuf>,

    /// Keep hashes and lengths instead of prompts and outputs
    #[arg(long, help_heading = "Results")]
    pub no_text: bool,

    /// The model's tokenizer.json: counts the tokens of kept text where the engine does not (marked as an estimate),
    /// and checks them where it does
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    pub tokenizer: Option<PathBuf>,
}

/// The engine and how it is asked.
#[derive(Debug, Args)]
pub struct EngineOptions {
    /// The engine, with or without /v1 [default: http://127.0.0.1:8000, or what the recipe of --engine says]. Given several
    /// times: replicas of it, over which the arrivals are spread at random
    #[arg(long, value_name = "URL", help_heading = "Engine")]
    pub base_url: Vec<String>,

    /// Model to ask for [default: the first that the engine lists]
    #[arg(long, value_name = "NAME", help_heading = "Engine")]
    pub model: Option<String>,

    /// What the engine is, instead of finding out: vllm, sglang, llamacpp, tabbyapi, tensorrt-llm, transformers, tgi,
    /// ollama, lmdeploy, mistralrs, dynamo or openai
    #[arg(long, value_name = "NAME", help_heading = "Engine")]
    pub dialect: Option<Dialect>,

    /// Endpoint [default: chat if the workload has messages, else completions]
    #[arg(long, value_name = "API", help_heading = "Engine")]
    pub api: Option<ApiOption>,

    /// File with the engine's API key, for agents started here [default: OPENAI_API_KEY of the environment, if set].
    /// Agents elsewhere read their own
    #[arg(long, value_name = "FILE", help_heading = "Engine")]
    pub api_key_file: Option<PathBuf>,

    /// TLS to it
    #[command(flatten)]
    pub tls: TlsOptions,

    /// Header to send, as 'Name: value'; may be repeated. Not for secrets
    #[arg(long, value_name = "HEADER", help_heading = "Engine")]
    pub header: Vec<String>,

    /// JSON object whose fields are added to every request
    #[arg(long, value_name = "FILE", help_heading = "Engine")]
    pub extra_body: Option<PathBuf>,

    /// Ask the engine to go on to max_tokens whatever it generates
    #[arg(long, help_heading = "Engine")]
    pub ignore_eos: bool,

    /// Ask for log probabilities: proves inter-token latencies, and changes the engine's load
    #[arg(long, help_heading = "Engine")]
    pub logprobs: bool,

    /// Ask for each event's tokens in the engine's cheapest way (token ids, running counts): proves inter-token
    /// latencies, and changes the engine's load a little
    #[arg(long, help_heading = "Engine")]
    pub token_counts: bool,

    /// For a connection to be made
    #[arg(long, value_name = "TIME", default_value = "10s", help_heading = "Engine")]
    pub connect_timeout: String,

    /// For a request, from its first byte; also for the wait for a permit
    #[arg(long, value_name = "TIME", default_value = "120s", help_heading = "Engine")]
    pub timeout: String,

    /// Between two pieces of text
    #[arg(long, value_name = "TIME", default_value = "30s", help_heading = "Engine")]
    pub idle_timeout: String,
}

/// TLS to an https engine. The files are those of agents started here; agents elsewhere have options of the same names.
#[derive(Debug, Args)]
pub struct TlsOptions {
    /// PEM file of the authorities that may vouch for an https engine, for agents started here [default: those that
    /// this host trusts]. Agents elsewhere read their own
    #[arg(long, value_name = "FILE", help_heading = "Engine")]
    pub engine_ca: Option<PathBuf>,

    /// PEM file of the certificate of agents started here, for an https engine that asks for one
    #[arg(long, value_name = "FILE", requires = "engine_key", help_heading = "Engine")]
    pub engine_cert: Option<PathBuf>,

    /// PEM file of its key
    #[arg(long, value_name = "FILE", requires = "engine_cert", help_heading = "Engine")]
    pub engine_key: Option<PathBuf>,
}

/// Who sends.
#[derive(Debug, Args)]
pub struct AgentOptions {
    /// Agents to start on this host [default: 1, or 0 with --agents]
    #[arg(long, value_name = "N", help_heading = "Agents")]
    pub local_agents: Option<usize>,

    /// Recipe of an engine that the agent started here launches and stops (see deploy/engines)
    #[arg(long, value_name = "FILE", help_heading = "Agents")]
    pub engine: Option<PathBuf>,

    /// Recipe whose fields go over those of --engine
    #[arg(long, value_name = "FILE", requires = "engine", help_heading = "Agents")]
    pub engine_overlay: Option<PathBuf>,

    /// Variable of the recipe, as NAME=VALUE; may be repeated
    #[arg(long, value_name = "NAME=VALUE", requires = "engine", help_heading = "Agents")]
    pub engine_var: Vec<String>,

    /// Let the agents started here send and read with real-time priority, where this host allows it (see `agent --rt`)
    #[arg(long, help_heading = "Agents")]
    pub rt: bool,

    /// Let the agent started here record what the GPUs of this host draw and do (NVML)
    #[arg(long, help_heading = "Agents")]
    pub gpu: bool,

    /// Wait for an agent with --gpu
    #[arg(long, help_heading = "Agents")]
    pub await_gpu: bool,

    /// Wait for an agent with --engine, and until its engine is ready
    #[arg(long, help_heading = "Agents")]
    pub await_engine: bool,

    /// Agents to wait for, started elsewhere with `agent --join`
    #[arg(long, value_name = "N", requires = "listen", help_heading = "Agents")]
    pub agents: Option<usize>,

    /// Where agents join [default: a free port on 127.0.0.1]
    #[arg(long, value_name = "HOST:PORT", help_heading = "Agents")]
    pub listen: Option<String>,

    /// How long to wait for them
    #[arg(long, value_name = "TIME", default_value = "60s", help_heading = "Agents")]
    pub join_timeout: String,

    /// Send also what takes an agent above 60% of what its host can carry (see docs/calibration.md)
    #[arg(long, help_heading = "Agents")]
    pub allow_over_ceiling: bool,

    /// File with the join token [default: PLIMSOLL_TOKEN of the environment; if unset, and --listen is not loopback or
    /// has TLS, one is made and printed]
    #[arg(long, value_name = "FILE", help_heading = "Agents")]
    pub token_file: Option<PathBuf>,

    /// Certificate that agents are shown, as PEM, with the chain up to what they know; see docs/security.md
    #[arg(long, value_name = "FILE", requires = "tls_key", requires = "listen", help_heading = "Agents")]
    pub tls_cert: Option<PathBuf>,

    /// Its private key, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert", help_heading = "Agents")]
    pub tls_key: Option<PathBuf>,

    /// Take only agents that show a certificate signed by one of these, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert", help_heading = "Agents")]
    pub tls_client_ca: Option<PathBuf>,
}

/// What is asked of the engine.
#[derive(Debug, Args)]
pub struct Objectives {
    /// Objective on each request: ttft, tpot, e2e or itl, as in ttft=1s; or on the trial, as in p99:ttft=1s. May be
    /// repeated; `none` asks for none [default: ttft=1s tpot=50ms]
    #[arg(long, value_name = "SLO", help_heading = "Objectives")]
    pub slo: Vec<String>,

    /// The same as --slo ttft=TIME
    #[arg(long, value_name = "TIME", help_heading = "Objectives")]
    pub ttft_slo: Option<String>,

    /// The same as --slo tpot=TIME
    #[arg(long, value_name = "TIME", help_heading = "Objectives")]
    pub tpot_slo: Option<String>,

    /// The same as --slo e2e=TIME
    #[arg(long, value_name = "TIME", help_heading = "Objectives")]
    pub e2e_slo: Option<String>,

    /// Share of all scheduled requests that has to meet every objective [default: 0.99]
    #[arg(long, value_name = "SHARE", help_heading = "Objectives")]
    pub slo_target: Option<String>,
}
