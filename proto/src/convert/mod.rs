//! Conversions between wire and domain. Inward (`TryFrom`) everything is checked; outward (`From`) nothing can fail.

mod engine;
mod fate;
mod fleet;
mod limits;
mod target;

use common::ids::{AgentName, Digest, RunId};

pub use limits::{
    MAX_CARD_TEXT, MAX_JSON, MAX_LIST, MAX_MODELS, MAX_NAME, MAX_TEXT, MAX_WARMUP_ROWS, MAX_WARNINGS,
    harmless, shown, text,
};

/// A message that does not say what it must.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}.{field}: {problem}")]
pub struct WireError {
    /// The message, as the .proto names it.
    pub message: &'static str,
    /// The field.
    pub field: &'static str,
    /// What is wrong.
    pub problem: String,
}

impl WireError {
    fn new(message: &'static str, field: &'static str, problem: impl ToString) -> Self {
        // It may quote what the peer sent.
        Self { message, field, problem: shown(&problem.to_string(), MAX_NAME) }
    }
}

impl From<WireError> for tonic::Status {
    fn from(e: WireError) -> Self {
        Self::invalid_argument(e.to_string())
    }
}

fn required<T>(value: Option<T>, message: &'static str, field: &'static str) -> Result<T, WireError> {
    value.ok_or_else(|| WireError::new(message, field, "missing"))
}

fn digest(text: &str, message: &'static str, field: &'static str) -> Result<Digest, WireError> {
    text.parse().map_err(|e| WireError::new(message, field, e))
}

/// Reads an agent's name out of `message`.
///
/// # Errors
/// When it is not a name.
pub fn agent_name(text: &str, message: &'static str) -> Result<AgentName, WireError> {
    text.parse().map_err(|e| WireError::new(message, "agent", e))
}

/// Reads a run's id out of `message`.
///
/// # Errors
/// When it is not one.
pub fn run_id(text: &str, message: &'static str) -> Result<RunId, WireError> {
    text.parse().map_err(|e| WireError::new(message, "run_id", e))
}

/// Reads a content hash out of `message`.
///
/// # Errors
/// When it is not one.
pub fn sha256(text: &str, message: &'static str) -> Result<Digest, WireError> {
    digest(text, message, "sha256")
}
