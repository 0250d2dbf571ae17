//! Work that waits for a disk or takes the processor for long, done where it holds up nobody.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

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

/// Carries `work` out on this thread, which has nothing else to do. It may wait for channels, but not for timers or sockets:
/// there is no runtime, whose making could fail.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let (mut work, mut context) = (pin!(work), Context::from_waker(&waker));
    loop {
        if let Poll::Ready(done) = work.as_mut().poll(&mut context) {
            return done;
        }
        std::thread::park();
    }
}

#[cfg(test)]
mod tests {
    /// A wake that comes before the thread sleeps must not be lost.
    #[test]
    fn a_thread_without_a_runtime_hears_all_that_comes_over_a_channel() {
        let (sender, mut inbox) = tokio::sync::mpsc::channel(2);
        let talks = std::thread::spawn(move || (0..10_000).for_each(|n| sender.blocking_send(n).unwrap()));
        let mut heard = Vec::new();
        super::block_on(async {
            while let Some(n) = inbox.recv().await {
                heard.push(n)
            }
        });
        talks.join().unwrap();
        assert_eq!(heard, (0..10_000).collect::<Vec<_>>());
    }
}
