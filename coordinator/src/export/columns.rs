//! The tables of an export and their columns: names, kinds, units and meanings. `docs/exports.md` shows them, and a test
//! holds the two together.

use serde::Serialize;

/// Version of the tables. It changes when a column changes its meaning or goes; a new column changes nothing.
pub const VERSION: &str = "1";

/// What a column holds. Each may be null, which is undefined or unknown and never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// An integer of 64 bits, signed: differences of two need no care.
    Integer,
    /// An integer of 64 bits that may be above 2^63: a seed.
    Unsigned,
    /// A floating-point number of 64 bits.
    Number,
    /// `true` or `false`.
    Bool,
    /// UTF-8.
    Text,
}

/// A column.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Column {
    /// Its name.
    pub name: &'static str,
    /// What it holds.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// Its unit; empty for none.
    pub unit: &'static str,
    /// What it means.
    pub meaning: &'static str,
    /// Where its value stands in a row, steps parted by dots.
    #[serde(skip)]
    pub(super) path: &'static str,
}

/// A table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// A row a trial.
    Trials,
    /// A row a scheduled arrival.
    Traces,
    /// A row an event with visible text.
    Events,
    /// A row a reading of a GPU's energy and power.
    Power,
    /// A row a reading of everything else of a GPU.
    Gpu,
    /// A row a reading of a host.
    Host,
    /// A row a reading of the engine's own metrics.
    Engine,
    /// A row something that happened to what is recorded.
    Incidents,
}

impl Table {
    /// Every table.
    pub const ALL: [Self; 8] = [
        Self::Trials,
        Self::Traces,
        Self::Events,
        Self::Power,
        Self::Gpu,
        Self::Host,
        Self::Engine,
        Self::Incidents,
    ];

    /// Its name, and that of its file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Trials => "trials",
            Self::Traces => "traces",
            Self::Events => "events",
            Self::Power => "power",
            Self::Gpu => "gpu",
            Self::Host => "host",
            Self::Engine => "engine",
            Self::Incidents => "incidents",
        }
    }

    /// Its columns, in the order in which they are written.
    #[must_use]
    pub fn columns(self) -> &'static [Column] {
        match self {
            Self::Trials => TRIALS,
            Self::Traces => TRACES,
            Self::Events => EVENTS,
            Self::Power => POWER,
            Self::Gpu => GPU,
            Self::Host => HOST,
            Self::Engine => ENGINE,
            Self::Incidents => INCIDENTS,
        }
    }
}

const fn at(
    path: &'static str,
    name: &'static str,
    kind: Kind,
    unit: &'static str,
    meaning: &'static str,
) -> Column {
    Column { name, kind, unit, meaning, path }
}

const fn column(name: &'static str, kind: Kind, unit: &'static str, meaning: &'static str) -> Column {
    at(name, name, kind, unit, meaning)
}

use Kind::{Bool, Integer, Number, Text, Unsigned};

const TRIALS: &[Column] = &[
    column("trial", Integer, "", "number of the trial, from 0, in the order of sending"),
    column(
        "offered_rate",
        Text,
        "",
        "the configured rate: a number of requests per second, `inf`, or `closed N`",
    ),
    at("summary.offered_rate_per_second", "offered_rate_per_second", Number, "1/s", "the same as a number"),
    column("repeat", Integer, "", "which repeat of the rate, from 0"),
    column("rerun_of", Integer, "", "the trial that it was sent again for"),
    at("summary.validity.verdict", "validity", Text, "", "`valid`, `late`, `degraded` or `invalid`"),
    at("why", "validity_reasons", Text, "", "why, the worst first; empty for a valid one"),
    at("summary.requests", "requests", Integer, "", "scheduled arrivals"),
    at(
        "cut.planned",
        "planned_requests",
        Integer,
        "",
        "arrivals of the whole schedule, where a search ended the trial early",
    ),
    at("summary.failed", "failed", Integer, "", "failures among them"),
    at(
        "summary.duration_seconds",
        "duration_seconds",
        Number,
        "s",
        "the window W, from 0 to the last request's end",
    ),
    at("summary.good", "good", Integer, "", "successes that meet every objective"),
    at("summary.slo_attainment", "slo_attainment", Number, "", "`good` / `requests`"),
    at("summary.goodput_requests_per_second", "goodput_requests_per_second", Number, "1/s", "`good` / W"),
    column("seed", Unsigned, "", "seed of the schedule"),
    column("schedule_sha256", Text, "", "digest of the schedule"),
    column("workload_sha256", Text, "", "digest of the workload"),
];

