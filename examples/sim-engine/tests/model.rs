//! The engine model in simulated time.

use std::collections::BTreeMap;
use std::time::Duration;

use sim_engine::batch::BatchTiming;
use sim_engine::engine::{Engine, Job, Output, SeqId, Timing};
use sim_engine::fixed::FixedTiming;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Prefill: 10 ms and 1 ms a token. Step: 20 ms and 5 ms a sequence.
fn timing(slots: usize, max_queue: usize) -> BatchTiming {
    BatchTiming {
        slots,
        max_queue,
        prefill_rate: 1000.0,
        prefill_base: ms(10),
        step: ms(20),
        step_per_seq: ms(5),
        kv_tokens: None,
        prefix_cache_tokens: 0,
    }
}

fn batch(slots: usize, max_queue: usize) -> Engine {
    Engine::new(Timing::Batch(timing(slots, max_queue)))
}

fn job(id: u64, prompt_tokens: u32, output_tokens: u32) -> Job {
    Job::new(SeqId(id), prompt_tokens, output_tokens)
}

/// Runs from deadline to deadline until nothing is left.
fn drain(engine: &mut Engine) -> Vec<Output> {
    let mut outputs = Vec::new();
    while let Some(deadline) = engine.next_deadline() {
        outputs.extend(engine.on_time(deadline));
    }
    outputs
}

fn instants(outputs: &[Output], id: u64) -> Vec<Duration> {
    outputs.iter().filter(|output| output.id == SeqId(id)).map(|output| output.at).collect()
}

#[test]
fn one_request_takes_its_prefill_and_its_steps() {
    let mut engine = batch(4, 0);
    engine.submit(ms(100), job(1, 30, 3)).unwrap();
    let outputs = drain(&mut engine);
    // 10 + 30 ms of prefill, then steps of 20 + 5 ms.
    assert_eq!(instants(&outputs, 1), [ms(140), ms(165), ms(190)]);
    assert_eq!(outputs.iter().map(|output| output.finished).collect::<Vec<_>>(), [false, false, true]);
}

#[test]
fn prefill_stalls_everybody_else() {
    let mut engine = batch(4, 0);
    engine.submit(ms(0), job(1, 10, 3)).unwrap();
    engine.submit(ms(21), job(2, 100, 1)).unwrap();
    let outputs = drain(&mut engine);
    // 1: prefill to 20, step to 45; 2: prefill to 155; then 1's last step to 180.
    assert_eq!(instants(&outputs, 1), [ms(20), ms(45), ms(180)]);
    assert_eq!(instants(&outputs, 2), [ms(155)]);
}

#[test]
fn a_step_grows_with_the_batch() {
    let gap_at = |batch_size: u64| {
        let mut engine = batch(8, 0);
        for id in 0..batch_size {
            engine.submit(ms(0), job(id, 1, 50)).unwrap();
        }
        let of_first = instants(&drain(&mut engine), 0);
        of_first[10] - of_first[9]
    };
    assert_eq!([1, 2, 8].map(gap_at), [ms(25), ms(30), ms(60)]);
}

#[test]
fn the_queue_is_first_in_first_out_and_bounded() {
    let mut engine = batch(2, 3);
    for id in 0..5 {
        engine.submit(ms(id), job(id, 10, 4)).unwrap();
    }
    let refused = engine.submit(ms(6), job(5, 10, 4)).unwrap_err();
    assert_eq!(refused.waiting, 4, "one is in prefill, one more has a free slot, three are queued");
    assert_eq!((engine.stats().running, engine.stats().waiting), (1, 4));
    let outputs = drain(&mut engine);
    let first_tokens: Vec<_> = (0..5).map(|id| instants(&outputs, id)[0]).collect();
    assert!(first_tokens.is_sorted(), "{first_tokens:?}");
    assert!(instants(&outputs, 5).is_empty());
}

#[test]
fn never_more_run_than_there_are_slots() {
    let mut engine = batch(3, 100);
    for id in 0..20 {
        engine.submit(ms(0), job(id, 5, 1 + (id as u32 * 7) % 11)).unwrap();
    }
    let mut most = 0;
    while let Some(deadline) = engine.next_deadline() {
        engine.on_time(deadline);
        most = most.max(engine.stats().running);
    }
    assert_eq!(most, 3);
}

