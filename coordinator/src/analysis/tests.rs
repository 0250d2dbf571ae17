//! What a report must not depend on: how many threads make it, and where its traces lie.

use common::ids::{ArrivalIndex, Epoch, Incarnation, Nanos, Seq, TrialId};
use common::plan::{Extent, Process};
use common::seed::Seed;
use common::trace::segment::{Block, BlockOrigin};
use common::trace::{
    Channel, ContentEvent, Failure, FailureKind, ItlEvidence, Outcome, OutputTokens, TokenSource, Trace,
    Unsent,
};

use common::summary::{KnownGaps, LatencySeconds};

use super::*;
use crate::ingest;
use crate::store::tests::{agent, run_id, sim};
use crate::trial::seal::SYNTHETIC;

const AGENTS: [&str; 3] = ["x", "y", "z"];
const REQUESTS: u64 = 3_000;
/// Of a block: no round number, so that the last one of each agent is another.
const BLOCK: usize = 17;

/// A trace of all that there is: successes with and without proof for their gaps, failures, and arrivals of which
/// nothing but a synthetic trace came.
fn trace(index: u64, random: &mut common::seed::Stream, synthetic: bool) -> Trace {
    let mut gap = |mean: f64| Nanos((mean * 1e6 * random.unit_exponential()) as u64);
    let scheduled = Nanos(index * 1_000_000_000 / 100);
    let released = scheduled + gap(0.01);
    let mut at = released + gap(30.0);
    let mut content = Vec::new();
    for i in 0..index % 9 {
        let channel = if i < index % 3 { Channel::Reasoning } else { Channel::Answer };
        content.push(ContentEvent { at, channel });
        at = at + gap(8.0);
    }
    let unsent = Unsent {
        index: ArrivalIndex(index),
        scheduled,
        row: (index % 700) as u32,
        requested_tokens: 16,
        prompt_tokens: None,
    };
    let kind = if synthetic { FailureKind::AgentLost } else { FailureKind::Reset };
    let mut trace = Trace::unsent(unsent, Failure::new(kind, "gone"), at);
    trace.facts.synthetic = synthetic;
    if synthetic {
        return trace;
    }
    (trace.clocks.released, trace.clocks.written) = (Some(released), Some(released));
    let tokens = content.len() as u64;
    if tokens > 0 {
        trace.facts.outcome = Outcome::Success;
        trace.facts.output_tokens = OutputTokens { count: Some(tokens), source: TokenSource::Usage };
        let proven = index.is_multiple_of(2);
        trace.facts.itl_evidence = if proven { ItlEvidence::Proven } else { ItlEvidence::None };
        trace.facts.finish_reason = Some("stop".into());
        trace.text.output = Some(format!("text of {index}"));
    }
    trace.clocks.content = content;
    trace
}

/// Blocks of each agent's traces. Every 50th arrival has a synthetic trace too, every 100th nothing else.
fn blocks() -> Vec<Block> {
    let mut blocks = Vec::new();
    for (number, name) in AGENTS.iter().enumerate() {
        let mut random = Seed(3).stream(name);
        let own = (0..REQUESTS).filter(|i| *i as usize % AGENTS.len() == number);
        let mut of = |incarnation, synthetic, indexes: Vec<u64>| {
            let agent = agent(name);
            let origin = BlockOrigin { agent, incarnation, trial: TrialId(0), epoch: Epoch(1) };
            let traces: Vec<Trace> = indexes.into_iter().map(|i| trace(i, &mut random, synthetic)).collect();
            let parts = traces.chunks(BLOCK).enumerate();
            blocks.extend(
                parts.map(|(i, part)| Block::encode(&origin, Seq((i * BLOCK) as u64), part).unwrap()),
            );
        };
        of(Incarnation(9), false, own.clone().filter(|i| i % 100 != 0).collect());
        of(SYNTHETIC, true, own.filter(|i| i % 50 == 0).collect());
    }
    blocks
}

fn kept() -> KeptRun {
    let trial = KeptTrial {
        planned: PlannedTrial {
            trial: TrialId(0),
            rate: "100".parse().unwrap(),
            repeat: 0,
            seed: Seed(7),
            rerun_of: None,
        },
        epoch: Epoch(1),
        scheduled: REQUESTS,
        schedule_sha256: common::ids::Digest([0; 32]),
        workload_sha256: common::ids::Digest([0; 32]),
        agents: AGENTS.map(|name| KeptAgent::unknown(agent(name))).into(),
        findings: Vec::new(),
        cut: None,
        start: None,
        boot: 0,
        gaps: None,
    };
    let extent = Extent::Requests(REQUESTS);
    KeptRun { process: Process::Poisson, extent, trials: vec![trial], ..crate::kept::tests::empty() }
}

