//! What is to be done, validated: the one form in which a request for work travels through the program.
//!
//! Raw options become a plan once, at the edge; a plan that exists is one that can be run. The effective plan is
//! stored with the run.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::dialect::Dialect;
use crate::ids::Nanos;

pub use crate::schedule::arrivals::{
    ArrivalError, ArrivalPlan, Extent, MAX_ARRIVALS, MAX_CV, MIN_CV, OfferedRate, Process, Rate, RateError,
};

/// Which endpoint is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Api {
    /// `/v1/completions`.
    Completions,
    /// `/v1/chat/completions`.
    Chat,
}

impl Api {
    /// Path below the base URL's `/v1`.
    #[must_use]
    pub fn path(self) -> &'static str {
        match self {
            Self::Completions => "/completions",
            Self::Chat => "/chat/completions",
        }
    }
}

impl fmt::Display for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Completions => "completions",
            Self::Chat => "chat",
        })
    }
}

/// The engine and how it is asked: everything about a request but its row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// Where the engine is. Ends in `/v1` (see [`BaseUrl`]).
    pub base_url: BaseUrl,
    /// Further engines that serve the same: requests are spread over all of them (see [`crate::replicas`]).
    pub replicas: Vec<BaseUrl>,
    /// What the engine does in its own way.
    pub dialect: Dialect,
    /// `model` of the body; left out when none is known.
    pub model: Option<String>,
    /// Which endpoint.
    pub api: Api,
    /// `ignore_eos: true`.
    pub ignore_eos: bool,
    /// Ask for log probabilities: evidence for ITL, at a price that the run is marked with.
    pub logprobs: bool,
    /// Ask for each event's tokens in the engine's cheapest way, where it has one (see [`Traits::token_counts`]).
    ///
    /// [`Traits::token_counts`]: crate::dialect::Traits::token_counts
    pub token_counts: bool,
    /// Merged into every body.
    pub extra_body: serde_json::Map<String, serde_json::Value>,
    /// Sent with every request. Never a secret: each agent reads its own key.
    pub headers: Vec<(String, String)>,
    /// `max_tokens` of rows that say none.
    pub default_max_tokens: u32,
    /// For a connection to be made.
    pub connect_timeout: Nanos,
    /// From `written` to the end; also how long an arrival waits for a permit.
    pub total_timeout: Nanos,
    /// Between content events, from the first.
    pub idle_timeout: Nanos,
    /// Keep prompts and outputs; otherwise hashes and lengths.
    pub keep_text: bool,
}

impl Target {
    /// The completions endpoint of an engine of which nothing is known, with nothing asked for beyond the protocol.
    #[must_use]
    pub fn plain(base_url: BaseUrl) -> Self {
        Self {
            base_url,
            replicas: Vec::new(),
            dialect: Dialect::OPENAI,
            model: None,
            api: Api::Completions,
            ignore_eos: false,
            logprobs: false,
            token_counts: false,
            extra_body: serde_json::Map::new(),
            headers: Vec::new(),
            default_max_tokens: 16,
            connect_timeout: Nanos::from_secs(10),
            total_timeout: Nanos::from_secs(120),
            idle_timeout: Nanos::from_secs(30),
            keep_text: true,
        }
    }

    /// Where every engine is: the base URL first, then the replicas.
    pub fn engines(&self) -> impl Iterator<Item = &BaseUrl> {
        std::iter::once(&self.base_url).chain(&self.replicas)
    }

    /// The same of one engine alone.
    #[must_use]
    pub fn at(&self, url: &BaseUrl) -> Self {
        Self { base_url: url.clone(), replicas: Vec::new(), ..self.clone() }
    }
}

/// Body fields that a user cannot set by `--extra-body`, because Plimsoll sets them or the trace depends on them.
pub const RESERVED_BODY_FIELDS: &[&str] =
    &["stream", "n", "model", "prompt", "messages", "max_tokens", "best_of"];

/// Header names that carry secrets. They are refused in `--header`, for it travels and is recorded.
pub const SECRET_HEADERS: &[&str] =
    &["authorization", "proxy-authorization", "x-api-key", "api-key", "cookie", "x-admin-key"];

/// An engine's address: `http[s]://host[:port][/prefix]/v1`, without query, user or fragment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BaseUrl {
    scheme: Scheme,
    host: String,
    port: u16,
    prefix: String,
}

/// How an engine is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// HTTP as it is.
    Http,
    /// HTTP inside TLS.
    Https,
}

impl Scheme {
    /// As it stands in a URL.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// The port of a URL that names none.
    #[must_use]
    pub fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }

    /// The scheme of `url` and what follows its `://`; none when it has another one.
    fn split(url: &str) -> Option<(Self, &str)> {
        let (name, rest) = url.split_once("://")?;
        let scheme = [Self::Http, Self::Https].into_iter().find(|s| name.eq_ignore_ascii_case(s.name()))?;
        Some((scheme, rest))
    }
}

/// Why a base URL was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BaseUrlError {
    /// Something other than http and https.
    #[error("{0}: a base URL begins with http:// or https://, as in http://127.0.0.1:8000")]
    Scheme(String),
    /// No usable host or port.
    #[error("{0}: no usable host and port; expected something like http://127.0.0.1:8000/v1")]
    Authority(String),
    /// A part that would be ignored.
    #[error("{url}: a base URL cannot have {part}")]
    Part {
        /// As given.
        url: String,
        /// What is too much.
        part: &'static str,
    },
}

