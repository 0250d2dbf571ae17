//! What a request in flight costs the agent in memory: resident bytes, beside what is kept of its text and stamps.
//!
//! `cargo bench -p agent --bench memory`. This process is an engine that answers with some events and then hangs; a
//! process of its own for each line opens the connections, sends one request on each, and says how its resident set
//! grew with either.

mod support;

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use common::disk::raise_open_files;
use rustix::time::{ClockId, clock_gettime};
use support::Rig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// How many requests are in flight, and how many content events each has had.
const CASES: [(usize, usize); 5] = [(1000, 0), (1000, 128), (5000, 0), (5000, 128), (20_000, 128)];

/// Visible text of an event.
const TEXT: &str = " text";

/// A stamp with its channel, as it lies in memory.
const STAMP_BYTES: usize = size_of::<common::trace::ContentEvent>();

/// Open files beside the requests' own.
const OTHER_FILES: u64 = 64;

/// What a measuring process is started with, before port and number of requests.
const MEASURE: &str = "--measure";

fn main() -> anyhow::Result<()> {
    let files = raise_open_files();
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, mode, port, requests] = arguments.as_slice()
        && mode == MEASURE
    {
        return measure(port.parse()?, requests.parse()?);
    }
    println!("memory of a request in flight, resident bytes");
    println!("| in flight | events so far | connection | request | kept text and stamps | together |");
    println!("| --------- | ------------- | ---------- | ------- | -------------------- | -------- |");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    for (requests, events) in CASES {
        if files < requests as u64 + OTHER_FILES {
            println!("| {requests:>9} | {events:>13} | left out: {files} files may be open |");
            continue;
        }
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let port = listener.local_addr()?.port();
        let engine = runtime.spawn(serve(listener, events));
        let child = Command::new(std::env::current_exe()?)
            .args([MEASURE, &port.to_string(), &requests.to_string()])
            .stderr(Stdio::inherit())
            .output()?;
        engine.abort();
        ensure!(child.status.success(), "the measuring process failed");
        let said = String::from_utf8(child.stdout)?;
        let (connection, request) = said.trim().split_once(' ').context("two numbers")?;
        let (connection, request): (usize, usize) = (connection.parse()?, request.parse()?);
        println!(
            "| {requests:>9} | {events:>13} | {connection:>10} | {request:>7} | {:>20} | {:>8} |",
            events * (TEXT.len() + STAMP_BYTES),
            connection + request
        );
    }
    Ok(())
}

/// Opens `requests` connections, sends a request on each, and prints what a connection and a request took.
fn measure(port: u16, requests: usize) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let rig = Rig::new(port)?;
        // What is made once.
        let _ = rig.client.warm(1).await;
        let before = resident()?;
        let warm = rig.client.warm(requests).await.map_err(|f| anyhow::anyhow!(f.message))?;
        ensure!(warm == requests, "{warm} connections of {requests}");
        quiet().await;
        let connected = resident()?;
        let mut in_flight = JoinSet::new();
        for _ in 0..requests {
            let rig = rig.clone();
            in_flight.spawn(async move { rig.send().await });
        }
        quiet().await;
        ensure!(in_flight.try_join_next().is_none(), "a request has ended");
        let sent = resident()?;
        let each = |grown: usize| grown / requests;
        println!("{} {}", each(connected.saturating_sub(before)), each(sent.saturating_sub(connected)));
        Ok(())
    })
}

/// Until this process has nothing to do any more.
async fn quiet() {
    let used = || {
        let t = clock_gettime(ClockId::ProcessCPUTime);
        (t.tv_sec, t.tv_nsec / 1_000_000)
    };
    let mut before = used();
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let now = used();
        if now == before {
            return;
        }
        before = now;
    }
}

/// Resident bytes of this process, counted page by page (`statm` is an estimate).
fn resident() -> anyhow::Result<usize> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup")?;
    let line = text.lines().find_map(|l| l.strip_prefix("Rss:")).context("no Rss in smaps_rollup")?;
    let kib = line.split_whitespace().next().context("Rss without a number")?;
    Ok(kib.parse::<usize>()? * 1024)
}

/// The engine: on each connection one request, a head, some events, and then nothing.
async fn serve(listener: TcpListener, events: usize) {
    let mut answers = JoinSet::new();
    while let Ok((socket, _)) = listener.accept().await {
        answers.spawn(async move {
            // A client that has gone is done.
            let _ = answer(socket, events).await;
        });
    }
}

async fn answer(mut socket: TcpStream, events: usize) -> std::io::Result<()> {
    let mut request = [0; 8 << 10];
    if socket.read(&mut request).await? == 0 {
        return Ok(());
    }
    if events > 0 {
        socket
            .write_all(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
            )
            .await?;
    }
    for _ in 0..events {
        let event = format!("data: {{\"choices\":[{{\"index\":0,\"text\":\"{TEXT}\"}}]}}\n\n");
        socket.write_all(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes()).await?;
    }
    // Until the client goes.
    while socket.read(&mut request).await? > 0 {}
    Ok(())
}
