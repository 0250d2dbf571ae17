//! `--tokenizer`: kept text is counted where the engine counts nothing, and held against its counts where it does.
//!
//! A word of the simulated engine is a token, so a tokenizer of words counts what the engine does, and one of
//! characters never does.

use std::process::Output;

use common::ids::Digest;
use plimsoll_tests::{Coordinator, Engine, count, counts, number, text};
use serde_json::{Value, json};

/// A tokenizer that knows no word, and takes each for a token all the same.
fn words() -> String {
    let model = json!({"type": "WordLevel", "vocab": {"[UNK]": 0}, "unk_token": "[UNK]"});
    tokenizer(json!({"type": "WhitespaceSplit"}), model)
}

/// A tokenizer without any merge: a byte is a token.
fn characters() -> String {
    let mut vocab: Vec<String> = ('a'..='z').map(String::from).collect();
    // How a tokenizer of bytes writes a blank.
    vocab.push("Ġ".to_owned());
    let vocab: Value = vocab.into_iter().enumerate().map(|(i, c)| (c, json!(i))).collect();
    let before =
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    tokenizer(before, json!({"type": "BPE", "vocab": vocab, "merges": []}))
}

fn tokenizer(pre_tokenizer: Value, model: Value) -> String {
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": pre_tokenizer, "post_processor": null, "decoder": null, "model": model,
    })
    .to_string()
}

/// A run of 24 requests, of which every second answer has no usage.
fn run(engine: &Engine) -> Coordinator {
    Coordinator::run_one()
        .relaxed()
        .engine(engine.url())
        .workload(&[json!({"prompt": "how many words are these", "max_tokens": 9})])
        .line("--rate 60 --requests 24 --ignore-eos --slo tpot=10s")
}

fn engine() -> Engine {
    Engine::start(&["--fixed-ttft-ms", "2", "--fixed-itl-ms", "2", "--fault", "no-usage:every=2"])
}

#[track_caller]
fn said(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).expect("it prints UTF-8")
}

#[track_caller]
fn json_of(output: &Output) -> Value {
    let text = said(output);
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e} in {text}"))
}

fn summary(report: &Value) -> &Value {
    &report["trials"][0]["summary"]
}

#[test]
fn what_the_engine_does_not_count_is_estimated_from_the_text_and_labelled() {
    let engine = engine();
    let finished = run(&engine).file("--tokenizer", "tokenizer.json", &words()).finish().expect_code(0);
    let results = finished.results();
    let sources = counts(results.summary(), "/token_count_sources");
    let estimated = sources.get("retokenized_text").copied().unwrap_or(0);
    assert!(estimated > 0 && sources.get("usage").copied().unwrap_or(0) > 0, "{sources:?}");
    assert_eq!(sources.values().sum::<u64>(), 24, "{sources:?}");
    for trace in &results.traces {
        let words = text(trace, "/output").split_whitespace().count() as u64;
        assert_eq!(
            (count(trace, "/retokenized_tokens"), count(trace, "/output_tokens")),
            (words, words),
            "{trace}"
        );
        assert_eq!(words, 9, "{trace}");
        // All text in one read has no time per token.
        let spread = trace["first_content_ns"] != trace["last_content_ns"];
        assert_eq!(trace["tpot_seconds"].is_number(), spread, "{trace}");
    }
    // What is known is held against the text, and agrees; an estimate is not held against itself.
    let evidence = &results.summary()["token_evidence"];
    assert_eq!(count(evidence, "/retokenized_compared"), 24 - estimated);
    assert_eq!(count(evidence, "/retokenized_differ"), 0);
    let printed = &finished.ended.stdout;
    assert!(
        printed.contains(&format!("Output tokens of {estimated} requests are estimates (retokenized_text).")),
        "{printed}"
    );
    assert!(!printed.contains("tokenised again"), "{printed}");

    let record = &results.report["experiment"]["tokenizer"];
    assert_eq!(text(record, "/sha256"), Digest::of(words().as_bytes()).to_string());
    assert!(text(record, "/file").ends_with("/tokenizer.json"), "{record}");
}

#[test]
fn counts_that_the_text_does_not_bear_out_are_said_and_kept() {
    let engine = engine();
    let finished = run(&engine).file("--tokenizer", "tokenizer.json", &characters()).finish().expect_code(0);
    let results = finished.results();
    let known = counts(results.summary(), "/token_count_sources")["usage"];
    let evidence = &results.summary()["token_evidence"];
    assert_eq!(count(evidence, "/retokenized_compared"), known);
    assert_eq!(count(evidence, "/retokenized_differ"), known);
    let (mut characters, mut tokens) = (0, 0);
    for trace in &results.traces {
        let length = text(trace, "/output").chars().count() as u64;
        assert_eq!(count(trace, "/retokenized_tokens"), length, "{trace}");
        let is_known = trace["output_tokens_source"] == "usage";
        assert_eq!(count(trace, "/output_tokens"), if is_known { 9 } else { length }, "{trace}");
        if is_known {
            (characters, tokens) = (characters + length, tokens + 9);
        }
    }
    let relative = number(evidence, "/retokenized_relative_difference");
    assert!((relative - (characters - tokens) as f64 / tokens as f64).abs() < 1e-9, "{relative}");
    let printed = finished.ended.stdout.replace("\n  ", " ");
    assert!(
        printed.contains(&format!("tokenised again, differ for {known} of {known} requests")),
        "{printed}"
    );
}

