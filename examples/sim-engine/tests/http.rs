//! The server over real sockets: shapes, counts, the log, and the faults as a client sees them.

mod client;

use client::{Answer, chat, completion, log, start, wait_for};
use serde_json::{Value, json};

#[test]
fn completions_stream_in_vllm_shape() {
    let server = start(&[]);
    let answer = completion(
        &server,
        &[],
        json!({
            "model": "sim", "prompt": "a prompt of some words", "max_tokens": 5, "ignore_eos": true,
            "stream": true, "stream_options": {"include_usage": true}, "logprobs": 2,
        }),
    );
    assert_eq!(answer.status, 200);
    assert!(answer.complete);
    assert_eq!(answer.last(), "[DONE]");
    let events = answer.json();
    assert_eq!(events.len(), 6, "five tokens and the usage");
    for (at, event) in events[..5].iter().enumerate() {
        let choice = &event["choices"][0];
        assert_eq!(event["object"], "text_completion");
        assert!(choice["text"].as_str().unwrap().len() > 1);
        assert_eq!(choice["logprobs"]["tokens"], json!([choice["text"]]));
        assert_eq!(choice["logprobs"]["top_logprobs"][0].as_object().unwrap().len(), 2);
        assert_eq!(choice["finish_reason"], if at == 4 { json!("length") } else { Value::Null });
    }
    let second_offset = &events[1]["choices"][0]["logprobs"]["text_offset"][0];
    assert_eq!(*second_offset, events[0]["choices"][0]["text"].as_str().unwrap().len());
    assert_eq!(events[5]["choices"], json!([]));
    assert_eq!(events[5]["usage"], json!({"prompt_tokens": 6, "completion_tokens": 5, "total_tokens": 11}));
}

#[test]
fn chat_streams_its_role_first() {
    let server = start(&[]);
    let answer = chat(
        &server,
        &[],
        json!({
            "messages": [{"role": "user", "content": "hello"}], "max_completion_tokens": 3, "ignore_eos": true,
            "stream": true, "logprobs": true, "top_logprobs": 1,
            "stream_options": {"include_usage": true, "continuous_usage_stats": true}, "return_token_ids": true,
        }),
    );
    let events = answer.json();
    assert_eq!(events[0]["choices"][0]["delta"], json!({"role": "assistant", "content": ""}));
    assert_eq!(events[0]["usage"]["completion_tokens"], 0);
    for (at, event) in events[1..4].iter().enumerate() {
        let choice = &event["choices"][0];
        let content = choice["delta"]["content"].as_str().unwrap();
        let entries = choice["logprobs"]["content"].as_array().unwrap();
        assert_eq!(entries.len(), 1);
        assert_eq!(entries[0]["token"], content);
        assert_eq!(entries[0]["bytes"], json!(content.as_bytes()));
        assert_eq!(entries[0]["top_logprobs"].as_array().unwrap().len(), 1);
        assert_eq!(choice["token_ids"].as_array().unwrap().len(), 1);
        assert_eq!(event["usage"]["completion_tokens"], at + 1);
    }
    assert_eq!(events.len(), 5);
    assert_eq!(answer.last(), "[DONE]");
}

#[test]
fn answers_without_a_stream_have_the_same_text() {
    let server = start(&[]);
    let ask = |stream: bool| {
        let body = json!({"prompt": "same", "max_tokens": 40, "seed": 3, "stream": stream});
        completion(&server, &[], body)
    };
    let whole: Value = serde_json::from_slice(&ask(false).body).unwrap();
    let events = ask(true).json();
    let text: String = events.iter().map(|event| event["choices"][0]["text"].as_str().unwrap()).collect();
    assert_eq!(whole["choices"][0]["text"], text);
    assert_eq!(whole["usage"]["completion_tokens"], events.len());
    let stops = events.len() < 40;
    assert_eq!(whole["choices"][0]["finish_reason"], if stops { "stop" } else { "length" });
    let chat = chat(&server, &[], json!({"messages": [{"role": "user", "content": "x"}], "max_tokens": 2}));
    let chat: Value = serde_json::from_slice(&chat.body).unwrap();
    assert_eq!(chat["object"], "chat.completion");
    assert_eq!(chat["choices"][0]["message"]["role"], "assistant");
}

#[test]
fn several_tokens_per_event() {
    let server = start(&["--tokens-per-event", "4", "--always-max"]);
    let answer = completion(
        &server,
        &[],
        json!({
            "prompt": "x", "max_tokens": 10, "stream": true, "return_token_ids": true,
        }),
    );
    let sizes: Vec<_> = answer
        .json()
        .iter()
        .map(|event| event["choices"][0]["token_ids"].as_array().unwrap().len())
        .collect();
    assert_eq!(sizes, [1, 4, 4, 1]);
}

