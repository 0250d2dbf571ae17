//! vLLM 0.32 and 0.33, started with `VLLM_SERVER_DEV_MODE=1 … --enable-prompt-tokens-details`. Sources: recordings of a
//! real server (`vllm_*`), its serving code, engine notes section 1.

use std::ops::Range;

use serde_json::Value;

use crate::answer::{Answer, By, Habits, Token, text_of};
use crate::ask::{Ask, Unreadable};
use crate::expected::Channel;
use crate::reply::{Reply, Stack};
use crate::script::{Carries, Usage};
use crate::stage::{Manner, Piece, Stage, Voice};
use crate::state::State;
use crate::text::{bytes, gauges, legacy_logprobs, list, logprob, or_null, quoted, reason};
use crate::{Api, CONTEXT, Engine, MODEL, Scenario};

const STACK: Stack = Stack::Uvicorn("vary: Origin\r\n");
const MANNER: Manner = Manner {
    stack: STACK,
    by: By::Token,
    done: "data: [DONE]\n\n",
    done_after_error: true,
    ping: ": keep-alive\n\n",
};
const HABITS: Habits = Habits { ignores_eos: true, has_seed: true, cache_block: 16 };
const CREATED: &str = r#""created":1795984618,"model":"tiny""#;
const FINGERPRINT: &str = r#","system_fingerprint":"vllm-0.32.0-7b4a1201""#;
/// The engine died under a stream.
const DEAD: &str = r#"{"error":{"message":"EngineCore encountered an issue. See stack trace (above) for the root cause.","type":"InternalServerError","param":null,"code":500}}"#;
const FULL: &str = r#"{"error":{"message":"The request queue is full.","type":"ServiceUnavailableError","param":null,"code":503}}"#;
/// What a gateway in front of it puts into the stream.
const GATEWAY: &str = r#"{"error":{"message":"TimeoutError","type":"GatewayTimeout","code":504}}"#;

/// vLLM.
#[derive(Debug, Clone, Copy)]
pub struct Vllm;

