//! Work that waits for a disk or takes the processor for long, done where it holds up nobody.

use tokio::task::JoinError;

/// Does `work` on a thread for such work; in a simulation on the spot (see [`common::simulated`]).
///
/// # Errors
/// When it panics.
pub(crate) async fn run<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    if common::simulated::is_simulated() {
        return Ok(work());
    }
    tokio::task::spawn_blocking(work).await
}