/// Summary as JSON, and lines.
fn analysed(run: &RunStore, kept: &KeptRun, threads: usize, with_lines: bool) -> (String, String) {
    let slos: SloSet = "ttft=60ms itl=20ms p99:e2e=100ms".parse().unwrap();
    let mut out: Vec<u8> = Vec::new();
    let lines = with_lines.then(|| Lines { out: &mut out, path: Path::new("lines") });
    let report = analyse_on(threads, run, kept, &slos, &kept.trials[0], lines, None).unwrap();
    (serde_json::to_string(&report.summary).unwrap(), String::from_utf8(out).unwrap())
}

#[tokio::test]
async fn a_report_is_the_same_for_any_number_of_threads() {
    let (_disk, _index, store) = sim();
    let run = store.create_run(&run_id("r"), Nanos(1)).unwrap();
    let ingest = ingest::start(&run).unwrap();
    for block in blocks() {
        ingest.submit(vec![block]).await.unwrap();
    }
    let kept = kept();
    let (summary, lines) = analysed(&run, &kept, 1, true);
    let json: serde_json::Value = serde_json::from_str(&summary).unwrap();
    // There is something to compare: every result that depends on the order of the traces.
    assert_eq!((json["requests"].as_u64(), json["synthetic_traces"].as_u64()), (Some(REQUESTS), Some(30)));
    assert!(
        json["latency_seconds"]["itl"]["n"].as_u64() < json["latency_seconds"]["chunk_gap"]["n"].as_u64()
    );
    assert!(json["intervals"]["e2e_mean"]["low"].is_f64(), "{}", json["intervals"]);
    assert!(json["saturation"]["noise"].is_f64());
    assert_eq!(lines.lines().count() as u64, REQUESTS);
    for threads in [1, 2, 3, 8] {
        assert_eq!(
            analysed(&run, &kept, threads, true),
            (summary.clone(), lines.clone()),
            "{threads} threads"
        );
        // Without lines the clocks are read in another way.
        assert_eq!(analysed(&run, &kept, threads, false).0, summary, "{threads} threads, no lines");
    }
}

/// What is kept of the gaps is what they would be counted to, also after it was written down; and they are not counted again.
#[tokio::test]
async fn gaps_that_are_known_are_not_counted_again() {
    let (_disk, _index, store) = sim();
    let run = store.create_run(&run_id("r"), Nanos(1)).unwrap();
    let ingest = ingest::start(&run).unwrap();
    for block in blocks() {
        ingest.submit(vec![block]).await.unwrap();
    }
    let mut kept = kept();
    let first = analyse_on(1, &run, &kept, &SloSet::default(), &kept.trials[0], None, None).unwrap();
    let latency = first.summary.numbers.unwrap().latency_seconds;
    let expected = analysed(&run, &kept, 1, false);
    kept.trials[0].gaps = Some(KnownGaps::of(&latency));
    let kept: KeptRun = serde_json::from_str(&serde_json::to_string(&kept).unwrap()).unwrap();
    for threads in [1, 3] {
        assert_eq!(analysed(&run, &kept, threads, false), expected, "{threads} threads");
    }
    let mut other = kept.clone();
    other.trials[0].gaps = Some(KnownGaps::of(&LatencySeconds::default()));
    let told: serde_json::Value = serde_json::from_str(&analysed(&run, &other, 2, false).0).unwrap();
    assert_eq!(told["latency_seconds"]["chunk_gap"]["n"], 0, "they were counted all the same");
}

/// A block that is damaged is said, and no thread waits for another that has given up.
#[tokio::test]
async fn what_cannot_be_read_is_said_by_any_number_of_threads() {
    let (disk, _index, store) = sim();
    let run = store.create_run(&run_id("r"), Nanos(1)).unwrap();
    let ingest = ingest::start(&run).unwrap();
    for block in blocks() {
        ingest.submit(vec![block]).await.unwrap();
    }
    let path = run.dir().join("segments/00000001.seg");
    let mut bytes = common::disk::Disk::read(&disk, &path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    common::disk::Disk::replace(&disk, &path, &bytes).unwrap();
    let kept = kept();
    let slos = SloSet::default();
    for threads in [1, 2, 8] {
        let report = analyse_on(threads, &run, &kept, &slos, &kept.trials[0], None, None);
        assert!(matches!(report, Err(AnalysisError::Seal(SealError::Store(_)))), "{threads} threads");
    }
}
