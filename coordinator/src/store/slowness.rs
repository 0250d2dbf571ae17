//! How slow the disk of a simulation is: a simulated disk answers at once, and what follows from one that does not has to
//! be seen, too.

use std::sync::Arc;
use std::time::Duration;

/// How long the writer of a store waits before it writes: not at all, unless a simulation says so.
#[derive(Clone, Default)]
pub struct Slowness(Option<Arc<dyn Fn() -> Duration + Send + Sync>>);

impl Slowness {
    /// Asked before every group of traces.
    pub fn of(wait: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(wait)))
    }

    pub(crate) async fn wait(&self) {
        if let Some(wait) = &self.0 {
            tokio::time::sleep(wait()).await;
        }
    }
}
