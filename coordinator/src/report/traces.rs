//! `traces.jsonl`: one line for every scheduled arrival, with every clock, count and text, and the metrics that
//! follow from them. It names no objective: a line stays true when the objectives change.

use std::io::{self, Write};

use common::ids::{AgentName, ArrivalIndex, Nanos, TrialId};
use common::metrics::{RequestMetrics, Tpot};
use common::trace::{Channel, EventTokens, FailureClass, ItlEvidence, Trace};
use serde::Serialize;

/// A trace with the names that the trace itself does not hold.
#[derive(Debug, Clone, Copy)]
pub struct TraceRow<'a> {
    /// Its trial.
    pub trial: TrialId,
    /// The agent that carried it.
    pub agent: &'a AgentName,
    /// The trace.
    pub trace: &'a Trace,
    /// Tokens of its text, tokenised again, where that was asked for.
    pub retokenized: Option<u64>,
}

/// Writes the line of one trace. `out` should be buffered.
///
/// # Errors
/// As `out` does.
pub fn write_trace(out: &mut impl Write, row: TraceRow<'_>) -> io::Result<()> {
    serde_json::to_writer(&mut *out, &Line::of(row))?;
    out.write_all(b"\n")
}

/// Writes the lines of traces and says how many they are.
///
/// # Errors
/// As `out` does.
pub fn write_traces<'a>(
    out: &mut impl Write,
    rows: impl IntoIterator<Item = TraceRow<'a>>,
) -> io::Result<u64> {
    let mut written = 0;
    for row in rows {
        write_trace(out, row)?;
        written += 1;
    }
    Ok(written)
}

/// The fields are described in `docs/report.md`.
#[derive(Serialize)]
struct Line<'a> {
    trial: TrialId,
    agent: &'a AgentName,
    index: ArrivalIndex,
    row: u32,
    outcome: &'static str,
    failure_class: Option<FailureClass>,
    failure_message: Option<&'a str>,
    http_status: Option<u16>,
    scheduled_ns: Nanos,
    released_ns: Option<Nanos>,
    connected_ns: Option<Nanos>,
    written_ns: Option<Nanos>,
    headers_ns: Option<Nanos>,
    first_content_ns: Option<Nanos>,
    last_content_ns: Option<Nanos>,
    finished_ns: Nanos,
    first_answer_ns: Option<Nanos>,
    first_reasoning_ns: Option<Nanos>,
    ttft_seconds: Option<f64>,
    service_ttft_seconds: Option<f64>,
    e2e_seconds: f64,
    client_queue_seconds: Option<f64>,
    connect_seconds: Option<f64>,
    dispatch_lateness_seconds: Option<f64>,
    tpot_seconds: Option<f64>,
    largest_itl_seconds: Option<f64>,
    requested_tokens: u32,
    output_tokens: Option<u64>,
    output_tokens_source: &'static str,
    stream_tokens: Option<u64>,
    retokenized_tokens: Option<u64>,
    prompt_tokens: Option<u64>,
    sent_prompt_tokens: Option<u32>,
    cached_tokens: Option<u64>,
    finish_reason: Option<&'a str>,
    done_seen: bool,
    waited_for_permit: bool,
    short_output: bool,
    stream_coalesced: bool,
    itl_evidence: ItlEvidence,
    event_tokens: EventTokens,
    engine_queue_seconds: Option<f64>,
    engine_first_token_seconds: Option<f64>,
    engine_generation_seconds: Option<f64>,
    engine_overhead_seconds: Option<f64>,
    data_events: u32,
    coalesced_events: u32,
    reconnections: u8,
    synthetic: bool,
    request_bytes: u64,
    response_bytes: u64,
    content_ns: Vec<Nanos>,
    content_channels: Vec<ChannelRun>,
    output: Option<&'a str>,
    reasoning: Option<&'a str>,
    output_hash: Option<&'a str>,
    output_chars: u64,
    error_body: Option<&'a str>,
}

