//! The KV cache's bound and the prefix cache, in simulated time.

#![allow(clippy::unwrap_used, reason = "a test says what it expected")]

use std::sync::Arc;
use std::time::Duration;

use sim_engine::batch::BatchTiming;
use sim_engine::engine::{Engine, Job, SeqId, Timing};
use sim_engine::virtual_time::{Served, serve};

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Prefill: 10 ms and 1 ms a token. Step: 20 ms.
fn engine(kv_tokens: Option<u32>, prefix_cache_tokens: u32) -> Engine {
    Engine::new(Timing::Batch(BatchTiming {
        slots: 8,
        max_queue: 100,
        prefill_rate: 1000.0,
        prefill_base: ms(10),
        step: ms(20),
        step_per_seq: ms(0),
        kv_tokens,
        prefix_cache_tokens,
    }))
}

fn job(prompt_tokens: u32, output_tokens: u32) -> Job {
    Job::new(SeqId(0), prompt_tokens, output_tokens)
}

fn first_and_last(served: &Served) -> (Duration, Duration) {
    (served.first_token.unwrap(), served.last_token.unwrap())
}

#[test]
fn the_youngest_is_preempted_and_recomputed() {
    // Both prompts fit, with four tokens more; both want six tokens.
    let mut engine = engine(Some(24), 0);
    let served = serve(&mut engine, &[(ms(0), job(10, 6)), (ms(0), job(10, 6))]);
    // The prefills end at 20 and 40; the step to 60 fills the cache with 12 + 12. Then the first runs alone, to its
    // sixth token at 60 + 3 steps after one more from each, and the second is prefilled anew with what it had.
    let (first, second) = (first_and_last(&served[0]), first_and_last(&served[1]));
    assert_eq!(first.0, ms(20));
    assert_eq!(second.0, ms(40));
    assert_eq!(engine.stats().preemptions_total, 1);
    // Tokens of the first: 20, 60, 80, 100, 120, 140. Of the second: 40, 60; then 10 + 12 ms for its third, and 3 more.
    assert_eq!(first.1, ms(140));
    assert_eq!(second.1, ms(140 + 22 + 3 * 20));
    let stats = engine.stats();
    assert_eq!(
        (stats.generation_tokens_total, stats.prompt_tokens_total),
        (12, 20),
        "a recomputation is no new token"
    );
    assert_eq!((stats.kv_tokens, stats.kv_capacity), (0, 24));
}

#[test]
fn the_cache_is_never_exceeded_and_nothing_is_lost() {
    let mut engine = engine(Some(200), 0);
    for id in 0..60 {
        let job = Job::new(SeqId(id), 5 + (id as u32 * 37) % 60, 1 + (id as u32 * 13) % 90);
        engine.submit(ms(id * 11), job).unwrap();
    }
    let (mut tokens, mut ended) = (0, 0);
    while let Some(deadline) = engine.next_deadline() {
        for output in engine.on_time(deadline) {
            tokens += u64::from(output.tokens);
            ended += u32::from(output.finished);
        }
        let stats = engine.stats();
        assert!(stats.kv_tokens <= 200, "{stats:?}");
        assert!(stats.kv_usage() <= 1.0);
    }
    let asked: u64 = (0..60).map(|id| 1 + (id * 13) % 90).sum();
    assert_eq!((ended, tokens), (60, asked));
    assert!(engine.stats().preemptions_total > 5, "{:?}", engine.stats());
}

#[test]
fn a_sequence_alone_may_exceed_the_cache() {
    let mut engine = engine(Some(8), 0);
    let served = serve(&mut engine, &[(ms(0), job(20, 4)), (ms(0), job(20, 4))]);
    assert_eq!(first_and_last(&served[0]), (ms(30), ms(90)));
    assert_eq!(first_and_last(&served[1]), (ms(120), ms(180)));
    assert_eq!(engine.stats().preemptions_total, 0);
}

#[test]
fn a_known_prefix_costs_no_prefill() {
    let mut engine = engine(None, 64);
    let blocks = |hashes: &[u64]| Job { blocks: Arc::from(hashes), ..job(40, 1) };
    let jobs = [blocks(&[1, 2]), blocks(&[1, 2]), blocks(&[1, 9]), job(40, 1)];
    let arrivals: Vec<_> = (0..).zip(jobs).map(|(place, job)| (ms(1000 * place), job)).collect();
    let served = serve(&mut engine, &arrivals);
    let took: Vec<_> = served.iter().zip(&arrivals).map(|(served, (at, _))| served.ended - *at).collect();
    assert_eq!(took, [ms(50), ms(18), ms(34), ms(50)]);
    assert_eq!(served.iter().map(|served| served.cached_tokens).collect::<Vec<_>>(), [0, 32, 16, 0]);
    let stats = engine.stats();
    assert_eq!((stats.prefix_queries_total, stats.prefix_hits_total), (160, 48));
    assert_eq!(stats.prompt_tokens_total, 160);
}
