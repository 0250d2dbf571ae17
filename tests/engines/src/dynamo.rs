//! NVIDIA Dynamo's HTTP frontend. Sources: its code, engine notes section 6. No recording exists.

use std::ops::Range;

use serde_json::Value;

use crate::answer::{Answer, By, Habits, Token};
use crate::ask::Ask;
use crate::expected::Channel;
use crate::reply::{Reply, Stack};
use crate::script::{Carries, Usage};
use crate::stage::{Manner, Piece, Stage, Voice};
use crate::state::State;
use crate::text::{bytes, gauges, legacy_logprobs, list, logprob, or_null, quoted, reason};
use crate::{Api, CONTEXT, Engine, Scenario};

const STACK: Stack = Stack::Axum("");
const MANNER: Manner =
    Manner { stack: STACK, by: By::Token, done: "data: [DONE]\n\n", done_after_error: true, ping: ":\n\n" };
const HABITS: Habits = Habits { ignores_eos: true, has_seed: true, cache_block: 16 };

/// Dynamo.
#[derive(Debug, Clone, Copy)]
pub struct Dynamo;

impl Engine for Dynamo {
    fn name(&self) -> &'static str {
        "dynamo"
    }

    fn scenarios(&self, api: Api) -> Vec<Scenario> {
        use Scenario as S;
        let mut known = vec![
            S::Normal,
            S::Overload,
            S::TooLong,
            S::ErrorFirst,
            S::ErrorLater,
            S::ErrorComment,
            // A newline in an error's text made its writer panic.
            S::Cut,
            S::NullErrors,
            S::UnaskedUsage,
            S::KeepAlives,
            S::SeveralTokens,
            S::Deaf,
        ];
        if api == Api::Chat {
            known.extend([S::Reasoning, S::ReasoningOnly, S::ToolCalls]);
        }
        known
    }

    fn get(&self, path: &str, state: &State) -> Reply {
        match path.split('?').next().unwrap_or_default() {
            "/health" => STACK.json(
                200,
                r#"{"status":"healthy","message":"Service is healthy","initial_discovery_complete":true,"initial_discovery_error":null,"endpoints":["dyn://dynamo.backend.generate"],"instances":[]}"#,
            ),
            "/live" => STACK.json(200, r#"{"status":"live","message":"Service is live"}"#),
            "/v1/models" => STACK.json(
                200,
                r#"{"object":"list","data":[{"id":"tiny","object":"object","created":1795978271,"owned_by":"nvidia"}]}"#,
            ),
            "/metrics" => {
                let labels = r#"{model="tiny"}"#;
                let running = state.running() as f64;
                STACK.whole(
                    200,
                    "text/plain; charset=utf-8",
                    gauges(&[
                        ("dynamo_frontend_inflight_requests", labels, running),
                        ("dynamo_frontend_queued_requests", labels, 0.0),
                        ("dynamo_frontend_active_requests", labels, running),
                    ]),
                )
            }
            _ => STACK.whole(404, "", ""),
        }
    }

    fn post(&self, path: &str, _: &Value, state: &State) -> Reply {
        if path != "/reset_prefix_cache" && path != "/clear_kv_blocks" {
            return STACK.whole(404, "", "");
        }
        state.reset_cache();
        STACK.json(
            200,
            r#"{"cleared_workers":[{"name":"dynamo/backend-instance-1","endpoint":"dynamo/backend/reset_prefix_cache","status":"Successfully reset prefix cache for instance","response":"{\"status\":\"success\"}"}],"failed_workers":[]}"#,
        )
    }

    fn generate(&self, api: Api, body: &[u8], state: &State) -> Reply {
        let Ok(ask) = Ask::read(api, body) else {
            return flat(400, "Failed to deserialize the JSON body into the target type", "Bad Request");
        };
        let scenario = Scenario::of(ask.text(), &self.scenarios(api));
        match scenario {
            Scenario::Overload => return flat(529, "The service is temporarily overloaded", "overloaded"),
            _ if scenario == Scenario::TooLong || ask.prompt_ids().len() as u64 > CONTEXT => {
                return flat(400, "This model's maximum context length is 1024 tokens", "Bad Request");
            }
            _ => {}
        }
        let answer = Answer::to(&ask, HABITS, state);
        let voice = Speech {
            include_usage: ask.include_usage || scenario == Scenario::UnaskedUsage,
            continuous: ask.include_usage && ask.continuous_usage,
        };
        Stage::new(&ask, answer, scenario, MANNER).play(&voice)
    }
}