#[test]
fn refusals_come_in_vllm_envelope() {
    let server = start(&["--max-model-len", "100"]);
    let message = json!([{"role": "user", "content": "x"}]);
    for (body, status, kind) in [
        (json!("no object"), 400, "BadRequestError"),
        (json!({"max_tokens": 3}), 400, "BadRequestError"),
        (json!({"prompt": "", "messages": []}), 400, "BadRequestError"),
        (json!({"prompt": "x", "messages": message, "max_tokens": 0}), 400, "BadRequestError"),
        (json!({"prompt": "x", "messages": message, "max_tokens": 101}), 400, "BadRequestError"),
        (json!({"prompt": "x", "messages": message, "model": "other"}), 404, "NotFoundError"),
    ] {
        for answer in [completion(&server, &[], body.clone()), chat(&server, &[], body.clone())] {
            let error: Value = serde_json::from_slice(&answer.body).unwrap();
            assert_eq!((answer.status, &error["error"]["code"]), (status, &json!(status)), "{body}");
            assert_eq!(error["error"]["type"], kind);
            assert!(error["error"]["message"].as_str().unwrap().len() > 5);
        }
    }
    assert!(log(&server).iter().all(|entry| entry["outcome"] == "rejected"));
}

#[test]
fn a_full_queue_is_503_and_a_client_that_leaves_makes_room() {
    // One slot, room for one more, and steps that outlast the test.
    let server = start(&["--slots", "1", "--max-queue", "1", "--step-ms", "100000"]);
    let body = json!({"prompt": "x", "max_tokens": 5, "stream": true, "ignore_eos": true});
    let (running, waiting) = ("vllm:num_requests_running", "vllm:num_requests_waiting");
    let decoding = client::open(&server, "/v1/completions", &[], &body);
    wait_for("the first to start", || client::metric(&server, running) == 1);
    let queued = client::open(&server, "/v1/completions", &[], &body);
    wait_for("the second to wait", || client::metric(&server, waiting) == 1);
    assert_eq!(completion(&server, &[], body).status, 503);
    drop(queued);
    wait_for("the queue to be empty", || client::metric(&server, waiting) == 0);
    drop(decoding);
    wait_for("the slot to be free", || client::metric(&server, running) == 0);
    let outcomes: Vec<_> = log(&server).iter().map(|entry| entry["outcome"].clone()).collect();
    assert_eq!(outcomes, ["cancelled", "cancelled", "rejected"]);
}

#[test]
fn the_log_and_the_metrics_say_what_happened() {
    let server = start(&[]);
    let headers =
        [("x-request-id", "r-1"), ("x-plimsoll-agent", "agent-1"), ("authorization", "Bearer very-secret")];
    let body =
        json!({"prompt": "four score", "max_tokens": 7, "ignore_eos": true, "stream": true, "extra": [1]});
    completion(&server, &headers, body.clone());
    wait_for("the answer to be filed", || log(&server)[0]["outcome"] == "finished");
    let entries = log(&server);
    let entry = &entries[0];
    assert_eq!((&entry["request_id"], &entry["agent"]), (&json!("r-1"), &json!("agent-1")));
    assert_eq!(entry["authorization"], true);
    assert_eq!(entry["body"], body);
    assert_eq!(entry["keys"], json!(["extra", "ignore_eos", "max_tokens", "prompt", "stream"]));
    assert_eq!((&entry["max_tokens"], &entry["output_tokens"]), (&json!(7), &json!(7)));
    assert_eq!((&entry["prompt_chars"], &entry["prompt_tokens"]), (&json!(10), &json!(3)));
    assert!(entry["arrival_ns"].as_u64() < entry["first_token_ns"].as_u64());
    assert!(!entries.iter().any(|entry| entry.to_string().contains("very-secret")));
    assert_eq!(client::metric(&server, "vllm:generation_tokens_total"), 7);
    assert_eq!(client::metric(&server, "vllm:prompt_tokens_total"), 3);
    assert_eq!(
        client::metric(&server, "vllm:request_success_total{engine=\"0\",finished_reason=\"length\""),
        1
    );
    client::clear_log(&server);
    assert_eq!(log(&server), Vec::<Value>::new());
    let models: Value = serde_json::from_slice(&client::get(&server, "/v1/models").body).unwrap();
    assert_eq!(models["data"][0]["id"], "sim");
    assert_eq!(client::get(&server, "/health").status, 200);
    assert_eq!(client::get(&server, "/nowhere").status, 404);
}

/// A streamed chat of 8 tokens with this fault.
fn faulty(fault: &str) -> Answer {
    let server = start(&[]);
    chat(
        &server,
        &[("x-sim-fault", fault)],
        json!({
            "messages": [{"role": "user", "content": "x"}], "max_tokens": 8, "ignore_eos": true, "stream": true,
            "stream_options": {"include_usage": true},
        }),
    )
}

