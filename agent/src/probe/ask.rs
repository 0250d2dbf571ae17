//! How an engine is asked outside of a trial: over the client of the measured path, with a count of what was spent.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use common::clock::Clock;
use common::dialect::Answer;
use common::ids::{AgentName, ArrivalIndex, Nanos, RunId};
use common::plan::Target;
use common::trace::{Failure, Trace, Unsent};
use common::workload::Row;
use tokio::sync::watch;

use crate::engine::{Access, Client, ClientConfig, Outgoing, Requests, Secret, TrialClock};

/// How long one try may take: what an engine does not do in this time is unknown, and the next thing is tried.
const TRY_TIMEOUT: Nanos = Nanos::from_secs(30);

/// Asks one engine.
pub(super) struct Asking {
    agent: AgentName,
    access: Access,
    clock: Arc<dyn Clock>,
    /// Generation requests sent.
    pub(super) requests: u32,
    /// Their known output tokens.
    pub(super) output_tokens: u64,
    /// Their known prompt tokens.
    pub(super) prompt_tokens: u64,
    /// Of the fastest answer of several tokens, from the request's first byte: less than this a token takes no engine.
    pub(super) fastest_token: Option<Nanos>,
}

impl Asking {
    pub(super) fn new(agent: AgentName, access: Access, clock: Arc<dyn Clock>) -> Self {
        Self { agent, access, clock, requests: 0, output_tokens: 0, prompt_tokens: 0, fastest_token: None }
    }

    /// For looking on while a request is on its way.
    pub(super) fn watcher(&self) -> Self {
        Self::new(self.agent.clone(), self.access.clone(), Arc::clone(&self.clock))
    }

    pub(super) fn api_key(&self) -> Option<&Secret> {
        self.access.api_key.as_ref()
    }

    fn client(&self, target: &Target) -> Result<Client, String> {
        let run: RunId = "check".parse().map_err(|e: common::ids::NameError| e.to_string())?;
        let (agent, access) = (self.agent.clone(), self.access.clone());
        let config = ClientConfig { target: target.clone(), access, agent, run, trial: "0".into() };
        let clock = TrialClock::new(Arc::clone(&self.clock), self.clock.monotonic());
        Client::new(config, clock).map_err(|e| e.to_string())
    }

    /// A GET of a whole path. The outer error is ours, the inner one the engine's.
    pub(super) async fn get(&self, target: &Target, path: &str) -> Result<Result<Answer, Failure>, String> {
        Ok(self.client(target)?.get(path).await)
    }

    /// A POST without a body.
    pub(super) async fn post(&self, target: &Target, path: &str) -> Result<Result<Answer, Failure>, String> {
        Ok(self.client(target)?.post(path).await)
    }

    /// `row` as a trial would send it.
    pub(super) async fn send(&mut self, target: &Target, row: &Row) -> Result<Trace, String> {
        let prepared = Requests::new(target).prepare(row);
        let (_operator, mut never) = watch::channel(false);
        self.carry(target, prepared.unsent(self.index(), Nanos::ZERO, 0), prepared.body, &mut never).await
    }

    /// A try: `row` with `change` made to its body, with less patience than a trial has.
    pub(super) async fn attempt(
        &mut self,
        target: &Target,
        row: &Row,
        change: serde_json::Value,
    ) -> Result<Trace, String> {
        let (_operator, mut never) = watch::channel(false);
        self.attempt_until(target, row, change, &mut never).await
    }

    /// A try that is cut when `cancel` says so.
    pub(super) async fn attempt_until(
        &mut self,
        target: &Target,
        row: &Row,
        change: serde_json::Value,
        cancel: &mut watch::Receiver<bool>,
    ) -> Result<Trace, String> {
        let patience = Nanos(target.total_timeout.0.min(TRY_TIMEOUT.0));
        let target = Target { total_timeout: patience, ..target.clone() };
        let prepared = Requests::new(&target).prepare(row);
        let unsent = prepared.unsent(self.index(), Nanos::ZERO, 0);
        let mut body: serde_json::Value =
            serde_json::from_slice(&prepared.body).map_err(|e| e.to_string())?;
        if let (Some(body), serde_json::Value::Object(change)) = (body.as_object_mut(), change) {
            body.extend(change);
        }
        self.carry(&target, unsent, body.to_string().into(), cancel).await
    }

    async fn carry(
        &mut self,
        target: &Target,
        unsent: Unsent,
        body: Bytes,
        cancel: &mut watch::Receiver<bool>,
    ) -> Result<Trace, String> {
        let client = self.client(target)?;
        self.requests += 1;
        let request = Outgoing { unsent, released: Nanos::ZERO, waited_for_permit: false, body };
        let trace = client.send(request, cancel).await;
        self.output_tokens += trace.facts.output_tokens.count.unwrap_or(0);
        self.prompt_tokens += trace.facts.prompt_tokens.unwrap_or(0);
        if let (Some(written), Some(n @ 4..), true) =
            (trace.clocks.written, trace.facts.output_tokens.count, trace.facts.outcome.is_success())
        {
            let one = Nanos((trace.clocks.finished - written).0 / n);
            self.fastest_token = Some(self.fastest_token.map_or(one, |fastest| fastest.min(one)));
        }
        Ok(trace)
    }

    fn index(&self) -> ArrivalIndex {
        ArrivalIndex(u64::from(self.requests))
    }

    /// Until the next look.
    pub(super) async fn wait(&self) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    /// Since some fixed instant.
    pub(super) fn now(&self) -> Nanos {
        self.clock.monotonic()
    }
}
