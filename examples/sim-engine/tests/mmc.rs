//! The queue M/M/c in virtual time, against its closed forms.

use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use sim_engine::closed_form::MmcQueue;
use sim_engine::engine::{Engine, Job, SeqId, Timing};
use sim_engine::mmc::MmcTiming;
use sim_engine::virtual_time::{Served, serve, serve_closed, serve_limited};

const MEAN: Duration = Duration::from_millis(100);

fn timing(servers: usize, seed: u64) -> MmcTiming {
    MmcTiming { servers, max_queue: usize::MAX, mean_service: MEAN, per_token: false, seed }
}

fn engine(servers: usize, seed: u64) -> Engine {
    Engine::new(Timing::Mmc(timing(servers, seed)))
}

fn job(tokens: u32) -> Job {
    Job::new(SeqId(0), 1, tokens)
}

/// Poisson arrivals of one-token jobs.
fn arrivals(rate: f64, count: usize, seed: u64) -> Vec<(Duration, Job)> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut at = 0.0;
    let mut next = || {
        let unit = ((random.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        at -= unit.ln() / rate;
        (Duration::from_secs_f64(at), job(1))
    };
    (0..count).map(|_| next()).collect()
}

fn sojourns(served: &[Served], arrivals: &[(Duration, Job)]) -> Vec<f64> {
    served.iter().zip(arrivals).map(|(served, (at, _))| (served.ended - *at).as_secs_f64()).collect()
}

#[test]
fn sojourns_are_those_of_the_closed_form() {
    for (load, servers) in [(0.5, 1), (0.7, 1), (0.7, 4), (0.9, 16)] {
        let rate = load * f64::from(servers) / MEAN.as_secs_f64();
        let arrivals = arrivals(rate, 120_000, 11);
        let served = serve(&mut engine(servers as usize, 12), &arrivals);
        let mut sojourns = sojourns(&served, &arrivals);
        let truth = MmcQueue::new(rate, 1.0 / MEAN.as_secs_f64(), servers).unwrap();
        let count = sojourns.len() as f64;
        let mean = sojourns.iter().sum::<f64>() / count;
        // Requests that follow each other depend on each other: so many samples are worth a few thousand.
        assert!((mean / truth.mean_sojourn() - 1.0).abs() < 0.05, "load {load}, {servers}: mean {mean}");
        let waited = served.iter().zip(&arrivals).enumerate().filter(|(place, (served, (at, _)))| {
            let job = Job::new(SeqId(*place as u64), 1, 1);
            served.ended - *at > timing(servers as usize, 12).service(&job)
        });
        let waited = waited.count() as f64 / count;
        assert!((waited - truth.wait_probability()).abs() < 0.02, "load {load}, {servers}: {waited} waited");
        sojourns.sort_unstable_by(f64::total_cmp);
        for p in [0.5, 0.9, 0.99] {
            let quantile = sojourns[(p * count) as usize];
            let known = truth.sojourn_quantile(p);
            assert!((quantile / known - 1.0).abs() < 0.08, "load {load}, {servers}: p{p} {quantile} {known}");
        }
    }
}

#[test]
fn tokens_come_evenly_over_the_service_time() {
    let mut engine = engine(1, 3);
    let four = Job::new(SeqId(7), 10, 4);
    let service = timing(1, 3).service(&four);
    engine.submit(Duration::from_secs(1), four).unwrap();
    let mut at = Vec::new();
    while let Some(deadline) = engine.next_deadline() {
        at.extend(engine.on_time(deadline).into_iter().map(|output| (output.at, output.finished)));
    }
    let instant = |quarters: u32| Duration::from_secs(1) + service * quarters / 4;
    for (quarters, (at, finished)) in (1..).zip(&at) {
        assert!(at.abs_diff(instant(quarters)) <= Duration::from_nanos(1));
        assert_eq!(*finished, quarters == 4);
    }
    assert_eq!(
        (at.len(), engine.stats().generation_tokens_total, engine.stats().prompt_tokens_total),
        (4, 4, 10)
    );
}

#[test]
fn per_token_the_mean_grows_with_the_tokens() {
    let per_token = MmcTiming { per_token: true, ..timing(1, 5) };
    for id in 0..50 {
        let (one, ten) = (Job::new(SeqId(id), 1, 1), Job::new(SeqId(id), 1, 10));
        let ratio = per_token.service(&ten).as_secs_f64() / per_token.service(&one).as_secs_f64();
        assert!((ratio - 10.0).abs() < 1e-3, "{ratio}");
        assert_eq!(timing(1, 5).service(&ten), timing(1, 5).service(&one));
    }
}

/// Never more at once than there are servers, in order, and never a free server while somebody waits.
#[test]
fn servers_are_never_idle_while_somebody_waits() {
    let arrivals = arrivals(70.0, 2_000, 4);
    let served = serve(&mut engine(4, 4), &arrivals);
    let service = |place: usize| timing(4, 4).service(&Job::new(SeqId(place as u64), 1, 1));
    let starts: Vec<Duration> =
        (0..).zip(&served).map(|(place, served)| served.ended - service(place)).collect();
    assert!(starts.is_sorted(), "first in, first out");
    for (place, start) in starts.iter().enumerate() {
        let before = served[..place].iter().filter(|served| served.ended > *start);
        assert!(before.count() < 4);
        let busy = served[..place].iter().filter(|served| served.ended > arrivals[place].0).count();
        if busy < 4 {
            assert_eq!(*start, arrivals[place].0);
        }
    }
}

#[test]
fn an_oversleeping_caller_changes_nothing() {
    let arrivals: Vec<_> =
        arrivals(25.0, 300, 9).into_iter().map(|(at, job)| (at, Job { output_tokens: 3, ..job })).collect();
    let prompt = serve(&mut engine(2, 9), &arrivals);
    let mut late = engine(2, 9);
    for (id, (at, job)) in (0..).zip(&arrivals) {
        late.submit(*at, Job { id: SeqId(id), ..job.clone() }).unwrap();
    }
    for output in late.on_time(Duration::from_secs(1_000_000)) {
        let served = &prompt[output.id.0 as usize];
        assert!(output.at >= served.first_token.unwrap() && output.at <= served.last_token.unwrap());
        assert_eq!(output.finished, output.at == served.ended);
    }
}

#[test]
fn cancelling_frees_the_server_at_the_next_token() {
    let mut engine = engine(1, 2);
    for id in 0..3 {
        engine.submit(Duration::ZERO, Job::new(SeqId(id), 1, 2)).unwrap();
    }
    let half = engine.next_deadline().unwrap();
    assert!(engine.cancel(SeqId(0)) && !engine.cancel(SeqId(0)) && engine.cancel(SeqId(1)));
    assert_eq!((engine.stats().running, engine.stats().waiting), (0, 1));
    assert_eq!(engine.on_time(half), []);
    assert_eq!(engine.stats().running, 1);
    let service = timing(1, 2).service(&Job::new(SeqId(2), 1, 2));
    let outputs = engine.on_time(half + service);
    assert_eq!(outputs.iter().map(|output| output.id).collect::<Vec<_>>(), [SeqId(2), SeqId(2)]);
    assert_eq!(engine.next_deadline(), None);
}

#[test]
fn a_bounded_queue_refuses_and_the_virtual_client_says_so() {
    let mut engine = Engine::new(Timing::Mmc(MmcTiming { max_queue: 1, ..timing(1, 1) }));
    let at_once = vec![(Duration::ZERO, job(1)); 4];
    let served = serve(&mut engine, &at_once);
    let refused: Vec<bool> = served.iter().map(|served| served.first_token.is_none()).collect();
    assert_eq!(refused, [false, false, true, true]);
}

/// With one server, where a request waits makes no difference to when it ends; only to when it was sent.
#[test]
fn permits_move_the_wait_to_the_client() {
    let arrivals = arrivals(9.0, 5_000, 6);
    let open = serve(&mut engine(1, 6), &arrivals);
    let limited = serve_limited(&mut engine(1, 6), &arrivals, 2);
    assert!(open.iter().zip(&limited).all(|(open, limited)| open.ended == limited.ended));
    assert!(open.iter().zip(&arrivals).all(|(served, (at, _))| served.released == *at));
    let held_back = limited.iter().zip(&arrivals).filter(|(served, (at, _))| served.released > *at).count();
    assert!(held_back > 1_000, "{held_back}");
    for (place, served) in limited.iter().enumerate() {
        let in_flight = limited[..place].iter().filter(|before| before.ended > served.released).count();
        assert!(in_flight < 2, "at {place}");
    }
}

#[test]
fn a_closed_loop_never_has_more_in_flight_than_workers() {
    let served = serve_closed(&mut engine(1, 8), &vec![job(1); 500], 4);
    assert_eq!(served.len(), 500);
    assert!(served.iter().skip(4).all(|request| served.iter().any(|other| other.ended == request.released)));
    let longest = served.iter().map(|request| request.ended - request.released).max().unwrap();
    assert!(longest < MEAN * 40, "a closed loop's queue cannot grow: {longest:?}");
}