#[test]
fn a_run_that_is_over_is_counted_when_asked_and_otherwise_not() {
    let engine = engine();
    let finished = run(&engine).finish().expect_code(0);
    let path = finished.folder().join("other.json");
    std::fs::write(&path, words()).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let file = path.display().to_string();

    let without = json_of(&finished.report_again(&["--format", "json"]));
    let unknown = counts(summary(&without), "/token_count_sources")["unknown"];
    assert!(unknown > 0);
    assert!(without["experiment"]["tokenizer"].is_null());
    assert_eq!(count(summary(&without), "/slo_lost_by_cause/tpot_undefined"), unknown);
    let with = json_of(&finished.report_again(&["--format", "json", "--tokenizer", &file]));
    assert_eq!(counts(summary(&with), "/token_count_sources")["retokenized_text"], unknown);
    assert_eq!(count(summary(&with), "/requests_with_token_counts"), 24);
    assert_eq!(text(&with, "/experiment/tokenizer/file"), file);

    // The percentiles and the lines count as the table does.
    let table = said(&finished.report_again(&["--percentiles", "50", "--tokenizer", &file]));
    assert!(table.contains("are estimates (retokenized_text)"), "{table}");
    let tpots = &summary(&with)["latency_seconds"]["tpot"]["n"];
    let row = table.lines().find(|l| l.contains("/s tpot")).unwrap_or_else(|| panic!("no tpot in {table}"));
    assert!(row.contains(&format!(" {tpots} ")), "not {tpots} in {row}");
    let lines = said(&finished.report_again(&["--format", "jsonl", "--tokenizer", &file]));
    assert_eq!(lines.matches("\"output_tokens_source\":\"retokenized_text\"").count() as u64, unknown);

    // It asked for a look, and changed nothing.
    assert_eq!(json_of(&finished.report_again(&["--format", "json"])), without);
}

#[test]
fn a_report_without_the_option_says_that_the_run_had_it() {
    let engine = engine();
    let finished = run(&engine).file("--tokenizer", "tokenizer.json", &words()).finish().expect_code(0);
    let again = finished.report_again(&["--format", "json"]);
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(
        said.contains("counted its text with ") && said.contains("tokenizer.json; --tokenizer"),
        "{said}"
    );
    let again = json_of(&again);
    assert!(again["experiment"]["tokenizer"].is_null(), "the record says what counted the numbers beside it");
    assert!(counts(summary(&again), "/token_count_sources").contains_key("unknown"));
}

#[test]
fn where_there_is_no_text_there_is_nothing_to_count() {
    let engine = engine();
    let refused = run(&engine).line("--no-text").file("--tokenizer", "tokenizer.json", &words()).finish();
    refused
        .expect_code(2)
        .expect_said(&["--tokenizer counts kept text, and --no-text keeps none"])
        .expect_no_results();

    let without = run(&engine).line("--no-text").finish().expect_code(0);
    let path = without.folder().join("tokenizer.json");
    std::fs::write(&path, words()).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let refused = without.report_again(&["--tokenizer", &path.display().to_string()]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("was made with --no-text"), "{said}");
}

#[test]
fn a_file_that_is_no_tokenizer_is_named_before_anything_is_sent() {
    let engine = engine();
    let refused = run(&engine).file("--tokenizer", "words.json", "{\"words\": 3}").finish();
    refused
        .expect_code(2)
        .expect_said(&["--tokenizer ", "words.json: it is no tokenizer.json: "])
        .expect_no_results();
    assert!(engine.log().is_empty(), "it sent something");
}

#[test]
fn a_text_that_the_tokenizer_refuses_stays_unknown() {
    let engine = engine();
    // It has no token for a word that it does not know.
    let model = json!({"type": "WordLevel", "vocab": {"keel": 0}, "unk_token": "[UNK]"});
    let knows_little = tokenizer(json!({"type": "WhitespaceSplit"}), model);
    let finished = run(&engine).file("--tokenizer", "tokenizer.json", &knows_little).finish().expect_code(0);
    let results = finished.results();
    assert!(results.traces.iter().any(|t| t["retokenized_tokens"].is_null()));
    assert!(counts(results.summary(), "/token_count_sources").contains_key("unknown"));
    assert!(
        finished.ended.stderr.contains("the tokenizer cannot count the text of "),
        "{}",
        finished.story()
    );
}
