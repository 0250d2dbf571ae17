//! mistral.rs. Sources: its server's code, engine notes section 6. No recording exists.

use std::ops::Range;

use serde_json::Value;

use crate::answer::{Answer, By, Habits, Token};
use crate::ask::{Ask, Prompt};
use crate::expected::Channel;
use crate::reply::{Reply, Stack};
use crate::script::{Carries, Usage};
use crate::stage::{Manner, Piece, Stage, Voice};
use crate::state::State;
use crate::text::{bytes, gauges, logprob, or_null, quoted, reason};
use crate::{Api, CONTEXT, Engine, Scenario};

const STACK: Stack = Stack::Axum("");
const MANNER: Manner =
    Manner { stack: STACK, by: By::Text, done: "data: [DONE]\n\n", done_after_error: true, ping: ":\n\n" };
const HABITS: Habits = Habits { ignores_eos: false, has_seed: false, cache_block: 32 };

/// mistral.rs.
#[derive(Debug, Clone, Copy)]
pub struct MistralRs;

impl Engine for MistralRs {
    fn name(&self) -> &'static str {
        "mistralrs"
    }

    fn scenarios(&self, api: Api) -> Vec<Scenario> {
        use Scenario as S;
        let mut known = vec![
            S::Normal,
            S::TooLong,
            S::ErrorFirst,
            S::ErrorLater,
            // The engine's channel is closed: the stream just ends.
            S::Swallowed,
            S::Cut,
            S::KeepAlives,
        ];
        match api {
            // Older releases put a bare message into the stream.
            Api::Completions => known.push(S::BadJson),
            Api::Chat => known.extend([S::NamedEvents, S::Reasoning, S::ReasoningOnly, S::ToolCalls]),
        }
        known
    }

    fn get(&self, path: &str, state: &State) -> Reply {
        match path.split('?').next().unwrap_or_default() {
            "/health" => STACK.whole(200, "text/plain; charset=utf-8", "OK"),
            "/v1/models" => STACK.json(
                200,
                r#"{"object":"list","data":[{"id":"default","object":"model","created":1795978271,"owned_by":"local"},{"id":"tiny","object":"model","created":1795978271,"owned_by":"local","status":"loaded"}]}"#,
            ),
            "/metrics" => STACK.whole(
                200,
                "text/plain; charset=utf-8",
                gauges(&[
                    ("mistralrs_sequences_running", "", state.running() as f64),
                    ("mistralrs_sequences_waiting", "", 0.0),
                    ("mistralrs_sequences_capacity", "", 16.0),
                ]),
            ),
            "/api-doc/openapi.json" => STACK.json(
                200,
                r#"{"openapi":"3.1.0","info":{"title":"Mistral.rs","license":{"name":"MIT"},"version":""},"paths":{"/v1/completions":{},"/v1/chat/completions":{},"/health":{}},"tags":[{"name":"Mistral.rs","description":"Mistral.rs API"}]}"#,
            ),
            _ => STACK.whole(404, "", ""),
        }
    }

    fn post(&self, _: &str, _: &Value, _: &State) -> Reply {
        STACK.whole(404, "", "")
    }

    fn generate(&self, api: Api, body: &[u8], state: &State) -> Reply {
        let ask = match Ask::read(api, body) {
            Ok(ask) if !matches!(ask.prompt, Prompt::Ids(_)) => ask,
            _ => {
                let told = "Failed to deserialize the JSON body into the target type: prompt: invalid type: sequence, expected a string at line 1 column 11";
                return STACK.whole(422, "text/plain; charset=utf-8", told);
            }
        };
        let scenario = Scenario::of(ask.text(), &self.scenarios(api));
        let length = ask.prompt_ids().len() as u64;
        if scenario == Scenario::TooLong || length > CONTEXT {
            let message = format!(
                "Prompt sequence length is greater than {CONTEXT}, perhaps consider using `truncate_sequence`?"
            );
            return STACK.json(422, &format!(r#"{{"message":{}}}"#, quoted(&message)));
        }
        let answer = Answer::to(&ask, HABITS, state);
        Stage::new(&ask, answer, scenario, MANNER).play(&Speech)
    }
}

struct Speech;

impl Voice for Speech {
    fn open(&self, stage: &mut Stage<'_>) {
        if stage.scenario == Scenario::NamedEvents {
            let event = "event: agentic_tool_call_progress\ndata: {\"round\":0,\"name\":\"look_up\",\"phase\":{\"calling\":{}}}\n\n";
            stage.out.send(event, Carries::nothing());
            stage.out.send("event: file_produced\ndata: 3 files\n\n", Carries::nothing());
        }
    }

    fn say(&self, stage: &mut Stage<'_>, range: Range<usize>, finish: Option<&str>) {
        let Piece { tokens, text, channel } = stage.piece(&range);
        if text.is_empty() && finish.is_none() {
            return;
        }
        // One probability, not a list: that of the token that brought the text. It counts nothing, for tokens whose
        // text was held back come with it.
        let logprobs = stage.ask.logprobs.then(|| tokens.last().map(entry)).flatten();
        let (event, usage) = match stage.api() {
            // Completions have no usage at all.
            Api::Completions => {
                let choice = format!(
                    r#"{{"text":{},"index":0,"logprobs":{},"finish_reason":{}}}"#,
                    quoted(&text),
                    or_null(logprobs),
                    reason(finish)
                );
                (event(stage, &choice, "text_completion", ""), None)
            }
            Api::Chat => {
                let choice = format!(
                    r#"{{"finish_reason":{},"index":0,"delta":{},"logprobs":{}}}"#,
                    reason(finish),
                    delta(channel, &text),
                    or_null(logprobs)
                );
                let usage = finish.map(|_| {
                    let cached = Some(stage.answer.cached).filter(|&n| n > 0);
                    Usage { cached, ..stage.counts(stage.answer.len()) }
                });
                let told = format!(r#","usage":{}"#, or_null(usage.map(|usage| told(&usage))));
                (event(stage, &choice, "chat.completion.chunk", &told), usage)
            }
        };
        stage.out.send(&event, Carries::text(channel, &text).usage(usage).finish(finish));
    }

    fn end(&self, stage: &mut Stage<'_>) {
        stage.done();
    }

    fn trouble(&self, stage: &Stage<'_>) -> String {
        let message = "CUDA out of memory";
        match stage.scenario {
            Scenario::BadJson => format!("data: {message}\n\n"),
            _ => format!(
                "data: {{\"error\":{{\"message\":\"{message}\",\"type\":\"server_error\",\"param\":null,\"code\":null}}}}\n\n"
            ),
        }
    }
}

fn event(stage: &Stage<'_>, choice: &str, object: &str, usage: &str) -> String {
    format!(
        "data: {{\"id\":\"{}\",\"choices\":[{choice}],\"created\":1795978271,\"model\":\"tiny\",\"system_fingerprint\":\"local\",\"object\":\"{object}\"{usage}}}\n\n",
        stage.answer.number
    )
}

fn told(usage: &Usage) -> String {
    let details = usage
        .cached
        .map_or(String::new(), |n| format!(r#""prompt_tokens_details":{{"cached_tokens":{n}}},"#));
    format!(
        r#"{{"completion_tokens":{},"prompt_tokens":{},"total_tokens":{},{details}"avg_tok_per_sec":101.5,"avg_prompt_tok_per_sec":512.0,"avg_compl_tok_per_sec":80.25,"total_time_sec":0.21,"total_prompt_time_sec":0.01,"total_completion_time_sec":0.2}}"#,
        usage.completion,
        usage.prompt,
        usage.prompt + usage.completion
    )
}

fn entry(token: &Token) -> String {
    format!(
        r#"{{"token":{},"logprob":{},"bytes":{},"top_logprobs":[]}}"#,
        quoted(&token.text),
        logprob(token),
        bytes(token)
    )
}

fn delta(channel: Channel, text: &str) -> String {
    let text = quoted(text);
    match channel {
        Channel::Answer => format!(r#"{{"content":{text},"role":"assistant","tool_calls":null}}"#),
        Channel::Reasoning => {
            format!(r#"{{"content":null,"role":"assistant","tool_calls":null,"reasoning_content":{text}}}"#)
        }
        Channel::ToolCall => format!(
            r#"{{"content":null,"role":"assistant","tool_calls":[{{"index":0,"id":"8d1b","type":"function","function":{{"name":"look_up","arguments":{text}}}}}]}}"#
        ),
    }
}
