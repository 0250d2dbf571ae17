//! Without sockets: each answer ends in the trace that its script expects, however its bytes come, and each event with
//! text carries the stamp of the read that brought the byte that completes it.

use engines::{Engine, Rng, State};

use crate::cases::{cases, theirs};
use crate::check::check;
use crate::http::{Framed, read_of, stamp_of};

/// Random splits for each engine.
const SEEDS: u64 = 1000;
/// Cases that are split in the way of one seed; all of them have their turn.
const AT_ONCE: usize = 8;
/// Reads at most of a random split.
const READS: usize = 60;

fn run(name: &str) {
    let engine = engines::named(name).unwrap();
    let state = State::default();
    let answers: Vec<_> = cases(&*engine)
        .into_iter()
        .map(|case| {
            let reply = engine.generate(theirs(case.api), &case.prepared.body, &state);
            let framed = Framed::new(&reply);
            (case, reply, framed)
        })
        .collect();
    let one = |number: usize, ends: &[usize]| {
        let (case, reply, framed) = &answers[number];
        let expected = reply.expected();
        let trace = framed.read(case, ends);
        check(case, &trace, expected);
        let told = case.told();
        let complete = || expected.content.iter().map(|c| c.complete_at);
        let stamps: Vec<_> = trace.clocks.content.iter().map(|e| e.at).collect();
        assert_eq!(stamps, complete().map(|at| stamp_of(ends, at)).collect::<Vec<_>>(), "{told}: stamps");
        let reads: Vec<u64> = complete().map(|at| read_of(ends, at)).collect();
        let together = reads.windows(2).filter(|pair| pair[0] == pair[1]).count();
        assert_eq!(trace.facts.coalesced_events as usize, together, "{told}: events in one read");
        let in_one = !reads.is_empty() && reads.first() == reads.last() && expected.is_several();
        assert_eq!(trace.facts.stream_coalesced, in_one, "{told}: all in one read");
        if let Some(coalesced) = expected.stream_coalesced() {
            assert_eq!(trace.facts.stream_coalesced, coalesced, "{told}");
        }
    };
    for (number, (_, _, framed)) in answers.iter().enumerate() {
        one(number, &[framed.bytes.len()]);
        one(number, &(1..=framed.bytes.len()).collect::<Vec<_>>());
    }
    for seed in 0..SEEDS {
        let mut rng = Rng::new(seed);
        for turn in 0..AT_ONCE {
            let number = (seed as usize * AT_ONCE + turn) % answers.len();
            let length = answers[number].2.bytes.len();
            let mut ends = rng.cuts(length, READS);
            ends.push(length);
            one(number, &ends);
        }
    }
}

macro_rules! of_each_engine {
    ($($name:ident: $engine:literal,)*) => {$(
        #[test]
        fn $name() {
            run($engine);
        }
    )*

        #[test]
        fn every_engine_is_here() {
            let named = [$($engine),*];
            assert!(engines::all().iter().all(|engine| named.contains(&engine.name())));
        }
    };
}

of_each_engine! {
    vllm: "vllm",
    sglang: "sglang",
    llamacpp: "llamacpp",
    tabbyapi: "tabbyapi",
    tensorrt_llm: "tensorrt-llm",
    lmdeploy: "lmdeploy",
    dynamo: "dynamo",
    ollama: "ollama",
    tgi: "tgi",
    mistralrs: "mistralrs",
    transformers: "transformers",
    serve_py: "serve_py",
}