const TRACES: &[Column] = &[
    column("trial", Integer, "", "number of the trial"),
    column("offered_rate", Text, "", "its rate, as in `trials`"),
    column(
        "validity",
        Text,
        "",
        "its verdict, as in `trials`: a number of a trial that is not valid is no result",
    ),
    column("agent", Text, "", "the agent that carried the arrival"),
    column("index", Integer, "", "position in the schedule, from 0"),
    column("row", Integer, "", "row of the workload, from 0"),
    column("outcome", Text, "", "`success`, or the kind of failure"),
    column("failure_class", Text, "", "`engine`, `network`, `limit` or `generator`"),
    column("failure_message", Text, "", "details for a person"),
    column("http_status", Integer, "", "when a response head came"),
    column(
        "scheduled_ns",
        Integer,
        "ns",
        "when the schedule says the request arrives, after the trial's start",
    ),
    column("released_ns", Integer, "ns", "ready to send, with a permit where there is a limit"),
    column("connected_ns", Integer, "ns", "a usable connection in hand"),
    column("written_ns", Integer, "ns", "first byte of the request accepted by the socket"),
    column("headers_ns", Integer, "ns", "response head received"),
    column("first_content_ns", Integer, "ns", "the read that brought the first event with visible text"),
    column("last_content_ns", Integer, "ns", "the read that brought the last"),
    column("finished_ns", Integer, "ns", "complete, failed, timed out or cancelled"),
    column("first_answer_ns", Integer, "ns", "first event of the answer"),
    column("first_reasoning_ns", Integer, "ns", "first event of the reasoning"),
    column("ttft_seconds", Number, "s", "first content − scheduled"),
    column("service_ttft_seconds", Number, "s", "first content − written"),
    column("e2e_seconds", Number, "s", "finished − scheduled"),
    column("client_queue_seconds", Number, "s", "wait for a permit, else 0"),
    column("connect_seconds", Number, "s", "connected − released"),
    column(
        "dispatch_lateness_seconds",
        Number,
        "s",
        "released − scheduled, when it did not wait for a permit",
    ),
    column("tpot_seconds", Number, "s", "(last − first content)/(output tokens − 1)"),
    column("largest_itl_seconds", Number, "s", "largest proven gap between two tokens"),
    column("requested_tokens", Integer, "tokens", "`max_tokens` as sent"),
    column("output_tokens", Integer, "tokens", "the count"),
    column(
        "output_tokens_source",
        Text,
        "",
        "`usage`, `stream_counts`, `retokenized_text` (an estimate) or `unknown`",
    ),
    column("stream_tokens", Integer, "tokens", "as the events themselves count"),
    column("retokenized_tokens", Integer, "tokens", "of the kept text, with `--tokenizer`; an estimate"),
    column("prompt_tokens", Integer, "tokens", "as the engine counts"),
    column("sent_prompt_tokens", Integer, "tokens", "of a prompt that was sent as token ids"),
    column("cached_tokens", Integer, "tokens", "found in the engine's prefix cache"),
    column("finish_reason", Text, "", "the engine's"),
    column("done_seen", Bool, "", "`[DONE]` was seen"),
    column("waited_for_permit", Bool, "", "it waited for a permit"),
    column("short_output", Bool, "", "fewer tokens than asked for under `ignore_eos`"),
    column(
        "stream_coalesced",
        Bool,
        "",
        "all text came in one read although it was several events or tokens",
    ),
    column("itl_evidence", Text, "", "`proven`, `none`, `many_per_event` or `sum_differs`"),
    at("event_tokens.one", "events_with_one_token", Integer, "", "events with text that hold one token"),
    at("event_tokens.many", "events_with_several_tokens", Integer, "", "several"),
    at("event_tokens.none", "events_without_token", Integer, "", "none"),
    at("event_tokens.unknown", "events_with_unknown_tokens", Integer, "", "an unknown number"),
    at("event_tokens.textless", "events_without_text", Integer, "", "events without text that hold tokens"),
    column("engine_queue_seconds", Number, "s", "the engine's own clock: in its queue"),
    column("engine_first_token_seconds", Number, "s", "to the first token"),
    column("engine_generation_seconds", Number, "s", "to the last"),
    column("engine_overhead_seconds", Number, "s", "the rest, network and HTTP"),
    column("data_events", Integer, "", "data events of the stream"),
    column("coalesced_events", Integer, "", "content events that shared a read with the one before"),
    column("reconnections", Integer, "", "idle connections that were replaced"),
    column("synthetic", Bool, "", "written by the coordinator"),
    column("cut", Bool, "", "left away by a search: it counts for nothing"),
    column("request_bytes", Integer, "bytes", "of the request's body"),
    column("response_bytes", Integer, "bytes", "of the response's body"),
    column("output", Text, "", "the text, when it was kept"),
    column("reasoning", Text, "", "the reasoning, when it was kept"),
    column("output_hash", Text, "", "SHA-256 of both, first 16 hexadecimal digits"),
    column("output_chars", Integer, "", "characters of both"),
    column("error_body", Text, "", "the engine's error body or event, kept short"),
];

const EVENTS: &[Column] = &[
    column("trial", Integer, "", "number of the trial"),
    column("validity", Text, "", "its verdict"),
    column("agent", Text, "", "the agent that carried the arrival"),
    column("index", Integer, "", "the arrival's position in the schedule"),
    column("event", Integer, "", "number of the event within the request, from 0"),
    column("at_ns", Integer, "ns", "the read that completed it, after the trial's start"),
    column(
        "gap_ns",
        Integer,
        "ns",
        "since the event before: a chunk gap, and no inter-token latency unless proven; 0 in one read; null for the first",
    ),
    column("channel", Text, "", "`answer`, `reasoning` or `tool_call`"),
];