impl Engine for Vllm {
    fn name(&self) -> &'static str {
        "vllm"
    }

    fn scenarios(&self, api: Api) -> Vec<Scenario> {
        use Scenario as S;
        let mut known = vec![
            S::Normal,
            S::Overload,
            S::TooLong,
            S::QueueFull,
            S::ErrorFirst,
            S::ErrorLater,
            S::DoneOnly,
            S::Abort,
            S::AbortQueued,
            S::Cut,
            S::KeepAlives,
            S::ForcedUsage,
            S::CutCharacters,
            S::CutEvents,
            S::OneChunk,
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
            "/health" | "/ping" => STACK.whole(200, "", ""),
            "/version" => STACK.json(200, r#"{"version":"0.32.0"}"#),
            "/v1/models" => STACK.json(
                200,
                r#"{"object":"list","data":[{"id":"tiny","object":"model","created":1795984644,"owned_by":"vllm","root":"/models/tiny","parent":null,"max_model_len":1024,"permission":[{"id":"modelperm-92c340c3b8a2e56a","object":"model_permission","created":1795984644,"allow_create_engine":false,"allow_sampling":true,"allow_logprobs":true,"allow_search_indices":false,"allow_view":true,"allow_fine_tuning":false,"organization":"*","group":null,"is_blocking":false}]}]}"#,
            ),
            "/load" => STACK.json(200, &format!(r#"{{"server_load":{}}}"#, state.running())),
            "/server_info" => STACK.json(
                200,
                r#"{"vllm_config":{"model_config":{"model":"/models/tiny","max_model_len":1024}},"vllm_env":{},"system_env":{}}"#,
            ),
            "/metrics" => {
                let labels = r#"{engine="0",model_name="tiny"}"#;
                let running = state.running() as f64;
                STACK.whole(
                    200,
                    "text/plain; version=1.0.0; charset=utf-8",
                    gauges(&[
                        ("vllm:num_requests_running", labels, running),
                        ("vllm:num_requests_waiting", labels, 0.0),
                        ("vllm:kv_cache_usage_perc", labels, 0.0),
                    ]),
                )
            }
            "/v1/completions" | "/v1/chat/completions" | "/reset_prefix_cache" => {
                STACK.json(405, r#"{"detail":"Method Not Allowed"}"#)
            }
            _ => STACK.json(404, r#"{"detail":"Not Found"}"#),
        }
    }

    fn post(&self, path: &str, _: &Value, state: &State) -> Reply {
        if path.split('?').next() != Some("/reset_prefix_cache") {
            return STACK.json(404, r#"{"detail":"Not Found"}"#);
        }
        // Blocks in use stay, unless the requests are reset too.
        let done = state.running() == 0 || path.contains("reset_running_requests=true");
        if done {
            state.reset_cache();
        }
        STACK.json(200, &format!(r#"{{"success":{done}}}"#))
    }

    fn generate(&self, api: Api, body: &[u8], state: &State) -> Reply {
        let ask = match Ask::read(api, body) {
            Ok(ask) => ask,
            Err(why) => return unreadable(why),
        };
        let scenario = Scenario::of(ask.text(), &self.scenarios(api));
        if let Some(refusal) = refusal(&ask, scenario) {
            return refusal;
        }
        let answer = Answer::to(&ask, HABITS, state);
        let forced = scenario == Scenario::ForcedUsage;
        let voice = Speech {
            include_usage: ask.include_usage || forced,
            continuous: ask.include_usage && ask.continuous_usage || forced,
            token_ids: ask.says("return_token_ids"),
        };
        Stage::new(&ask, answer, scenario, MANNER).play(&voice)
    }
}

fn error(status: u16, message: &str, kind: &str, param: Option<&str>) -> Reply {
    let param = or_null(param.map(quoted));
    let message = quoted(message);
    STACK.json(
        status,
        &format!(r#"{{"error":{{"message":{message},"type":"{kind}","param":{param},"code":{status}}}}}"#),
    )
}

fn unreadable(why: Unreadable) -> Reply {
    let (what, place) = match why {
        Unreadable::Json => {
            ("'type': 'json_invalid', 'loc': 'body.18', 'msg': 'JSON decode error'", "body.18")
        }
        Unreadable::Field(_) => (
            "'type': 'int_parsing', 'loc': 'body.max_tokens', 'msg': 'Input should be a valid integer, unable to parse string as an integer', 'input': 'many'",
            "body.max_tokens",
        ),
        Unreadable::Prompt => {
            ("'type': 'missing', 'loc': 'body.prompt', 'msg': 'Field required'", "body.prompt")
        }
    };
    error(400, &format!("1 validation error:\n  {{{what}}}"), "Bad Request", Some(place))
}

fn refusal(ask: &Ask, scenario: Scenario) -> Option<Reply> {
    if let Some(model) = ask.model.as_deref().filter(|&model| model != MODEL) {
        let message = format!("The model `{model}` does not exist. Valid aliases: {MODEL}.");
        return Some(error(404, &message, "NotFoundError", Some("model")));
    }
    if ask.max_tokens == Some(0) {
        let message = "max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)";
        return Some(error(400, message, "BadRequestError", Some("max_tokens")));
    }
    if let Some(n) = ask.max_tokens.filter(|&n| n > CONTEXT) {
        let message = format!(
            "max_tokens={n} cannot be greater than max_model_len={CONTEXT}. Please request fewer output tokens. (parameter=max_tokens, value={n})"
        );
        return Some(error(400, &message, "BadRequestError", Some("max_tokens")));
    }
    if scenario == Scenario::TooLong || ask.prompt_ids().len() as u64 > CONTEXT {
        let least = CONTEXT + 1;
        let message = format!(
            "This model's maximum context length is {CONTEXT} tokens. However, your prompt contains at least {least} input tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input prompt. (parameter=input_tokens, value={least})"
        );
        return Some(error(400, &message, "BadRequestError", Some("input_tokens")));
    }
    (scenario == Scenario::Overload).then(|| STACK.json(503, FULL))
}

/// What one request's events hold.
struct Speech {
    include_usage: bool,
    /// Usage in every event.
    continuous: bool,
    token_ids: bool,
}

impl Voice for Speech {
    fn open(&self, stage: &mut Stage<'_>) {
        if stage.api() == Api::Completions {
            return;
        }
        let (usage, counts) = self.running_usage(stage, 0);
        let event = format!(
            "data: {{{},\"choices\":[{{\"index\":0,\"delta\":{{\"role\":\"assistant\",\"content\":\"\"}},\"logprobs\":null,\"finish_reason\":null}}]{usage},\"prompt_token_ids\":{},\"prompt_text\":null}}\n\n",
            id(stage),
            self.prompt_ids(stage),
        );
        stage.out.send(&event, Carries::nothing().usage(counts).shows(counts.map(|_| 0)));
    }

    fn say(&self, stage: &mut Stage<'_>, range: Range<usize>, finish: Option<&str>) {
        let Piece { tokens, text, channel } = stage.piece(&range);
        let (usage, counts) = self.running_usage(stage, range.end as u64);
        let ids = or_null(self.token_ids.then(|| format!("[{}]", list(&tokens, |t| t.id.to_string()))));
        let logprobs = or_null(stage.ask.logprobs.then(|| logprobs(stage, &range)));
        let finish_reason = reason(finish);
        let choice = match stage.api() {
            Api::Completions => format!(
                r#""text":{},"logprobs":{logprobs},"finish_reason":{finish_reason},"stop_reason":null,"prompt_token_ids":{},"token_ids":{ids}"#,
                quoted(&text),
                if range.start == 0 { self.prompt_ids(stage) } else { "null".into() },
            ),
            Api::Chat => format!(
                r#""delta":{},"logprobs":{logprobs},"finish_reason":{finish_reason}{},"token_ids":{ids}"#,
                delta(channel, &text, range.start == 0),
                if finish.is_some() { r#","stop_reason":null"# } else { "" },
            ),
        };
        let fingerprint = if finish.is_some() && !self.include_usage { FINGERPRINT } else { "" };
        let event =
            format!("data: {{{},\"choices\":[{{\"index\":0,{choice}}}]{usage}{fingerprint}}}\n\n", id(stage));
        let shown = self.continuous || self.token_ids || stage.ask.logprobs;
        let carries = Carries::text(channel, &text)
            .shows(shown.then_some(tokens.len() as u64))
            .usage(counts)
            .finish(finish);
        stage.out.send(&event, carries);
    }

    fn end(&self, stage: &mut Stage<'_>) {
        if self.include_usage || stage.scenario == Scenario::AbortQueued {
            let usage = stage.final_counts();
            let created = if stage.api() == Api::Chat { r#","created_cache_tokens":0"# } else { "" };
            let event = format!(
                "data: {{{},\"choices\":[],\"usage\":{{\"prompt_tokens\":{},\"total_tokens\":{},\"completion_tokens\":{},\"prompt_tokens_details\":{{\"cached_tokens\":{}{created}}}}}{FINGERPRINT}}}\n\n",
                id(stage),
                usage.prompt,
                usage.prompt + usage.completion,
                usage.completion,
                stage.answer.cached,
            );
            stage.out.send(&event, Carries::nothing().usage(Some(usage)));
        }
        stage.done();
    }

    fn trouble(&self, stage: &Stage<'_>) -> String {
        let error = match stage.scenario {
            Scenario::QueueFull => FULL,
            Scenario::ErrorFirst => GATEWAY,
            _ => DEAD,
        };
        format!("data: {error}\n\n")
    }
}

impl Speech {
    /// `,"usage":…` of an event where so many tokens are out.
    fn running_usage(&self, stage: &Stage<'_>, completion: u64) -> (String, Option<Usage>) {
        if !self.continuous {
            return (String::new(), None);
        }
        let usage = stage.counts(completion);
        let details = if stage.api() == Api::Chat { r#","completion_tokens_details":null"# } else { "" };
        let json = format!(
            r#","usage":{{"prompt_tokens":{},"total_tokens":{},"completion_tokens":{completion}{details}}}"#,
            usage.prompt,
            usage.prompt + completion
        );
        (json, Some(usage))
    }

    fn prompt_ids(&self, stage: &Stage<'_>) -> String {
        or_null(self.token_ids.then(|| format!("[{}]", list(&stage.answer.prompt_ids, u32::to_string))))
    }
}

fn id(stage: &Stage<'_>) -> String {
    let (prefix, object) = match stage.api() {
        Api::Completions => ("cmpl", "text_completion"),
        Api::Chat => ("chatcmpl", "chat.completion.chunk"),
    };
    format!(r#""id":"{prefix}-{:016x}","object":"{object}",{CREATED}"#, stage.answer.number)
}

fn logprobs(stage: &Stage<'_>, range: &Range<usize>) -> String {
    let tokens = stage.piece(range).tokens;
    if stage.api() == Api::Completions {
        let offset = text_of(&stage.answer.tokens[..range.start]).chars().count();
        return legacy_logprobs(&tokens, |i| (offset + text_of(&tokens[..i]).chars().count()) as i64);
    }
    let entry =
        |t: &Token| format!(r#""token":{},"logprob":{},"bytes":{}"#, quoted(&t.text), logprob(t), bytes(t));
    let whole = |t| format!("{{{0},\"top_logprobs\":[{{{0}}}]}}", entry(t));
    format!(r#"{{"content":[{}]}}"#, list(&tokens, whole))
}

fn delta(channel: Channel, text: &str, first: bool) -> String {
    let text = quoted(text);
    match channel {
        Channel::Answer => format!(r#"{{"content":{text}}}"#),
        Channel::Reasoning => format!(r#"{{"reasoning":{text}}}"#),
        Channel::ToolCall if first => format!(
            r#"{{"tool_calls":[{{"id":"chatcmpl-tool-8d1b","type":"function","index":0,"function":{{"name":"look_up","arguments":{text}}}}}]}}"#
        ),
        Channel::ToolCall => {
            format!(r#"{{"tool_calls":[{{"index":0,"function":{{"arguments":{text}}}}}]}}"#)
        }
    }
}
