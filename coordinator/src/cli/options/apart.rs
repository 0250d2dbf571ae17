//! Options of the commands that plan no trial: `probe`, `capture`, `report`, `runs`, `rm`, `resume`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use common::dialect::Dialect;

use super::{AgentOptions, EngineOptions, Objectives, TlsOptions};

/// Options of `probe`.
#[derive(Debug, Args)]
pub struct ProbeOptions {
    /// The engine and how it is asked
    #[command(flatten)]
    pub engine: EngineOptions,

    /// Who asks
    #[command(flatten)]
    pub agents: AgentOptions,

    /// Only look at what the engine says of itself; one request is sent
    #[arg(long, help_heading = "Engine")]
    pub brief: bool,

    /// How the result is written, to standard output
    #[arg(long, value_name = "FORMAT", default_value = "text", help_heading = "Output")]
    pub format: ProbeFormat,

    /// Data directory, for the logs of agents started here
    #[arg(long, value_name = "DIR", default_value = "plimsoll-data")]
    pub data: PathBuf,
}

/// How a run is shown while it goes on. It says nothing about the run, and is not kept for `resume`.
#[derive(Debug, Args)]
pub struct ShowOptions {
    /// Serve a live page there while the run goes on; the address is printed. Port 0 is a free one. Elsewhere than on
    /// loopback the address ends in a token (see docs/live.md)
    #[arg(long, value_name = "HOST:PORT", help_heading = "Live view")]
    pub web: Option<String>,

    /// Plain progress, without the live screen of a terminal
    #[arg(long, help_heading = "Live view")]
    pub plain: bool,
}

/// Options of `capture`.
#[derive(Debug, Args)]
pub struct CaptureOptions {
    /// How long
    #[arg(long, value_name = "TIME", default_value = "60s")]
    pub duration: String,

    /// The engine, with or without /v1, to record its metrics, too
    #[arg(long, value_name = "URL", help_heading = "Engine")]
    pub base_url: Option<String>,

    /// What the engine is, and so under which names its metrics are read; found out by looking at it where it is not told
    #[arg(long, value_name = "NAME", help_heading = "Engine")]
    pub dialect: Option<Dialect>,

    /// TLS to it
    #[command(flatten)]
    pub tls: TlsOptions,

    /// Who records
    #[command(flatten)]
    pub agents: AgentOptions,

    /// Data directory; it holds many runs
    #[arg(long, value_name = "DIR", default_value = "plimsoll-data")]
    pub data: PathBuf,
}

/// How a probe is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ProbeFormat {
    /// For people
    Text,
    /// As it is stored with a run
    Json,
}

/// How a report is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A table for people
    Text,
    /// report.json
    Json,
    /// traces.jsonl
    Jsonl,
}

/// Options of `report`.
#[derive(Debug, Args)]
pub struct ReportOptions {
    /// The run, or `latest`
    pub run: String,

    /// Other objectives than it was run with; its own when none is given
    #[command(flatten)]
    pub objectives: Objectives,

    /// Further percentiles of each trial, such as 25,75,99.9 (text only)
    #[arg(long, value_name = "P", value_delimiter = ',', help_heading = "Output")]
    pub percentiles: Vec<f64>,

    /// The model's tokenizer.json: counts the tokens of kept text where the engine did not (marked as an estimate),
    /// and checks them where it did
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub tokenizer: Option<PathBuf>,

    /// How it is written, to standard output
    #[arg(long, value_name = "FORMAT", default_value = "text", help_heading = "Output")]
    pub format: Format,

    /// Write it as a page, too, into this file: one that needs no network and nothing beside it
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub html: Option<PathBuf>,

    /// Data directory
    #[arg(long, value_name = "DIR", default_value = "plimsoll-data")]
    pub data: PathBuf,
}

/// Options of `export`.
#[derive(Debug, Args)]
pub struct ExportOptions {
    /// The run, or `latest`
    pub run: String,

    /// Tables, separated by commas; docs/exports.md describes their columns
    #[arg(
        long,
        value_name = "TABLES",
        value_delimiter = ',',
        default_value = "trials,traces",
        help_heading = "Output"
    )]
    pub what: Vec<ExportTable>,

    /// How they are written
    #[arg(long, value_name = "FORMAT", default_value = "csv", help_heading = "Output")]
    pub format: ExportFormat,

    /// Folder for the files, which is made [default: `export` in the run's folder]
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub out: Option<PathBuf>,

    /// The model's tokenizer.json: counts the tokens of kept text where the engine did not (marked as an estimate)
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub tokenizer: Option<PathBuf>,

    /// Data directory
    #[arg(long, value_name = "DIR", default_value = "plimsoll-data")]
    pub data: PathBuf,
}

/// How tables are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// With a line of names; an empty cell is null
    Csv,
    /// For DuckDB, pandas, polars and others; a fraction of the size
    Parquet,
    /// An object a line
    Jsonl,
}

/// A table of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExportTable {
    /// A row a trial, with its verdict
    Trials,
    /// A row a scheduled arrival
    Traces,
    /// A row an event with visible text
    Events,
    /// A row a reading of a GPU's energy and power
    Power,
    /// A row a reading of everything else of a GPU
    Gpu,
    /// A row a reading of a host
    Host,
    /// A row a reading of the engine's own metrics
    Engine,
    /// A row something that happened to what is recorded
    Incidents,
    /// Each of them
    All,
}

/// Options of `runs`.
#[derive(Debug, Args)]
pub struct RunsOptions {
    /// Data directory
    #[arg(long, value_name = "DIR", default_value = "plimsoll-data")]
    pub data: PathBuf,
}

/// Options of `rm`.
#[derive(Debug, Args)]
pub struct RmOptions {
    /// The runs, by name
    #[arg(required = true)]
    pub runs: Vec<String>,

    /// Data directory
    #[arg(long, value_name = "DIR", default_value = "plimsoll-data")]
    pub data: PathBuf,
}

/// Options of `resume`.
#[derive(Debug, Args)]
pub struct ResumeOptions {
    /// Data directory
    #[arg(long, value_name = "DIR", default_value = "plimsoll-data")]
    pub data: PathBuf,

    /// The run, or latest
    #[arg(value_name = "RUN")]
    pub run: String,

    /// Options of the run's own command that are to be others now, such as --agents 2, or whose values were not kept
    #[arg(value_name = "OPTIONS", trailing_var_arg = true, allow_hyphen_values = true)]
    pub again: Vec<OsString>,
}
