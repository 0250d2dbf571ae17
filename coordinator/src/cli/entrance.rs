//! Where agents come in: the join token, the certificate, the sockets, and the line that says how to join.
//!
//! What was asked for is read and checked before anything is opened ([`Keys`]), so that a file that cannot be used is a
//! mistake on the command line and not a failed run. Then the sockets are opened ([`Entrance`]).
//!
//! With TLS, the agents that the coordinator starts itself come in by a second socket, on loopback and without TLS: they
//! need no certificate that way, nor a name that the coordinator's certificate happens to have. They still show the
//! token, which is then always there.
//!
//! Must never: put the token into an error, a log, or a command line; the join line shows one only that was made here.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use anyhow::{Context, bail};
use common::disk::readable_by_others;
use common::slo::shown_time;
use proto::tls::{Identity, certificates};

use super::files;
use super::options::AgentOptions;

use crate::plan::FleetPlan;
use crate::rpc::{self, Door, ServerTls};

/// The join token, and whether it was made here.
pub(super) struct Token {
    pub(super) secret: String,
    made: bool,
}

/// What agents are held against, as read from files and the environment.
pub(super) struct Keys {
    given: Option<String>,
    tls: Option<Tls>,
}

struct Tls {
    server: ServerTls,
    identity: Identity,
    /// Agents must show a certificate, too.
    mutual: bool,
}

impl Keys {
    /// Reads what the options name.
    ///
    /// # Errors
    /// With the option and the file.
    pub(super) fn read(options: &AgentOptions) -> anyhow::Result<Self> {
        Ok(Self { given: given_token(options)?, tls: tls(options)? })
    }

    /// The token of this run: given, or made where agents may join from elsewhere. Loopback without TLS needs none.
    fn token(&self, address: IpAddr) -> anyhow::Result<Option<Token>> {
        if let Some(secret) = &self.given {
            return Ok(Some(Token { secret: secret.clone(), made: false }));
        }
        if address.is_loopback() && self.tls.is_none() {
            return Ok(None);
        }
        let mut random = [0u8; 16];
        getrandom::fill(&mut random).context("no randomness from the system")?;
        Ok(Some(Token { secret: random.iter().map(|b| format!("{b:02x}")).collect(), made: true }))
    }
}

fn given_token(options: &AgentOptions) -> anyhow::Result<Option<String>> {
    let (text, source) = match &options.token_file {
        Some(path) => {
            let text = read("--token-file", path)?;
            let text = String::from_utf8(text).ok().with_context(|| bad_token("--token-file", path))?;
            not_for_others("--token-file", path);
            if text.trim().is_empty() {
                bail!("--token-file {} is empty", path.display());
            }
            (text, format!("--token-file {}", path.display()))
        }
        None => (std::env::var("PLIMSOLL_TOKEN").unwrap_or_default(), "PLIMSOLL_TOKEN".to_owned()),
    };
    let text = text.trim();
    if !text.chars().all(|c| c.is_ascii_graphic()) {
        bail!("{source}: a token has no blanks and nothing but ASCII; try `openssl rand -hex 16`");
    }
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

fn bad_token(option: &str, path: &Path) -> String {
    format!("{option} {}: a token is text", path.display())
}

fn tls(options: &AgentOptions) -> anyhow::Result<Option<Tls>> {
    let (Some(cert), Some(key)) = (&options.tls_cert, &options.tls_key) else { return Ok(None) };
    let wrong = |option: &str, path: &Path| format!("{option} {}", path.display());
    let chain = certificates(&read("--tls-cert", cert)?).with_context(|| wrong("--tls-cert", cert))?;
    let key_pem = read("--tls-key", key)?;
    not_for_others("--tls-key", key);
    let identity = Identity::new(chain, &key_pem)
        .with_context(|| format!("--tls-key {} (for --tls-cert {})", key.display(), cert.display()))?;
    let authorities = match &options.tls_client_ca {
        None => None,
        Some(ca) => {
            Some(certificates(&read("--tls-client-ca", ca)?).with_context(|| wrong("--tls-client-ca", ca))?)
        }
    };
    let mutual = authorities.is_some();
    let server = ServerTls::new(&identity, authorities).map_err(anyhow::Error::msg);
    let which = options.tls_client_ca.as_ref().unwrap_or(cert);
    let server = server.with_context(|| which.display().to_string())?;
    Ok(Some(Tls { server, identity, mutual }))
}

fn read(option: &str, path: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("{option} {}", path.display()))
}

/// Warns when a secret's file can be read by others.
fn not_for_others(option: &str, path: &Path) {
    if let Some(mode) = readable_by_others(path) {
        tracing::warn!(
            "{option} {}: others on this host can read it (mode {mode:o}); chmod 600 it",
            path.display()
        );
    }
}

/// The sockets, open.
pub(super) struct Entrance {
    pub(super) doors: Vec<Door>,
    pub(super) token: Option<Token>,
    /// Where agents of other hosts join.
    address: SocketAddr,
    /// Where agents of this host do.
    pub(super) local: SocketAddr,
    /// The name that they ask for, if the certificate is not for the address.
    name: Option<String>,
    tls: bool,
    mutual: bool,
}

