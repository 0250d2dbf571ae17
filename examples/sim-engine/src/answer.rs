//! One answer, from the first token to the end of the body, right or wrong on purpose.
//!
//! Owns the order of events in a stream and everything that a [`Fault`] changes about it. Tokens are sent as the
//! engine's [`Ticket`] says that they are ready, one event each (or `--tokens-per-event`, the first one alone, as
//! vLLM's `--stream-interval` does). Must never wait for time by itself, except where a fault says so.

use std::sync::Arc;
use std::time::Duration;

use crate::body::{Cut, Sender};
use crate::driver::Ticket;
use crate::fault::{Fault, FaultRule};
use crate::listen::Connection;
use crate::log::{Outcome, Record};
use crate::metrics::Finished;
use crate::openai::{Api, ApiError, Ask};
use crate::text::{WORDS, Words};
use crate::wire::{Channel, Shape, usage};

/// What is left in flight before a connection is broken reaches the client first.
const BEFORE_A_BREAK: Duration = Duration::from_millis(20);
/// A client that has read the whole answer is idle by then.
const BEFORE_A_SILENT_CLOSE: Duration = Duration::from_millis(10);
const DRIP: Duration = Duration::from_millis(20);
const PING: Duration = Duration::from_secs(1);

/// Everything that one answer needs.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) ask: Ask,
    pub(crate) shape: Shape,
    pub(crate) words: Words,
    /// Tokens in the engine's job.
    pub(crate) total: u32,
    /// The engine has a prefix cache, so usage says how much of the prompt was in it.
    pub(crate) tells_cached: bool,
    pub(crate) finish: &'static str,
    pub(crate) tokens_per_event: u32,
    pub(crate) fault: Option<FaultRule>,
    pub(crate) connection: Connection,
    pub(crate) finished: Arc<Finished>,
    pub(crate) record: Record,
}

/// The error of the faults that send one.
pub(crate) fn scripted_error(status: axum::http::StatusCode) -> ApiError {
    let kind = match status.as_u16() {
        400 => "BadRequestError",
        429 => "RateLimitError",
        503 => "ServiceUnavailableError",
        _ => "InternalServerError",
    };
    ApiError::new(status, kind, format!("simulated fault: {status}"))
}

fn error_event() -> String {
    scripted_error(axum::http::StatusCode::INTERNAL_SERVER_ERROR).body().to_string()
}

impl Answer {
    fn fault(&self) -> Option<Fault> {
        self.fault.map(|rule| rule.fault)
    }

    /// The token at which a mid-stream fault strikes; the answer's length when none does.
    fn limit(&self) -> u32 {
        use Fault::{Abort, CleanEof, ErrorEvent, Reset, Stall, Truncated};
        match self.fault {
            Some(FaultRule {
                fault: Abort | CleanEof | ErrorEvent | Reset | Stall | Truncated,
                after,
                ..
            }) => after.min(self.total),
            _ => self.total,
        }
    }

