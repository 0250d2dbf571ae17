//! SGLang 0.5.23, started with `--enable-metrics --enable-cache-report`. Sources: recordings of a real server
//! (`sglang_*`), its serving code, engine notes section 2. `token_ids` is from the notes, no recording has it.

use std::ops::Range;

use serde_json::Value;

use crate::answer::{Answer, By, Habits, Token};
use crate::ask::{Ask, Unreadable};
use crate::expected::Channel;
use crate::reply::{Reply, Stack};
use crate::script::{Carries, Usage};
use crate::stage::{Manner, Piece, Stage, Voice};
use crate::state::State;
use crate::text::{bytes, gauges, legacy_logprobs, list, logprob, or_null, quoted, reason};
use crate::{Api, CONTEXT, Engine, Scenario};

const STACK: Stack = Stack::Uvicorn("vary: Origin\r\n");
/// Completions have an event for every token; the parsers of chat swallow those without text.
const MANNER: Manner = Manner {
    stack: STACK,
    by: By::Token,
    done: "data: [DONE]\n\n",
    done_after_error: true,
    ping: ": keep-alive\n\n",
};
const HABITS: Habits = Habits { ignores_eos: true, has_seed: true, cache_block: 1 };

/// SGLang.
#[derive(Debug, Clone, Copy)]
pub struct Sglang;

