//! Hugging Face's `transformers serve`, 5.24. Sources: recordings of a real server (`hf_*`), its code, engine notes
//! section 6.

use std::ops::Range;

use serde_json::Value;

use crate::answer::{Answer, By, Habits};
use crate::ask::{Ask, Prompt, Unreadable};
use crate::reply::{Reply, Stack};
use crate::script::Carries;
use crate::stage::{Manner, Piece, Stage, Voice};
use crate::state::State;
use crate::text::quoted;
use crate::{Api, Engine, Scenario};

const STACK: Stack = Stack::Uvicorn("x-request-id: d5582d7d-e903-4c23-abb8-2f03fd26f498\r\n");
const MANNER: Manner = Manner {
    stack: STACK,
    by: By::Text,
    // It has none.
    done: "",
    done_after_error: false,
    ping: ":\n\n",
};
const HABITS: Habits = Habits { ignores_eos: false, has_seed: true, cache_block: 1 };
/// Any other field is refused.
const FIELDS: &[&str] = &[
    "model",
    "stream",
    "generation_config",
    "processor",
    "seed",
    "temperature",
    "top_p",
    "max_tokens",
    "frequency_penalty",
    "stop",
    "tools",
    "logit_bias",
    // Heeded by nobody, with a warning.
    "logprobs",
    "top_logprobs",
    "n",
    "stream_options",
    "tool_choice",
    "presence_penalty",
    "user",
    "best_of",
    "echo",
    "max_completion_tokens",
    "response_format",
    "reasoning_effort",
];

/// `transformers serve`.
#[derive(Debug, Clone, Copy)]
pub struct Transformers;

impl Engine for Transformers {
    fn name(&self) -> &'static str {
        "transformers"
    }

    fn scenarios(&self, _: Api) -> Vec<Scenario> {
        use Scenario as S;
        vec![S::Normal, S::Overload, S::ErrorFirst, S::ErrorLater, S::BadJson, S::Cut, S::OneChunk, S::Burst]
    }

    fn get(&self, path: &str, _: &State) -> Reply {
        match path.split('?').next().unwrap_or_default() {
            "/health" => STACK.json(200, r#"{"status":"ok"}"#),
            "/v1/models" => STACK.json(
                200,
                r#"{"object":"list","data":[{"owned_by":"models","id":"tiny","object":"model","created":1795978271.5}]}"#,
            ),
            "/openapi.json" => STACK.json(
                200,
                r#"{"openapi":"3.1.0","info":{"title":"FastAPI","version":"0.1.0"},"paths":{"/v1/chat/completions":{"post":{}},"/v1/completions":{"post":{}},"/v1/responses":{"post":{}},"/load_model":{"post":{}},"/reset":{"post":{}},"/v1/models":{"get":{}},"/health":{"get":{}}}}"#,
            ),
            _ => STACK.json(404, r#"{"detail":"Not Found"}"#),
        }
    }

    fn post(&self, path: &str, _: &Value, state: &State) -> Reply {
        if path != "/reset" {
            return STACK.json(404, r#"{"detail":"Not Found"}"#);
        }
        state.reset_cache();
        STACK.json(200, r#"{"status":"ok"}"#)
    }

    fn generate(&self, api: Api, body: &[u8], state: &State) -> Reply {
        let ask = match Ask::read(api, body) {
            Ok(ask) if matches!(ask.prompt, Prompt::Ids(_)) => return not_a_string(),
            Ok(ask) => ask,
            Err(Unreadable::Prompt) => return not_a_string(),
            Err(_) => {
                return STACK.json(
                    422,
                    r#"{"detail":[{"type":"json_invalid","loc":["body",2],"msg":"JSON decode error","input":{}}]}"#,
                );
            }
        };
        let prompt = if api == Api::Chat { "messages" } else { "prompt" };
        let known = |field: &String| FIELDS.contains(&field.as_str()) || field == prompt;
        let unknown: Vec<String> =
            ask.fields.keys().filter(|f| !known(f)).map(|f| format!("'{f}'")).collect();
        if !unknown.is_empty() {
            let told = format!("Unexpected fields in the request: {{{}}}", unknown.join(", "));
            return STACK.json(422, &format!(r#"{{"detail":{}}}"#, quoted(&told)));
        }
        let scenario = Scenario::of(ask.text(), &self.scenarios(api));
        if scenario == Scenario::Overload {
            return STACK
                .json(503, r#"{"error":"The continuous batching worker has died: CUDA out of memory"}"#);
        }
        let answer = Answer::to(&ask, HABITS, state);
        Stage::new(&ask, answer, scenario, MANNER).play(&Speech)
    }
}

fn not_a_string() -> Reply {
    STACK.json(400, r#"{"detail":"prompt must be a string."}"#)
}

struct Speech;

impl Voice for Speech {
    fn open(&self, stage: &mut Stage<'_>) {
        if stage.api() == Api::Chat {
            // Before there is any token.
            let event = event(stage, r#""delta":{"role":"assistant"},"index":0"#, "");
            stage.out.send(&event, Carries::nothing());
        }
    }

    fn say(&self, stage: &mut Stage<'_>, range: Range<usize>, _: Option<&str>) {
        let Piece { text, channel, .. } = stage.piece(&range);
        if text.is_empty() {
            return;
        }
        let choice = match stage.api() {
            Api::Completions => format!(r#""index":0,"text":{}"#, quoted(&text)),
            Api::Chat => format!(r#""delta":{{"content":{}}},"index":0"#, quoted(&text)),
        };
        let event = event(stage, &choice, "");
        stage.out.send(&event, Carries::text(channel, &text));
    }

    fn end(&self, stage: &mut Stage<'_>) {
        let finish = stage.answer.finish;
        let usage = stage.counts(stage.answer.len());
        let told = format!(
            r#","usage":{{"completion_tokens":{},"prompt_tokens":{},"total_tokens":{}}}"#,
            usage.completion,
            usage.prompt,
            usage.prompt + usage.completion
        );
        let choice = match stage.api() {
            Api::Completions => format!(r#""finish_reason":"{finish}","index":0,"text":"""#),
            Api::Chat => format!(r#""delta":{{}},"index":0,"finish_reason":"{finish}""#),
        };
        let event = event(stage, &choice, &told);
        stage.out.send(&event, Carries::nothing().usage(Some(usage)).finish(Some(finish)));
    }

    fn trouble(&self, stage: &Stage<'_>) -> String {
        // Written without escapes.
        let message = match stage.scenario {
            Scenario::BadJson => "Could not load \"tiny\"",
            _ => "CUDA out of memory",
        };
        format!("data: {{\"error\": \"{message}\"}}\n\n")
    }
}

fn event(stage: &Stage<'_>, choice: &str, usage: &str) -> String {
    let id = format!("d5582d7d-e903-4c23-abb8-{:012x}", stage.answer.number);
    match stage.api() {
        Api::Completions => format!(
            "data: {{\"id\":\"{id}\",\"choices\":[{{{choice}}}],\"created\":1795979176,\"model\":\"tiny\",\"object\":\"text_completion\"{usage}}}\n\n"
        ),
        Api::Chat => format!(
            "data: {{\"id\":\"{id}\",\"choices\":[{{{choice}}}],\"created\":1795979174,\"model\":\"tiny\",\"object\":\"chat.completion.chunk\",\"system_fingerprint\":\"\"{usage}}}\n\n"
        ),
    }
}