    /// What the last token's event says.
    fn finish_reason(&self) -> Option<&'static str> {
        use Fault::{Abort, CleanEof, DoneNoFinish, Drip, ErrorEvent, Reset, Stall, Truncated};
        match self.fault() {
            Some(CleanEof | DoneNoFinish | Drip | ErrorEvent | Reset | Stall | Truncated) => None,
            Some(Abort) => Some("abort"),
            _ => Some(self.finish),
        }
    }

    /// The usage that the answer ends with, where it was asked for.
    fn usage(&self, completion_tokens: u32, cached_tokens: u32) -> Option<String> {
        let prompt_tokens = self.ask.prompt_tokens.into();
        match self.fault() {
            Some(Fault::NoUsage | Fault::NullUsage) => None,
            Some(Fault::ZeroUsage) => Some(usage(0, 0, None)),
            Some(Fault::NegativeUsage) => Some(usage(prompt_tokens, -1, None)),
            _ => {
                let cached = self.tells_cached.then_some(cached_tokens);
                Some(usage(prompt_tokens, completion_tokens.into(), cached))
            }
        }
    }

    fn channel(&self, sent: u32) -> Channel {
        let first_half = sent < self.total / 2;
        match self.fault() {
            Some(Fault::Reasoning) if first_half => Channel::Reasoning("reasoning_content"),
            Some(Fault::ReasoningShort) if first_half => Channel::Reasoning("reasoning"),
            _ => Channel::Content,
        }
    }

    fn take(&mut self, tokens: u32) -> Vec<usize> {
        self.record.sent(tokens);
        (0..tokens).map(|_| self.words.next_id()).collect()
    }

    fn end(&mut self, reason: Option<&'static str>) {
        self.record.outcome = Outcome::Finished;
        self.record.finish_reason = reason;
        if let Some(reason) = reason {
            self.finished.count(reason);
        }
    }

    fn close_behind(&self) {
        if self.fault() == Some(Fault::CloseIdle) {
            let connection = self.connection.clone();
            tokio::spawn(async move {
                tokio::time::sleep(BEFORE_A_SILENT_CLOSE).await;
                connection.pretend_end_of_input();
            });
        }
    }

    /// The stream. `ticket` is absent for the faults that answer without generating.
    pub(crate) async fn stream(mut self, out: Sender, ticket: Option<Ticket>) -> Result<(), Cut> {
        let mut events = Events::new(out, self.fault);
        match (ticket, self.fault()) {
            (Some(ticket), _) => self.generate(&mut events, ticket).await?,
            (None, Some(Fault::Hang)) => std::future::pending().await,
            (None, Some(Fault::ErrorFirst)) => events.data(&error_event()).await,
            (None, _) => {}
        }
        if !matches!(self.fault(), Some(Fault::CleanEof | Fault::NoDone)) {
            events.data("[DONE]").await;
        }
        events.flush().await;
        let reason = self.finish_reason().filter(|_| self.record.output_tokens > 0);
        self.end(reason);
        self.close_behind();
        Ok(())
    }

    async fn generate(&mut self, events: &mut Events, mut ticket: Ticket) -> Result<(), Cut> {
        let (limit, finish) = (self.limit(), self.finish_reason());
        let chat = self.ask.api == Api::Chat;
        let role_after = if self.fault() == Some(Fault::RoleLate) { 1 } else { 0 };
        let mut malformed = self.fault.filter(|rule| rule.fault == Fault::Malformed).map(|rule| rule.after);
        let mut chars = 0;
        let mut sent = 0;
        if chat && self.fault() == Some(Fault::RoleEarly) {
            events.data(&self.shape.role()).await;
        }
        while sent < limit {
            let next = if sent == 0 { 1 } else { sent.saturating_add(self.tokens_per_event).min(limit) };
            ticket.reach(next).await;
            if chat && sent == 0 && role_after == 0 && self.fault() != Some(Fault::RoleEarly) {
                events.data(&self.shape.role()).await;
            }
            let channel = self.channel(sent);
            let ids = self.take(next - sent);
            let finish = finish.filter(|_| next == limit);
            events.data(&self.shape.tokens(channel, &ids, (sent, chars), finish)).await;
            if chat && sent == 0 && role_after == 1 {
                events.data(&self.shape.role()).await;
            }
            chars += ids.iter().map(|id| WORDS[*id].len()).sum::<usize>();
            sent = next;
            if malformed.take_if(|after| sent >= *after || sent == limit).is_some() {
                events.data(r#"{"id": "broken", "choices": [{"index": 0, "#).await;
            }
        }
        let cached_tokens = ticket.cached_tokens();
        drop(ticket);
        self.after_the_tokens(events, (sent, chars), cached_tokens).await
    }

    async fn after_the_tokens(
        &mut self,
        events: &mut Events,
        before: (u32, usize),
        cached_tokens: u32,
    ) -> Result<(), Cut> {
        match self.fault() {
            Some(Fault::ErrorEvent) => events.data(&error_event()).await,
            Some(Fault::CleanEof) => {}
            Some(fault @ (Fault::Truncated | Fault::Reset)) => {
                tokio::time::sleep(BEFORE_A_BREAK).await;
                if fault == Fault::Reset {
                    self.connection.reset_on_close();
                }
                self.end(None);
                return Err(Cut);
            }
            Some(Fault::Stall) => loop {
                tokio::time::sleep(PING).await;
                events.comment("ping").await;
            },
            Some(Fault::Drip) => {
                let (mut sent, mut chars) = before;
                loop {
                    tokio::time::sleep(DRIP).await;
                    let ids = self.take(1);
                    events.data(&self.shape.tokens(Channel::Content, &ids, (sent, chars), None)).await;
                    sent = sent.saturating_add(1);
                    chars += WORDS[ids[0]].len();
                }
            }
            _ => {
                let usage = self.usage(before.0, cached_tokens);
                if let Some(usage) = usage.filter(|_| self.ask.include_usage) {
                    events.data(&self.shape.usage_event(&usage)).await;
                }
            }
        }
        Ok(())
    }

    /// The whole answer at once, for a request that did not ask for a stream.
    pub(crate) async fn whole(mut self, out: Sender, ticket: Ticket) -> Result<(), Cut> {
        let ids = self.take(self.total);
        let finish = if self.fault() == Some(Fault::Abort) { "abort" } else { self.finish };
        let answer = match self.fault() {
            Some(Fault::Malformed) => r#"{"id": "broken", "choices": [{"index": 0, "#.to_owned(),
            Some(Fault::NoContent) => "{}".to_owned(),
            _ => {
                let usage = self.usage(self.total, ticket.cached_tokens());
                self.shape.whole(&ids, finish, usage.as_deref())
            }
        };
        match self.fault() {
            Some(Fault::Hang | Fault::Stall | Fault::Drip) => std::future::pending().await,
            Some(fault @ (Fault::Truncated | Fault::Reset)) => {
                let half = answer.len() / 2;
                out.send(answer.as_bytes()[..half].to_vec()).await;
                tokio::time::sleep(BEFORE_A_BREAK).await;
                if fault == Fault::Reset {
                    self.connection.reset_on_close();
                }
                self.end(None);
                Err(Cut)
            }
            _ => {
                out.send(answer).await;
                self.end(Some(finish));
                self.close_behind();
                Ok(())
            }
        }
    }
}

