//! An engine that sends a gigabyte where a line is due: the agent reads no more than its bounds, stays small, and says
//! what it was.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use plimsoll_tests::{Agent, Coordinator, Running, text};

const ERROR: i32 = 1;
const GIGABYTE: u64 = 1 << 30;
/// What an agent may grow by. A request's own bound is some twenty megabytes.
const MAX_GROWTH_KB: u64 = 64 << 10;
/// What an agent takes of a response, with what the kernel holds of it.
const MAX_TAKEN: u64 = 32 << 20;

/// Whom an engine sends a gigabyte.
#[derive(Clone, Copy, PartialEq)]
enum Harms {
    /// Whoever asks for its models.
    Models,
    /// Whoever asks for text.
    Everybody,
    /// Requests of a trial, and not those that try it before.
    Trials,
}

/// A running engine. Its threads end with their connections, and with the test.
struct Rogue {
    address: SocketAddr,
    /// The most that was taken of one answer.
    taken: Arc<AtomicU64>,
}

impl Rogue {
    fn start(harms: Harms) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let taken = Arc::new(AtomicU64::new(0));
        let theirs = Arc::clone(&taken);
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let taken = Arc::clone(&theirs);
                std::thread::spawn(move || serve(socket, harms, &taken));
            }
        });
        Self { address, taken }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    #[track_caller]
    fn expect_bounded(&self) {
        let taken = self.taken.load(Relaxed);
        assert!(taken > 0 && taken <= MAX_TAKEN, "{taken} bytes were taken of one answer");
    }
}

/// One request after the other, until the client closes.
fn serve(mut socket: TcpStream, harms: Harms, taken: &AtomicU64) {
    while let Some(request) = read_request(&mut socket) {
        let models = request.starts_with("GET /v1/models ");
        let asks_for_text = request.starts_with("POST ");
        let of_a_check = request.to_ascii_lowercase().contains("x-request-id: check/");
        let harm = match harms {
            Harms::Models => models,
            Harms::Everybody => asks_for_text,
            Harms::Trials => asks_for_text && !of_a_check,
        };
        let sent = if harm {
            let written = gigabyte(&mut socket);
            taken.fetch_max(written, Relaxed);
            return;
        } else if asks_for_text {
            let events = "data: {\"choices\":[{\"index\":0,\"text\":\"hm\",\"finish_reason\":\"length\"}]}\n\n\
                          data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1}}\n\n\
                          data: [DONE]\n\n";
            answer(&mut socket, "200 OK", "text/event-stream", events)
        } else if models {
            answer(&mut socket, "200 OK", "application/json", "{\"data\":[{\"id\":\"m\"}]}")
        } else {
            answer(&mut socket, "404 Not Found", "text/plain", "no")
        };
        if sent.is_err() {
            return;
        }
    }
}

fn read_request(socket: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    let mut some = [0; 4096];
    loop {
        let read = socket.read(&mut some).ok().filter(|n| *n > 0)?;
        bytes.extend_from_slice(&some[..read]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let lower = head.to_ascii_lowercase();
            let length = lower.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
            if body.len() >= length.unwrap_or(0) {
                return Some(text);
            }
        }
    }
}

fn answer(socket: &mut TcpStream, status: &str, kind: &str, body: &str) -> std::io::Result<()> {
    let length = body.len();
    write!(socket, "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n{body}")
}

/// An event without end, until the client closes: how much of it could be written.
fn gigabyte(socket: &mut TcpStream) -> u64 {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: {\"choices\":[{\"text\":\"";
    let block = [b'x'; 64 << 10];
    let mut written = 0;
    if socket.write_all(head.as_bytes()).is_ok() {
        while written < GIGABYTE && socket.write_all(&block).is_ok() {
            written += block.len() as u64;
        }
    }
    written
}

/// The most memory that a process has had at one time, in kB.
fn peak_kb(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process that runs");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("its peak");
    peak.trim().trim_end_matches(" kB").parse().expect("a number")
}

fn run(url: &str) -> Running {
    Coordinator::run_one()
        .relaxed()
        .engine(url)
        .line("--rate 20 --requests 20 --max-concurrency 2 --dialect openai --agents 1 --listen 127.0.0.1:0")
        .start()
}

#[test]
fn an_agent_stays_small_while_an_engine_offers_gigabytes() {
    let rogue = Rogue::start(Harms::Trials);
    let mut coordinator = run(&rogue.url());
    let agent = Agent::start("small", coordinator.join_address(), &[]);
    coordinator.process.expect_said("small joined");
    let idle = peak_kb(agent.process.pid());
    let finished = coordinator.finish();
    let results = finished.results();
    let traces = results.traces_of(0);
    assert_eq!(traces.len(), 20);
    for trace in traces {
        assert_eq!(text(trace, "/outcome"), "malformed_stream", "{trace}");
        assert!(text(trace, "/failure_message").contains("longer than 4 MiB"), "{trace}");
    }
    rogue.expect_bounded();
    let peak = peak_kb(agent.process.pid());
    assert!(peak <= idle + MAX_GROWTH_KB, "the agent's memory grew from {idle} kB to {peak} kB");
    let ended = agent.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.story());
}

#[test]
fn before_a_trial_it_is_named_and_nothing_is_run() {
    for (harms, says) in [(Harms::Everybody, "longer than 4 MiB"), (Harms::Models, "longer than 2 MiB")] {
        let rogue = Rogue::start(harms);
        let mut coordinator = run(&rogue.url());
        let agent = Agent::start("small", coordinator.join_address(), &[]);
        coordinator.process.expect_said("small joined");
        let idle = peak_kb(agent.process.pid());
        let finished = coordinator.finish().expect_code(ERROR);
        finished.expect_said(&["small cannot use the engine", "malformed_stream", says]).expect_no_results();
        rogue.expect_bounded();
        let peak = peak_kb(agent.process.pid());
        assert!(peak <= idle + MAX_GROWTH_KB, "the agent's memory grew from {idle} kB to {peak} kB");
    }
}