fn flat(status: u16, message: &str, kind: &str) -> Reply {
    STACK.json(status, &format!(r#"{{"message":{},"type":"{kind}","code":{status}}}"#, quoted(message)))
}

/// What one request's events hold.
struct Speech {
    include_usage: bool,
    /// Usage in every event.
    continuous: bool,
}

impl Voice for Speech {
    fn say(&self, stage: &mut Stage<'_>, range: Range<usize>, finish: Option<&str>) {
        let Piece { tokens, text, channel } = stage.piece(&range);
        let counts = self.continuous.then(|| stage.counts(range.end as u64));
        let logprobs = or_null(stage.ask.logprobs.then(|| logprobs(stage.api(), &tokens)));
        let choice = match stage.api() {
            Api::Completions => format!(
                r#""text":{},"index":0,"logprobs":{logprobs},"finish_reason":{}"#,
                quoted(&text),
                reason(finish)
            ),
            Api::Chat => format!(
                r#""index":0,"delta":{},"finish_reason":{},"logprobs":{logprobs}"#,
                delta(channel, &text, range.start == 0),
                reason(finish)
            ),
        };
        let event = event(stage, &format!("{{{choice}}}"), or_null(counts.map(|usage| told(&usage))));
        let shown = (self.continuous || stage.ask.logprobs).then_some(tokens.len() as u64);
        stage.out.send(&event, Carries::text(channel, &text).shows(shown).usage(counts).finish(finish));
    }

    fn end(&self, stage: &mut Stage<'_>) {
        if self.include_usage {
            let usage = stage.final_counts();
            let event = event(stage, "", told(&usage));
            stage.out.send(&event, Carries::nothing().usage(Some(usage)));
        }
        stage.done();
    }

    fn trouble(&self, stage: &Stage<'_>) -> String {
        match stage.scenario {
            Scenario::ErrorComment => "event: error\n: worker disconnected\n\n".to_owned(),
            _ => "data: {\"error\":{\"message\":\"Stream ended before generation completed\",\"type\":\"internal_server_error\",\"code\":500}}\n\n".to_owned(),
        }
    }
}

fn event(stage: &Stage<'_>, choices: &str, usage: String) -> String {
    let number = stage.answer.number;
    let error = if stage.scenario == Scenario::NullErrors { r#","error":null"# } else { "" };
    let (id, object) = match stage.api() {
        Api::Completions => ("cmpl", "text_completion"),
        Api::Chat => ("chatcmpl", "chat.completion.chunk"),
    };
    format!(
        "data: {{\"id\":\"{id}-{number:036}\",\"choices\":[{choices}],\"created\":1795978271,\"model\":\"tiny\",\"system_fingerprint\":null,\"object\":\"{object}\",\"usage\":{usage}{error}}}\n\n"
    )
}

fn told(usage: &Usage) -> String {
    let details = usage
        .cached
        .map_or("null".to_owned(), |cached| format!(r#"{{"audio_tokens":null,"cached_tokens":{cached}}}"#));
    format!(
        r#"{{"prompt_tokens":{},"completion_tokens":{},"total_tokens":{},"prompt_tokens_details":{details},"completion_tokens_details":null}}"#,
        usage.prompt,
        usage.completion,
        usage.prompt + usage.completion
    )
}

fn logprobs(api: Api, tokens: &[Token]) -> String {
    if api == Api::Completions {
        return legacy_logprobs(tokens, |i| i as i64);
    }
    let entry = |t: &Token| {
        format!(
            r#"{{"token":{},"logprob":{},"bytes":{},"top_logprobs":[]}}"#,
            quoted(&t.text),
            logprob(t),
            bytes(t)
        )
    };
    format!(r#"{{"content":[{}],"refusal":null}}"#, list(tokens, entry))
}

fn delta(channel: Channel, text: &str, first: bool) -> String {
    let said = if text.is_empty() { "null".to_owned() } else { quoted(text) };
    let none = || "null".to_owned();
    let (content, reasoning, tools) = match channel {
        Channel::Answer => (said, none(), none()),
        Channel::Reasoning => (none(), said, none()),
        Channel::ToolCall => {
            let name = if first { r#""name":"look_up","# } else { "" };
            let call = format!(
                r#"[{{"index":0,"id":"call-8d1b","type":"function","function":{{{name}"arguments":{}}}}}]"#,
                quoted(text)
            );
            (none(), none(), call)
        }
    };
    format!(
        r#"{{"content":{content},"function_call":null,"tool_calls":{tools},"role":"assistant","refusal":null,"reasoning_content":{reasoning}}}"#
    )
}