fn finish(answer: &Answer) -> Option<String> {
    let events = answer.json();
    events.iter().find_map(|event| Some(event["choices"][0]["finish_reason"].as_str()?.to_owned()))
}

#[test]
fn faults_that_are_a_status() {
    for (fault, status) in [("http-400", 400), ("http-429", 429), ("http-500", 500), ("http-503", 503)] {
        assert_eq!(faulty(fault).status, status);
    }
    assert_eq!(faulty("no-such-fault").status, 400);
}

#[test]
fn faults_that_end_a_stream_wrongly() {
    let error = faulty("error-event:after=2");
    assert_eq!(error.tokens(), 2);
    assert_eq!(error.json().last().unwrap()["error"]["code"], 500);
    assert_eq!((error.last().as_str(), finish(&error)), ("[DONE]", None));

    let first = faulty("error-first");
    assert_eq!((first.status, first.tokens(), first.data().len()), (200, 0, 2));
    let empty = faulty("no-content");
    assert_eq!((empty.status, empty.data()), (200, vec!["[DONE]".to_owned()]));

    let abort = faulty("abort:after=2");
    assert_eq!((abort.tokens(), finish(&abort).as_deref()), (2, Some("abort")));

    let truncated = faulty("truncated");
    assert!(!truncated.complete && !truncated.reset);
    assert_eq!(truncated.tokens(), 3);
    let reset = faulty("reset");
    assert!(!reset.complete && reset.reset);

    let eof = faulty("clean-eof");
    assert!(eof.complete && finish(&eof).is_none());
    assert_ne!(eof.last(), "[DONE]");
    let no_done = faulty("no-done");
    assert!(no_done.complete && finish(&no_done).is_some());
    assert_ne!(no_done.last(), "[DONE]");
    let no_finish = faulty("done-no-finish");
    assert_eq!((no_finish.last().as_str(), finish(&no_finish)), ("[DONE]", None));
    assert_eq!(no_finish.tokens(), 8);

    let malformed = faulty("malformed");
    assert_eq!(
        malformed.data().iter().filter(|data| serde_json::from_str::<Value>(data).is_err()).count(),
        2
    );
    let short = faulty("short-output");
    assert_eq!((short.tokens(), finish(&short).as_deref()), (4, Some("stop")));
}

#[test]
fn faults_in_the_usage() {
    let usages = |fault| {
        let events = faulty(fault).json();
        events.into_iter().filter_map(|event| event.get("usage").cloned()).collect::<Vec<_>>()
    };
    assert_eq!(usages("no-usage"), Vec::<Value>::new());
    assert_eq!(usages("null-usage"), vec![Value::Null; 9]);
    assert_eq!(usages("zero-usage")[0]["completion_tokens"], 0);
    assert_eq!(usages("negative-usage")[0]["completion_tokens"], -1);
    assert_eq!(usages("none")[0]["completion_tokens"], 8);
}

#[test]
fn faults_of_packing_and_order() {
    assert_eq!(faulty("coalesced").chunks.len(), 1);
    let right = faulty("none");
    assert_eq!(right.chunks.len(), right.data().len(), "each event is a chunk");
    assert_eq!(faulty("two-in-one").chunks.len(), right.data().len().div_ceil(2));
    let crlf = faulty("crlf");
    assert!(String::from_utf8_lossy(&crlf.body).contains("}\r\n\r\ndata: "));
    assert_eq!(crlf.tokens(), 8);
    let has = |event: &Value, field: &str| event["choices"][0]["delta"].get(field).is_some();
    for (fault, field) in [("reasoning", "reasoning_content"), ("reasoning-short", "reasoning")] {
        let events = faulty(fault).json();
        assert_eq!(events.iter().filter(|event| has(event, field)).count(), 4);
    }
    let late = faulty("role-late").json();
    assert!(!has(&late[0], "role") && has(&late[1], "role"));
    let early = faulty("role-early").json();
    assert!(has(&early[0], "role") && !has(&early[1], "role"));
}

#[test]
fn bursts_are_several_events_a_write() {
    let body = json!({"prompt": "x", "max_tokens": 8, "ignore_eos": true, "stream": true});
    let answer = completion(&start(&[]), &[("x-sim-fault", "bursts:after=4")], body);
    assert_eq!((answer.tokens(), answer.chunks.len()), (8, 3), "two of four tokens, and the end");
    assert!(answer.complete);
}

