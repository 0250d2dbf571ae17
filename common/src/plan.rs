//! What is to be done, validated: the one form in which a request for work travels through the program.
//!
//! Raw options become a plan once, at the edge; a plan that exists is one that can be run. The effective plan is
//! stored with the run.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ids::Nanos;

/// Arrivals beyond this are refused: at 32 bytes each the schedule alone would be over 3 GB.
pub const MAX_ARRIVALS: u64 = 100_000_000;

/// A finite arrival rate above zero, in requests per second.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Rate(f64);

impl Rate {
    /// Requests per second.
    #[must_use]
    pub fn per_second(self) -> f64 {
        self.0
    }
}

/// Why a rate was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("rate {0} is not a number of requests per second above 0 and at most 1000000 (or `inf`)")]
pub struct RateError(String);

impl TryFrom<f64> for Rate {
    type Error = RateError;
    fn try_from(v: f64) -> Result<Self, RateError> {
        // Below one in a day or above a million a second is a slip of the keyboard, not a load.
        if v.is_finite() && (1e-5..=1e6).contains(&v) { Ok(Self(v)) } else { Err(RateError(v.to_string())) }
    }
}

impl From<Rate> for f64 {
    fn from(r: Rate) -> f64 {
        r.0
    }
}

/// The configured arrival rate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OfferedRate {
    /// λ.
    PerSecond(Rate),
    /// All at 0.
    Infinite,
}

impl OfferedRate {
    /// λ, or none for `inf`.
    #[must_use]
    pub fn per_second(self) -> Option<f64> {
        match self {
            Self::PerSecond(r) => Some(r.per_second()),
            Self::Infinite => None,
        }
    }
}

impl FromStr for OfferedRate {
    type Err = RateError;
    fn from_str(s: &str) -> Result<Self, RateError> {
        let s = s.trim();
        if s.eq_ignore_ascii_case("inf") {
            return Ok(Self::Infinite);
        }
        let value: f64 = s.parse().map_err(|_| RateError(format!("{s:?}")))?;
        Rate::try_from(value).map(Self::PerSecond).map_err(|_| RateError(s.to_owned()))
    }
}

impl fmt::Display for OfferedRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PerSecond(r) => r.0.fmt(f),
            Self::Infinite => f.write_str("inf"),
        }
    }
}

/// The shape of the arrivals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "process", rename_all = "snake_case")]
pub enum Process {
    /// Exponential gaps.
    Poisson,
    /// i/λ.
    Constant,
    /// Groups of `size`, `size`/λ apart.
    Burst {
        /// Requests that arrive at one instant.
        size: u32,
    },
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Poisson => f.write_str("poisson"),
            Self::Constant => f.write_str("constant"),
            Self::Burst { size } => write!(f, "burst of {size}"),
        }
    }
}

/// How much is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Extent {
    /// This many arrivals.
    Requests(u64),
    /// The arrivals of this long.
    Duration(Nanos),
}

/// Process, rate and extent: with a seed they are a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ArrivalPlan {
    /// The shape.
    pub process: Process,
    /// λ.
    pub rate: OfferedRate,
    /// How much.
    pub extent: Extent,
}

/// Why an arrival plan cannot be run.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ArrivalError {
    /// Nothing would be sent.
    #[error("--requests must be at least 1")]
    NoRequests,
    /// Nothing would be sent.
    #[error("--duration must be above 0")]
    NoDuration,
    /// Without a rate a duration does not say how many.
    #[error("a rate of inf sends everything at once: say how many with --requests, not --duration")]
    EndlessDuration,
    /// The schedule would not fit into memory.
    #[error(
        "{0} arrivals are more than the {MAX_ARRIVALS} that one trial may have: lower the rate or the duration"
    )]
    TooMany(u64),
    /// A burst of nothing.
    #[error("--burst-size must be at least 1")]
    EmptyBurst,
}

impl ArrivalPlan {
    /// Says whether the plan can be run.
    ///
    /// # Errors
    /// See [`ArrivalError`].
    pub fn validate(&self) -> Result<(), ArrivalError> {
        if let Process::Burst { size: 0 } = self.process {
            return Err(ArrivalError::EmptyBurst);
        }
        match (self.extent, self.rate) {
            (Extent::Requests(0), _) => Err(ArrivalError::NoRequests),
            (Extent::Duration(Nanos(0)), _) => Err(ArrivalError::NoDuration),
            (Extent::Duration(_), OfferedRate::Infinite) => Err(ArrivalError::EndlessDuration),
            (extent, rate) => {
                let expected = match (extent, rate.per_second()) {
                    (Extent::Requests(n), _) => n,
                    (Extent::Duration(d), Some(lambda)) => (d.as_secs_f64() * lambda).ceil() as u64,
                    (Extent::Duration(_), None) => 0,
                };
                if expected > MAX_ARRIVALS { Err(ArrivalError::TooMany(expected)) } else { Ok(()) }
            }
        }
    }

    /// L: the duration asked for, or N/λ; none for `inf`, which has no length.
    #[must_use]
    pub fn length(&self) -> Option<Nanos> {
        match (self.extent, self.rate.per_second()) {
            (Extent::Duration(d), _) => Some(d),
            (Extent::Requests(n), Some(lambda)) => Some(Nanos::from_secs_f64(n as f64 / lambda)),
            (Extent::Requests(_), None) => None,
        }
    }
}

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
    /// `model` of the body; left out when none is known.
    pub model: Option<String>,
    /// Which endpoint.
    pub api: Api,
    /// `ignore_eos: true`.
    pub ignore_eos: bool,
    /// Ask for log probabilities: evidence for ITL, at a price that the run is marked with.
    pub logprobs: bool,
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

