//! Dialling the coordinator and shaking hands.

use std::time::Duration;

use proto::v1::fleet_client::FleetClient;
use proto::v1::{
    AgentMessage, CoordinatorMessage, Hello, Welcome, agent_message, coordinator_message, refused,
};
use proto::{PASS_METADATA, PROTOCOL_VERSION, TOKEN_METADATA, convert};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::MetadataValue;
use tonic::service::{Interceptor, interceptor::InterceptedService};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};

use super::{AgentConfig, AgentError, Dial, JoinError, limits, tls};
use common::clock::Clock;
use common::fleet::Introduction;
use common::ids::Nanos;

use crate::outside::Outside;

/// Control messages from this agent that wait for the network: a heartbeat a second and a few for each trial.
const OUTBOX: usize = 64;

/// A connection whose every call carries the join token and, once there is one, the session's pass.
pub(super) type Wire = InterceptedService<Channel, Token>;

type Value = MetadataValue<tonic::metadata::Ascii>;

/// Puts the join token and the pass on a call.
#[derive(Clone)]
pub(super) struct Token {
    token: Option<Value>,
    pass: Option<Value>,
}

impl Interceptor for Token {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        for (key, value) in [(TOKEN_METADATA, &self.token), (PASS_METADATA, &self.pass)] {
            if let Some(value) = value {
                request.metadata_mut().insert(key, value.clone());
            }
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

/// Dials, introduces the agent and waits for the welcome.
pub(super) async fn join(config: &AgentConfig) -> Result<Link, JoinError> {
    let (dial, introduction) = (&config.dial, &config.introduction);
    let greeted = tokio::time::timeout(
        limits::ANSWER_WITHIN,
        greet(dial, introduction, false, (&*config.clock, &*config.outside)),
    )
    .await;
    greeted.unwrap_or_else(|_| {
        Err(JoinError::Again(format!(
            "{} did not answer as a coordinator within {:?}",
            dial.join,
            limits::ANSWER_WITHIN
        )))
    })
}

/// Dials, introduces and waits for the welcome.
pub(super) async fn greet(
    dial: &Dial,
    introduction: &Introduction,
    courier: bool,
    (clock, outside): (&dyn Clock, &dyn Outside),
) -> Result<Link, JoinError> {
    let endpoint = endpoint(dial).map_err(JoinError::Fatal)?;
    let token = token(dial).map_err(JoinError::Fatal)?;
    let channel = outside.connect(endpoint.clone()).await.map_err(|e| unreachable(&dial.join, &e))?;
    let (outbox, messages) = mpsc::channel(OUTBOX);
    let hello = agent_message::Kind::Hello(Hello { courier, ..introduction.into() });
    let hello_sent = clock.boottime();
    // The channel is empty and its receiver is held: there is room.
    let _ = outbox.send(AgentMessage { kind: Some(hello) }).await;
    let mut client = FleetClient::new(InterceptedService::new(channel.clone(), token.clone()))
        .max_decoding_message_size(limits::MAX_CONTROL_MESSAGE);
    let refused = |status: &Status| refusal(&dial.join, status);
    let session = client.session(ReceiverStream::new(messages)).await.map_err(|s| refused(&s))?;
    let mut inbound = session.into_inner();
    let first = inbound.message().await.map_err(|s| refused(&s))?.and_then(|m| m.kind);
    match first {
        Some(coordinator_message::Kind::Welcome(welcome)) => {
            let strange = |why| JoinError::Again(format!("the coordinator at {}: {why}", dial.join));
            limits::check_welcome(&welcome).map_err(strange)?;
            let with_pass =
                Token { pass: Some(secret(&welcome.pass, dial).map_err(JoinError::Fatal)?), ..token };
            let wire = |channel| InterceptedService::new(channel, with_pass.clone());
            // Dialled when there is something to send: a connection without a call is closed by the coordinator.
            let lazily = || wire(outside.connect_lazily(endpoint.clone()));
            let (bulk, clock) = (lazily(), lazily());
            Ok(Link { inbound, outbox, welcome, hello_sent, control: wire(channel), bulk, clock })
        }
        Some(coordinator_message::Kind::Refused(r)) => {
            let message = convert::shown(&r.message, convert::MAX_CARD_TEXT);
            match r.reason() {
                refused::Reason::NameTaken | refused::Reason::Full => Err(JoinError::Again(format!(
                    "the coordinator at {} has no place for us: {message}",
                    dial.join
                ))),
                _ => Err(JoinError::Fatal(AgentError::Refused { join: dial.join.clone(), message })),
            }
        }
        _ => Err(JoinError::Again(format!(
            "{} did not answer as a coordinator of protocol {PROTOCOL_VERSION}",
            dial.join
        ))),
    }
}

/// A connection to a server that wants no pass.
#[cfg(test)]
pub(super) async fn without_pass(join: &str) -> Wire {
    let dial = Dial { join: join.to_owned(), tls: None, token: None };
    let channel = endpoint(&dial).ok().unwrap().connect().await.unwrap();
    InterceptedService::new(channel, Token { token: None, pass: None })
}

fn unreachable(join: &str, error: &tonic::transport::Error) -> JoinError {
    tls::trouble(join, error)
        .unwrap_or_else(|| JoinError::Again(format!("cannot reach a coordinator at {join}: {}", root(error))))
}

fn endpoint(dial: &Dial) -> Result<Endpoint, AgentError> {
    let join = &dial.join;
    let fail = |message: String| AgentError::Address { join: join.clone(), message };
    let host = host(join).ok_or_else(|| fail("no host and port".into()))?;
    let scheme = if dial.tls.is_some() { "https" } else { "http" };
    let mut endpoint =
        Endpoint::from_shared(format!("{scheme}://{join}")).map_err(|e| fail(e.to_string()))?;
    if let Some(tls) = &dial.tls {
        endpoint = endpoint.tls_config(tls.config(host)).map_err(|e| fail(root(&e)))?;
    }
    Ok(endpoint
        .connect_timeout(Duration::from_secs(5))
        .tcp_nodelay(true)
        // A coordinator whose host died never closes its connections, nor does one that something on the way has forgotten:
        // it has to be noticed, and dialled again, before the lease is over.
        .http2_keep_alive_interval(Duration::from_secs(3))
        .keep_alive_timeout(Duration::from_secs(6))
        .keep_alive_while_idle(true)
        .initial_stream_window_size(4 << 20)
        .initial_connection_window_size(8 << 20))
}

/// The host of HOST:PORT; none when it is not that.
fn host(join: &str) -> Option<&str> {
    let (host, port) = join.rsplit_once(':')?;
    let plain = !host.is_empty() && !host.contains('/') && !host.contains('@');
    (plain && port.parse::<u16>().is_ok()).then_some(host)
}

fn token(dial: &Dial) -> Result<Token, AgentError> {
    let token = dial.token.as_ref().map(|s| secret(s.expose(), dial)).transpose()?;
    Ok(Token { token, pass: None })
}

fn secret(text: &str, dial: &Dial) -> Result<Value, AgentError> {
    let mut value: Value = text.parse().map_err(|_| AgentError::Address {
        join: dial.join.clone(),
        message: "the token has characters that cannot be sent".into(),
    })?;
    // Logs of HTTP/2 show no value that is marked so.
    value.set_sensitive(true);
    Ok(value)
}

fn refusal(join: &str, status: &Status) -> JoinError {
    if let Some(trouble) = tls::trouble(join, status) {
        return trouble;
    }
    let message = convert::shown(status.message(), convert::MAX_CARD_TEXT);
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
        for bad in ["", "host", "host:", ":7000", "host:x", "host:99999", "http://host:1", "u@host:1"] {
            assert_eq!(host(bad), None, "{bad:?} was accepted");
        }
        assert_eq!((host("10.0.0.5:7000"), host("[::1]:7000")), (Some("10.0.0.5"), Some("[::1]")));
    }
}
