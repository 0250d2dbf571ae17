//! A TCP proxy that keeps everything that goes through it: what somebody on the network sees.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A running proxy. It takes no more connections when this is dropped.
#[derive(Debug)]
pub struct Recorder {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<u8>>>,
    over: Arc<AtomicBool>,
    /// Near ends of the connections so far.
    near: Arc<Mutex<Vec<TcpStream>>>,
}

impl Recorder {
    /// Passes connections on to `upstream`.
    ///
    /// # Panics
    /// When no port can be had.
    #[must_use]
    pub fn start(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap_or_else(|e| panic!("no port: {e}"));
        let address = listener.local_addr().unwrap_or_else(|e| panic!("no address: {e}"));
        let seen = Arc::<Mutex<Vec<u8>>>::default();
        let over = Arc::new(AtomicBool::new(false));
        let (theirs, ended) = (Arc::clone(&seen), Arc::clone(&over));
        let near = Arc::<Mutex<Vec<TcpStream>>>::default();
        let kept = Arc::clone(&near);
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                if ended.load(Ordering::Acquire) {
                    return;
                }
                let Ok(far) = TcpStream::connect(upstream) else { continue };
                if let Ok(clone) = near.try_clone() {
                    kept.lock().unwrap_or_else(PoisonError::into_inner).push(clone);
                }
                for (from, to) in [(near.try_clone(), far.try_clone()), (Ok(far), Ok(near))] {
                    let (Ok(from), Ok(to)) = (from, to) else { continue };
                    let seen = Arc::clone(&theirs);
                    std::thread::spawn(move || pass(from, to, &seen));
                }
            }
        });
        Self { address, seen, over, near }
    }

    /// Where to connect instead.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Cuts every connection; new ones are passed on as before. Says how many there were.
    pub fn cut(&self) -> usize {
        let cut = self.near.lock().unwrap_or_else(PoisonError::into_inner).split_off(0);
        // One that is closed already cannot be shut down.
        cut.iter().filter(|stream| stream.shutdown(Shutdown::Both).is_ok()).count()
    }

    /// Whether `text` went by.
    #[must_use]
    pub fn saw(&self, text: &str) -> bool {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.windows(text.len()).any(|window| window == text.as_bytes())
    }

    /// Bytes that went by.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        // Wakes the listener; when that does not work, the thread ends with the test.
        let _ = TcpStream::connect(self.address);
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, seen: &Mutex<Vec<u8>>) {
    let mut buffer = [0; 16 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        seen.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&buffer[..read]);
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = (to.shutdown(Shutdown::Both), from.shutdown(Shutdown::Both));
}
