//! The requests that are sent: for each engine and endpoint, each scenario in several flavours, built as the agent
//! builds them.

use agent::engine::{Prepared, Requests};
use common::dialect::Dialect;
use common::ids::Nanos;
use common::plan::{Api, Target};
use common::workload::{Row, RowBody};
use engines::{Engine, Scenario};
use serde_json::{Map, Value, json};

/// Asked of every request.
pub(crate) const MAX_TOKENS: u32 = 24;

pub(crate) const APIS: [Api; 2] = [Api::Completions, Api::Chat];

/// The scripted engine's name for an endpoint.
pub(crate) fn theirs(api: Api) -> engines::Api {
    match api {
        Api::Completions => engines::Api::Completions,
        Api::Chat => engines::Api::Chat,
    }
}

/// What Plimsoll calls an engine.
pub(crate) fn dialect(engine: &dyn Engine) -> Dialect {
    if engine.name() == "serve_py" { Dialect::OPENAI } else { engine.name().parse().unwrap() }
}

/// A request's options.
#[derive(Debug, Clone)]
pub(crate) struct Flavour {
    pub(crate) name: &'static str,
    pub(crate) ignore_eos: bool,
    pub(crate) token_counts: bool,
    pub(crate) logprobs: bool,
    pub(crate) extra: Value,
}

pub(crate) const PLAIN: Flavour =
    Flavour { name: "plain", ignore_eos: false, token_counts: false, logprobs: false, extra: Value::Null };

/// The options that make a difference to this engine at this endpoint.
pub(crate) fn flavours(dialect: Dialect, api: Api) -> Vec<Flavour> {
    let exact = Flavour { name: "exact", ignore_eos: true, ..PLAIN };
    let counted = Flavour { name: "counted", ignore_eos: true, token_counts: true, ..PLAIN };
    let mut flavours = vec![
        PLAIN,
        exact,
        counted.clone(),
        Flavour { name: "counted, ends by itself", ignore_eos: false, ..counted.clone() },
        Flavour { name: "sampled", extra: json!({"temperature": 0.8, "seed": 7}), ..PLAIN },
    ];
    if dialect.name() != "transformers" {
        // transformers serve does not heed it anyway.
        flavours.push(Flavour { name: "no usage", extra: json!({"stream_options": null}), ..PLAIN });
        flavours.push(Flavour {
            name: "counted, no usage",
            extra: json!({"stream_options": null}),
            ..counted.clone()
        });
        let both = json!({"stream_options": {"include_usage": true, "continuous_usage_stats": true}});
        flavours.push(Flavour { name: "continuous usage", extra: both, ..PLAIN });
    }
    if dialect.has_logprobs(api) {
        let probable = Flavour { name: "logprobs", logprobs: true, ..PLAIN };
        flavours.push(Flavour { name: "counted, with logprobs", token_counts: true, ..probable.clone() });
        flavours.push(probable);
    }
    flavours
}

/// One request.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) api: Api,
    pub(crate) scenario: Scenario,
    pub(crate) flavour: Flavour,
    pub(crate) target: Target,
    pub(crate) prepared: Prepared,
}

impl Case {
    pub(crate) fn new(
        dialect: Dialect,
        api: Api,
        scenario: Scenario,
        flavour: Flavour,
        body: RowBody,
    ) -> Self {
        let target = target(dialect, api, &flavour);
        let row = Row { body, max_tokens: Some(MAX_TOKENS), line: 1 };
        let prepared = Requests::new(&target).prepare(&row);
        Self { api, scenario, flavour, target, prepared }
    }

    pub(crate) fn told(&self) -> String {
        format!("{} {} {:?} ({})", self.target.dialect, self.api, self.scenario, self.flavour.name)
    }
}

pub(crate) fn target(dialect: Dialect, api: Api, flavour: &Flavour) -> Target {
    let extra_body: Map<String, Value> = flavour.extra.as_object().cloned().unwrap_or_default();
    Target {
        base_url: "http://127.0.0.1:1".parse().unwrap(),
        replicas: Vec::new(),
        dialect,
        model: Some(engines::MODEL.into()),
        api,
        ignore_eos: flavour.ignore_eos,
        logprobs: flavour.logprobs,
        token_counts: flavour.token_counts,
        extra_body,
        headers: Vec::new(),
        default_max_tokens: MAX_TOKENS,
        connect_timeout: Nanos::from_secs(30),
        total_timeout: Nanos::from_secs(60),
        idle_timeout: Nanos::from_secs(60),
        keep_text: true,
    }
}

/// All that is asked of an engine. Prompts differ, so that texts do.
pub(crate) fn cases(engine: &dyn Engine) -> Vec<Case> {
    let dialect = dialect(engine);
    let mut cases = Vec::new();
    for api in APIS {
        for scenario in engine.scenarios(theirs(api)) {
            for (number, flavour) in flavours(dialect, api).into_iter().enumerate() {
                // Trouble looks the same however it was asked for; counts and texts do not.
                if scenario != Scenario::Normal && !["plain", "counted", "logprobs"].contains(&flavour.name) {
                    continue;
                }
                let prompt = scenario.prompt(&format!("request {number} of the {scenario:?} kind"));
                cases.push(Case::new(dialect, api, scenario, flavour, RowBody::Prompt(prompt)));
            }
        }
    }
    if dialect.traits().token_id_prompts && engine.name() != "serve_py" {
        let ids = RowBody::TokenIds(vec![5, 6, 7, 8]);
        cases.push(Case::new(dialect, Api::Completions, Scenario::Normal, PLAIN, ids));
    }
    cases
}
