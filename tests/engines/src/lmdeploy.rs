//! LMDeploy 0.18, started with `--enable-metrics`. Sources: its API server's code, engine notes section 6. No recording
//! exists.

use std::ops::Range;

use serde_json::Value;

use crate::answer::{Answer, By, Habits, Token};
use crate::ask::{Ask, Prompt};
use crate::expected::{Channel, Outcome};
use crate::reply::{Reply, Stack};
use crate::script::{Carries, Script};
use crate::stage::{Manner, Piece, Stage, Voice};
use crate::state::State;
use crate::text::{ascii_quoted, bytes, gauges, list, logprob, quoted};
use crate::{Api, CONTEXT, Engine, Scenario};

const STACK: Stack = Stack::Uvicorn("");
const MANNER: Manner =
    Manner { stack: STACK, by: By::Token, done: "data: [DONE]\n\n", done_after_error: true, ping: ":\n\n" };
const HABITS: Habits = Habits { ignores_eos: true, has_seed: true, cache_block: 64 };

/// LMDeploy.
#[derive(Debug, Clone, Copy)]
pub struct LmDeploy;

impl Engine for LmDeploy {
    fn name(&self) -> &'static str {
        "lmdeploy"
    }

    fn scenarios(&self, api: Api) -> Vec<Scenario> {
        use Scenario as S;
        let mut known =
            vec![S::Normal, S::TooLong, S::ErrorFirst, S::ErrorLater, S::Cut, S::NoUsage, S::OneChunk];
        if api == Api::Chat {
            known.extend([S::Reasoning, S::ReasoningOnly, S::ToolCalls]);
        }
        known
    }

    fn get(&self, path: &str, state: &State) -> Reply {
        match path.split('?').next().unwrap_or_default() {
            "/health" => STACK.json(200, r#"{"status":"healthy","message":"Engine is healthy."}"#),
            "/v1/models" => STACK.json(
                200,
                r#"{"object":"list","data":[{"id":"tiny","object":"model","created":1795978271,"owned_by":"lmdeploy","root":"tiny","parent":null,"permission":[]}]}"#,
            ),
            "/metrics" => {
                let labels = r#"{engine="0",model_name="tiny"}"#;
                STACK.whole(
                    200,
                    "text/plain; version=0.0.4; charset=utf-8",
                    gauges(&[
                        ("lmdeploy:num_requests_running", labels, state.running() as f64),
                        ("lmdeploy:num_requests_waiting", labels, 0.0),
                        ("lmdeploy:gpu_cache_usage_perc", labels, 0.0),
                    ]),
                )
            }
            "/is_sleeping" => STACK.json(200, r#"{"is_sleeping":false}"#),
            _ => STACK.json(404, r#"{"detail":"Not Found"}"#),
        }
    }

    fn post(&self, _: &str, _: &Value, _: &State) -> Reply {
        STACK.json(404, r#"{"detail":"Not Found"}"#)
    }

    fn generate(&self, api: Api, body: &[u8], state: &State) -> Reply {
        let ask = match Ask::read(api, body) {
            Ok(ask) if !matches!(ask.prompt, Prompt::Ids(_)) => ask,
            _ => {
                return STACK.json(
                    422,
                    r#"{"detail":[{"type":"string_type","loc":["body","prompt"],"msg":"Input should be a valid string"}]}"#,
                );
            }
        };
        let scenario = Scenario::of(ask.text(), &self.scenarios(api));
        if scenario == Scenario::TooLong || ask.prompt_ids().len() as u64 > CONTEXT {
            return STACK.json(
                400,
                r#"{"message":"The token sequence length exceeds the session length 1024.","type":"invalid_request_error","code":400,"param":null,"object":"error"}"#,
            );
        }
        let answer = Answer::to(&ask, HABITS, state);
        if ask.logprobs && api == Api::Completions {
            // "logprobs is removed": an exception when the first token comes, and the stream is cut.
            return Script::new(STACK).cut(Outcome::TruncatedStream, 1);
        }
        Stage::new(&ask, answer, scenario, MANNER).play(&Speech)
    }
}

struct Speech;

impl Voice for Speech {
    fn say(&self, stage: &mut Stage<'_>, range: Range<usize>, finish: Option<&str>) {
        let Piece { tokens, text, channel } = stage.piece(&range);
        let logprobs = stage.ask.logprobs && stage.api() == Api::Chat;
        // As Python's `json.dumps` writes it, without what is none.
        let choice = match stage.api() {
            Api::Completions => format!("\"index\": 0, \"text\": {}", ascii_quoted(&text)),
            Api::Chat => format!("\"index\": 0, \"delta\": {}", delta(channel, &text, range.start == 0)),
        };
        let finished = finish.map_or(String::new(), |f| format!(", \"finish_reason\": \"{f}\""));
        let listed = if logprobs { format!(", \"logprobs\": {}", listed(&tokens)) } else { String::new() };
        let usage = if stage.ask.include_usage { ", \"usage\": null" } else { "" };
        let event =
            format!("data: {{{}, \"choices\": [{{{choice}{listed}{finished}}}]{usage}}}\n\n", id(stage, " "));
        let shown = logprobs.then_some(tokens.len() as u64);
        stage.out.send(&event, Carries::text(channel, &text).shows(shown).finish(finish));
    }

    fn end(&self, stage: &mut Stage<'_>) {
        if stage.ask.include_usage && stage.scenario != Scenario::NoUsage {
            let usage = stage.counts(stage.answer.len());
            let (prompt, completion) = (usage.prompt, usage.completion);
            let total = prompt + completion;
            let event = match stage.api() {
                Api::Completions => format!(
                    "data: {{{}, \"choices\": [], \"usage\": {{\"prompt_tokens\": {prompt}, \"total_tokens\": {total}, \"completion_tokens\": {completion}}}}}\n\n",
                    id(stage, " ")
                ),
                // Here pydantic writes it: no blanks.
                Api::Chat => format!(
                    "data: {{{},\"choices\":[],\"usage\":{{\"prompt_tokens\":{prompt},\"total_tokens\":{total},\"completion_tokens\":{completion}}}}}\n\n",
                    id(stage, "")
                ),
            };
            stage.out.send(&event, Carries::nothing().usage(Some(usage)));
        }
        stage.done();
    }

    fn trouble(&self, _: &Stage<'_>) -> String {
        let message = quoted("Internal error happened. out of memory");
        format!(
            "data: {{\"error\": {{\"message\": {message}, \"type\": \"internal_error\", \"code\": 500, \"param\": null, \"object\": \"error\"}}}}\n\n"
        )
    }
}

/// With this behind each colon and comma.
fn id(stage: &Stage<'_>, blank: &str) -> String {
    let number = stage.answer.number;
    let (id, object) = match stage.api() {
        Api::Completions => (format!("{number}"), "text_completion"),
        Api::Chat => (format!("chatcmpl-{number:022}"), "chat.completion.chunk"),
    };
    let fields = [("id", id.as_str()), ("object", object), ("created", "1795978271"), ("model", "tiny")];
    let show = |(name, value): (&str, &str)| {
        let quote = if name == "created" { "" } else { "\"" };
        format!("\"{name}\":{blank}{quote}{value}{quote}")
    };
    fields.map(show).join(&format!(",{blank}"))
}

fn listed(tokens: &[Token]) -> String {
    let entry = |t: &Token| {
        let whole = format!(
            "\"token\": {}, \"bytes\": {}, \"logprob\": {}",
            ascii_quoted(&t.text),
            bytes(t),
            logprob(t)
        );
        format!("{{{whole}, \"top_logprobs\": [{{{whole}}}]}}")
    };
    format!("{{\"content\": [{}]}}", list(tokens, entry))
}

fn delta(channel: Channel, text: &str, first: bool) -> String {
    let text = ascii_quoted(text);
    match channel {
        Channel::Answer => format!("{{\"role\": \"assistant\", \"content\": {text}}}"),
        Channel::Reasoning => format!("{{\"role\": \"assistant\", \"reasoning_content\": {text}}}"),
        Channel::ToolCall => {
            let name = if first { "\"name\": \"look_up\", " } else { "" };
            format!(
                "{{\"role\": \"assistant\", \"tool_calls\": [{{\"id\": \"chatcmpl-tool-8d1b\", \"index\": 0, \"type\": \"function\", \"function\": {{{name}\"arguments\": {text}}}}}]}}"
            )
        }
    }
}