/// Body fields that a user cannot set by `--extra-body`, because Plimsoll sets them or the trace depends on them.
pub const RESERVED_BODY_FIELDS: &[&str] =
    &["stream", "n", "model", "prompt", "messages", "max_tokens", "best_of"];

/// Header names that carry secrets. They are refused in `--header`, for it travels and is recorded.
pub const SECRET_HEADERS: &[&str] =
    &["authorization", "proxy-authorization", "x-api-key", "api-key", "cookie", "x-admin-key"];

/// An engine's address: `http://host[:port][/prefix]/v1`, without query, user or fragment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BaseUrl {
    host: String,
    port: u16,
    prefix: String,
}

/// Why a base URL was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BaseUrlError {
    /// TLS to the engine is not built yet.
    #[error("{0}: https is not supported yet; use http:// or a local TLS proxy")]
    Https(String),
    /// Something other than http.
    #[error("{0}: a base URL begins with http://, as in http://127.0.0.1:8000")]
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
        let lower = url.to_ascii_lowercase();
        if lower.starts_with("https://") {
            return Err(BaseUrlError::Https(url.to_owned()));
        }
        if !lower.starts_with("http://") {
            return Err(BaseUrlError::Scheme(url.to_owned()));
        }
        let rest = &url["http://".len()..];
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        for (c, part) in [('?', "a query"), ('#', "a fragment")] {
            if rest.contains(c) {
                return Err(BaseUrlError::Part { url: url.to_owned(), part });
            }
        }
        if authority.contains('@') {
            // Do not repeat the URL: what stands before the @ is a password.
            let url = format!("http://…@{}", authority.rsplit('@').next().unwrap_or_default());
            return Err(BaseUrlError::Part { url, part: "a user or password" });
        }
        let (host, port) =
            split_authority(authority).ok_or_else(|| BaseUrlError::Authority(url.to_owned()))?;
        let fine = |c: char| c.is_ascii_graphic();
        if !path.chars().all(fine) {
            return Err(BaseUrlError::Part {
                url: url.to_owned(),
                part: "blanks or other than ASCII in its path",
            });
        }
        let path = path.trim_end_matches('/');
        let prefix = path.strip_suffix("/v1").unwrap_or(path);
        Ok(Self { host: host.to_owned(), port, prefix: prefix.to_owned() })
    }
}

fn split_authority(authority: &str) -> Option<(&str, u16)> {
    let (host, port) = match authority.rsplit_once(':') {
        // The colons inside an IPv6 address are not a port's.
        Some((host, port)) if !port.contains(']') => (host, port.parse().ok().filter(|&p| p != 0)?),
        _ => (authority, 80),
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
    /// Host for a name lookup: an IPv6 address stands without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        self.host.trim_start_matches('[').trim_end_matches(']')
    }

    /// Port, 80 unless given.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The `Host` header.
    #[must_use]
    pub fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
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
        write!(f, "http://{}:{}{}/v1", self.host, self.port, self.prefix)
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
    fn rates_that_are_no_load_are_refused() {
        for bad in ["0", "-1", "nan", "NaN", "-inf", "1e9", "", "x", "4/s"] {
            let e = bad.parse::<OfferedRate>().expect_err(bad);
            assert!(e.to_string().contains("requests per second"), "{e}");
        }
        assert_eq!("inf".parse::<OfferedRate>().unwrap(), OfferedRate::Infinite);
        assert_eq!(" 2.5".parse::<OfferedRate>().unwrap().per_second(), Some(2.5));
    }

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
    }

    #[test]
    fn base_urls_that_cannot_work_are_refused_with_a_reason() {
        for (bad, says) in [
            ("127.0.0.1:8000", "begins with http://"),
            ("https://x", "https is not supported"),
            ("http://", "no usable host"),
            ("http://:80", "no usable host"),
            ("http://h:0", "no usable host"),
            ("http://h:99999", "no usable host"),
            ("http://h/?a=1", "a query"),
            ("http://u:secret@h/", "a user or password"),
            ("http://h/a b", "blanks"),
        ] {
            let e = bad.parse::<BaseUrl>().expect_err(bad).to_string();
            assert!(e.contains(says), "{bad}: {e}");
            assert!(!e.contains("secret"), "{e}");
        }
    }

    #[test]
    fn extents_that_cannot_be_run_are_refused() {
        let plan = |rate: &str, extent| ArrivalPlan {
            process: Process::Poisson,
            rate: rate.parse().unwrap(),
            extent,
        };
        let long = Extent::Duration(Nanos::from_secs(1_000_000));
        assert_eq!(plan("1", Extent::Requests(0)).validate(), Err(ArrivalError::NoRequests));
        assert_eq!(plan("inf", long).validate(), Err(ArrivalError::EndlessDuration));
        assert!(matches!(plan("1000", long).validate(), Err(ArrivalError::TooMany(_))));
        assert_eq!(plan("4", Extent::Requests(200)).length(), Some(Nanos::from_secs(50)));
    }
}
