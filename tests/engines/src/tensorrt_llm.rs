//! TensorRT-LLM's trtllm-serve, started with `return_perf_metrics: true`. Sources: its OpenAI server, request models and
//! postprocessing, engine notes section 5. No recording exists.

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

const STACK: Stack = Stack::Uvicorn("");
const MANNER: Manner =
    Manner { stack: STACK, by: By::Token, done: "data: [DONE]\n\n", done_after_error: false, ping: ":\n\n" };
const HABITS: Habits = Habits { ignores_eos: true, has_seed: true, cache_block: 32 };
/// Its request models forbid any other field.
const FIELDS: &[&str] = &[
    "model",
    "prompt",
    "messages",
    "max_tokens",
    "max_completion_tokens",
    "stream",
    "stream_options",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "n",
    "best_of",
    "seed",
    "stop",
    "stop_token_ids",
    "logprobs",
    "top_logprobs",
    "logit_bias",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "length_penalty",
    "echo",
    "suffix",
    "user",
    "ignore_eos",
    "min_tokens",
    "use_beam_search",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "include_stop_str_in_output",
    "truncate_prompt_tokens",
    "add_special_tokens",
    "detokenize",
    "response_format",
    "tools",
    "tool_choice",
    "lora_request",
    "disaggregated_params",
    "chat_template_kwargs",
    "reasoning_effort",
];

/// TensorRT-LLM.
#[derive(Debug, Clone, Copy)]
pub struct TensorRtLlm;