/// What every row of telemetry begins with.
macro_rules! telemetry {
    ($($column:expr),* $(,)?) => {
        &[
            column("trial", Integer, "", "the trial that began last; null before the first"),
            column("validity", Text, "", "its verdict"),
            column("agent", Text, "", "the agent that recorded it"),
            column("trial_ns", Integer, "ns", "since that trial's start, by the coordinator's clock"),
            column("coordinator_ns", Integer, "ns", "by the coordinator's monotonic clock"),
            column("clock_bound_ns", Integer, "ns", "what the agent's clock may be off by"),
            at("at", "agent_ns", Integer, "ns", "by the agent's monotonic clock"),
            $($column),*
        ]
    };
}

const POWER: &[Column] = telemetry![
    column("gpu", Integer, "", "position in the agent's inventory"),
    column("gpu_uuid", Text, "", "what tells it from every other"),
    column("energy_mj", Integer, "mJ", "the total energy counter"),
    column("instant_mw", Integer, "mW", "power over the sensor's shortest window"),
    column("average_mw", Integer, "mW", "power over about a second"),
    column("epoch", Integer, "", "raised when the counter cannot be compared with what was before"),
    column("width_ns", Integer, "ns", "how long the reading took"),
];

const GPU: &[Column] = telemetry![
    column("gpu", Integer, "", "position in the agent's inventory"),
    column("gpu_uuid", Text, "", "what tells it from every other"),
    column("memory_used_bytes", Integer, "bytes", "memory in use"),
    column("memory_reserved_bytes", Integer, "bytes", "memory that the driver reserves"),
    column("utilisation_percent", Integer, "%", "of the last sensor period, with any kernel running"),
    column("memory_utilisation_percent", Integer, "%", "the same of its memory's bus"),
    column("sm_clock_mhz", Integer, "MHz", "clock of the multiprocessors"),
    column("memory_clock_mhz", Integer, "MHz", "clock of the memory"),
    column("temperature_c", Integer, "°C", "of the chip"),
    column("memory_temperature_c", Integer, "°C", "of the memory"),
    column("throttle_reasons", Integer, "", "why clocks are held back: NVML's bits"),
    at("power_throttled", "power_throttled_ns", Integer, "ns", "held back by the power limit, a counter"),
    at("thermal_throttled", "thermal_throttled_ns", Integer, "ns", "held back by temperature, a counter"),
    column("performance_state", Integer, "", "0 is the fastest"),
    column("ecc_corrected", Integer, "", "corrected memory errors, a counter"),
    column("ecc_uncorrected", Integer, "", "uncorrected memory errors, a counter"),
    column("pcie_sent_bytes", Integer, "bytes", "a counter"),
    column("pcie_received_bytes", Integer, "bytes", "a counter"),
    column("nvlink_sent_bytes", Integer, "bytes", "a counter"),
    column("nvlink_received_bytes", Integer, "bytes", "a counter"),
    column("limit_enforced_mw", Integer, "mW", "the power limit that holds"),
];

const HOST: &[Column] = telemetry![
    column("cpu_busy_seconds", Number, "s", "CPU time of all cores that was used, a counter"),
    column("cpu_total_seconds", Number, "s", "CPU time of all cores, a counter"),
    column("steal_seconds", Number, "s", "CPU time that a hypervisor took, a counter"),
    column("agent_cpu_seconds", Number, "s", "CPU time of the agent, a counter"),
    column("agent_open_files", Integer, "", "files that the agent has open"),
    column("agent_memory_bytes", Integer, "bytes", "resident memory of the agent"),
    column("engine_cpu_seconds", Number, "s", "CPU time of the engine's processes, a counter"),
    column("engine_processes", Integer, "", "processes of the engine"),
    column("engine_memory_bytes", Integer, "bytes", "resident memory of the engine's processes"),
    column("memory_available_bytes", Integer, "bytes", "memory that could be had"),
    column("network_received_bytes", Integer, "bytes", "on all interfaces but loopback, a counter"),
    column("network_sent_bytes", Integer, "bytes", "on all interfaces but loopback, a counter"),
];

const ENGINE: &[Column] = telemetry![
    column("running", Number, "requests", "being worked on"),
    column("waiting", Number, "requests", "waiting"),
    column("kv_cache_usage", Number, "", "share of the KV cache in use, 0 to 1"),
    column("prefix_queries", Number, "tokens", "looked up in the prefix cache, a counter"),
    column("prefix_hits", Number, "tokens", "found there, a counter"),
    column("preemptions", Number, "", "requests that lost their place in the batch, a counter"),
    column("generated_tokens", Number, "tokens", "output tokens, a counter"),
    column("prompt_tokens", Number, "tokens", "prompt tokens, a counter"),
];

const INCIDENTS: &[Column] = telemetry![
    column("gpu", Integer, "", "position in the agent's inventory; null for the source as a whole"),
    column("gpu_uuid", Text, "", "what tells it from every other"),
    column("event", Text, "", "what happened"),
    column("code", Integer, "", "the number that the driver gives it"),
    column("message", Text, "", "for a person"),
];
