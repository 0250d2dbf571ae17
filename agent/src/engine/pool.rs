//! Idle connections, the last used first: it is the least likely to have been closed by the engine meanwhile.
//!
//! There are never more than there were requests in flight at one time, plus those that were warmed.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::connection::Connection;

/// Connections on which a request may follow.
#[derive(Default)]
pub(super) struct Pool(Mutex<Vec<Connection>>);

impl Pool {
    pub(super) fn take(&self) -> Option<Connection> {
        self.idle().pop()
    }

    pub(super) fn give_back(&self, connection: Connection) {
        self.idle().push(connection);
    }

    pub(super) fn len(&self) -> usize {
        self.idle().len()
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        // Never held across a wait, and nothing in it can be half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
