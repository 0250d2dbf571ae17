//! TabbyAPI with ExLlamaV3. Sources: its code of August 2026, engine notes section 4. No recording exists.

use std::ops::Range;

use serde_json::Value;

use crate::answer::{Answer, By, Habits, Token};
use crate::ask::{Ask, Prompt, Unreadable};
use crate::expected::Channel;
use crate::reply::{Reply, Stack};
use crate::script::{Carries, Usage};
use crate::stage::{Manner, Piece, Stage, Voice};
use crate::state::State;
use crate::text::{list, logprob, quoted, reason};
use crate::{Api, CONTEXT, Engine, Scenario};

const STACK: Stack = Stack::Uvicorn("");
/// sse-starlette: CRLF, and nothing after an error.
const MANNER: Manner = Manner {
    stack: Stack::Uvicorn("cache-control: no-store\r\nx-accel-buffering: no\r\n"),
    by: By::Text,
    done: "data: [DONE]\r\n\r\n",
    done_after_error: false,
    ping: ": ping - 2026-11-29 20:37:18.123456+00:00\r\n\r\n",
};
const HABITS: Habits = Habits { ignores_eos: true, has_seed: false, cache_block: 256 };

/// TabbyAPI.
#[derive(Debug, Clone, Copy)]
pub struct TabbyApi;

