//! The load thread's loop against an engine that is not there: what is sent, and what is not.

use std::cell::{Cell, RefCell};

use common::clock::{Clock, SystemClock};
use common::ids::{ArrivalIndex, Epoch};
use common::plan::Target;

use super::*;
use crate::engine::{Client, ClientConfig, Prepared};

/// A client of a port on which nobody listens: every request fails at once.
fn client(clock: &TrialClock) -> Arc<Client> {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let target = Target {
        default_max_tokens: 1,
        total_timeout: Nanos::from_secs(10),
        idle_timeout: Nanos::from_secs(10),
        ..Target::plain(format!("http://127.0.0.1:{port}").parse().unwrap())
    };
    let (agent, run) = ("a".parse().unwrap(), "r".parse().unwrap());
    let config = ClientConfig { target, access: None.into(), agent, run, trial: "0".into() };
    Arc::new(Client::new(config, clock.clone()).unwrap())
}

fn part(n: u64, closed: bool) -> Part {
    let slice = (0..n).map(|i| Arrival { index: ArrivalIndex(i), at: Nanos::ZERO, row: 0 }).collect();
    let rows = vec![Some(Prepared { body: Bytes::from_static(b"{}"), max_tokens: 1, prompt_tokens: None })];
    Part { slice, rows, permits: Some(1), queue_timeout: Nanos::from_secs(100), closed }
}

/// Runs `part` with everything due at once; `lease_over` sees how many traces there are.
async fn traces(part: Part, lease_over: impl Fn(usize) -> bool) -> Vec<Trace> {
    let clock = TrialClock::new(Arc::new(SystemClock), SystemClock.monotonic());
    let counters = Arc::new(Counters::new(Epoch(1), part.slice.len() as u64));
    let (announce, pace) = mpsc::channel(1);
    announce.send(Pace::Due(part.slice.len())).await.unwrap();
    let (_stop, stops) = mpsc::channel(1);
    let lead = Arc::new(Lead::for_schedule(&[]));
    let (seen, all) = (Cell::new(0), RefCell::new(Vec::new()));
    let sink = |trace: Trace| {
        seen.set(seen.get() + 1);
        all.borrow_mut().push(trace);
    };
    let sender = Sender { client: client(&clock), clock, counters };
    run(&part, sender, Orders { pace, lead, stops }, || lease_over(seen.get()), sink).await;
    all.into_inner()
}

fn kinds(traces: &[Trace]) -> Vec<FailureKind> {
    traces.iter().filter_map(|t| t.facts.outcome.failure()).map(|f| f.kind).collect()
}

/// The pacer has announced everything, and yet nothing is sent after the lease: an arrival that waits for a permit is
/// no longer the pacer's.
#[tokio::test]
async fn nothing_that_waits_for_a_permit_is_sent_after_the_lease() {
    for closed in [false, true] {
        let traces = traces(part(5, closed), |ended| ended >= 2).await;
        use FailureKind::{Connect, NotDispatched};
        assert_eq!(kinds(&traces), [Connect, Connect, NotDispatched, NotDispatched, NotDispatched]);
        let text = &traces[4].facts.outcome.failure().unwrap().message;
        assert!(text.contains("lease"), "{text}");
    }
}

/// In a closed loop an arrival counts from when its worker was free.
#[tokio::test]
async fn a_closed_loop_counts_from_the_release() {
    let traces = traces(part(4, true), |_| false).await;
    assert_eq!(traces.len(), 4);
    assert!(
        traces.iter().all(|t| t.clocks.released == Some(t.clocks.scheduled) && !t.facts.waited_for_permit)
    );
    assert!(traces.windows(2).all(|w| w[1].clocks.scheduled >= w[0].clocks.finished));
}

/// The pacer speaks before an arrival is due: it is not sent before, and whoever else has something to do on the thread
/// goes on meanwhile.
#[tokio::test]
async fn an_arrival_that_is_due_soon_is_waited_for_without_keeping_anybody_from_going_on() {
    let clock = TrialClock::new(Arc::new(SystemClock), SystemClock.monotonic());
    let part = part(2, false);
    let counters = Arc::new(Counters::new(Epoch(1), 2));
    let wanted = clock.monotonic();
    let at = wanted + Nanos::from_millis(30);
    let (announce, pace) = mpsc::channel(1);
    announce.send(Pace::Soon { count: 2, at, wanted }).await.unwrap();
    let turns = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let others = Arc::clone(&turns);
    let other = tokio::spawn(async move {
        loop {
            others.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    });
    let (_stop, stops) = mpsc::channel(1);
    let lead = Arc::new(Lead::for_schedule(&[Nanos::ZERO, Nanos::from_millis(30)]));
    let sender = Sender { client: client(&clock), clock: clock.clone(), counters };
    let mut released = Vec::new();
    let sink = |trace: Trace| released.extend(trace.clocks.released);
    run(&part, sender, Orders { pace, lead, stops }, || false, sink).await;
    other.abort();
    let due = at - clock.t0();
    assert!(released.len() == 2 && released.iter().all(|&r| r >= due), "{released:?} before {due:?}");
    assert!(turns.load(std::sync::atomic::Ordering::Relaxed) > 100, "nobody else had a turn");
}
