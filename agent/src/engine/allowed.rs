//! Which engines a plan may name: `--allow-target`.
//!
//! A coordinator that is let in by its token may send this agent's load anywhere; on a host from which much can be
//! reached, that is a lot. What is compared is what a connection is made from: scheme, host and port as they were
//! parsed, and whole segments of the path. Never the text of a URL, of which `http://good.example.evil` has
//! `http://good.example` for a beginning.
//!
//! It is asked where a client is made, and there is no other way to an engine: so before a name is looked up. A name is
//! allowed as a name, whatever addresses this host's resolver has for it.
//!
//! Must never: allow what it does not understand.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use common::plan::{BaseUrl, Scheme, Target};

/// One `--allow-target`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedTarget {
    /// Any, where only host and port were given.
    scheme: Option<Scheme>,
    host: Host,
    /// Any, where only a host was given.
    port: Option<u16>,
    /// Segments with which the path of a base URL must begin.
    path: Vec<String>,
}

/// A host as it is compared.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Host {
    Address(IpAddr),
    /// In lower case, without the dot at its end.
    Name(String),
}

impl Host {
    fn of(url: &BaseUrl) -> Self {
        let host = url.host();
        match host.parse() {
            Ok(address) => Self::Address(address),
            Err(_) => Self::Name(host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()),
        }
    }
}

/// A text that is no target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected a URL, such as https://engine.example/v1, or HOST or HOST:PORT")]
pub struct NoTarget;

impl FromStr for AllowedTarget {
    type Err = NoTarget;
    fn from_str(text: &str) -> Result<Self, NoTarget> {
        let parse = |url: &str| url.parse::<BaseUrl>().map_err(|_| NoTarget);
        if text.contains("://") {
            let url = parse(text)?;
            let path = plain_segments(&url).ok_or(NoTarget)?;
            let path = path.into_iter().map(str::to_owned).collect();
            return Ok(Self {
                scheme: Some(url.scheme()),
                host: Host::of(&url),
                port: Some(url.port()),
                path,
            });
        }
        if text.contains('/') {
            return Err(NoTarget);
        }
        let url = parse(&format!("{}://{text}", Scheme::Http.name()))?;
        // The colons inside an IPv6 address are not a port's.
        let named = text.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
        let port = named.then_some(url.port());
        Ok(Self { scheme: None, host: Host::of(&url), port, path: Vec::new() })
    }
}

impl AllowedTarget {
    fn permits(&self, url: &BaseUrl) -> bool {
        self.scheme.is_none_or(|scheme| scheme == url.scheme())
            && self.port.is_none_or(|port| port == url.port())
            && self.host == Host::of(url)
            && self.permits_path(url)
    }

    fn permits_path(&self, url: &BaseUrl) -> bool {
        // What a server makes of `..`, or of a slash that is written as %2F, is its own affair.
        self.path.is_empty()
            || plain_segments(url).is_some_and(|segments| {
                segments.len() >= self.path.len() && self.path.iter().zip(segments).all(|(a, b)| a == b)
            })
    }
}

/// The segments of a base URL's path before `/v1`; none where they are not what they look like.
fn plain_segments(url: &BaseUrl) -> Option<Vec<&str>> {
    let path = url.prefix().strip_prefix('/').unwrap_or(url.prefix());
    let segments: Vec<&str> = if path.is_empty() { Vec::new() } else { path.split('/').collect() };
    let plain = |s: &&str| !s.is_empty() && *s != "." && *s != ".." && !s.contains(['%', '\\', ';']);
    segments.iter().all(plain).then_some(segments)
}

impl fmt::Display for AllowedTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(scheme) = self.scheme {
            write!(f, "{}://", scheme.name())?;
        }
        match &self.host {
            Host::Address(IpAddr::V6(address)) => write!(f, "[{address}]")?,
            Host::Address(IpAddr::V4(address)) => write!(f, "{address}")?,
            Host::Name(name) => f.write_str(name)?,
        }
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        self.path.iter().try_for_each(|segment| write!(f, "/{segment}"))
    }
}

/// All that a plan may name; any engine when there is none. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct AllowedTargets(Arc<[AllowedTarget]>);

/// A plan names what this agent is not to be sent to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAllowed {
    /// Another engine.
    #[error(
        "this agent does not send to {url}: its --allow-target permits only {permitted}; name one of them with --base-url, or start the agent with another --allow-target"
    )]
    Target {
        /// What the plan names.
        url: String,
        /// What it might have named.
        permitted: String,
    },
    /// A header by which a proxy would send it on to another one.
    #[error(
        "this agent does not send a Host header of a plan's: it has --allow-target; remove that --header"
    )]
    Host,
}

