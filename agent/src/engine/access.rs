//! What this agent brings to an engine of its own.

use super::allowed::AllowedTargets;
use super::secret::Secret;
use super::tls::Tls;

/// Read by this agent from its own host, never from a plan. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// The engine's API key.
    pub api_key: Option<Secret>,
    /// Whom it trusts to be the engine, and who it says it is.
    pub tls: Tls,
    /// Which engines a plan may name.
    pub allowed: AllowedTargets,
}

impl From<Option<Secret>> for Access {
    fn from(api_key: Option<Secret>) -> Self {
        Self { api_key, ..Self::default() }
    }
}
