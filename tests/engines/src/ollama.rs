//! Ollama. Sources: its OpenAI middleware, engine notes section 6. No recording exists.

use std::ops::Range;

use serde_json::Value;

use crate::answer::{Answer, By, Habits, Token};
use crate::ask::{Ask, Prompt, Unreadable};
use crate::expected::Channel;
use crate::reply::{Reply, Stack};
use crate::script::Carries;
use crate::stage::{Manner, Piece, Stage, Voice};
use crate::state::State;
use crate::text::{bytes, logprob, quoted, reason};
use crate::{Api, Engine, MODEL, Scenario};

const STACK: Stack = Stack::Go;
const MANNER: Manner =
    Manner { stack: STACK, by: By::Text, done: "data: [DONE]\n\n", done_after_error: false, ping: ":\n\n" };
const HABITS: Habits = Habits { ignores_eos: false, has_seed: true, cache_block: 1 };

/// Ollama.
#[derive(Debug, Clone, Copy)]
pub struct Ollama;

impl Engine for Ollama {
    fn name(&self) -> &'static str {
        "ollama"
    }

    fn scenarios(&self, api: Api) -> Vec<Scenario> {
        use Scenario as S;
        let mut known =
            vec![S::Normal, S::Overload, S::Swallowed, S::NoFinish, S::Cut, S::KeepAlives, S::OneChunk];
        if api == Api::Chat {
            known.extend([S::Reasoning, S::ReasoningOnly, S::ToolCalls]);
        }
        known
    }

    fn get(&self, path: &str, _: &State) -> Reply {
        match path.split('?').next().unwrap_or_default() {
            "/" => STACK.whole(200, "text/plain; charset=utf-8", "Ollama is running"),
            "/api/version" => STACK.json(200, r#"{"version":"0.14.2"}"#),
            "/api/ps" => STACK.json(
                200,
                r#"{"models":[{"name":"tiny","model":"tiny","size":300000,"digest":"8d1b","context_length":1024}]}"#,
            ),
            "/v1/models" => STACK.json(
                200,
                r#"{"object":"list","data":[{"id":"tiny","object":"model","created":1795978271,"owned_by":"library"}]}"#,
            ),
            _ => STACK.whole(404, "text/plain", "404 page not found"),
        }
    }

    fn post(&self, _: &str, _: &Value, _: &State) -> Reply {
        STACK.whole(404, "text/plain", "404 page not found")
    }

    fn generate(&self, api: Api, body: &[u8], state: &State) -> Reply {
        let list =
            "json: cannot unmarshal array into Go struct field CompletionRequest.prompt of type string";
        let ask = match Ask::read(api, body) {
            Ok(ask) if matches!(ask.prompt, Prompt::Ids(_)) => return error(400, list),
            Ok(ask) => ask,
            Err(Unreadable::Json) => return error(400, "unexpected end of JSON input"),
            Err(Unreadable::Field(field)) => {
                return error(
                    400,
                    &format!("json: cannot unmarshal string into Go struct field {field} of type int"),
                );
            }
            Err(Unreadable::Prompt) => return error(400, "[] is too short - 'messages'"),
        };
        if let Some(model) = ask.model.as_deref().filter(|&model| model != MODEL) {
            return error(404, &format!("model '{model}' not found"));
        }
        let scenario = Scenario::of(ask.text(), &self.scenarios(api));
        if scenario == Scenario::Overload {
            return error(503, "server busy, please try again.  maximum pending requests exceeded");
        }
        // Calls come whole. A prompt that is too long is cut at its front.
        let by = if scenario == Scenario::ToolCalls { By::All } else { MANNER.by };
        let answer = Answer::to(&ask, HABITS, state);
        Stage::new(&ask, answer, scenario, Manner { by, ..MANNER }).play(&Speech)
    }
}

