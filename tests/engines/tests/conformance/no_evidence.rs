//! Where an engine's own way would be mistaken for evidence: each case was a disagreement once.

use common::plan::Api;
use common::workload::RowBody;
use engines::{Engine, MistralRs, Scenario, State};

use crate::cases::{APIS, Case, Flavour, PLAIN, dialect, theirs};

/// An event of a mistral.rs stream has one log probability, `"logprobs":{"token":…,"logprob":…}`, and no list: it stands
/// for the token that brought the text, and tokens whose text was held back come with it. It is no count of tokens, and
/// its completions have no usage that it could be held against.
#[test]
fn log_probabilities_of_mistralrs_count_no_tokens() {
    for api in APIS {
        let flavour = Flavour { name: "logprobs", logprobs: true, ..PLAIN };
        let case =
            Case::new(dialect(&MistralRs), api, Scenario::Normal, flavour, RowBody::Prompt("a".into()));
        let reply = MistralRs.generate(theirs(api), &case.prepared.body, &State::default());
        let tokens = reply.expected().event_tokens;
        assert!(tokens.unknown > 0 && !case.target.dialect.has_logprobs(api), "{api}: {tokens:?}");
    }
}

/// Its request models have neither this field nor `stream_options`.
#[test]
fn mistralrs_has_no_seed() {
    let flavour = Flavour { extra: serde_json::json!({"temperature": 1, "seed": 7}), ..PLAIN };
    let case =
        Case::new(dialect(&MistralRs), Api::Chat, Scenario::Normal, flavour, RowBody::Prompt("hi".into()));
    let state = State::default();
    let text =
        || MistralRs.generate(theirs(Api::Chat), &case.prepared.body, &state).expected().output.clone();
    let same = text() == text();
    assert_eq!(same, !dialect(&MistralRs).ignores("seed"));
}
