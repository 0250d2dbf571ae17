//! Over real sockets, through the agent's client: each answer whole, and split at random places into writes of its own.
//!
//! How many events come in one read is the machine's to decide here, so that only what must hold anyway is asserted of
//! stamps.

use std::sync::Arc;

use agent::engine::{Client, ClientConfig, Outgoing, TrialClock};
use common::clock::{Clock, SystemClock};
use common::ids::{ArrivalIndex, Nanos};
use common::plan::Target;
use common::trace::{Trace, Unsent};
use engines::{Options, Scripted};
use tokio::sync::watch;

use crate::cases::{Case, cases, dialect};
use crate::check::check;

/// Random splits of each case.
const SEEDS: usize = 24;

/// A client of one target.
pub(crate) struct Rig {
    client: Client,
    clock: TrialClock,
    cancel: watch::Sender<bool>,
}

impl Rig {
    pub(crate) fn new(target: &Target, engine: &Scripted) -> Self {
        let system = Arc::new(SystemClock);
        let clock = TrialClock::new(system.clone(), system.monotonic());
        let config = ClientConfig {
            target: Target { base_url: engine.url().parse().unwrap(), ..target.clone() },
            access: None.into(),
            agent: "a1".parse().unwrap(),
            run: "run-1".parse().unwrap(),
            trial: "2".into(),
        };
        let client = Client::new(config, clock.clone()).unwrap();
        Self { client, clock, cancel: watch::Sender::new(false) }
    }

    pub(crate) async fn send(&self, case: &Case) -> Trace {
        let released = self.clock.now();
        let unsent = Unsent { scheduled: released, ..case.prepared.unsent(ArrivalIndex(3), Nanos::ZERO, 0) };
        let outgoing =
            Outgoing { unsent, released, waited_for_permit: false, body: case.prepared.body.clone() };
        self.client.send(outgoing, &mut self.cancel.subscribe()).await
    }
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn run(name: &str) {
    let cases = cases(&*engines::named(name).unwrap());
    let whole = Scripted::start(engines::named(name).unwrap());
    let split =
        Scripted::with(engines::named(name).unwrap(), Options { split: Some(1), ..Options::default() });
    block_on(async {
        for case in &cases {
            for (engine, times) in [(&whole, 1), (&split, SEEDS)] {
                let rig = Rig::new(&case.target, engine);
                for _ in 0..times {
                    let trace = rig.send(case).await;
                    let expected = engine.last_expected().unwrap();
                    check(case, &trace, &expected);
                    let stamps: Vec<Nanos> = trace.clocks.content.iter().map(|e| e.at).collect();
                    assert!(stamps.is_sorted(), "{}", case.told());
                    let apart = stamps.first() != stamps.last();
                    assert!(!(apart && trace.facts.stream_coalesced), "{}", case.told());
                    if let Some(coalesced) = expected.stream_coalesced() {
                        assert_eq!(trace.facts.stream_coalesced, coalesced, "{}", case.told());
                    }
                }
            }
        }
    });
    assert_eq!(whole.requests().len(), cases.len(), "{}", dialect(&*engines::named(name).unwrap()));
    assert_eq!(split.requests().len(), cases.len() * SEEDS, "a request was sent twice");
}

macro_rules! of_each_engine {
    ($($name:ident: $engine:literal,)*) => {$(
        #[test]
        fn $name() {
            run($engine);
        }
    )*};
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