fn error(status: u16, message: &str) -> Reply {
    let kind = match status {
        400 => "invalid_request_error",
        404 => "not_found_error",
        _ => "api_error",
    };
    let message = quoted(message);
    STACK.json(
        status,
        &format!(r#"{{"error":{{"message":{message},"type":"{kind}","param":null,"code":null}}}}"#),
    )
}

struct Speech;

impl Voice for Speech {
    fn say(&self, stage: &mut Stage<'_>, range: Range<usize>, _: Option<&str>) {
        let Piece { tokens, text, channel } = stage.piece(&range);
        let swallowed = stage.scenario == Scenario::Swallowed && range.is_empty();
        if text.is_empty() && !swallowed {
            return;
        }
        let logprobs = stage.ask.logprobs && stage.api() == Api::Chat && !swallowed;
        let listed = if logprobs {
            format!(r#","logprobs":{{"content":[{}]}}"#, entry(&tokens[tokens.len() - 1]))
        } else {
            String::new()
        };
        let choice = match stage.api() {
            Api::Completions => text_choice(stage, &quoted(&text), None),
            Api::Chat => format!(
                r#"{{"index":0,"delta":{},"finish_reason":{}{listed}}}"#,
                delta(channel, &text, range.start == 0),
                finished(stage, None)
            ),
        };
        let event = event(stage, &choice, &zeros(stage));
        stage.out.send(&event, Carries::text(channel, &text).shows(logprobs.then_some(1)));
    }

    fn end(&self, stage: &mut Stage<'_>) {
        // All of it leaves in one go.
        let finish = Some(stage.answer.finish);
        let choice = match stage.api() {
            Api::Completions => text_choice(stage, "\"\"", finish),
            Api::Chat => format!(r#"{{"index":0,"delta":{{}},"finish_reason":{}}}"#, finished(stage, finish)),
        };
        let last = event(stage, &choice, &zeros(stage));
        let told = finish.filter(|_| stage.scenario != Scenario::NoFinish);
        stage.out.event(&last, Carries::nothing().finish(told));
        if stage.ask.include_usage {
            let usage = stage.counts(stage.answer.len());
            let told = format!(
                r#","usage":{{"prompt_tokens":{},"completion_tokens":{},"total_tokens":{}}}"#,
                usage.prompt,
                usage.completion,
                usage.prompt + usage.completion
            );
            let last = event(stage, "", &told);
            stage.out.event(&last, Carries::nothing().usage(Some(usage)));
        }
        stage.done();
    }

    fn trouble(&self, _: &Stage<'_>) -> String {
        String::new()
    }
}

/// Old releases said "" where there is none.
fn finished(stage: &Stage<'_>, finish: Option<&str>) -> String {
    if stage.scenario == Scenario::NoFinish { "\"\"".to_owned() } else { reason(finish) }
}

/// Completions count nothing until the end.
fn zeros(stage: &Stage<'_>) -> String {
    if stage.ask.include_usage && stage.api() == Api::Completions {
        r#","usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}"#.to_owned()
    } else {
        String::new()
    }
}

fn text_choice(stage: &Stage<'_>, text: &str, finish: Option<&str>) -> String {
    format!(r#"{{"text":{text},"index":0,"finish_reason":{}}}"#, finished(stage, finish))
}

fn event(stage: &Stage<'_>, choices: &str, usage: &str) -> String {
    let number = stage.answer.number % 999;
    let fingerprint = r#""model":"tiny","system_fingerprint":"fp_ollama""#;
    match stage.api() {
        Api::Completions => format!(
            "data: {{\"id\":\"cmpl-{number}\",\"object\":\"text_completion\",\"created\":1795978271,\"choices\":[{choices}],{fingerprint}{usage}}}\n\n"
        ),
        Api::Chat => format!(
            "data: {{\"id\":\"chatcmpl-{number}\",\"object\":\"chat.completion.chunk\",\"created\":1795978271,{fingerprint},\"choices\":[{choices}]{usage}}}\n\n"
        ),
    }
}

fn entry(token: &Token) -> String {
    format!(r#"{{"token":{},"logprob":{},"bytes":{}}}"#, quoted(&token.text), logprob(token), bytes(token))
}

fn delta(channel: Channel, text: &str, first: bool) -> String {
    let text = quoted(text);
    let role = if first { r#""role":"assistant","# } else { "" };
    match channel {
        Channel::Answer => format!(r#"{{{role}"content":{text}}}"#),
        Channel::Reasoning => format!(r#"{{{role}"content":"","reasoning":{text}}}"#),
        Channel::ToolCall => format!(
            r#"{{{role}"content":"","tool_calls":[{{"id":"call_8d1b","index":0,"type":"function","function":{{"name":"look_up","arguments":{text}}}}}]}}"#
        ),
    }
}
