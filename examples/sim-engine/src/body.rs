//! A response body written by an async function.
//!
//! Owns the hand-over of one frame at a time: [`Sender::send`] completes when the server has taken the frame, so
//! nothing piles up, and each frame is a chunk of its own on the wire. When the client goes away the server drops
//! the body and with it the function, wherever it stands: its destructors are how a sequence is cancelled.
//!
//! Must never spawn: a task of its own would outlive the client.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use tokio_stream::Stream;

/// The script wants the connection cut inside the body.
#[derive(Debug)]
pub(crate) struct Cut;

impl std::fmt::Display for Cut {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("the connection was cut on purpose")
    }
}

impl std::error::Error for Cut {}

type Slot = Arc<Mutex<Option<Bytes>>>;

fn take(slot: &Slot) -> Option<Bytes> {
    slot.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Hands frames to the server.
#[derive(Debug)]
pub(crate) struct Sender {
    slot: Slot,
}

impl Sender {
    /// Completes once the server has taken the frame.
    pub(crate) async fn send(&self, frame: impl Into<Bytes>) {
        let mut frame = Some(frame.into());
        poll_fn(|_| {
            // No waker: the script is polled by the body, which is polled again when its frame was taken.
            let mut slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner);
            match frame.take() {
                None if slot.is_none() => return Poll::Ready(()),
                None => {}
                Some(waiting) if slot.is_none() => *slot = Some(waiting),
                Some(waiting) => frame = Some(waiting),
            }
            Poll::Pending
        })
        .await;
    }
}

type Script = Pin<Box<dyn Future<Output = Result<(), Cut>> + Send>>;

struct Scripted {
    script: Option<Script>,
    slot: Slot,
}

impl Stream for Scripted {
    type Item = Result<Bytes, Cut>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(script) = &mut self.script else { return Poll::Ready(None) };
        let step = script.as_mut().poll(context);
        let frame = take(&self.slot);
        if step.is_ready() {
            self.script = None;
        }
        match (frame, step) {
            (Some(frame), _) => Poll::Ready(Some(Ok(frame))),
            (None, Poll::Pending) => Poll::Pending,
            (None, Poll::Ready(Ok(()))) => Poll::Ready(None),
            (None, Poll::Ready(Err(cut))) => Poll::Ready(Some(Err(cut))),
        }
    }
}

/// A body whose frames the script sends. The script starts at the body's first poll.
pub(crate) fn scripted<F, S>(script: F) -> Body
where
    F: FnOnce(Sender) -> S,
    S: Future<Output = Result<(), Cut>> + Send + 'static,
{
    let slot = Slot::default();
    let sender = Sender { slot: Arc::clone(&slot) };
    Body::from_stream(Scripted { script: Some(Box::pin(script(sender))), slot })
}