/// Server-sent events, one frame each unless a fault packs them together.
#[derive(Debug)]
struct Events {
    out: Sender,
    line_end: &'static str,
    per_frame: usize,
    held: String,
    held_events: usize,
}

impl Events {
    fn new(out: Sender, rule: Option<FaultRule>) -> Self {
        let fault = rule.map(|rule| rule.fault);
        let per_frame = match fault {
            Some(Fault::Coalesced) => usize::MAX,
            Some(Fault::Bursts) => rule.map_or(1, |rule| rule.after as usize),
            Some(Fault::TwoInOne) => 2,
            _ => 1,
        };
        let line_end = if fault == Some(Fault::Crlf) { "\r\n" } else { "\n" };
        Self { out, line_end, per_frame, held: String::new(), held_events: 0 }
    }

    async fn data(&mut self, data: &str) {
        self.event("data: ", data).await;
    }

    async fn comment(&mut self, text: &str) {
        self.event(": ", text).await;
    }

    async fn event(&mut self, field: &str, value: &str) {
        for part in [field, value, self.line_end, self.line_end] {
            self.held.push_str(part);
        }
        self.held_events += 1;
        if self.held_events >= self.per_frame {
            self.flush().await;
        }
    }

    async fn flush(&mut self) {
        self.held_events = 0;
        let frame = std::mem::take(&mut self.held);
        if !frame.is_empty() {
            self.out.send(frame).await;
        }
    }
}
