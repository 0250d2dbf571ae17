//! What a dialect believes of an engine is what the engine does: how it is recognised, which fields it refuses and which
//! it does not heed, where it says what, and what its counts are worth.

use agent::engine::Requests;
use common::dialect::{Answer, Dialect, TokenCounts, recognise};
use common::plan::{Api, Target};
use common::workload::{Row, RowBody};
use engines::{Engine, Reply, Scenario, State};
use serde_json::{Value, json};

use crate::cases::{APIS, Case, Flavour, MAX_TOKENS, PLAIN, dialect, target, theirs};

fn row(body: RowBody) -> Row {
    Row { body, max_tokens: Some(MAX_TOKENS), line: 1 }
}

fn prompt(text: &str) -> Row {
    row(RowBody::Prompt(text.into()))
}

fn ask(engine: &dyn Engine, target: &Target, row: &Row, state: &State) -> Reply {
    engine.generate(theirs(target.api), &Requests::new(target).prepare(row).body, state)
}

/// A body with one more field.
fn with(engine: &dyn Engine, api: Api, field: &str, value: Value) -> Reply {
    let target = target(dialect(engine), api, &PLAIN);
    let body = Requests::new(&target).prepare(&prompt("hello")).body;
    let mut body: Value = serde_json::from_slice(&body).unwrap();
    body[field] = value;
    engine.generate(theirs(api), body.to_string().as_bytes(), &State::default())
}

#[test]
fn each_engine_is_recognised_by_what_it_says_and_no_other_is() {
    for engine in engines::all() {
        let mut answers = Vec::new();
        let (found, sign) = loop {
            match recognise(&answers) {
                Ok(found) => break found,
                Err(path) => {
                    let reply = engine.get(path, &State::default());
                    let answer =
                        Answer { status: reply.status(), server: reply.header("server"), body: reply.body() };
                    answers.push((path, Some(answer)));
                }
            }
        };
        assert_eq!(found, dialect(&*engine), "{}: {sign:?}", engine.name());
        assert_eq!(sign.is_none(), engine.name() == "serve_py", "{}", engine.name());
    }
}

#[test]
fn every_request_that_the_agent_builds_is_accepted() {
    let on = Flavour { name: "all", ignore_eos: true, token_counts: true, logprobs: true, ..PLAIN };
    for engine in engines::all() {
        let dialect = dialect(&*engine);
        for api in APIS {
            for flavour in [PLAIN, on.clone()] {
                let flavour = Flavour { logprobs: flavour.logprobs && dialect.has_logprobs(api), ..flavour };
                let target = target(dialect, api, &flavour);
                let reply = ask(&*engine, &target, &prompt("hello"), &State::default());
                assert_eq!(reply.status(), 200, "{dialect} {api} {}", flavour.name);
                assert_eq!(reply.expected().outcome.name(), "success", "{dialect} {api} {}", flavour.name);
            }
        }
        let conversation = r#"[{"role":"system","content":"be brief"},{"role":"user","content":"hello"}]"#;
        let chat = target(dialect, Api::Chat, &PLAIN);
        let messages = row(RowBody::Messages(conversation.into()));
        assert_eq!(ask(&*engine, &chat, &messages, &State::default()).status(), 200, "{dialect}");
    }
}

#[test]
fn prompts_of_token_ids_are_taken_where_the_dialect_says_so() {
    for engine in engines::all() {
        let dialect = dialect(&*engine);
        let target = target(dialect, Api::Completions, &PLAIN);
        let ids = row(RowBody::TokenIds(vec![11, 12, 13]));
        let reply = ask(&*engine, &target, &ids, &State::default());
        if engine.name() == "serve_py" {
            // Nothing is known of it; the dialect leaves it to a probe.
            assert_eq!(reply.status(), 500);
            continue;
        }
        assert_eq!(reply.status() == 200, dialect.traits().token_id_prompts, "{dialect}: {}", reply.status());
        if reply.status() == 200 {
            assert_eq!(reply.expected().prompt_tokens, Some(3), "{dialect}");
        }
    }
}

#[test]
fn fields_are_refused_not_heeded_or_heeded_as_the_dialect_says() {
    for engine in engines::all() {
        let dialect = dialect(&*engine);
        let traits = dialect.traits();
        for api in APIS {
            for field in traits.refuses {
                let reply = with(&*engine, api, field, json!(true));
                assert!((400..500).contains(&reply.status()), "{dialect} {api} takes {field}");
            }
            for field in traits.ignores {
                let reply = with(&*engine, api, field, json!(true));
                assert_eq!(reply.status(), 200, "{dialect} {api} refuses {field}");
                let plain = with(&*engine, api, "model", json!(engines::MODEL));
                assert_eq!(reply.bytes(), plain.bytes(), "{dialect} {api} heeds {field}");
            }
            // Whatever is neither is taken.
            for field in ["ignore_eos", "seed", "temperature", "top_p"] {
                let value = if field == "ignore_eos" { json!(true) } else { json!(1) };
                let reply = with(&*engine, api, field, value);
                assert_eq!(reply.status() == 200, !dialect.refuses(field), "{dialect} {api}: {field}");
            }
        }
    }
}

/// Whether some prompt of these ends by itself.
fn some_end_early(engine: &dyn Engine, api: Api, ignore_eos: bool) -> bool {
    let flavour = Flavour { ignore_eos, ..PLAIN };
    let target = target(dialect(engine), api, &flavour);
    let state = State::default();
    (0..20).any(|number| {
        let reply = ask(engine, &target, &prompt(&format!("number {number}")), &state);
        reply.expected().generated < u64::from(MAX_TOKENS)
    })
}