#[test]
fn a_request_that_is_read_slowly_is_answered_rightly() {
    let body = json!({"prompt": "x".repeat(40_000), "max_tokens": 2, "ignore_eos": true, "stream": true});
    let server = start(&["--max-model-len", "1000000"]);
    let answer = completion(&server, &[("x-sim-fault", "slow-reads")], body);
    assert_eq!((answer.status, answer.tokens()), (200, 2));
    let entry = &log(&server)[0];
    let waited = entry["first_token_ns"].as_u64().unwrap() - entry["arrival_ns"].as_u64().unwrap();
    assert!(waited > 100_000_000, "one pause for a piece and one for the end at least: {waited} ns");
}

#[test]
fn a_known_prefix_is_said_in_the_usage_and_the_metrics() {
    let server = start(&["--prefix-cache-tokens", "1600"]);
    let prompt = "a beginning that all of them have ".repeat(10);
    let usage = |stream: bool| {
        let mut body = json!({"prompt": prompt, "max_tokens": 3, "ignore_eos": true, "stream": stream});
        if stream {
            body["stream_options"] = json!({"include_usage": true});
        }
        let answer = completion(&server, &[], body);
        let whole =
            if stream { answer.json().pop().unwrap() } else { serde_json::from_slice(&answer.body).unwrap() };
        whole["usage"].clone()
    };
    // 340 characters are 85 tokens and five full blocks.
    let cached = |usage: &Value| usage["prompt_tokens_details"]["cached_tokens"].as_u64();
    assert_eq!(cached(&usage(true)), Some(0));
    let again = usage(true);
    assert_eq!((cached(&again), again["prompt_tokens"].as_u64()), (Some(80), Some(85)));
    assert_eq!(cached(&usage(false)), Some(80));
    assert_eq!(client::metric(&server, "vllm:prefix_cache_queries_total"), 255);
    assert_eq!(client::metric(&server, "vllm:prefix_cache_hits_total"), 160);
    let without = completion(&start(&[]), &[], json!({"prompt": "x", "max_tokens": 1}));
    assert!(!String::from_utf8_lossy(&without.body).contains("prompt_tokens_details"));
}

#[test]
fn a_full_kv_cache_preempts() {
    let server = start(&["--kv-tokens", "40", "--slots", "4"]);
    let body = json!({"prompt": "x".repeat(40), "max_tokens": 20, "ignore_eos": true, "stream": true});
    let mut open: Vec<_> = (0..3).map(|_| client::open(&server, "/v1/completions", &[], &body)).collect();
    for answer in &mut open {
        answer.read_until(|text| text.contains("[DONE]"));
    }
    assert!(client::metric(&server, "vllm:num_preemptions_total") > 0);
    assert_eq!(client::metric(&server, "vllm:generation_tokens_total"), 60);
    assert_eq!(client::metric(&server, "vllm:time_to_first_token_seconds_count"), 3);
    assert_eq!(client::metric(&server, "vllm:inter_token_latency_seconds_count"), 57);
    assert_eq!(client::metric(&server, "vllm:e2e_request_latency_seconds_count"), 3);
    wait_for("the cache to be empty", || client::metric(&server, "vllm:kv_cache_usage_perc") == 0);
    let too_long = json!({"prompt": "x", "max_tokens": 40});
    assert_eq!(completion(&server, &[], too_long).status, 400, "what can never fit is refused");
}

#[test]
fn faults_that_never_end_are_cancelled_by_the_client() {
    for (fault, sign) in [("hang", "\r\n\r\n"), ("stall:after=1", ": ping\n\n"), ("drip", "\"content\":")] {
        let server = start(&["--fault", fault]);
        let body = json!({"messages": [{"role": "user", "content": "x"}], "max_tokens": 2, "stream": true});
        let mut open = client::open(&server, "/v1/chat/completions", &[], &body);
        let enough = if fault == "drip" { 6 } else { 1 };
        open.read_until(|text| text.matches(sign).count() >= enough);
        drop(open);
        wait_for(fault, || log(&server)[0]["outcome"] == "cancelled");
        assert_eq!(client::metric(&server, "vllm:num_requests_running"), 0);
    }
}

#[test]
fn close_idle_answers_and_then_closes_without_a_word() {
    let server = start(&[]);
    let body = json!({"prompt": "x", "max_tokens": 3, "stream": true});
    let mut open = client::open(&server, "/v1/completions", &[("x-sim-fault", "close-idle")], &body);
    let text = open.read_to_end();
    assert!(text.ends_with("data: [DONE]\n\n\r\n0\r\n\r\n"), "{text}");
    assert!(!text.to_lowercase().contains("connection: close"));
}

#[test]
fn every_nth_request_misbehaves() {
    let server = start(&["--fault", "http-500:every=3", "--fault", "http-429:every=2"]);
    let statuses: Vec<_> =
        (0..6).map(|_| completion(&server, &[], json!({"prompt": "x", "max_tokens": 1})).status).collect();
    assert_eq!(statuses, [200, 429, 500, 429, 200, 500]);
}