impl FromStr for BaseUrl {
    type Err = BaseUrlError;
    fn from_str(url: &str) -> Result<Self, BaseUrlError> {
        let (scheme, rest) = Scheme::split(url).ok_or_else(|| BaseUrlError::Scheme(hidden_user(url)))?;
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        for (c, part) in [('?', "a query"), ('#', "a fragment")] {
            if rest.contains(c) {
                return Err(BaseUrlError::Part { url: url.to_owned(), part });
            }
        }
        if authority.contains('@') {
            // Do not repeat the URL: what stands before the @ is a password.
            return Err(BaseUrlError::Part { url: hidden_user(url), part: "a user or password" });
        }
        let (host, port) = split_authority(authority, scheme.default_port())
            .ok_or_else(|| BaseUrlError::Authority(url.to_owned()))?;
        let fine = |c: char| c.is_ascii_graphic();
        if !path.chars().all(fine) {
            return Err(BaseUrlError::Part {
                url: url.to_owned(),
                part: "blanks or other than ASCII in its path",
            });
        }
        let path = path.trim_end_matches('/');
        let prefix = path.strip_suffix("/v1").unwrap_or(path);
        Ok(Self { scheme, host: host.to_owned(), port, prefix: prefix.to_owned() })
    }
}

/// The URL for a message: what stands before an `@` may be a password.
fn hidden_user(url: &str) -> String {
    match url.rsplit_once('@') {
        Some((before, rest)) => {
            let scheme = before.split_once("://").map_or("", |(scheme, _)| scheme);
            format!("{scheme}://…@{rest}")
        }
        None => url.to_owned(),
    }
}

fn split_authority(authority: &str, default_port: u16) -> Option<(&str, u16)> {
    let (host, port) = match authority.rsplit_once(':') {
        // The colons inside an IPv6 address are not a port's.
        Some((host, port)) if !port.contains(']') => (host, port.parse().ok().filter(|&p| p != 0)?),
        _ => (authority, default_port),
    };
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    let fine = match bare {
        Some(v6) => v6.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            !host.is_empty()
                && host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'))
        }
    };
    fine.then_some((host, port))
}

impl BaseUrl {
    /// How the engine is spoken to.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Host for a name lookup: an IPv6 address stands without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        self.host.trim_start_matches('[').trim_end_matches(']')
    }

    /// It is on the host that asks: a loopback address, or the name that stands for one.
    #[must_use]
    pub fn is_here(&self) -> bool {
        let address: Option<std::net::IpAddr> = self.host().parse().ok();
        address.map_or(self.host().eq_ignore_ascii_case("localhost"), |a| a.is_loopback())
    }

    /// Port; the scheme's own unless given.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The `Host` header.
    #[must_use]
    pub fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// What stands before `/v1` in the path: empty, or with a slash at its beginning and none at its end.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Request path of an endpoint below `/v1`, such as `/completions`.
    #[must_use]
    pub fn v1(&self, endpoint: &str) -> String {
        format!("{}/v1{endpoint}", self.prefix)
    }

    /// Request path of something that lies beside `/v1`, such as `/health`.
    #[must_use]
    pub fn beside_v1(&self, path: &str) -> String {
        format!("{}{path}", self.prefix)
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}:{}{}/v1", self.scheme.name(), self.host, self.port, self.prefix)
    }
}

impl TryFrom<String> for BaseUrl {
    type Error = BaseUrlError;
    fn try_from(s: String) -> Result<Self, BaseUrlError> {
        s.parse()
    }
}

impl From<BaseUrl> for String {
    fn from(u: BaseUrl) -> String {
        u.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_url_is_the_same_with_and_without_v1() {
        for url in [
            "http://127.0.0.1:8000",
            "http://127.0.0.1:8000/",
            "http://127.0.0.1:8000/v1",
            "HTTP://127.0.0.1:8000/v1/",
        ] {
            let u: BaseUrl = url.parse().unwrap();
            assert_eq!(u.to_string(), "http://127.0.0.1:8000/v1");
            assert_eq!(u.v1("/models"), "/v1/models");
        }
        let u: BaseUrl = "http://[::1]/api/v1".parse().unwrap();
        assert_eq!((u.host(), u.port(), u.authority().as_str()), ("::1", 80, "[::1]:80"));
        assert_eq!(u.beside_v1("/health"), "/api/health");
        let u: BaseUrl = "HTTPS://engine.example/v1".parse().unwrap();
        assert_eq!((u.scheme(), u.port()), (Scheme::Https, 443));
        assert_eq!(u.to_string(), "https://engine.example:443/v1");
        assert_eq!(u.to_string().parse(), Ok(u));
    }

    #[test]
    fn base_urls_that_cannot_work_are_refused_with_a_reason() {
        for (bad, says) in [
            ("127.0.0.1:8000", "begins with http://"),
            ("ftp://u:secret@x", "begins with http:// or https://"),
            ("http://", "no usable host"),
            ("http://:80", "no usable host"),
            ("http://h:0", "no usable host"),
            ("http://h:99999", "no usable host"),
            ("http://h/?a=1", "a query"),
            ("http://u:secret@h/", "a user or password"),
            ("https://u:secret@h/", "a user or password"),
            ("http://h/a b", "blanks"),
        ] {
            let e = bad.parse::<BaseUrl>().expect_err(bad).to_string();
            assert!(e.contains(says), "{bad}: {e}");
            assert!(!e.contains("secret"), "{e}");
        }
    }
}
