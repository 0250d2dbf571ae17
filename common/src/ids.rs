//! Typed identifiers and units, so that no bare integer crosses a module boundary.

use std::fmt;
use std::ops::{Add, Sub};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Nanoseconds. Whether since a trial's start, since boot or a length of time is said where it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nanos(pub u64);

impl Nanos {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// Further away than any trial lasts.
    pub const MAX: Self = Self(u64::MAX);

    /// From whole milliseconds.
    #[must_use]
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000_000))
    }

    /// From whole seconds.
    #[must_use]
    pub const fn from_secs(s: u64) -> Self {
        Self(s.saturating_mul(1_000_000_000))
    }

    /// Rounds to the nearest nanosecond; negative and not-a-number become zero, too large becomes [`Nanos::MAX`].
    #[must_use]
    pub fn from_secs_f64(seconds: f64) -> Self {
        // `as` saturates and maps NaN to 0, which is the contract above.
        Self((seconds * 1e9).round() as u64)
    }

    /// In seconds.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The difference, or zero where `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }

    /// As a standard duration.
    #[must_use]
    pub const fn to_duration(self) -> std::time::Duration {
        std::time::Duration::from_nanos(self.0)
    }
}

impl From<std::time::Duration> for Nanos {
    fn from(d: std::time::Duration) -> Self {
        Self(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl Add for Nanos {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Nanos {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self.since(other)
    }
}

macro_rules! counter {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

counter!(
    /// Position of an arrival in its trial's schedule, from 0. Unique over all agents.
    ArrivalIndex(u64)
);
counter!(
    /// Number of a trial within its run, from 0, in the order in which trials are sent.
    TrialId(u32)
);
counter!(
    /// Fences control messages: every prepared trial of a run gets a higher epoch, reruns too.
    Epoch(u32)
);
counter!(
    /// Contiguous number of a trace within one (agent, incarnation), from 0.
    Seq(u64)
);
counter!(
    /// Drawn at random when an agent process starts, so that a restarted agent is not taken for its former self.
    Incarnation(u64)
);

/// Why a name was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{what} {value:?} must have 1 to 64 characters, each a letter, a digit, '.', '_' or '-', and not begin with '.'"
)]
pub struct NameError {
    what: &'static str,
    value: String,
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        ///
        /// 1 to 64 characters from letters, digits, `.`, `_` and `-`, not beginning with `.`: it is used as a folder.
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = NameError;
            fn from_str(s: &str) -> Result<Self, NameError> {
                let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
                if s.is_empty() || s.len() > 64 || s.starts_with('.') || !s.chars().all(fine) {
                    let value = s.chars().take(80).collect();
                    return Err(NameError { what: $what, value });
                }
                Ok(Self(s.to_owned()))
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;
            fn try_from(s: String) -> Result<Self, NameError> {
                s.parse()
            }
        }

        impl From<$name> for String {
            fn from(n: $name) -> String {
                n.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

name!(
    /// Names a run within a data directory.
    RunId,
    "run id"
);
name!(
    /// Names an agent within a run: what `agent --name` says. The split hashes it, so it should stay the same.
    AgentName,
    "agent name"
);

/// A SHA-256, shown in lower-case hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// Digest of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        use sha2::Digest as _;
        Self(sha2::Sha256::digest(bytes).into())
    }

    /// Its first 64 bits, for where so many tell things apart.
    #[must_use]
    pub fn first_64_bits(self) -> u64 {
        let mut first = [0; 8];
        first.copy_from_slice(&self.0[..8]);
        u64::from_le_bytes(first)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

/// Text that is not 64 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a SHA-256 in hexadecimal")]
pub struct DigestError;

impl FromStr for Digest {
    type Err = DigestError;
    fn from_str(s: &str) -> Result<Self, DigestError> {
        // A sign before a digit would do for a number.
        if s.len() != 64 || !s.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(DigestError);
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(s.as_bytes().chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| DigestError)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| DigestError)?;
        }
        Ok(Self(bytes))
    }
}

impl Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_safe_as_a_folder() {
        for bad in ["", ".", "..", "a/b", "a b", ".hidden", "ä", &"x".repeat(65)] {
            assert!(bad.parse::<AgentName>().is_err(), "{bad:?} was accepted");
        }
        assert_eq!("gpu-01.rack_2".parse::<AgentName>().unwrap().as_str(), "gpu-01.rack_2");
    }

    #[test]
    fn a_digest_reads_what_it_writes_and_nothing_else() {
        let d = Digest::of(b"plimsoll");
        assert_eq!(d.to_string().parse::<Digest>().unwrap(), d);
        for bad in ["", "00", &"g".repeat(64), &"+1".repeat(32), &"0".repeat(63)] {
            assert!(bad.parse::<Digest>().is_err());
        }
    }

    #[test]
    fn seconds_that_are_no_time_become_zero_or_the_end() {
        assert_eq!(Nanos::from_secs_f64(f64::NAN), Nanos::ZERO);
        assert_eq!(Nanos::from_secs_f64(-1.0), Nanos::ZERO);
        assert_eq!(Nanos::from_secs_f64(f64::INFINITY), Nanos::MAX);
        assert_eq!(Nanos::from_secs_f64(1.5), Nanos(1_500_000_000));
    }
}
