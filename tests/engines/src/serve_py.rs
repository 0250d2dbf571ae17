//! A `serve.py` of one's own: the few lines of FastAPI that somebody writes around a model, with the oddities that such
//! servers, gateways and forks are reported to have. It is no engine that Plimsoll knows by name.

use std::ops::Range;

use serde_json::Value;

use crate::answer::{Answer, By, Habits};
use crate::ask::{Ask, Prompt};
use crate::reply::{Reply, Stack};
use crate::script::Carries;
use crate::stage::{Manner, Piece, Stage, Voice};
use crate::state::State;
use crate::text::{ascii_quoted, reason};
use crate::{Api, Engine, Scenario};

const STACK: Stack = Stack::Uvicorn("");
const MANNER: Manner = Manner {
    stack: STACK,
    by: By::Text,
    done: "data: [DONE]\n\n",
    done_after_error: false,
    ping: ": ping\n\n",
};
const HABITS: Habits = Habits { ignores_eos: true, has_seed: true, cache_block: 1 };

/// A server of one's own.
#[derive(Debug, Clone, Copy)]
pub struct ServePy;

impl Engine for ServePy {
    fn name(&self) -> &'static str {
        "serve_py"
    }

    fn scenarios(&self, _: Api) -> Vec<Scenario> {
        use Scenario as S;
        vec![
            S::Normal,
            S::Overload,
            S::ErrorFirst,
            S::ErrorLater,
            S::ErrorComment,
            S::DoneOnly,
            S::Cut,
            S::Swallowed,
            S::NoDone,
            S::KeepAlives,
            S::NoUsage,
            S::UnaskedUsage,
            S::UsageWithoutChoices,
            S::NullErrors,
            S::BadCounts,
            S::NotAStream,
            S::Burst,
            S::OneChunk,
            S::CutEvents,
            S::Crlf,
            S::Cr,
            S::NoSpace,
        ]
    }

    fn get(&self, path: &str, _: &State) -> Reply {
        match path.split('?').next().unwrap_or_default() {
            "/v1/models" => STACK.json(
                200,
                r#"{"object":"list","data":[{"id":"tiny","object":"model","created":1795978271,"owned_by":"me"}]}"#,
            ),
            "/openapi.json" => STACK.json(
                200,
                r#"{"openapi":"3.1.0","info":{"title":"FastAPI","version":"0.1.0"},"paths":{"/v1/models":{"get":{}},"/v1/completions":{"post":{}},"/v1/chat/completions":{"post":{}}}}"#,
            ),
            _ => STACK.json(404, r#"{"detail":"Not Found"}"#),
        }
    }

    fn post(&self, _: &str, _: &Value, _: &State) -> Reply {
        STACK.json(404, r#"{"detail":"Not Found"}"#)
    }

    fn generate(&self, api: Api, body: &[u8], state: &State) -> Reply {
        let ask = match Ask::read(api, body) {
            Ok(ask) if !matches!(ask.prompt, Prompt::Ids(_)) => ask,
            // It throws.
            _ => return STACK.whole(500, "text/plain; charset=utf-8", "Internal Server Error"),
        };
        let scenario = Scenario::of(ask.text(), &self.scenarios(api));
        match scenario {
            Scenario::Overload => {
                return STACK.whole(500, "text/plain; charset=utf-8", "Internal Server Error");
            }
            Scenario::NotAStream => {
                return STACK.json(
                    200,
                    r#"{"object":"text_completion","choices":[{"index":0,"text":"all of it","finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":3}}"#,
                );
            }
            _ => {}
        }
        let answer = Answer::to(&ask, HABITS, state);
        Stage::new(&ask, answer, scenario, MANNER).play(&Speech)
    }
}

struct Speech;

impl Voice for Speech {
    fn open(&self, stage: &mut Stage<'_>) {
        if stage.api() == Api::Chat {
            let choice = "{\"index\": 0, \"delta\": {\"role\": \"assistant\", \"content\": null}, \"finish_reason\": null}";
            let event = event(stage, &object(stage, choice, ""));
            stage.out.send(&event, Carries::nothing());
        }
    }

    fn say(&self, stage: &mut Stage<'_>, range: Range<usize>, _: Option<&str>) {
        let Piece { text, channel, .. } = stage.piece(&range);
        if text.is_empty() && !range.is_empty() {
            return;
        }
        let choice = choice(stage, &text, None);
        let event = event(stage, &object(stage, &choice, ""));
        stage.out.send(&event, Carries::text(channel, &text));
    }

    fn end(&self, stage: &mut Stage<'_>) {
        let finish = Some(stage.answer.finish);
        let choice = choice(stage, "", finish);
        let last = event(stage, &object(stage, &choice, ""));
        stage.out.send(&last, Carries::nothing().finish(finish));
        let unasked = stage.scenario == Scenario::UnaskedUsage;
        if (stage.ask.include_usage || unasked) && stage.scenario != Scenario::NoUsage {
            let usage = stage.counts(stage.answer.len());
            let told = format!(
                "\"usage\": {{\"prompt_tokens\": {}, \"completion_tokens\": {}.0, \"total_tokens\": {}}}",
                usage.prompt,
                usage.completion,
                usage.prompt + usage.completion
            );
            let json = match stage.scenario {
                Scenario::UsageWithoutChoices => format!("{{{told}}}"),
                _ => object(stage, "", &format!(", {told}")),
            };
            let last = event(stage, &json);
            stage.out.send(&last, Carries::nothing().usage(Some(usage)));
        }
        if stage.scenario != Scenario::NoDone {
            let mark = event(stage, "[DONE]");
            stage.out.done(&mark);
        }
    }

    fn trouble(&self, stage: &Stage<'_>) -> String {
        match stage.scenario {
            Scenario::ErrorComment => "event: error\ndata: CUDA out of memory\n\n".to_owned(),
            Scenario::BadCounts => event(
                stage,
                "{\"choices\": [], \"usage\": {\"prompt_tokens\": 3, \"completion_tokens\": -1}}",
            ),
            _ => event(stage, "{\"error\": \"CUDA out of memory\"}"),
        }
    }
}

/// An event, with the line ends that were asked for.
fn event(stage: &Stage<'_>, data: &str) -> String {
    let end = match stage.scenario {
        Scenario::Crlf => "\r\n\r\n",
        Scenario::Cr => "\r\r",
        _ => "\n\n",
    };
    let field = if stage.scenario == Scenario::NoSpace { "data:" } else { "data: " };
    format!("{field}{data}{end}")
}

fn object(stage: &Stage<'_>, choices: &str, usage: &str) -> String {
    let error = if stage.scenario == Scenario::NullErrors { ", \"error\": \"\"" } else { "" };
    let object = match stage.api() {
        Api::Completions => "text_completion",
        Api::Chat => "chat.completion.chunk",
    };
    format!("{{\"object\": \"{object}\", \"choices\": [{choices}]{usage}{error}}}")
}

fn choice(stage: &Stage<'_>, text: &str, finish: Option<&str>) -> String {
    let text = ascii_quoted(text);
    let said = match stage.api() {
        Api::Completions => format!("\"text\": {text}"),
        Api::Chat => format!("\"delta\": {{\"content\": {text}}}"),
    };
    format!("{{\"index\": 0, {said}, \"finish_reason\": {}}}", reason(finish))
}