impl Engine for TabbyApi {
    fn name(&self) -> &'static str {
        "tabbyapi"
    }

    fn scenarios(&self, api: Api) -> Vec<Scenario> {
        use Scenario as S;
        let mut known = vec![
            S::Normal,
            S::Overload,
            S::TooLong,
            S::ErrorFirst,
            S::ErrorLater,
            S::Cut,
            S::KeepAlives,
            S::SeveralTokens,
            S::CutCharacters,
            S::CutEvents,
        ];
        if api == Api::Chat {
            known.extend([S::Reasoning, S::ReasoningOnly, S::ToolCalls]);
        }
        known
    }

    fn get(&self, path: &str, state: &State) -> Reply {
        let card = r#"{"id":"tiny","object":"model","created":1795978271,"owned_by":"tabbyAPI","logging":null,"parameters":{"max_seq_len":1024,"cache_size":65536,"cache_mode":"FP16","chunk_size":2048,"prompt_template":"chatml"}}"#;
        match path.split('?').next().unwrap_or_default() {
            // Once it has failed it stays so.
            "/health" if state.has_failed() => STACK.json(
                503,
                r#"{"status":"unhealthy","issues":[{"time":"2026-11-29T20:37:18Z","description":"Error during generation"}]}"#,
            ),
            "/health" => STACK.json(200, r#"{"status":"healthy","issues":[]}"#),
            "/v1/models" | "/v1/model/list" => {
                STACK.json(200, &format!(r#"{{"object":"list","data":[{card}]}}"#))
            }
            "/v1/model" => STACK.json(200, card),
            "/props" => STACK.json(200, r#"{"total_slots":16,"default_generation_settings":{"n_ctx":1024}}"#),
            "/.well-known/serviceinfo" => STACK.json(
                200,
                r#"{"version":0.1,"software":{"name":"TabbyAPI","repository":"https://github.com/theroyallab/tabbyAPI","homepage":"https://github.com/theroyallab/tabbyAPI"},"api":{"openai":{"name":"OpenAI API","relative_url":"/v1","documentation":"https://theroyallab.github.io/tabbyAPI","version":1}}}"#,
            ),
            _ => STACK.json(404, r#"{"detail":"Not Found"}"#),
        }
    }

    fn post(&self, path: &str, _: &Value, _: &State) -> Reply {
        match path {
            "/v1/model/unload" | "/v1/model/load" => {
                STACK.json(401, r#"{"detail":"Please provide an admin key"}"#)
            }
            _ => STACK.json(404, r#"{"detail":"Not Found"}"#),
        }
    }

    fn generate(&self, api: Api, body: &[u8], state: &State) -> Reply {
        let ask = match Ask::read(api, body) {
            Ok(ask) if !matches!(ask.prompt, Prompt::Ids(_)) => ask,
            Ok(_) => return unreadable(Unreadable::Prompt),
            Err(why) => return unreadable(why),
        };
        let scenario = Scenario::of(ask.text(), &self.scenarios(api));
        let length = ask.prompt_ids().len() as u64;
        match scenario {
            Scenario::Overload => {
                return STACK.json(
                    503,
                    r#"{"detail":"Completion aborted. Maybe the model was unloaded? Please check the server console."}"#,
                );
            }
            Scenario::TooLong => return too_long(length.max(CONTEXT + 1)),
            _ if length > CONTEXT => return too_long(length),
            Scenario::ErrorFirst | Scenario::ErrorLater => state.fail(),
            _ => {}
        }
        // Calls are parsed when all of the text is there.
        let by = if scenario == Scenario::ToolCalls { By::All } else { MANNER.by };
        let answer = Answer::to(&ask, HABITS, state);
        Stage::new(&ask, answer, scenario, Manner { by, ..MANNER }).play(&Speech)
    }
}

fn too_long(length: u64) -> Reply {
    STACK.json(
        400,
        &format!(
            r#"{{"error":{{"message":"Prompt length {length} is greater than max_seq_len {CONTEXT}","type":"invalid_request_error","param":"prompt","code":"context_length_exceeded"}}}}"#
        ),
    )
}

fn unreadable(why: Unreadable) -> Reply {
    let (kind, place, what) = match why {
        Unreadable::Json => ("json_invalid", r#""body",18"#, "JSON decode error"),
        Unreadable::Field(_) => ("int_parsing", r#""body","max_tokens""#, "Input should be a valid integer"),
        Unreadable::Prompt => ("string_type", r#""body","prompt","str""#, "Input should be a valid string"),
    };
    STACK.json(422, &format!(r#"{{"detail":[{{"type":"{kind}","loc":[{place}],"msg":"{what}"}}]}}"#))
}

struct Speech;

impl Voice for Speech {
    fn say(&self, stage: &mut Stage<'_>, range: Range<usize>, _: Option<&str>) {
        let Piece { tokens, text, channel } = stage.piece(&range);
        if text.is_empty() {
            return;
        }
        // Chat collects the probabilities of text that is held back, completions lose them.
        let listed = match stage.api() {
            Api::Chat => &tokens[..],
            Api::Completions => &tokens[tokens.len() - 1..],
        };
        let asked = stage.ask.logprobs && channel == Channel::Answer;
        let choice = match stage.api() {
            Api::Completions => format!("\"text\": {}, \"finish_reason\": null", quoted(&text)),
            Api::Chat => format!("\"delta\": {}, \"finish_reason\": null", delta(channel, &text)),
        };
        let logprobs =
            if asked { format!(", \"logprobs\": {}", logprobs(stage.api(), listed)) } else { String::new() };
        let event = event(stage, &format!("{choice}{logprobs}"), "");
        let shown = asked.then_some(listed.len() as u64);
        stage.out.send(&event, Carries::text(channel, &text).shows(shown));
    }

    fn end(&self, stage: &mut Stage<'_>) {
        let finish = stage.answer.finish;
        let content = if stage.api() == Api::Completions { "\"text\": \"\"" } else { "\"delta\": {}" };
        let usage = stage.ask.include_usage.then(|| stage.counts(stage.answer.len()));
        // With usage, the reason stands on that chunk, which has one choice.
        let eos = match (usage, finish) {
            (Some(_), _) => "",
            (None, "stop") => ", \"eos_reason\": \"stop_token\"",
            (None, _) => ", \"eos_reason\": \"max_new_tokens\"",
        };
        let told = usage.map_or(String::new(), |usage| format!(", \"usage\": {}", told(&usage)));
        let time = usage.map(|_| (20_000_000, 310_000_000));
        let event =
            event(stage, &format!("{content}, \"finish_reason\": {}{eos}", reason(Some(finish))), &told);
        stage.out.send(&event, Carries::nothing().finish(Some(finish)).usage(usage).time(time));
        stage.done();
    }

    fn trouble(&self, stage: &Stage<'_>) -> String {
        let what = if stage.api() == Api::Chat { "Chat completion" } else { "Completion" };
        format!(
            "data: {{\"error\":{{\"message\":\"{what} aborted. Please check the server console.\",\"trace\":null}}}}\r\n\r\n"
        )
    }
}

/// As Python's `json.dumps` spaces it, with non-ASCII characters left as they are.
fn event(stage: &Stage<'_>, choice: &str, usage: &str) -> String {
    let (id, created) = (stage.answer.number, 1_795_978_271);
    let choices = format!("\"choices\": [{{\"index\": 0, {choice}}}]");
    match stage.api() {
        Api::Completions => format!(
            "data: {{\"id\": \"chatcmpl-{id:032x}\", \"object\": \"text_completion\", {choices}, \"created\": {created}, \"model_name\": \"tiny\"{usage}}}\r\n\r\n"
        ),
        Api::Chat => format!(
            "data: {{\"id\": \"chatcmpl-{id:032x}\", \"object\": \"chat.completion.chunk\", \"created\": {created}, {choices}{usage}, \"model\": \"tiny\"}}\r\n\r\n"
        ),
    }
}

fn told(usage: &Usage) -> String {
    let Usage { prompt, completion, .. } = *usage;
    // A rate over no time is a word.
    let rate = if completion > 1 { "41.5" } else { "\"Indeterminate\"" };
    format!(
        "{{\"prompt_tokens\": {prompt}, \"prompt_time\": 0.02, \"prompt_tokens_per_sec\": 250.0, \"completion_tokens\": {completion}, \"completion_time\": 0.31, \"completion_tokens_per_sec\": {rate}, \"total_tokens\": {}, \"total_time\": 0.33}}",
        prompt + completion
    )
}

fn logprobs(api: Api, tokens: &[Token]) -> String {
    match api {
        Api::Chat => {
            let entry = |t: &Token| {
                format!(
                    "{{\"token\": {}, \"token_id\": {}, \"logprob\": {}, \"top_logprobs\": []}}",
                    quoted(&t.text),
                    t.id,
                    logprob(t)
                )
            };
            format!("{{\"content\": [{}]}}", list(tokens, entry))
        }
        Api::Completions => format!(
            "{{\"text_offset\": [0], \"token_logprobs\": [{}], \"tokens\": [{}], \"top_logprobs\": [{{}}]}}",
            list(tokens, logprob),
            list(tokens, |t| quoted(&t.text)),
        ),
    }
}

fn delta(channel: Channel, text: &str) -> String {
    let text = quoted(text);
    match channel {
        Channel::Answer => format!("{{\"content\": {text}}}"),
        Channel::Reasoning => format!("{{\"reasoning_content\": {text}}}"),
        Channel::ToolCall => format!(
            "{{\"tool_calls\": [{{\"id\": \"8d1b\", \"function\": {{\"name\": \"look_up\", \"arguments\": {text}}}, \"type\": \"function\", \"index\": 0}}]}}"
        ),
    }
}
