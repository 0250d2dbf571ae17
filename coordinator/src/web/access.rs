//! Who may look.
//!
//! On loopback, whoever is on this host; the Host header is checked, so that a page of another site, whose name was made
//! to resolve to this host, reads nothing. Elsewhere, whoever has the address with its random token. It must never
//! compare the token in a time that depends on how much of it is right.

use std::net::{IpAddr, SocketAddr};

use anyhow::Context;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use subtle::ConstantTimeEq;

/// Who may look at a page.
pub(super) struct Access {
    ip: IpAddr,
    token: Option<String>,
}

/// Why somebody may not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// No token, or a wrong one.
    Token,
    /// The Host header names somebody else.
    Host,
}

impl Refusal {
    pub(super) fn status(self) -> StatusCode {
        match self {
            Self::Token => StatusCode::FORBIDDEN,
            Self::Host => StatusCode::MISDIRECTED_REQUEST,
        }
    }

    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Token => "open the whole address that the coordinator printed: it ends in a token",
            Self::Host => "this page is for this host: open it by 127.0.0.1 or localhost",
        }
    }
}

impl Access {
    /// To a socket at `ip`.
    ///
    /// # Errors
    /// When there is no randomness for a token.
    pub(super) fn to(ip: IpAddr) -> anyhow::Result<Self> {
        if ip.is_loopback() {
            return Ok(Self { ip, token: None });
        }
        let mut random = [0u8; 16];
        getrandom::fill(&mut random).context("no randomness from the system")?;
        Ok(Self { ip, token: Some(random.iter().map(|b| format!("{b:02x}")).collect()) })
    }

    /// The address of the page. Where every interface was bound, by this host's name.
    pub(super) fn url(&self, address: SocketAddr) -> String {
        let host = match self.ip {
            ip if ip.is_unspecified() => rustix::system::uname().nodename().to_string_lossy().into_owned(),
            IpAddr::V6(ip) => format!("[{ip}]"),
            IpAddr::V4(ip) => ip.to_string(),
        };
        let token = self.token.as_ref().map_or(String::new(), |token| format!("{token}/"));
        format!("http://{host}:{}/{token}", address.port())
    }

    /// What is asked for, the token left out.
    ///
    /// # Errors
    /// When it may not be asked for.
    pub(super) fn path<'r>(&self, request: &'r Request) -> Result<&'r str, Refusal> {
        let path = request.uri().path();
        let Some(token) = &self.token else {
            let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
            return match host.is_some_and(|host| self.is_this_host(host)) {
                true => Ok(path),
                false => Err(Refusal::Host),
            };
        };
        let rest = path.strip_prefix('/').unwrap_or(path);
        let end = rest.find('/').ok_or(Refusal::Token)?;
        let (given, rest) = rest.split_at(end);
        // Of other lengths nothing is compared; the length is no secret.
        match bool::from(given.as_bytes().ct_eq(token.as_bytes())) {
            true => Ok(rest),
            false => Err(Refusal::Token),
        }
    }

    /// A name of this host's loopback, with any port: it may be reached through a tunnel.
    fn is_this_host(&self, host: &str) -> bool {
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
            _ => host,
        };
        let ip = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        name.eq_ignore_ascii_case("localhost") || ip.is_ok_and(|ip| ip.is_loopback() || ip == self.ip)
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn asked(access: &Access, host: &str, path: &str) -> Result<String, Refusal> {
        let request = Request::builder().uri(path).header(header::HOST, host).body(Body::empty()).unwrap();
        access.path(&request).map(str::to_owned)
    }

    #[test]
    fn a_name_that_was_made_to_resolve_to_this_host_reads_nothing() {
        let access = Access::to([127, 0, 0, 1].into()).unwrap();
        for host in ["127.0.0.1:7001", "localhost:9", "LOCALHOST", "[::1]:7001", "127.0.0.1"] {
            assert_eq!(asked(&access, host, "/events").as_deref(), Ok("/events"), "{host}");
        }
        for host in
            ["evil.example:7001", "127.0.0.1.evil.example", "localhost.evil.example:7001", "", "10.0.0.1"]
        {
            assert_eq!(asked(&access, host, "/"), Err(Refusal::Host), "{host}");
        }
        let none = Request::builder().uri("/").body(Body::empty()).unwrap();
        assert_eq!(access.path(&none), Err(Refusal::Host));
    }

    #[test]
    fn elsewhere_nobody_looks_without_the_token() {
        let access = Access::to([10, 0, 0, 5].into()).unwrap();
        let url = access.url("10.0.0.5:7001".parse().unwrap());
        let token = url.strip_prefix("http://10.0.0.5:7001/").unwrap().trim_end_matches('/').to_owned();
        assert_eq!(token.len(), 32);
        assert_ne!(Some(token.clone()), Access::to([10, 0, 0, 5].into()).unwrap().token, "one a run");
        assert_eq!(asked(&access, "any.name", &format!("/{token}/metrics")).as_deref(), Ok("/metrics"));
        let (wrong, short) = (format!("/{}/", "0".repeat(32)), format!("/{}/", &token[..31]));
        for path in ["/", "/metrics", wrong.as_str(), short.as_str(), &format!("/{token}")] {
            assert_eq!(asked(&access, "any.name", path), Err(Refusal::Token), "{path}");
        }
    }
}
