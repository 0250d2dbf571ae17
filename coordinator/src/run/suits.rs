//! Whether the engine, now that it is known, can do what the plan asks of it. Pure.
//!
//! It exists because an engine that ignores a field measures something else than was asked for, and one that refuses
//! it fails every request: both are better said before the first trial.

use anyhow::bail;
use common::plan::{Api, Target};
use common::probe::{Capability, EngineProbe, Verdict};

use crate::plan::{BetweenTrials, Plan};

/// What a person should know; nothing stands in the way.
///
/// # Errors
/// What the engine cannot do, and what to do instead.
pub(super) fn check(plan: &Plan, probe: Option<&EngineProbe>) -> anyhow::Result<Vec<String>> {
    let target = &plan.target;
    can(target)?;
    let title = target.dialect.traits().title;
    if plan.engine.between == BetweenTrials::Flush && target.dialect.traits().cache_reset.is_none() {
        bail!(
            "{title} has no way to empty its prefix cache: use --between-trials restart, with an agent that launches it"
        );
    }
    if let Some(row) = plan.workload.rows.first_with_token_ids()
        && !target.dialect.traits().token_id_prompts
    {
        bail!(
            "{} takes no token ids: field `prompt_token_ids` in line {} of the workload; use `prompt`",
            target.dialect.traits().title,
            row.line
        );
    }
    Ok(probe.map_or_else(Vec::new, |probe| warnings(plan, probe)))
}

/// Fields that are asked for and that this engine refuses or does not heed.
fn can(target: &Target) -> anyhow::Result<()> {
    let dialect = target.dialect;
    let title = dialect.traits().title;
    if target.ignore_eos && (dialect.refuses("ignore_eos") || dialect.ignores("ignore_eos")) {
        let verb = if dialect.refuses("ignore_eos") { "refuses" } else { "does not heed" };
        bail!(
            "{title} {verb} ignore_eos: leave out --ignore-eos, or say --dialect openai to send it all the same"
        );
    }
    if target.logprobs && !dialect.has_logprobs(target.api) {
        let other = match target.api {
            Api::Completions if dialect.has_logprobs(Api::Chat) => "; --api chat has them",
            _ => "",
        };
        bail!("{title} gives no log probabilities in the {} stream: leave out --logprobs{other}", target.api);
    }
    if target.token_counts && dialect.traits().token_counts.is_none() {
        let instead =
            if dialect.has_logprobs(target.api) { "use --logprobs instead" } else { "leave it out" };
        bail!(
            "{title} has no cheap way to say how many tokens an event holds, as --token-counts asks: {instead}"
        );
    }
    if let Some(field) = target.extra_body.keys().find(|field| dialect.refuses(field)) {
        bail!(
            "{title} refuses requests with the field `{field}`: take it out of --extra-body, or say --dialect openai"
        );
    }
    Ok(())
}

/// What was tried and did not work, of what the plan counts on.
fn warnings(plan: &Plan, probe: &EngineProbe) -> Vec<String> {
    let target = &plan.target;
    let wanted = [
        (Capability::Usage, true),
        (Capability::IgnoreEos, target.ignore_eos),
        (Capability::Logprobs, target.logprobs),
        (Capability::TokenCounts, target.token_counts),
        (Capability::TokenIdPrompts, plan.workload.rows.first_with_token_ids().is_some()),
    ];
    let not = |(capability, wanted): (Capability, bool)| {
        let finding = probe.capabilities.get(&capability).filter(|f| wanted && f.verdict == Verdict::No)?;
        Some(format!("warning: the engine's {} does not work: {}", capability.name(), finding.how))
    };
    wanted.into_iter().filter_map(not).collect()
}

#[cfg(test)]
mod tests {
    use common::dialect::Dialect;

    use super::*;

    fn target(dialect: &str) -> Target {
        let dialect: Dialect = dialect.parse().unwrap();
        Target { dialect, ..Target::plain("http://127.0.0.1:8000".parse().unwrap()) }
    }

    fn says(target: &Target) -> String {
        can(target).map_or_else(|e| e.to_string(), |()| "it can".to_owned())
    }

    #[test]
    fn what_an_engine_refuses_or_ignores_is_refused_before_it() {
        let eos = |name| Target { ignore_eos: true, ..target(name) };
        assert!(says(&eos("transformers")).contains("refuses ignore_eos: leave out --ignore-eos"));
        assert!(says(&eos("ollama")).contains("does not heed ignore_eos"));
        assert_eq!(says(&eos("vllm")), "it can");
        let logprobs = |name, api| Target { logprobs: true, api, ..target(name) };
        assert!(says(&logprobs("lmdeploy", Api::Completions)).contains("--api chat has them"));
        assert_eq!(says(&logprobs("lmdeploy", Api::Chat)), "it can");
        let counts = |name| Target { token_counts: true, ..target(name) };
        assert!(says(&counts("tabbyapi")).contains("use --logprobs instead"));
        assert!(says(&counts("mistralrs")).contains("leave it out"));
        assert_eq!(says(&counts("llamacpp")), "it can");
        let mut extra = target("tensorrt-llm");
        extra.extra_body.insert("return_token_ids".into(), true.into());
        assert!(says(&extra).contains("field `return_token_ids`"));
    }
}