impl Engine for Sglang {
    fn name(&self) -> &'static str {
        "sglang"
    }

    fn scenarios(&self, api: Api) -> Vec<Scenario> {
        use Scenario as S;
        let mut known = vec![
            S::Normal,
            S::TooLong,
            S::QueueFull,
            S::ErrorLater,
            S::Abort,
            S::Cut,
            S::UnaskedUsage,
            S::SeveralTokens,
            S::Speculative,
            S::Burst,
            S::Deaf,
        ];
        if api == Api::Chat {
            known.extend([S::Reasoning, S::ReasoningOnly, S::ToolCalls]);
        }
        known
    }

    fn get(&self, path: &str, state: &State) -> Reply {
        match path.split('?').next().unwrap_or_default() {
            // /health generates a token when it is idle.
            "/health" | "/ready" => STACK.whole(200, "", ""),
            "/model_info" | "/get_model_info" => {
                STACK.json(200, r#"{"model_path":"/models/tiny","tokenizer_path":"/models/tiny","is_generation":true}"#)
            }
            "/server_info" | "/get_server_info" => STACK.json(
                200,
                r#"{"model_path":"/models/tiny","context_length":1024,"kv_cache_dtype":"auto","internal_states":[{"last_gen_throughput":0.0}],"version":"0.5.23"}"#,
            ),
            "/v1/models" => STACK.json(
                200,
                r#"{"object":"list","data":[{"id":"tiny","object":"model","created":1795985893,"owned_by":"sglang","root":"tiny","parent":null,"max_model_len":1024}]}"#,
            ),
            "/metrics" => {
                let labels = r#"{engine_type="unified",model_name="tiny",pp_rank="0",tp_rank="0"}"#;
                STACK.whole(
                    200,
                    "text/plain; version=0.0.4; charset=utf-8",
                    gauges(&[
                        ("sglang:num_running_reqs", labels, state.running() as f64),
                        ("sglang:num_queue_reqs", labels, 0.0),
                        ("sglang:token_usage", labels, 0.0),
                    ]),
                )
            }
            "/flush_cache" => flush(state),
            _ => STACK.json(404, r#"{"detail":"Not Found"}"#),
        }
    }

    fn post(&self, path: &str, _: &Value, state: &State) -> Reply {
        match path.split('?').next() {
            Some("/flush_cache") => flush(state),
            _ => STACK.json(404, r#"{"detail":"Not Found"}"#),
        }
    }

    fn generate(&self, api: Api, body: &[u8], state: &State) -> Reply {
        let ask = match Ask::read(api, body) {
            Ok(ask) => ask,
            Err(why) => return unreadable(why),
        };
        let scenario = Scenario::of(ask.text(), &self.scenarios(api));
        let length = ask.prompt_ids().len() as u64;
        if scenario == Scenario::TooLong || length > CONTEXT {
            let message = format!(
                "The input ({} tokens) is longer than the model's context length ({CONTEXT} tokens).",
                length.max(CONTEXT + 1)
            );
            return error(400, &message, "BadRequestError");
        }
        let by = match (api, scenario) {
            // The parser hands out a call's text in large pieces.
            (_, Scenario::ToolCalls) => By::Interval(16),
            (Api::Chat, _) => By::Text,
            (Api::Completions, _) => By::Token,
        };
        let answer = Answer::to(&ask, HABITS, state);
        let voice = Speech {
            include_usage: ask.include_usage || scenario == Scenario::UnaskedUsage,
            token_ids: ask.says("return_token_ids"),
        };
        Stage::new(&ask, answer, scenario, Manner { by, ..MANNER }).play(&voice)
    }
}

fn flush(state: &State) -> Reply {
    if state.running() > 0 {
        return STACK.whole(400, "", "Flush cache failed.\n");
    }
    state.reset_cache();
    let told = "Cache flushed.\nPlease check backend logs for more details. (When there are running or waiting requests, the operation will not be performed.)\n";
    STACK.whole(200, "", told)
}

/// Flat, not under `error`.
fn error(status: u16, message: &str, kind: &str) -> Reply {
    let message = quoted(message);
    let body =
        format!(r#"{{"object":"error","message":{message},"type":"{kind}","param":null,"code":{status}}}"#);
    STACK.json(status, &body)
}

fn unreadable(why: Unreadable) -> Reply {
    let what = match why {
        Unreadable::Json => "{'type': 'json_invalid', 'loc': ('body', 18), 'msg': 'JSON decode error'}",
        Unreadable::Field(_) => {
            "{'type': 'int_parsing', 'loc': ('body', 'max_tokens'), 'msg': 'Input should be a valid integer'}"
        }
        Unreadable::Prompt => "{'type': 'missing', 'loc': ('body', 'prompt'), 'msg': 'Field required'}",
    };
    error(400, &format!("1 validation error:\n  {what}"), "Bad Request")
}

/// What one request's events hold.
struct Speech {
    include_usage: bool,
    token_ids: bool,
}

impl Voice for Speech {
    fn open(&self, stage: &mut Stage<'_>) {
        if stage.api() == Api::Chat {
            let delta = r#"{"reasoning_content":null,"role":"assistant","content":""}"#;
            let event = chat_event(stage, delta, "null", None, "", "");
            stage.out.send(&event, Carries::nothing());
        }
    }

    fn say(&self, stage: &mut Stage<'_>, range: Range<usize>, finish: Option<&str>) {
        let Piece { tokens, text, channel } = stage.piece(&range);
        let swallowed = stage.api() == Api::Chat && text.is_empty();
        if !swallowed {
            let counts = stage.ask.continuous_usage.then(|| stage.counts(range.end as u64));
            // What a parser swallowed is in the count and not in the lists.
            let listed = if stage.manner.by == By::Text { &tokens[tokens.len() - 1..] } else { &tokens[..] };
            let shown = match counts {
                Some(_) => Some(stage.since_counted(range.end as u64)),
                None => (self.token_ids || stage.ask.logprobs).then_some(listed.len() as u64),
            };
            let ids = if self.token_ids {
                format!(r#","token_ids":[{}]"#, list(listed, |t| t.id.to_string()))
            } else {
                String::new()
            };
            let logprobs = or_null(stage.ask.logprobs.then(|| logprobs(stage.api(), listed)));
            let usage = counts.map(|usage| running(&usage));
            let event = match stage.api() {
                Api::Completions => format!(
                    "data: {{{},\"choices\":[{{\"index\":0,\"text\":{},\"logprobs\":{logprobs},\"finish_reason\":{},\"matched_stop\":{}{ids}}}],\"usage\":{}}}\n\n",
                    id(stage),
                    quoted(&text),
                    reason(finish),
                    matched(finish),
                    or_null(usage),
                ),
                Api::Chat => {
                    let usage = usage.map_or(String::new(), |usage| format!(r#","usage":{usage}"#));
                    let delta = delta(channel, &text, range.start == 0);
                    chat_event(stage, &delta, &logprobs, None, &ids, &usage)
                }
            };
            let finish = finish.filter(|_| stage.api() == Api::Completions);
            stage.out.send(&event, Carries::text(channel, &text).shows(shown).usage(counts).finish(finish));
        }
        if stage.api() == Api::Chat && finish.is_some() {
            let event = chat_event(stage, r#"{"reasoning_content":null}"#, "null", finish, "", "");
            stage.out.send(&event, Carries::nothing().finish(finish));
        }
    }

    fn end(&self, stage: &mut Stage<'_>) {
        if self.include_usage {
            let usage = stage.final_counts();
            let details = format!(r#"{{"cached_tokens":{}}}"#, stage.answer.cached);
            let last = if stage.api() == Api::Chat { r#","completion_tokens_details":null"# } else { "" };
            let event = format!(
                "data: {{{},\"choices\":[],\"usage\":{{\"prompt_tokens\":{},\"total_tokens\":{},\"completion_tokens\":{},\"prompt_tokens_details\":{details},\"reasoning_tokens\":0{last}}}}}\n\n",
                id(stage),
                usage.prompt,
                usage.prompt + usage.completion,
                usage.completion,
            );
            // An end that a parser swallowed is in the count.
            let shown = stage.ask.continuous_usage.then(|| stage.since_counted(usage.completion));
            stage.out.send(&event, Carries::nothing().usage(Some(usage)).shows(shown));
        }
        stage.done();
    }

    fn trouble(&self, stage: &Stage<'_>) -> String {
        let error = match stage.scenario {
            Scenario::QueueFull => {
                r#"{"object":"error","message":"The request queue is full.","type":"SERVICE_UNAVAILABLE","param":null,"code":503}"#
            }
            _ => {
                r#"{"object":"error","message":"Internal server error","type":"InternalServerError","param":null,"code":500}"#
            }
        };
        format!("data: {{\"error\":{error}}}\n\n")
    }
}

fn id(stage: &Stage<'_>) -> String {
    let object = match stage.api() {
        Api::Completions => "text_completion",
        Api::Chat => "chat.completion.chunk",
    };
    format!(r#""id":"{:032x}","object":"{object}","created":1795985893,"model":"tiny""#, stage.answer.number)
}

fn chat_event(
    stage: &Stage<'_>,
    delta: &str,
    logprobs: &str,
    finish: Option<&str>,
    ids: &str,
    usage: &str,
) -> String {
    format!(
        "data: {{{},\"choices\":[{{\"index\":0,\"delta\":{delta},\"logprobs\":{logprobs},\"finish_reason\":{},\"matched_stop\":{}{ids}}}]{usage}}}\n\n",
        id(stage),
        reason(finish),
        matched(finish),
    )
}

/// The token that ended it.
fn matched(finish: Option<&str>) -> &'static str {
    if finish == Some("stop") { "2" } else { "null" }
}

fn running(usage: &Usage) -> String {
    format!(
        r#"{{"prompt_tokens":{},"total_tokens":{},"completion_tokens":{},"prompt_tokens_details":null,"reasoning_tokens":0,"completion_tokens_details":null}}"#,
        usage.prompt,
        usage.prompt + usage.completion,
        usage.completion
    )
}

fn logprobs(api: Api, tokens: &[Token]) -> String {
    if api == Api::Completions {
        return legacy_logprobs(tokens, |_| -1);
    }
    let entry =
        |t: &Token| format!(r#""token":{},"bytes":{},"logprob":{}"#, quoted(&t.text), bytes(t), logprob(t));
    format!(
        r#"{{"content":[{}]}}"#,
        list(tokens, |t| format!("{{{0},\"top_logprobs\":[{{{0}}}]}}", entry(t)))
    )
}

fn delta(channel: Channel, text: &str, first: bool) -> String {
    let text = quoted(text);
    let call = if first {
        r#""id":"call_8d1b","index":0,"type":"function","function":{"name":"look_up","#
    } else {
        r#""id":null,"index":0,"type":"function","function":{"name":null,"#
    };
    match channel {
        Channel::Answer => format!(r#"{{"reasoning_content":null,"content":{text}}}"#),
        Channel::Reasoning => format!(r#"{{"reasoning_content":{text}}}"#),
        Channel::ToolCall => {
            format!(r#"{{"reasoning_content":null,"tool_calls":[{{{call}"arguments":{text}}}}}]}}"#)
        }
    }
}
