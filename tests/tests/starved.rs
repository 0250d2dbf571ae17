//! A generator that gets no CPU says so itself; an engine that is slow is not the generator's fault.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use plimsoll_tests::{
    Agent, Coordinator, Engine, Finished, Signal, by, eventually, free_port, list, signal, text,
};

const INVALID: i32 = 4;

/// Well above what a busy machine does to an agent, and well below what is done to it here.
const BUDGET: &str = "--late-budget 150ms";

/// Lets the process `pid` run for 100 ms of every 500 ms until it is dropped: how a host looks from inside when
/// others have its cores.
struct Starved {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Starved {
    fn process(pid: u32) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let work = move || {
            while !stopped.load(Ordering::SeqCst) {
                signal(pid, Signal::STOP);
                std::thread::sleep(Duration::from_millis(400));
                signal(pid, Signal::CONT);
                std::thread::sleep(Duration::from_millis(100));
            }
        };
        Self { stop, thread: Some(std::thread::spawn(work)) }
    }
}

impl Drop for Starved {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn sweep(engine: &Engine, address: &str, options: &str) -> Coordinator {
    Coordinator::sweep()
        .line("--rates 20 --repeats 1 --duration 4s --max-tokens 4 --warmup 0 --strict")
        .line(BUDGET)
        .line(options)
        .args(["--agents", "1", "--listen", address])
        .engine(engine.url())
}

fn under_way(engine: &Engine) {
    eventually("requests at the engine", || {
        let seen = by(engine.log().iter().filter(|e| e["request_id"] != "check/0/0"), "/agent");
        (seen.get("only").copied().unwrap_or(0) > 3).then_some(())
    });
}

fn verdict(finished: &Finished) -> String {
    text(finished.results().summary(), "/validity/verdict").to_owned()
}

/// Told apart in the exit code, in JSON and in the table: late, named, and no knee.
#[test]
fn a_starved_generator_is_late_and_decides_no_knee() {
    let engine = Engine::start(&["--fixed-ttft-ms", "5"]);
    let address = free_port().to_string();
    let running = sweep(&engine, &address, "--slo ttft=60s").start();
    let agent = Agent::start("only", &address, &[]);
    under_way(&engine);
    let starved = Starved::process(agent.process.pid());
    let finished = running.finish().expect_code(INVALID);
    drop(starved);
    let results = finished.results();
    let summary = results.summary();
    assert_eq!(text(summary, "/validity/verdict"), "late");
    let kinds = by(list(summary, "/validity/reasons"), "/kind");
    assert!(kinds.contains_key("dispatch_lateness") && kinds.contains_key("read_lateness"), "{kinds:?}");
    assert!(list(summary, "/validity/reasons").iter().all(|r| r["agent"] == "only"));
    assert_eq!(text(&results.report, "/knee/case"), "undecided");
    assert!(finished.ended.stdout.contains("is late: agent only"), "{}", finished.ended.stdout);
}

/// The same sweep, honestly sent, against an engine that is far too slow: the engine fails, the generator does not.
#[test]
fn a_slow_engine_is_not_the_generators_fault() {
    let engine = Engine::start(&["--fixed-ttft-ms", "700"]);
    let address = free_port().to_string();
    let running = sweep(&engine, &address, "--slo ttft=100ms").start();
    let _agent = Agent::start("only", &address, &[]);
    let finished = running.finish().expect_code(0);
    assert_eq!(verdict(&finished), "valid", "{}", finished.story());
    assert_eq!(text(&finished.results().report, "/knee/case"), "below_lowest");
}