impl Engine for TensorRtLlm {
    fn name(&self) -> &'static str {
        "tensorrt-llm"
    }

    fn scenarios(&self, api: Api) -> Vec<Scenario> {
        use Scenario as S;
        // An exception in the middle is raised again: no error event, no end mark.
        let mut known = vec![
            S::Normal,
            S::TooLong,
            S::Cut,
            S::SeveralTokens,
            S::Speculative,
            S::BrokenCharacters,
            S::OneChunk,
        ];
        if api == Api::Chat {
            known.extend([S::Reasoning, S::ReasoningOnly]);
        }
        known
    }

    fn get(&self, path: &str, state: &State) -> Reply {
        match path.split('?').next().unwrap_or_default() {
            "/health" => STACK.whole(200, "", ""),
            "/version" => STACK.json(200, r#"{"version":"1.2.0"}"#),
            "/v1/models" => STACK.json(
                200,
                r#"{"object":"list","data":[{"id":"tiny","object":"model","created":1795978271,"owned_by":"tensorrt_llm"}]}"#,
            ),
            "/server_info" => STACK.json(200, r#"{"disaggregated_params":null}"#),
            // Iterations since the last look.
            "/metrics" | "/kv_cache_events" => STACK.json(200, "[]"),
            "/prometheus/metrics" => {
                let labels = r#"{engine_type="trtllm",model_name="tiny"}"#;
                STACK.whole(
                    200,
                    "text/plain; version=0.0.4; charset=utf-8",
                    gauges(&[
                        ("trtllm_num_requests_running", labels, state.running() as f64),
                        ("trtllm_num_requests_waiting", labels, 0.0),
                        ("trtllm_kv_cache_utilization", labels, 0.0),
                    ]),
                )
            }
            _ => STACK.json(404, r#"{"detail":"Not Found"}"#),
        }
    }

    fn post(&self, _: &str, _: &Value, _: &State) -> Reply {
        STACK.json(404, r#"{"detail":"Not Found"}"#)
    }

    fn generate(&self, api: Api, body: &[u8], state: &State) -> Reply {
        let ask = match Ask::read(api, body) {
            Ok(ask) => ask,
            Err(Unreadable::Json) => return invalid("body: JSON decode error"),
            Err(_) => return invalid("body: Input should be valid"),
        };
        if let Some(field) = ask.fields.keys().find(|field| !FIELDS.contains(&field.as_str())) {
            return invalid(&format!("body.{field}: Extra inputs are not permitted"));
        }
        let scenario = Scenario::of(ask.text(), &self.scenarios(api));
        let length = ask.prompt_ids().len() as u64;
        if scenario == Scenario::TooLong || length > CONTEXT {
            let message =
                format!("The sum of prompt length ({length}) and max_tokens should not exceed {CONTEXT}");
            let body = format!(
                r#"{{"object":"error","message":{},"type":"BadRequestError","param":null,"code":400}}"#,
                quoted(&message)
            );
            return STACK.json(400, &body);
        }
        let answer = Answer::to(&ask, HABITS, state);
        let voice = Speech { continuous: ask.include_usage && ask.continuous_usage };
        Stage::new(&ask, answer, scenario, MANNER).play(&voice)
    }
}

/// A validation error is a string.
fn invalid(what: &str) -> Reply {
    STACK.json(400, &format!(r#"{{"error":{}}}"#, quoted(&format!("1 validation error: {what}"))))
}

/// What one request's events hold.
struct Speech {
    /// Usage in every event.
    continuous: bool,
}

impl Voice for Speech {
    fn open(&self, stage: &mut Stage<'_>) {
        if stage.api() == Api::Completions {
            return;
        }
        let counts = self.continuous.then(|| Usage { cached: Some(stage.answer.cached), ..stage.counts(0) });
        let usage = counts.map_or(String::new(), |usage| format!(r#","usage":{}"#, told(&usage)));
        // With a blank before the line end.
        let event = format!(
            "data: {{{},\"choices\":[{{\"index\":0,\"delta\":{{\"role\":\"assistant\"}}}}]{usage}}} \n\n",
            id(stage, "chatcmpl", "chat.completion.chunk")
        );
        stage.out.send(&event, Carries::nothing().usage(counts).shows(counts.map(|_| 0)));
    }

    fn say(&self, stage: &mut Stage<'_>, range: Range<usize>, finish: Option<&str>) {
        let Piece { tokens, text, channel } = stage.piece(&range);
        let counts = self
            .continuous
            .then(|| Usage { cached: Some(stage.answer.cached), ..stage.counts(range.end as u64) });
        let usage = counts.map(|usage| told(&usage));
        let logprobs = stage.ask.logprobs.then(|| logprobs(stage.api(), &tokens));
        let per_iteration = format!(r#""avg_decoded_tokens_per_iter":{:.1}"#, tokens.len() as f64);
        let event = match stage.api() {
            Api::Completions => format!(
                "data: {{{},\"choices\":[{{\"index\":0,\"text\":{},\"token_ids\":null,\"logprobs\":{},\"context_logits\":null,\"finish_reason\":{},\"stop_reason\":null,\"disaggregated_params\":null,{per_iteration}}}],\"usage\":{}}}\n\n",
                id(stage, "cmpl", "text_completion"),
                quoted(&text),
                or_null(logprobs),
                reason(finish),
                or_null(usage),
            ),
            Api::Chat => format!(
                "data: {{{},\"choices\":[{{\"index\":0,\"delta\":{}{}{},{per_iteration}}}]{}}}\n\n",
                id(stage, "chatcmpl", "chat.completion.chunk"),
                delta(channel, &text),
                logprobs.map_or(String::new(), |l| format!(r#","logprobs":{l}"#)),
                finish.map_or(String::new(), |f| format!(r#","finish_reason":"{f}""#)),
                usage.map_or(String::new(), |u| format!(r#","usage":{u}"#)),
            ),
        };
        let shown = (self.continuous || stage.ask.logprobs).then_some(tokens.len() as u64);
        stage.out.send(&event, Carries::text(channel, &text).shows(shown).usage(counts).finish(finish));
    }

    fn end(&self, stage: &mut Stage<'_>) {
        if stage.ask.include_usage {
            let usage = stage.final_counts();
            let prefix = if stage.api() == Api::Chat { "chatcmpl" } else { "cmpl" };
            // The last event is one of chat at both endpoints.
            let event = format!(
                "data: {{{},\"choices\":[],\"usage\":{}}}\n\n",
                id(stage, prefix, "chat.completion.chunk"),
                told(&usage)
            );
            stage.out.send(&event, Carries::nothing().usage(Some(usage)));
        }
        stage.done();
    }

    fn trouble(&self, _: &Stage<'_>) -> String {
        String::new()
    }
}

fn id(stage: &Stage<'_>, prefix: &str, object: &str) -> String {
    format!(
        r#""id":"{prefix}-{:032x}","object":"{object}","created":1795978271,"model":"tiny""#,
        stage.answer.number
    )
}

fn told(usage: &Usage) -> String {
    format!(
        r#"{{"prompt_tokens":{},"total_tokens":{},"completion_tokens":{},"prompt_tokens_details":{{"cached_tokens":{}}}}}"#,
        usage.prompt,
        usage.prompt + usage.completion,
        usage.completion,
        usage.cached.unwrap_or(0),
    )
}

fn logprobs(api: Api, tokens: &[Token]) -> String {
    if api == Api::Completions {
        return legacy_logprobs(tokens, |i| i as i64);
    }
    let entry = |t: &Token| {
        format!(r#"{{"token":{},"logprob":{},"bytes":{}}}"#, quoted(&t.text), logprob(t), bytes(t))
    };
    format!(r#"{{"content":[{}]}}"#, list(tokens, entry))
}

fn delta(channel: Channel, text: &str) -> String {
    let text = quoted(text);
    match channel {
        Channel::Reasoning => format!(r#"{{"content":"","reasoning_content":{text}}}"#),
        _ => format!(r#"{{"content":{text},"reasoning_content":""}}"#),
    }
}