#[test]
fn cancelling_frees_a_slot_wherever_the_sequence_is() {
    let mut engine = batch(1, 10);
    engine.submit(ms(0), job(1, 10, 1000)).unwrap();
    engine.submit(ms(0), job(2, 10, 1000)).unwrap();
    engine.submit(ms(0), job(3, 10, 1000)).unwrap();
    engine.submit(ms(0), job(4, 10, 2)).unwrap();
    assert!(engine.cancel(SeqId(3)), "waiting");
    engine.on_time(ms(100));
    assert!(engine.cancel(SeqId(1)), "decoding");
    assert_eq!(engine.stats().running, 0);
    // The step in flight ends; then the next one is prefilled.
    let ends = engine.next_deadline().unwrap();
    assert_eq!(engine.on_time(ends), []);
    assert_eq!(engine.stats().running, 1);
    assert!(engine.cancel(SeqId(2)), "in prefill");
    assert!(!engine.cancel(SeqId(2)), "gone");
    let outputs = drain(&mut engine);
    assert!(outputs.iter().all(|output| output.id == SeqId(4)));
    assert_eq!(outputs.len(), 2);
    assert_eq!(engine.next_deadline(), None);
}

#[test]
fn token_counts_are_exact() {
    let mut engine = batch(3, 100);
    let mut asked = BTreeMap::new();
    for id in 0..40 {
        let output_tokens = 1 + (id as u32 * 13) % 29;
        asked.insert(SeqId(id), output_tokens);
        engine.submit(ms(id * 7), job(id, id as u32, output_tokens)).unwrap();
    }
    let mut got = BTreeMap::new();
    let mut ended = 0;
    for output in drain(&mut engine) {
        *got.entry(output.id).or_insert(0) += output.tokens;
        ended += u32::from(output.finished);
    }
    assert_eq!(got, asked);
    assert_eq!(ended, 40);
    let stats = engine.stats();
    assert_eq!(stats.generation_tokens_total, u64::from(asked.values().sum::<u32>()));
    assert_eq!(stats.prompt_tokens_total, (0..40).sum::<u64>());
    assert_eq!((stats.running, stats.waiting), (0, 0));
}

#[test]
fn an_oversleeping_caller_changes_nothing() {
    for timing in [Timing::Batch(timing(2, 100)), Timing::Fixed(FixedTiming { ttft: ms(20), itl: ms(3) })] {
        let arrivals: Vec<_> = (0..12).map(|id| (ms(id * 9), job(id, 20, 1 + id as u32))).collect();
        let run = |naps: &[u64]| {
            let mut engine = Engine::new(timing);
            let mut outputs = Vec::new();
            let mut naps = naps.iter().cycle();
            for (arrival, job) in &arrivals {
                // The caller may be behind with `on_time` when a job comes.
                if naps.next() == Some(&0) {
                    outputs.extend(engine.on_time(*arrival));
                }
                engine.submit(*arrival, job.clone()).unwrap();
            }
            let mut now = ms(0);
            while engine.next_deadline().is_some() {
                now += ms(1 + naps.next().unwrap());
                outputs.extend(engine.on_time(now));
            }
            outputs
        };
        let prompt = run(&[0]);
        assert_eq!(prompt, run(&[1, 0, 250]));
        assert_eq!(prompt, run(&[100_000]));
    }
}

#[test]
fn an_idle_engine_starts_at_the_arrival() {
    let mut engine = batch(2, 0);
    engine.submit(ms(0), job(1, 10, 1)).unwrap();
    assert_eq!(instants(&drain(&mut engine), 1), [ms(20)]);
    engine.submit(ms(500), job(2, 10, 1)).unwrap();
    assert_eq!(instants(&drain(&mut engine), 2), [ms(520)]);
}

#[test]
fn fixed_delays_do_not_depend_on_load() {
    let mut engine = Engine::new(Timing::Fixed(FixedTiming { ttft: ms(20), itl: ms(0) }));
    for id in 0..1000 {
        engine.submit(ms(id), job(id, 1, 128)).unwrap();
    }
    let outputs = drain(&mut engine);
    assert_eq!(outputs.len(), 1000, "one output each: all tokens with the first");
    for output in outputs {
        assert_eq!((output.at, output.tokens), (ms(output.id.0 + 20), 128));
    }

    let mut engine = Engine::new(Timing::Fixed(FixedTiming { ttft: ms(20), itl: ms(5) }));
    engine.submit(ms(0), job(1, 1, 4)).unwrap();
    engine.submit(ms(0), job(2, 1, 4)).unwrap();
    assert!(engine.cancel(SeqId(2)));
    assert_eq!(instants(&drain(&mut engine), 1), [ms(20), ms(25), ms(30), ms(35)]);
    assert_eq!(engine.next_deadline(), None);
}

#[test]
fn there_is_a_knee() {
    // 4 slots, 10 tokens each: about 4 requests per 10 steps of 40 ms, so 10/s less the prefills.
    let queued_at = |rate: u64| {
        let mut engine = batch(4, 100_000);
        for id in 0..400 {
            engine.submit(ms(id * 1000 / rate), job(id, 1, 10)).unwrap();
        }
        engine.on_time(ms(400 * 1000 / rate));
        engine.stats().waiting
    };
    assert!(queued_at(4) <= 1);
    assert!(queued_at(16) > 100);
}
