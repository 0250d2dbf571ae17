//! llama.cpp's llama-server, started with `--metrics`. Sources: recordings of a real server (`lc_*`, `kvu_*`, `tpt_*`,
//! `get_*`), its code, engine notes section 3.

use std::ops::Range;

use serde_json::Value;

use crate::answer::{Answer, By, Habits, Token};
use crate::ask::{Ask, Unreadable};
use crate::expected::Channel;
use crate::reply::{Reply, Stack};
use crate::script::Carries;
use crate::stage::{Manner, Piece, Stage, Voice};
use crate::state::State;
use crate::text::{bytes, gauges, logprob, or_null, quoted, reason};
use crate::{Api, CONTEXT, Engine, Scenario};

const STACK: Stack = Stack::Httplib;
const MANNER: Manner = Manner {
    stack: STACK,
    // A token whose text is held back has no event.
    by: By::Text,
    done: "data: [DONE]\n\n",
    done_after_error: false,
    ping: ":\n\n",
};
const HABITS: Habits = Habits { ignores_eos: true, has_seed: true, cache_block: 1 };
const CREATED: &str = r#""created":1795978297"#;
const MODEL: &str = r#""model":"tiny","system_fingerprint":"b0-unknown""#;

/// llama.cpp.
#[derive(Debug, Clone, Copy)]
pub struct LlamaCpp;

