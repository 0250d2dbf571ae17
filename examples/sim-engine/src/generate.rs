//! A generation request, from its arrival to the head of its response.
//!
//! Owns the order of things: stamp the arrival, read the request, choose its fault, file it in the log, refuse it
//! or give it to the engine, and hold back the response head until the first token is there, as vLLM does. What
//! follows is [`crate::answer`]'s. Must never let a request end without an outcome in the log.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tokio_stream::StreamExt as _;

use crate::answer::{Answer, scripted_error};
use crate::body::scripted;
use crate::clock::{nanos, unix_now};
use crate::engine::{Job, SeqId};
use crate::fault::{self, Fault, FaultRule};
use crate::listen::Connection;
use crate::log::{Entry, Outcome, Record};
use crate::openai::{Api, ApiError, Ask, Limits};
use crate::serve::App;
use crate::text::Words;
use crate::wire::Shape;

/// More than any prompt, less than the machine's memory.
const LARGEST_BODY: usize = 256 << 20;

const BETWEEN_SLOW_READS: Duration = Duration::from_millis(50);

const NEXT_REQUEST_AFTER: &str = "1";

/// When a request came, on both clocks.
struct Arrival {
    monotonic: Duration,
    unix: Duration,
}

pub(crate) async fn generate(app: Arc<App>, api: Api, connection: Connection, request: Request) -> Response {
    let mut arrival = Arrival { monotonic: app.clock.now(), unix: unix_now() };
    let number = app.next_number();
    let (head, body) = request.into_parts();
    let chosen = fault::choose(text_of(&head.headers, "x-sim-fault").as_deref(), &app.config.faults, number)
        .map_err(|error| {
            ApiError::new(StatusCode::BAD_REQUEST, "BadRequestError", format!("x-sim-fault: {error}"))
        });
    let slowly = matches!(&chosen, Ok(Some(rule)) if rule.fault == Fault::SlowReads);
    let body = read(body, slowly).await.map_err(|error| {
        let message = format!("the request body could not be read: {error}");
        ApiError::new(StatusCode::BAD_REQUEST, "BadRequestError", message)
    });
    let bytes = body.as_deref().unwrap_or_default();
    let limits = Limits {
        model: &app.config.model,
        max_model_len: app.config.max_model_len,
        default_max_tokens: app.config.default_max_tokens,
    };
    let asked = match &body {
        Ok(body) => Ask::read(api, body, limits),
        Err(error) => Err(error.clone()),
    };
    let mut entry = file(&head.headers, &arrival, &connection, api, bytes);
    entry.fault = chosen.as_ref().ok().and_then(|rule| Some((*rule)?.fault.name()));
    if let Ok(ask) = &asked {
        entry.stream = ask.stream;
        entry.max_tokens = Some(ask.max_tokens);
        entry.prompt_chars = Some(ask.prompt_chars);
        entry.prompt_tokens = Some(ask.prompt_tokens);
    }
    let record = app.log.open(entry);
    if slowly {
        // The engine cannot begin with what it has not read.
        arrival.monotonic = app.clock.now();
    }
    match (asked, chosen) {
        (Ok(ask), Ok(fault)) => answer(&app, arrival, ask, fault, connection, record, &head.headers).await,
        (Err(error), _) | (_, Err(error)) => refuse(record, error),
    }
}

async fn read(body: Body, slowly: bool) -> Result<Bytes, axum::Error> {
    if !slowly {
        return axum::body::to_bytes(body, LARGEST_BODY).await;
    }
    let mut pieces = body.into_data_stream();
    let mut read = Vec::new();
    loop {
        // What is not read fills the socket's buffers, and then the client has to wait with the rest.
        tokio::time::sleep(BETWEEN_SLOW_READS).await;
        match pieces.next().await {
            Some(piece) => read.extend_from_slice(&piece?),
            None => return Ok(read.into()),
        }
    }
}

fn text_of(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}

fn file(headers: &HeaderMap, arrival: &Arrival, connection: &Connection, api: Api, body: &[u8]) -> Entry {
    #[derive(serde::Deserialize)]
    struct Model {
        model: Option<String>,
    }
    Entry {
        number: 0,
        request_id: text_of(headers, "x-request-id"),
        agent: text_of(headers, "x-plimsoll-agent"),
        arrival_unix_ns: nanos(arrival.unix),
        arrival_ns: nanos(arrival.monotonic),
        connection: connection.number(),
        path: match api {
            Api::Completions => "/v1/completions",
            Api::Chat => "/v1/chat/completions",
        },
        authorization: headers.contains_key(header::AUTHORIZATION),
        model: serde_json::from_slice::<Model>(body).ok().and_then(|body| body.model),
        stream: false,
        max_tokens: None,
        prompt_chars: None,
        prompt_tokens: None,
        fault: None,
        outcome: Outcome::Open,
        status: 0,
        finish_reason: None,
        output_tokens: 0,
        first_token_ns: None,
        ended_ns: None,
        body: body.into(),
    }
}

