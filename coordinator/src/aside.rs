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

/// Does `work` here, while other tasks of this thread go on elsewhere.
pub(crate) fn here<T>(work: impl FnOnce() -> T) -> T {
    if common::simulated::is_simulated() { work() } else { tokio::task::block_in_place(work) }
}

/// Threads that work which takes the processor for long may use beside each other. Not all of a large machine: what they
/// prepare is put together by one.
pub(crate) fn threads() -> usize {
    const MOST: usize = 8;
    if common::simulated::is_simulated() {
        return 1;
    }
    std::thread::available_parallelism().map_or(1, |n| n.get().min(MOST))
}