impl Engine for LlamaCpp {
    fn name(&self) -> &'static str {
        "llamacpp"
    }

    fn scenarios(&self, api: Api) -> Vec<Scenario> {
        use Scenario as S;
        let mut known = vec![
            S::Normal,
            S::Overload,
            S::TooLong,
            S::ErrorFirst,
            S::ErrorLater,
            S::ErrorField,
            S::Cut,
            S::PingThenCut,
            S::KeepAlives,
            S::NullFirst,
            S::BrokenCharacters,
            S::ContextEnd,
            S::CutCharacters,
        ];
        if api == Api::Chat {
            known.extend([S::UnaskedUsage, S::Reasoning, S::ReasoningOnly, S::ToolCalls]);
        }
        known
    }

    fn get(&self, path: &str, state: &State) -> Reply {
        match path.split('?').next().unwrap_or_default() {
            "/health" | "/v1/health" => STACK.json(200, r#"{"status":"ok"}"#),
            "/v1/models" | "/models" => STACK.json(
                200,
                r#"{"models":[{"name":"tiny","model":"tiny","type":"model","capabilities":["completion"]}],"object":"list","data":[{"id":"tiny","aliases":["tiny"],"tags":[],"object":"model","created":1795978271,"owned_by":"llamacpp","meta":{"vocab_type":1,"n_vocab":544,"n_ctx":1024,"n_ctx_train":4096,"n_embd":64,"n_params":143680,"size":288000,"ftype":"F16"}}]}"#,
            ),
            "/props" => STACK.json(
                200,
                r#"{"default_generation_settings":{"params":{"seed":4294967295,"ignore_eos":false},"n_ctx":1024},"total_slots":4,"model_alias":"tiny","model_path":"/models/tiny-f16.gguf","endpoint_slots":true,"endpoint_props":true,"endpoint_metrics":true,"build_info":"b0-unknown","is_sleeping":false}"#,
            ),
            "/slots" => STACK.json(200, r#"[{"id":0,"n_ctx":1024,"speculative":false,"is_processing":false}]"#),
            "/metrics" => STACK.whole(
                200,
                "text/plain; version=0.0.4",
                gauges(&[
                    ("llamacpp:requests_processing", "", state.running() as f64),
                    ("llamacpp:requests_deferred", "", 0.0),
                ]),
            ),
            "/" => STACK.whole(200, "text/html; charset=utf-8", "<!doctype html><title>llama.cpp</title>"),
            _ => not_found(),
        }
    }

    fn post(&self, path: &str, _: &Value, _: &State) -> Reply {
        if path.starts_with("/slots/") {
            return error(
                501,
                "This server does not support slots action. Start it with `--slot-save-path`",
                "not_supported_error",
            );
        }
        not_found()
    }

    fn generate(&self, api: Api, body: &[u8], state: &State) -> Reply {
        let ask = match Ask::read(api, body) {
            Ok(ask) => ask,
            Err(why) => return unreadable(why),
        };
        let scenario = Scenario::of(ask.text(), &self.scenarios(api));
        if scenario == Scenario::Overload {
            return STACK
                .json(503, r#"{"error":{"message":"Loading model","type":"unavailable_error","code":503}}"#);
        }
        let length = ask.prompt_ids().len() as u64;
        if scenario == Scenario::TooLong || length > CONTEXT {
            let length = length.max(CONTEXT + 1);
            return STACK.json(
                400,
                &format!(
                    r#"{{"error":{{"code":400,"message":"request ({length} tokens) exceeds the available context size ({CONTEXT} tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":{length},"n_ctx":{CONTEXT}}}}}"#
                ),
            );
        }
        let mut answer = Answer::to(&ask, HABITS, state);
        if ask.fields.get("cache_prompt") == Some(&Value::Bool(false)) {
            answer.cached = 0;
        }
        // It generates one token when asked for none.
        if answer.tokens.is_empty() {
            answer.tokens.push(Token { id: 300, text: " the".into(), channel: Channel::Answer });
        }
        let voice = Speech { timings: ask.says("timings_per_token") };
        Stage::new(&ask, answer, scenario, MANNER).play(&voice)
    }
}

fn error(status: u16, message: &str, kind: &str) -> Reply {
    let body = format!(r#"{{"error":{{"code":{status},"message":{},"type":"{kind}"}}}}"#, quoted(message));
    STACK.json(status, &body)
}

fn not_found() -> Reply {
    STACK.json(404, r#"{"error":{"message":"File Not Found","type":"not_found_error","code":404}}"#)
}

fn unreadable(why: Unreadable) -> Reply {
    let what = match why {
        Unreadable::Json => "[json.exception.parse_error.101] parse error at line 1, column 3: syntax error",
        Unreadable::Field(_) => {
            "Field 'max_tokens': [json.exception.type_error.302] type must be number, but is string"
        }
        Unreadable::Prompt => "\"prompt\" is missing",
    };
    error(400, what, "invalid_request_error")
}

/// What one request's events hold.
struct Speech {
    /// Timings, with a count, in every event.
    timings: bool,
}

impl Voice for Speech {
    fn open(&self, stage: &mut Stage<'_>) {
        if stage.scenario == Scenario::NullFirst {
            stage.out.send("data: null\n\n", Carries::nothing());
        }
        if stage.api() == Api::Chat {
            // In one chunk with the first event that has text.
            let event = event(stage, r#""delta":{"role":"assistant","content":null}"#, None, "");
            stage.out.event(&event, Carries::nothing());
        }
    }

    fn say(&self, stage: &mut Stage<'_>, range: Range<usize>, _: Option<&str>) {
        let Piece { tokens, text, channel } = stage.piece(&range);
        if text.is_empty() && stage.api() == Api::Chat {
            return;
        }
        let total = range.end as u64;
        let (timed, total) = match self.timings {
            true => (format!(r#","timings":{}"#, timings(stage, total)), Some(total)),
            false => (String::new(), None),
        };
        let shown = match total {
            Some(total) => Some(stage.since_counted(total)),
            // Only the token that brought the text has an entry.
            None => stage.ask.logprobs.then_some(1),
        };
        let logprobs = stage.ask.logprobs.then(|| logprobs(&tokens[tokens.len() - 1]));
        let choice = match stage.api() {
            Api::Completions => quoted(&text),
            Api::Chat => {
                let listed = logprobs.as_ref().map_or(String::new(), |l| format!(r#","logprobs":{l}"#));
                format!(r#""delta":{}{listed}"#, delta(channel, &text, range.start == 0))
            }
        };
        let event = match stage.api() {
            Api::Completions => completion(stage, &choice, &or_null(logprobs), None, "", &timed),
            Api::Chat => event(stage, &choice, None, &timed),
        };
        stage.out.send(&event, Carries::text(channel, &text).shows(shown).total(total).time(total.map(time)));
    }

    fn end(&self, stage: &mut Stage<'_>) {
        let counts = stage.final_counts();
        let finish = Some(stage.answer.finish);
        let usage = format!(
            r#","usage":{{"completion_tokens":{},"prompt_tokens":{},"total_tokens":{},"prompt_tokens_details":{{"cached_tokens":{}}}}}"#,
            counts.completion,
            counts.prompt,
            counts.prompt + counts.completion,
            stage.answer.cached,
        );
        let timed = format!(r#","timings":{}"#, timings(stage, counts.completion));
        let total = Some(counts.completion);
        // An end without an event of its own is in the last count.
        let shown = self.timings.then(|| stage.since_counted(counts.completion));
        if stage.api() == Api::Completions {
            // Usage stands here whether or not it was asked for.
            let last = completion(stage, "\"\"", "null", finish, &usage, &timed);
            let carries = Carries::nothing()
                .finish(finish)
                .usage(Some(counts))
                .total(total)
                .shows(shown)
                .time(total.map(time));
            stage.out.send(&last, carries);
            return stage.done();
        }
        let asked = stage.ask.include_usage || stage.scenario == Scenario::UnaskedUsage;
        let (on_finish, total_there) = if asked { ("", None) } else { (timed.as_str(), total) };
        let shown_there = shown.filter(|_| !asked);
        let last = event(stage, r#""delta":{}"#, finish, on_finish);
        stage.out.event(
            &last,
            Carries::nothing()
                .finish(finish)
                .total(total_there)
                .shows(shown_there)
                .time(total_there.map(time)),
        );
        if asked {
            let last = format!(
                "data: {{\"choices\":[],{CREATED},{},{MODEL},\"object\":\"chat.completion.chunk\"{usage}{timed}}}\n\n",
                id(stage)
            );
            stage.out.event(
                &last,
                Carries::nothing().usage(Some(counts)).total(total).shows(shown).time(total.map(time)),
            );
        }
        stage.out.flush();
        stage.done();
    }

    fn trouble(&self, stage: &Stage<'_>) -> String {
        let full = r#"{"code":500,"message":"Context size has been exceeded.","type":"server_error"}"#;
        match stage.scenario {
            Scenario::ErrorField => format!("error: {full}\n\n"),
            Scenario::ErrorFirst => "data: {\"error\":{\"code\":400,\"message\":\"the request exceeds the available context size, try increasing it\",\"type\":\"exceed_context_size_error\",\"n_prompt_tokens\":2000,\"n_ctx\":1024}}\n\n".to_owned(),
            _ => format!("data: {{\"error\":{full}}}\n\n"),
        }
    }
}

fn id(stage: &Stage<'_>) -> String {
    format!(r#""id":"chatcmpl-{:032}""#, stage.answer.number)
}

fn completion(
    stage: &Stage<'_>,
    text: &str,
    logprobs: &str,
    finish: Option<&str>,
    usage: &str,
    timed: &str,
) -> String {
    format!(
        "data: {{\"choices\":[{{\"text\":{text},\"index\":0,\"logprobs\":{logprobs},\"finish_reason\":{}}}],{CREATED},{MODEL},\"object\":\"text_completion\"{usage},{}{timed}}}\n\n",
        reason(finish),
        id(stage),
    )
}

fn event(stage: &Stage<'_>, choice: &str, finish: Option<&str>, timed: &str) -> String {
    format!(
        "data: {{\"choices\":[{{\"finish_reason\":{},\"index\":0,{choice}}}],{CREATED},{},{MODEL},\"object\":\"chat.completion.chunk\"{timed}}}\n\n",
        reason(finish),
        id(stage),
    )
}

fn timings(stage: &Stage<'_>, predicted: u64) -> String {
    let cached = stage.answer.cached;
    let computed = stage.answer.prompt_tokens() - cached;
    format!(
        r#"{{"cache_n":{cached},"prompt_n":{computed},"prompt_ms":0.441,"prompt_per_token_ms":0.441,"prompt_per_second":2267.573696145125,"predicted_n":{predicted},"predicted_ms":{predicted}.5,"predicted_per_token_ms":1.0,"predicted_per_second":1000.0}}"#
    )
}

/// What those timings say.
fn time(predicted: u64) -> (u64, u64) {
    (441_000, predicted * 1_000_000 + 500_000)
}

/// In the shape of chat, whatever the endpoint.
fn logprobs(token: &Token) -> String {
    let entry = format!(
        r#""id":{},"token":{},"bytes":{},"logprob":{}"#,
        token.id,
        quoted(&token.text),
        bytes(token),
        logprob(token)
    );
    format!(r#"{{"content":[{{{entry},"top_logprobs":[{{{entry}}}]}}]}}"#)
}

fn delta(channel: Channel, text: &str, first: bool) -> String {
    let text = quoted(text);
    match channel {
        Channel::Answer => format!(r#"{{"content":{text}}}"#),
        Channel::Reasoning => format!(r#"{{"reasoning_content":{text}}}"#),
        Channel::ToolCall if first => format!(
            r#"{{"tool_calls":[{{"index":0,"id":"8d1b","type":"function","function":{{"name":"look_up","arguments":{text}}}}}]}}"#
        ),
        Channel::ToolCall => {
            format!(r#"{{"tool_calls":[{{"index":0,"function":{{"arguments":{text}}}}}]}}"#)
        }
    }
}
