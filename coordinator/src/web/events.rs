//! What changes, as server-sent events: all of it first, then what is new, once a second.
//!
//! Each event's id says where its reader stands then. A reader that comes back with the last id gets what it lacks, or
//! all of it where that is not kept any more. Nothing is kept for a reader: each event is made when there is room for it.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::Request;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use crate::live::{Hub, Known, Metric, News, Point, State, Sweep};

/// How fast events come.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// Between two events.
    pub(super) every: Duration,
    /// A reader that leaves no room for the next event for so long is dropped.
    pub(super) patience: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self { every: Duration::from_secs(1), patience: Duration::from_secs(10) }
    }
}

/// Events that wait for the socket: one on its way, and the next.
const WAITING: usize = 1;

/// An event's content.
#[derive(Serialize)]
pub(super) struct Body<'n> {
    /// What the reader has of the time lines is to be thrown away.
    anew: bool,
    /// The quantities, in the order in which points have them; with `anew` only.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    metrics: Vec<&'static str>,
    points: &'n [Point],
    state: &'n State,
    #[serde(skip_serializing_if = "Option::is_none")]
    sweep: &'n Option<Sweep>,
}

impl<'n> Body<'n> {
    pub(super) fn of(news: &'n News) -> Self {
        let metrics = if news.anew { Metric::ALL.map(Metric::name).to_vec() } else { Vec::new() };
        Self { anew: news.anew, metrics, points: &news.points, state: &news.state, sweep: &news.sweep }
    }
}

/// Where a reader stands that comes (back).
pub(super) fn resumes(request: &Request, process: u64) -> Known {
    let header = request.headers().get("last-event-id").and_then(|id| id.to_str().ok());
    // A browser gives the header by itself only as long as it has not given up.
    let query = request.uri().query().unwrap_or_default();
    let typed = query.split('&').find_map(|pair| pair.strip_prefix("since="));
    header.or(typed).and_then(|id| read_id(id, process)).unwrap_or_default()
}

fn id(process: u64, known: Known) -> String {
    format!("{process:016x}-{}-{}", known.point, known.sweep)
}

fn read_id(id: &str, process: u64) -> Option<Known> {
    let mut parts = id.split('-');
    let same = u64::from_str_radix(parts.next()?, 16).ok()? == process;
    let (point, sweep) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    (same && parts.next().is_none()).then_some(Known { point, sweep })
}

fn event(news: &News, process: u64) -> Bytes {
    let id = id(process, news.known);
    // JSON has no line breaks outside of strings, where they are escaped.
    let json = serde_json::to_string(&Body::of(news)).unwrap_or_default();
    Bytes::from(format!("retry: 1000\nid: {id}\nevent: news\ndata: {json}\n\n"))
}

/// The body of an answer: events until the run is over or the reader is gone. `_place` is given back then.
pub(super) fn stream(
    hub: Hub,
    mut known: Known,
    (process, pace): (u64, Pace),
    place: OwnedSemaphorePermit,
) -> axum::body::Body {
    let (sender, events) = mpsc::channel(WAITING);
    tokio::spawn(async move {
        let _place = place;
        let mut pulses = hub.pulses();
        let mut every = interval(pace.every);
        every.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = every.tick() => {}
                // The hub is held here, so that the wait ends with the run.
                _ = pulses.wait_for(|pulse| pulse.over) => {}
                () = sender.closed() => return,
            }
            let Ok(Ok(room)) = timeout(pace.patience, sender.reserve()).await else { return };
            let news = hub.news(known);
            room.send(event(&news, process));
            if news.state.stage == "over" {
                return;
            }
            known = news.known;
        }
    });
    axum::body::Body::from_stream(ReceiverStream::new(events).map(Ok::<_, Infallible>))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_by_the_process_that_gave_it() {
        let known = Known { point: 77, sweep: 3 };
        assert_eq!(read_id(&id(9, known), 9), Some(known));
        for strange in [id(8, known), "".into(), "9".into(), "9-1".into(), "9-1-2-3".into(), "x-1-2".into()] {
            assert_eq!(read_id(&strange, 9), None, "{strange}");
        }
    }
}