/// Content events in a row that belong to one channel: most streams are one run.
#[derive(Serialize)]
struct ChannelRun {
    channel: Channel,
    events: u64,
}

impl<'a> Line<'a> {
    fn of(row: TraceRow<'a>) -> Self {
        let Trace { clocks, facts, text } = row.trace;
        let m = RequestMetrics::of(clocks, facts);
        let seconds = |t: Option<Nanos>| t.map(Nanos::as_secs_f64);
        let failure = facts.outcome.failure();
        Self {
            trial: row.trial,
            agent: row.agent,
            index: facts.index,
            row: facts.row,
            outcome: failure.map_or("success", |f| f.kind.name()),
            failure_class: failure.map(|f| f.kind.class()),
            failure_message: failure.map(|f| f.message.as_str()),
            http_status: facts.http_status,
            scheduled_ns: clocks.scheduled,
            released_ns: clocks.released,
            connected_ns: clocks.connected,
            written_ns: clocks.written,
            headers_ns: clocks.headers,
            first_content_ns: clocks.first_content(),
            last_content_ns: clocks.last_content(),
            finished_ns: clocks.finished,
            first_answer_ns: clocks.first_in(Channel::Answer),
            first_reasoning_ns: clocks.first_in(Channel::Reasoning),
            ttft_seconds: seconds(m.ttft),
            service_ttft_seconds: seconds(m.service_ttft),
            e2e_seconds: m.e2e.as_secs_f64(),
            client_queue_seconds: seconds(m.client_queue),
            connect_seconds: seconds(m.connect),
            dispatch_lateness_seconds: seconds(m.dispatch_lateness),
            tpot_seconds: m.tpot.map(Tpot::as_secs_f64),
            largest_itl_seconds: seconds(m.largest_itl()),
            requested_tokens: facts.requested_tokens,
            output_tokens: facts.output_tokens.count,
            output_tokens_source: facts.output_tokens.source.name(),
            stream_tokens: facts.stream_tokens,
            retokenized_tokens: row.retokenized,
            prompt_tokens: facts.prompt_tokens,
            sent_prompt_tokens: facts.sent_prompt_tokens,
            cached_tokens: facts.cached_tokens,
            finish_reason: facts.finish_reason.as_deref(),
            done_seen: facts.done_seen,
            waited_for_permit: facts.waited_for_permit,
            short_output: facts.short_output,
            stream_coalesced: facts.stream_coalesced,
            itl_evidence: facts.itl_evidence,
            event_tokens: facts.event_tokens,
            engine_queue_seconds: seconds(facts.engine_time.queue),
            engine_first_token_seconds: seconds(facts.engine_time.first_token),
            engine_generation_seconds: seconds(facts.engine_time.generation),
            engine_overhead_seconds: seconds(m.engine_overhead),
            data_events: facts.data_events,
            coalesced_events: facts.coalesced_events,
            reconnections: facts.reconnections,
            synthetic: facts.synthetic,
            request_bytes: facts.request_bytes,
            response_bytes: facts.response_bytes,
            content_ns: clocks.content.iter().map(|e| e.at).collect(),
            content_channels: channel_runs(clocks.content.iter().map(|e| e.channel)),
            output: text.output.as_deref(),
            reasoning: text.reasoning.as_deref(),
            output_hash: text.output_hash.as_deref(),
            output_chars: text.output_chars,
            error_body: text.error_body.as_deref(),
        }
    }
}

fn channel_runs(channels: impl Iterator<Item = Channel>) -> Vec<ChannelRun> {
    let mut runs: Vec<ChannelRun> = Vec::new();
    for channel in channels {
        match runs.last_mut().filter(|run| run.channel == channel) {
            Some(run) => run.events += 1,
            None => runs.push(ChannelRun { channel, events: 1 }),
        }
    }
    runs
}