#[test]
fn an_exact_number_of_tokens_is_had_where_the_dialect_says_so() {
    for engine in engines::all() {
        let dialect = dialect(&*engine);
        let has_it = !dialect.refuses("ignore_eos") && !dialect.ignores("ignore_eos");
        for api in APIS {
            assert!(some_end_early(&*engine, api, false), "{dialect} {api} never ends");
            assert_eq!(some_end_early(&*engine, api, true), !has_it, "{dialect} {api}");
        }
    }
}

#[test]
fn where_a_dialect_has_token_counts_every_event_with_text_has_one() {
    let counted = Flavour { token_counts: true, ..PLAIN };
    for engine in engines::all() {
        let dialect = dialect(&*engine);
        for api in APIS {
            let target = target(dialect, api, &counted);
            let reply = ask(&*engine, &target, &prompt("hello"), &State::default());
            let expected = reply.expected();
            let has_counts = dialect.traits().token_counts.is_some();
            assert_eq!(expected.event_tokens.unknown == 0, has_counts, "{dialect} {api}");
            // Cumulative counts hide nothing; lists may lack what a parser swallowed.
            let cumulative =
                !matches!(dialect.traits().token_counts, Some(TokenCounts::Field("return_token_ids")));
            if has_counts && (cumulative || api == Api::Completions) {
                assert_eq!(expected.stream_tokens, Some(expected.generated), "{dialect} {api}");
            }
        }
    }
}

#[test]
fn log_probabilities_come_where_the_dialect_says_so() {
    let probable = Flavour { logprobs: true, ..PLAIN };
    // Of serve_py nothing is known.
    for engine in engines::all().iter().filter(|e| e.name() != "serve_py") {
        let dialect = dialect(&**engine);
        for api in APIS {
            let target = target(dialect, api, &probable);
            let body = Requests::new(&target).prepare(&prompt("hello")).body;
            let mut body: Value = serde_json::from_slice(&body).unwrap();
            body["logprobs"] = if api == Api::Chat { json!(true) } else { json!(1) };
            let reply = engine.generate(theirs(api), body.to_string().as_bytes(), &State::default());
            let expected = reply.expected();
            let came = expected.content_events() > 0 && expected.event_tokens.unknown == 0;
            assert_eq!(came, dialect.has_logprobs(api), "{dialect} {api}: {:?}", expected.event_tokens);
        }
    }
}

#[test]
fn the_end_mark_comes_where_the_dialect_says_so() {
    for engine in engines::all() {
        let dialect = dialect(&*engine);
        for api in APIS {
            let reply = ask(&*engine, &target(dialect, api, &PLAIN), &prompt("hello"), &State::default());
            assert_eq!(reply.expected().done_seen, dialect.traits().sends_done, "{dialect} {api}");
        }
    }
}

fn json(reply: &Reply) -> Value {
    serde_json::from_slice(&reply.body()).unwrap_or_default()
}

#[test]
fn what_an_engine_says_of_itself_is_where_the_dialect_looks() {
    for engine in engines::all() {
        let dialect = dialect(&*engine);
        let traits = dialect.traits();
        let get = |path| engine.get(path, &State::default());
        assert_eq!(get(traits.ready).status(), 200, "{dialect}: ready");
        if let Some(at) = traits.version {
            let reply = get(at.path);
            let version = json(&reply);
            let version = version.pointer(at.pointer).and_then(Value::as_str);
            assert!(version.is_some_and(|v| !v.is_empty()), "{dialect}: version");
        }
        if let Some(path) = traits.settings {
            let reply = get(path);
            assert_eq!(reply.status(), 200, "{dialect}: settings");
            assert!(json(&reply).is_object(), "{dialect}: settings");
        }
        assert_eq!(get("/no/such/path").status(), 404, "{dialect}");
    }
}

#[test]
fn a_prefix_cache_can_be_emptied_as_the_dialect_says() {
    for engine in engines::all() {
        let dialect = dialect(&*engine);
        let Some(reset) = dialect.traits().cache_reset else { continue };
        let state = State::default();
        let long = prompt(&"many words for a prefix of several blocks ".repeat(12));
        let chat = target(dialect, Api::Chat, &PLAIN);
        let cached = |state| ask(&*engine, &chat, &long, state).expected().cached_tokens;
        let (cold, warm) = (cached(&state), cached(&state));
        let says = cold.is_some();
        assert_eq!(cold.unwrap_or(0), 0, "{dialect}");
        assert_eq!(warm.is_some_and(|n| n > 0), says, "{dialect}");
        let reply = engine.post(reset.path, &Value::Null, &state);
        assert_eq!(reply.status(), 200, "{dialect}");
        if let Some(pointer) = reset.success {
            assert_eq!(json(&reply).pointer(pointer), Some(&json!(true)), "{dialect}");
        }
        assert_eq!(cached(&state).unwrap_or(0), 0, "{dialect}");
    }
}

#[test]
fn every_dialect_has_a_twin_and_every_twin_a_dialect() {
    for dialect in Dialect::all().filter(|d| *d != Dialect::OPENAI) {
        assert!(engines::named(dialect.name()).is_some(), "{dialect} has no scripted engine");
    }
    let none = Case::new(Dialect::OPENAI, Api::Chat, Scenario::Normal, PLAIN, RowBody::Prompt("a".into()));
    assert!(none.told().starts_with("openai"));
}