impl AllowedTargets {
    /// These and no others; with none of them, any.
    pub fn new(targets: impl IntoIterator<Item = AllowedTarget>) -> Self {
        Self(targets.into_iter().collect())
    }

    /// Whether a plan may name `target`.
    ///
    /// # Errors
    /// [`NotAllowed`].
    pub fn check(&self, target: &Target) -> Result<(), NotAllowed> {
        if self.0.is_empty() {
            return Ok(());
        }
        let permitted = |url: &BaseUrl| self.0.iter().any(|allowed| allowed.permits(url));
        if let Some(url) = target.engines().find(|url| !permitted(url)) {
            let permitted: Vec<String> = self.0.iter().map(ToString::to_string).collect();
            let (url, permitted) = (url.to_string(), permitted.join(", "));
            return Err(NotAllowed::Target { url, permitted });
        }
        if target.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            return Err(NotAllowed::Host);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permits(allowed: &str, url: &str) -> bool {
        let allowed = AllowedTargets::new([allowed.parse().unwrap()]);
        allowed.check(&Target::plain(url.parse().unwrap())).is_ok()
    }

    #[test]
    fn what_is_allowed_is_compared_by_its_parts() {
        for (allowed, url) in [
            ("http://good.example", "http://good.example/v1"),
            ("http://good.example", "HTTP://GOOD.example.:80/v1/"),
            ("http://good.example/v1", "http://good.example/api"),
            ("https://good.example", "https://good.example:443"),
            ("good.example", "https://good.example:8443/v1"),
            ("good.example:8000", "http://good.example:8000"),
            ("http://good.example/api", "http://good.example/api/v1"),
            ("http://good.example/api", "http://good.example/api/more/v1"),
            ("127.0.0.1", "http://127.0.0.1:9"),
            ("[::1]:8000", "http://[0:0:0:0:0:0:0:1]:8000"),
            ("http://[::1]", "http://[::1]/v1"),
        ] {
            assert!(permits(allowed, url), "{allowed} permits {url}");
        }
        for (allowed, url) in [
            ("http://good.example", "http://good.example.evil/v1"),
            ("http://good.example", "http://evil.good.example"),
            ("http://good.example", "http://good.example:8080"),
            ("http://good.example", "https://good.example:80"),
            ("good.example", "http://good.example.evil"),
            ("good.example:80", "http://good.example:8000"),
            ("good.example:80", "https://good.example"),
            ("http://good.example/api", "http://good.example/apiary/v1"),
            ("http://good.example/api", "http://good.example"),
            ("http://good.example/api", "http://good.example/api/../admin"),
            ("http://good.example/api", "http://good.example/api/%2e%2e/admin"),
            ("http://good.example/api", "http://good.example/api//admin"),
            ("127.0.0.1", "http://localhost"),
            ("127.0.0.1", "http://127.1"),
            ("127.0.0.1", "http://0x7f000001"),
            ("[::1]", "http://[::2]"),
        ] {
            assert!(!permits(allowed, url), "{allowed} does not permit {url}");
        }
    }

    #[test]
    fn without_any_everything_is_allowed_and_with_several_any_of_them() {
        let target = |url: &str| Target::plain(url.parse().unwrap());
        assert!(AllowedTargets::default().check(&target("http://any")).is_ok());
        let two = AllowedTargets::new(["a:1", "https://b/api"].map(|t| t.parse().unwrap()));
        assert!(two.check(&target("http://a:1")).is_ok() && two.check(&target("https://b/api")).is_ok());
        let error = two.check(&target("http://c")).unwrap_err().to_string();
        assert!(error.contains("http://c:80/v1") && error.contains("a:1, https://b:443/api"), "{error}");
    }

    #[test]
    fn a_plan_does_not_choose_another_host_by_a_header() {
        let headers = vec![("hOst".to_owned(), "evil".to_owned())];
        let target = Target { headers, ..Target::plain("http://a".parse().unwrap()) };
        let allowed = AllowedTargets::new(["a".parse().unwrap()]);
        assert_eq!(allowed.check(&target), Err(NotAllowed::Host));
        assert!(AllowedTargets::default().check(&target).is_ok());
    }

    #[test]
    fn what_is_no_target_is_refused() {
        for bad in ["", "a/b", "ftp://a", "http://", "a:0", "a:99999", "::1", "u:p@a", "http://a/..", "a b"] {
            assert_eq!(bad.parse::<AllowedTarget>(), Err(NoTarget), "{bad}");
        }
    }
}