fn refuse(mut record: Record, error: ApiError) -> Response {
    record.outcome = Outcome::Rejected;
    record.status = error.status.as_u16();
    error.into_response()
}

async fn answer(
    app: &App,
    arrival: Arrival,
    ask: Ask,
    fault: Option<FaultRule>,
    connection: Connection,
    mut record: Record,
    headers: &HeaderMap,
) -> Response {
    let kind = fault.map(|rule| rule.fault);
    if let Some(status) = kind.and_then(|kind| refusal(kind, ask.stream)) {
        let mut response = refuse(record, scripted_error(status));
        if status == StatusCode::TOO_MANY_REQUESTS {
            let value = header::HeaderValue::from_static(NEXT_REQUEST_AFTER);
            response.headers_mut().insert(header::RETRY_AFTER, value);
        }
        return response;
    }

    let most = ask.max_tokens;
    // A float to integer cast saturates; the share is between 0 and 1.
    let shortest = (f64::from(most) * app.config.shortest_share).ceil() as u32;
    let least = ask.min_tokens.max(shortest);
    let (words, drawn) = Words::seeded(app.config.seed, ask.seed, ask.prompt_hash, least, most);
    let total = match kind {
        Some(Fault::ShortOutput) => (most / 2).max(1),
        _ if ask.ignore_eos || app.config.always_max => most,
        _ => drawn,
    };
    let stops = total < most || kind == Some(Fault::ShortOutput);
    let finish = if stops { "stop" } else { "length" };

    let without_engine =
        ask.stream && matches!(kind, Some(Fault::Hang | Fault::ErrorFirst | Fault::NoContent));
    let ticket = if without_engine {
        None
    } else {
        let job = Job {
            id: SeqId(0),
            prompt_tokens: ask.prompt_tokens,
            output_tokens: total,
            blocks: Arc::clone(&ask.prompt_blocks),
        };
        match app.driver.submit(arrival.monotonic, job) {
            Ok(ticket) => Some(ticket),
            Err(full) => {
                let status = StatusCode::SERVICE_UNAVAILABLE;
                return refuse(record, ApiError::new(status, "ServiceUnavailableError", full.to_string()));
            }
        }
    };

    record.status = 200;
    let id = text_of(headers, "x-request-id").unwrap_or_else(|| format!("{:016x}", nanos(arrival.unix)));
    let shape =
        Shape::new(&ask, &id, arrival.unix.as_secs(), &app.config.model, kind == Some(Fault::NullUsage));
    let stream = ask.stream;
    let answer = Answer {
        ask,
        shape,
        words,
        total,
        tells_cached: app.config.has_prefix_cache(),
        finish,
        tokens_per_event: app.config.tokens_per_event,
        fault,
        connection,
        finished: Arc::clone(&app.finished),
        record,
    };
    match ticket {
        Some(mut ticket) if !stream => {
            ticket.reach(total).await;
            let body = scripted(|out| answer.whole(out, ticket));
            ([(header::CONTENT_TYPE, "application/json")], body).into_response()
        }
        mut ticket => {
            if let Some(ticket) = ticket.as_mut().filter(|_| kind != Some(Fault::RoleEarly)) {
                ticket.reach(1).await;
            }
            let body = scripted(|out| answer.stream(out, ticket));
            ([(header::CONTENT_TYPE, "text/event-stream; charset=utf-8")], body).into_response()
        }
    }
}

/// The faults that are an HTTP status; an error in a stream is one where there is no stream.
fn refusal(fault: Fault, stream: bool) -> Option<StatusCode> {
    match fault {
        Fault::Http400 => Some(StatusCode::BAD_REQUEST),
        Fault::Http429 => Some(StatusCode::TOO_MANY_REQUESTS),
        Fault::Http500 => Some(StatusCode::INTERNAL_SERVER_ERROR),
        Fault::Http503 => Some(StatusCode::SERVICE_UNAVAILABLE),
        Fault::ErrorEvent | Fault::ErrorFirst if !stream => Some(StatusCode::INTERNAL_SERVER_ERROR),
        _ => None,
    }
}
