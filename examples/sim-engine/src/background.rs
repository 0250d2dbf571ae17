//! A server in the background of a program that is not async: a test, mostly.
//!
//! Owns a runtime of its own. Must never outlive the handle: dropping it ends the server and cuts open streams.

use std::io;
use std::net::SocketAddr;

use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use crate::config::Config;
use crate::serve::serve;

/// A running server. Ends when dropped.
#[derive(Debug)]
pub struct Background {
    address: SocketAddr,
    runtime: Option<Runtime>,
}

impl Background {
    /// Listens on a free port of the loopback interface.
    ///
    /// # Errors
    /// When there is no port to listen on or the runtime cannot be built.
    pub fn start(config: Config) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", 0)))?;
        let address = listener.local_addr()?;
        runtime.spawn(serve(listener, config, std::future::pending()));
        Ok(Self { address, runtime: Some(runtime) })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://127.0.0.1:PORT`
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
