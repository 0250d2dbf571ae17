//! Dialling the coordinator and shaking hands.

use std::time::Duration;

use proto::v1::fleet_client::FleetClient;
use proto::v1::{AgentMessage, CoordinatorMessage, Welcome, agent_message, coordinator_message, refused};
use proto::{PROTOCOL_VERSION, TOKEN_METADATA};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::MetadataValue;
use tonic::service::{Interceptor, interceptor::InterceptedService};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};

use super::{AgentConfig, AgentError};
use crate::engine::Secret;
use common::ids::Nanos;

/// Control messages from this agent that wait for the network: a heartbeat a second and a few for each trial.
const OUTBOX: usize = 64;

/// A connection whose every call carries the join token.
pub(super) type Wire = InterceptedService<Channel, Token>;

/// Puts the join token on a call.
#[derive(Clone)]
pub(super) struct Token(Option<MetadataValue<tonic::metadata::Ascii>>);

impl Interceptor for Token {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &self.0 {
            request.metadata_mut().insert(TOKEN_METADATA, token.clone());
        }
        Ok(request)
    }
}

/// A joined session.
pub(super) struct Link {
    pub(super) inbound: Streaming<CoordinatorMessage>,
    pub(super) outbox: mpsc::Sender<AgentMessage>,
    pub(super) welcome: Welcome,
    /// Boot time at which the hello was sent: the first lease counts from it.
    pub(super) hello_sent: Nanos,
    /// For slices and workloads.
    pub(super) control: Wire,
    /// For traces: bulk that must not delay anything else.
    pub(super) bulk: Wire,
    /// For clock probes.
    pub(super) clock: Wire,
}

/// Why joining failed.
pub(super) enum JoinError {
    /// It will fail again.
    Fatal(AgentError),
    /// The coordinator is not there, or not yet ready for us.
    Again(String),
}

/// Dials, introduces the agent and waits for the welcome.
pub(super) async fn join(config: &AgentConfig) -> Result<Link, JoinError> {
    let dial = || dial(&config.join, config.token.as_ref());
    let control = dial().await?;
    let (outbox, messages) = mpsc::channel(OUTBOX);
    let hello = agent_message::Kind::Hello((&config.introduction).into());
    let hello_sent = config.clock.boottime();
    // The channel is empty and its receiver is held: there is room.
    let _ = outbox.send(AgentMessage { kind: Some(hello) }).await;
    let mut client = FleetClient::new(control.clone());
    let refused = |status: &Status| refusal(&config.join, status);
    let session = client.session(ReceiverStream::new(messages)).await.map_err(|s| refused(&s))?;
    let mut inbound = session.into_inner();
    let first = inbound.message().await.map_err(|s| refused(&s))?.and_then(|m| m.kind);
    match first {
        Some(coordinator_message::Kind::Welcome(welcome)) => {
            let (bulk, clock) = (dial().await?, dial().await?);
            Ok(Link { inbound, outbox, welcome, hello_sent, control, bulk, clock })
        }
        Some(coordinator_message::Kind::Refused(r)) => {
            let message = r.message.clone();
            match r.reason() {
                refused::Reason::NameTaken | refused::Reason::Full => Err(JoinError::Again(format!(
                    "the coordinator at {} has no place for us: {message}",
                    config.join
                ))),
                _ => Err(JoinError::Fatal(AgentError::Refused { join: config.join.clone(), message })),
            }
        }
        _ => Err(JoinError::Again(format!(
            "{} did not answer as a coordinator of protocol {PROTOCOL_VERSION}",
            config.join
        ))),
    }
}

/// Makes a connection. Nothing is said on it yet.
pub(super) async fn dial(join: &str, secret: Option<&Secret>) -> Result<Wire, JoinError> {
    let endpoint = endpoint(join).map_err(JoinError::Fatal)?;
    let token = token(join, secret).map_err(JoinError::Fatal)?;
    let channel = endpoint.connect().await;
    channel
        .map(|c| InterceptedService::new(c, token))
        .map_err(|e| JoinError::Again(format!("cannot reach a coordinator at {join}: {}", root(&e))))
}

fn endpoint(join: &str) -> Result<Endpoint, AgentError> {
    let fail = |message: String| AgentError::Address { join: join.to_owned(), message };
    if !join.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok()) {
        return Err(fail("no host and port".into()));
    }
    let endpoint = Endpoint::from_shared(format!("http://{join}")).map_err(|e| fail(e.to_string()))?;
    Ok(endpoint
        .connect_timeout(Duration::from_secs(5))
        .tcp_nodelay(true)
        // A coordinator whose host died never closes its connections.
        .http2_keep_alive_interval(Duration::from_secs(5))
        .keep_alive_timeout(Duration::from_secs(10))
        .keep_alive_while_idle(true)
        .initial_stream_window_size(4 << 20)
        .initial_connection_window_size(8 << 20))
}

fn token(join: &str, secret: Option<&Secret>) -> Result<Token, AgentError> {
    let Some(secret) = secret else { return Ok(Token(None)) };
    let mut value: MetadataValue<_> = secret.expose().parse().map_err(|_| AgentError::Address {
        join: join.to_owned(),
        message: "the token has characters that cannot be sent".into(),
    })?;
    value.set_sensitive(true);
    Ok(Token(Some(value)))
}

fn refusal(join: &str, status: &Status) -> JoinError {
    let message = status.message().to_owned();
    match status.code() {
        Code::Unauthenticated | Code::PermissionDenied => {
            JoinError::Fatal(AgentError::Refused { join: join.to_owned(), message })
        }
        _ => JoinError::Again(format!("the coordinator at {join} did not take us: {message}")),
    }
}

/// The last cause is the one that says something ("connection refused").
fn root(e: &dyn std::error::Error) -> String {
    let mut last = e;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_needs_host_and_port() {
        for bad in ["", "host", "host:", ":7000", "host:x", "host:99999"] {
            assert!(endpoint(bad).is_err(), "{bad:?} was accepted");
        }
        assert!(endpoint("10.0.0.5:7000").is_ok() && endpoint("[::1]:7000").is_ok());
    }
}