impl Entrance {
    /// Opens what the plan wants.
    ///
    /// # Errors
    /// When an address cannot be listened on, or too few files may be open for so many agents.
    pub(super) async fn open(plan: &FleetPlan, keys: Keys) -> anyhow::Result<Self> {
        files::make_room_for(plan.local + plan.remote)?;
        let (listener, address) = rpc::bind(&plan.listen).await?;
        let token = keys.token(address.ip())?;
        // A coordinator that listens everywhere is reached by its local agents over loopback.
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, address.port()));
        let mut local = if address.ip().is_unspecified() { loopback } else { address };
        let (tls, mutual) = (keys.tls.is_some(), keys.tls.as_ref().is_some_and(|tls| tls.mutual));
        let name = keys.tls.as_ref().filter(|tls| !tls.identity.is_for(address.ip()));
        let name = name.and_then(|tls| tls.identity.dns_names().into_iter().find(|n| !n.starts_with('*')));
        let mut doors = vec![Door::Socket { listener, tls: keys.tls.map(|tls| tls.server) }];
        if tls && plan.local > 0 {
            let (listener, address) = rpc::bind("127.0.0.1:0").await?;
            local = address;
            doors.push(Door::Socket { listener, tls: None });
        }
        Ok(Self { doors, token, address, local, name, tls, mutual })
    }

    /// What to type on the other hosts; none when nobody is waited for.
    pub(super) fn join_line(&self, plan: &FleetPlan) -> Option<String> {
        let mut whom = Vec::new();
        if plan.remote > 0 {
            whom.push(format!("{} agents", plan.remote));
        }
        for (option, awaited) in [("--engine", plan.awaits_engine), ("--gpu", plan.awaits_gpu)] {
            if awaited {
                whom.push(format!("one with {option}"));
            }
        }
        if whom.is_empty() {
            return None;
        }
        let whom = format!("{}, at most {}; on each host", whom.join(" and "), shown_time(plan.join_timeout));
        Some(format!("waiting      for {whom}:\n             {}\n", self.command()))
    }

    /// A token that is made is kept nowhere: agents that live on do not know the one of a run that is resumed. `again`
    /// says that this is one.
    pub(super) fn token_note(&self, again: bool) -> Option<&'static str> {
        let made = self.token.as_ref().is_some_and(|token| token.made);
        made.then_some(match again {
            false => {
                "token        made for this start; if the run is resumed it is another, and agents must be started \
                 again, unless PLIMSOLL_TOKEN or --token-file gives it\n"
            }
            true => {
                "token        made for this start; agents that wait with an earlier one cannot join, and must be \
                 started again\n"
            }
        })
    }

    /// `agent --join` with all that it needs. Names of files stand for those of the agent's host.
    fn command(&self) -> String {
        let ip = self.address.ip();
        let host = if ip.is_unspecified() { "THIS-HOST".to_owned() } else { ip.to_string() };
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let secret = match &self.token {
            Some(Token { secret, made: true }) => format!("PLIMSOLL_TOKEN={secret} "),
            // A token that was given is known to whoever gave it, and need not stand on a screen.
            Some(_) => "PLIMSOLL_TOKEN=… ".to_owned(),
            None => String::new(),
        };
        let (scheme, mut options) = match self.tls {
            true => ("https://", " --tls-ca CA.pem".to_owned()),
            false => ("", String::new()),
        };
        if let Some(name) = &self.name {
            options.push_str(&format!(" --tls-name {name}"));
        }
        if self.mutual {
            options.push_str(" --tls-cert AGENT.pem --tls-key AGENT.key");
        }
        format!("{secret}agent --join {scheme}{host}:{}{options}", self.address.port())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entrance(ip: [u8; 4], made: bool, tls: bool) -> Entrance {
        let address = SocketAddr::from((ip, 7000));
        let token = Some(Token { secret: "s3cret".into(), made });
        let name = tls.then(|| "coordinator.lab".to_owned());
        Entrance { doors: Vec::new(), token, address, local: address, name, tls, mutual: tls }
    }

    #[test]
    fn the_line_has_all_that_an_agent_needs_and_no_token_that_was_given() {
        let plain = entrance([0, 0, 0, 0], true, false).command();
        assert_eq!(plain, "PLIMSOLL_TOKEN=s3cret agent --join THIS-HOST:7000");
        let mutual = entrance([10, 0, 0, 5], false, true).command();
        assert_eq!(
            mutual,
            "PLIMSOLL_TOKEN=… agent --join https://10.0.0.5:7000 --tls-ca CA.pem --tls-name coordinator.lab \
             --tls-cert AGENT.pem --tls-key AGENT.key"
        );
    }

    #[test]
    fn a_token_that_was_made_is_said_not_to_outlive_the_program() {
        let note = |made, again| entrance([0, 0, 0, 0], made, false).token_note(again);
        assert!(note(true, false).unwrap().contains("if the run is resumed it is another"));
        assert!(note(true, true).unwrap().contains("with an earlier one cannot join"));
        assert_eq!((note(false, false), note(false, true)), (None, None), "it was given");
    }

    #[test]
    fn a_token_is_made_where_others_can_reach() {
        let keys = Keys { given: None, tls: None };
        assert!(keys.token([127, 0, 0, 1].into()).unwrap().is_none());
        let (one, two) =
            (keys.token([0, 0, 0, 0].into()).unwrap().unwrap(), keys.token([10, 0, 0, 1].into()));
        assert!(one.made && one.secret.len() == 32 && one.secret != two.unwrap().unwrap().secret);
        let given =
            Keys { given: Some("mine".into()), tls: None }.token([127, 0, 0, 1].into()).unwrap().unwrap();
        assert!(!given.made && given.secret == "mine");
    }
}
