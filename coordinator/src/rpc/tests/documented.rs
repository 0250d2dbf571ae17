//! docs/security.md lists every limit, with its number.

use std::time::Duration;

use crate::rpc::limits::*;

const PAGE: &str = include_str!("../../../../docs/security.md");

/// The constants that a file defines.
fn constants(source: &str) -> impl Iterator<Item = &str> {
    let names = source.lines().filter_map(|l| {
        let l = l.trim_start_matches("pub(super) ").trim_start_matches("pub ");
        Some(l.strip_prefix("const ")?.split_once(':')?.0)
    });
    names.filter(|name| name.chars().all(|c| c.is_ascii_uppercase() || c == '_'))
}

#[test]
fn every_limit_is_on_the_page() {
    let files = [
        include_str!("../limits.rs"),
        include_str!("../../../../proto/src/convert/limits.rs"),
        include_str!("../../../../agent/src/session/limits.rs"),
    ];
    for file in files {
        assert!(constants(file).count() > 4);
        let missing: Vec<&str> = constants(file).filter(|n| !PAGE.contains(&format!("| `{n}` |"))).collect();
        assert!(missing.is_empty(), "docs/security.md does not list {missing:?}");
    }
}

fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|g| std::str::from_utf8(g).ok()).collect();
    groups.join(",")
}

fn bytes(n: u64) -> String {
    match n {
        n if n % (1 << 20) == 0 => format!("{} MiB", grouped(n >> 20)),
        n => format!("{} KiB", grouped(n >> 10)),
    }
}

fn time(d: Duration) -> String {
    format!("{} s", d.as_secs())
}

#[test]
fn the_numbers_on_the_page_are_those_of_the_code() {
    let rows = [
        ("MAX_AGENTS", grouped(MAX_AGENTS as u64)),
        ("MAX_CONNECTIONS", grouped(MAX_CONNECTIONS as u64)),
        ("MAX_STRANGERS", grouped(MAX_STRANGERS as u64)),
        ("MAX_STRANGERS_PER_PEER", grouped(MAX_STRANGERS_PER_PEER as u64)),
        ("HANDSHAKE_WITHIN", time(HANDSHAKE_WITHIN)),
        ("PROVE_WITHIN", time(PROVE_WITHIN)),
        ("MAX_REFUSALS", grouped(MAX_REFUSALS.into())),
        ("MAX_DELIVERIES", grouped(MAX_DELIVERIES)),
        ("HELLO_WITHIN", time(HELLO_WITHIN)),
        ("HEAR_WITHIN", time(HEAR_WITHIN)),
        ("MAX_STREAMS", grouped(MAX_STREAMS.into())),
        ("MAX_CALLS_PER_AGENT", grouped(MAX_CALLS_PER_AGENT as u64)),
        ("STREAM_WINDOW", bytes(STREAM_WINDOW.into())),
        ("CONNECTION_WINDOW", bytes(CONNECTION_WINDOW.into())),
        ("MAX_METADATA_BYTES", bytes(MAX_METADATA_BYTES.into())),
        ("MAX_CONTROL_MESSAGE", bytes(MAX_CONTROL_MESSAGE as u64)),
        ("MAX_BATCH_MESSAGE", bytes(MAX_BATCH_MESSAGE as u64)),
        ("SESSION_BURST", bytes(SESSION_BURST)),
        ("SESSION_RATE", bytes(SESSION_RATE)),
        ("MESSAGE_COST", bytes(MESSAGE_COST)),
        ("MAX_TELEMETRY_BYTES", bytes(MAX_TELEMETRY_BYTES)),
        ("MAX_FRAMES", grouped(MAX_FRAMES as u64)),
        ("MAX_PASSES", grouped(MAX_PASSES as u64)),
        ("LINES_AT_ONCE", grouped(LINES_AT_ONCE.into())),
        ("LINE_EVERY", time(LINE_EVERY.to_duration())),
        ("SAME_LINE_EVERY", time(SAME_LINE_EVERY.to_duration())),
    ];
    for (name, number) in &rows {
        assert!(
            PAGE.contains(&format!("| `{name}` | {number} |")),
            "the page has another number than {name}, {number}"
        );
    }
    let all = constants(include_str!("../limits.rs")).count();
    assert_eq!(rows.len(), all, "a limit is not compared");
}
