//! Hugging Face's Text Generation Inference, 3.3. Sources: its router's code, engine notes section 6. No recording
//! exists.

use std::ops::Range;

use serde_json::Value;

use crate::answer::{Answer, By, Habits, Token};
use crate::ask::{Ask, Prompt};
use crate::expected::Channel;
use crate::reply::{Reply, Stack};
use crate::script::Carries;
use crate::stage::{Manner, Piece, Stage, Voice};
use crate::state::State;
use crate::text::{gauges, list, logprob, or_null, quoted, reason};
use crate::{Api, CONTEXT, Engine, Scenario};

const STACK: Stack = Stack::Axum("x-accel-buffering: no\r\n");
const MANNER: Manner =
    Manner { stack: STACK, by: By::Token, done: "data: [DONE]\n\n", done_after_error: true, ping: ":\n\n" };
const HABITS: Habits = Habits { ignores_eos: false, has_seed: true, cache_block: 1 };

/// Text Generation Inference.
#[derive(Debug, Clone, Copy)]
pub struct Tgi;

impl Engine for Tgi {
    fn name(&self) -> &'static str {
        "tgi"
    }

    fn scenarios(&self, api: Api) -> Vec<Scenario> {
        use Scenario as S;
        let mut known = vec![
            S::Normal,
            S::TooLong,
            S::QueueFull,
            S::ErrorLater,
            S::Cut,
            S::NoDone,
            S::NoFinish,
            S::NoSpace,
            S::KeepAlives,
        ];
        if api == Api::Chat {
            known.push(S::ToolCalls);
        }
        known
    }

    fn get(&self, path: &str, state: &State) -> Reply {
        match path.split('?').next().unwrap_or_default() {
            "/health" | "/" => STACK.whole(200, "", ""),
            "/info" => STACK.json(
                200,
                r#"{"model_id":"tiny","model_sha":null,"model_pipeline_tag":"text-generation","max_concurrent_requests":128,"max_best_of":2,"max_stop_sequences":4,"max_input_tokens":1023,"max_total_tokens":1024,"validation_workers":2,"max_client_batch_size":4,"router":"text-generation-router","version":"3.3.4","sha":"9f38d93","docker_label":"sha-9f38d93"}"#,
            ),
            "/v1/models" => STACK.json(
                200,
                r#"{"object":"list","data":[{"id":"tiny","object":"model","created":0,"owned_by":"tiny"}]}"#,
            ),
            "/metrics" => STACK.whole(
                200,
                "text/plain",
                gauges(&[("tgi_batch_current_size", "", state.running() as f64), ("tgi_queue_size", "", 0.0)]),
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
                let told = "Failed to deserialize the JSON body into the target type: prompt: data did not match any variant of untagged enum Prompt at line 1 column 9";
                return STACK.whole(422, "text/plain; charset=utf-8", told);
            }
        };
        let scenario = Scenario::of(ask.text(), &self.scenarios(api));
        let length = ask.prompt_ids().len() as u64;
        if scenario == Scenario::TooLong || length > CONTEXT {
            let message = format!(
                "Input validation error: `inputs` tokens + `max_new_tokens` must be <= {CONTEXT}. Given: {length} `inputs` tokens"
            );
            return STACK
                .json(422, &format!(r#"{{"error":{},"error_type":"validation"}}"#, quoted(&message)));
        }
        let answer = Answer::to(&ask, HABITS, state);
        Stage::new(&ask, answer, scenario, MANNER).play(&Speech)
    }
}

struct Speech;

impl Voice for Speech {
    fn say(&self, stage: &mut Stage<'_>, range: Range<usize>, finish: Option<&str>) {
        let Piece { tokens, text, channel } = stage.piece(&range);
        let finish = finish.filter(|_| stage.scenario != Scenario::NoFinish);
        match stage.api() {
            Api::Completions => {
                // An empty reason until the last token, whose event has the usage.
                let usage = finish.map(|_| stage.counts(stage.answer.len()));
                let told = usage.map_or(String::new(), |usage| {
                    format!(
                        r#","usage":{{"prompt_tokens":{},"completion_tokens":{},"total_tokens":{}}}"#,
                        usage.prompt,
                        usage.completion,
                        usage.prompt + usage.completion
                    )
                });
                let event = format!(
                    "{}{{\"object\":\"text_completion\",\"id\":\"\",\"created\":1795978271,\"choices\":[{{\"index\":0,\"text\":{},\"logprobs\":null,\"finish_reason\":{}}}],\"model\":\"tiny\",\"system_fingerprint\":\"3.3.4-sha-9f38d93\"{told}}}\n\n",
                    field(stage),
                    quoted(&text),
                    quoted(finish.unwrap_or_default()),
                );
                stage.out.send(&event, Carries::text(channel, &text).usage(usage).finish(finish));
            }
            Api::Chat => {
                let logprobs = stage.ask.logprobs.then(|| listed(&tokens));
                let choice = format!(
                    r#"{{"index":0,"delta":{},"logprobs":{},"finish_reason":{}}}"#,
                    delta(channel, &text, range.start == 0),
                    or_null(logprobs),
                    reason(finish)
                );
                let event = chat(stage, &choice, "null");
                let shown = stage.ask.logprobs.then_some(tokens.len() as u64);
                stage.out.send(&event, Carries::text(channel, &text).shows(shown).finish(finish));
            }
        }
    }

    fn end(&self, stage: &mut Stage<'_>) {
        if stage.ask.include_usage && stage.api() == Api::Chat {
            let usage = stage.counts(stage.answer.len());
            let told = format!(
                r#"{{"prompt_tokens":{},"completion_tokens":{},"total_tokens":{}}}"#,
                usage.prompt,
                usage.completion,
                usage.prompt + usage.completion
            );
            let event = chat(stage, "", &told);
            stage.out.send(&event, Carries::nothing().usage(Some(usage)));
        }
        match stage.scenario {
            Scenario::NoDone => {}
            Scenario::NoSpace => stage.out.done("data:[DONE]\n\n"),
            _ => stage.done(),
        }
    }

    fn trouble(&self, stage: &Stage<'_>) -> String {
        let message = match stage.scenario {
            Scenario::QueueFull => "Model is overloaded",
            _ => "Request failed during generation: Server error: CUDA out of memory",
        };
        format!("data: {{\"error\":{{\"message\":\"{message}\",\"http_status_code\":422}}}}\n\n")
    }
}

fn field(stage: &Stage<'_>) -> &'static str {
    if stage.scenario == Scenario::NoSpace { "data:" } else { "data: " }
}

fn chat(stage: &Stage<'_>, choices: &str, usage: &str) -> String {
    format!(
        "{}{{\"object\":\"chat.completion.chunk\",\"id\":\"\",\"created\":1795978271,\"model\":\"tiny\",\"system_fingerprint\":\"3.3.4-sha-9f38d93\",\"choices\":[{choices}],\"usage\":{usage}}}\n\n",
        field(stage)
    )
}

fn listed(tokens: &[Token]) -> String {
    let entry =
        |t: &Token| format!(r#"{{"token":{},"logprob":{},"top_logprobs":[]}}"#, quoted(&t.text), logprob(t));
    format!(r#"{{"content":[{}]}}"#, list(tokens, entry))
}

fn delta(channel: Channel, text: &str, first: bool) -> String {
    let text = quoted(text);
    let name = if first { r#""look_up""# } else { "null" };
    match channel {
        Channel::ToolCall => format!(
            r#"{{"role":"assistant","tool_calls":[{{"index":0,"id":"","type":"function","function":{{"name":{name},"arguments":{text}}}}}]}}"#
        ),
        _ => format!(r#"{{"role":"assistant","content":{text}}}"#),
    }
}
