//! What an engine can do, by trying it, with a request or three for each thing.

use std::collections::BTreeMap;
use std::time::Duration;

use common::dialect::{Dialect, TokenCounts};
use common::ids::Nanos;
use common::plan::{Api, Target};
use common::probe::{Capability, Finding};
use common::trace::{EventTokens, Failure, FailureKind, TokenSource, Trace};
use common::workload::{Row, RowBody};
use serde_json::json;
use tokio::sync::watch;

use super::ask::Asking;
use crate::telemetry::engine::Page;

/// Looks before an engine is called busy, for gauges lag behind.
const IDLE_LOOKS: u32 = 20;
/// Between two of them.
const IDLE_LOOK: Duration = Duration::from_millis(100);

/// Tokens of an answer that shows something.
const FEW: u32 = 8;
/// Tokens after which an engine that heeds its end token would likely have met one.
const SOME: u32 = 32;
/// Tokens of an answer that is to be cut: many, that a fast engine is seen at it; fewer where a context has no room.
const MANY: [u32; 2] = [2000, 400];
/// A prompt that most vocabularies have: small ids that are no special tokens.
const IDS: [u32; 6] = [20, 21, 22, 23, 24, 25];
/// How long an engine may go on after its client has gone. Engines that poll do it once a second or two.
const ABORT_WITHIN: Nanos = Nanos::from_secs(10);

type Found = Result<(Capability, Finding), String>;

/// Everything that can be found out. `trace` is what became of the first request.
pub(super) async fn all(
    asking: &mut Asking,
    target: &Target,
    row: &Row,
    trace: &Trace,
) -> Result<BTreeMap<Capability, Finding>, String> {
    let row = &Row { max_tokens: Some(FEW), ..row.clone() };
    let mut found = BTreeMap::from([usage(trace)]);
    for (capability, finding) in [
        token_counts(asking, target, row).await?,
        logprobs(asking, target, row).await?,
        ignore_eos(asking, target, row).await?,
        seed(asking, target, row).await?,
        token_id_prompts(asking, target).await?,
        cache_reset(asking, target).await?,
        abort_on_disconnect(asking, target, row).await?,
    ] {
        found.insert(capability, finding);
    }
    Ok(found)
}

/// Whether usage came with the first request.
pub(super) fn usage(trace: &Trace) -> (Capability, Finding) {
    let finding = match trace.facts.output_tokens.source {
        TokenSource::Usage => Finding::yes("in the stream"),
        _ => Finding::no("not in the stream"),
    };
    (Capability::Usage, finding)
}

async fn token_counts(asking: &mut Asking, target: &Target, row: &Row) -> Found {
    let capability = Capability::TokenCounts;
    let how = match target.dialect.traits().token_counts {
        Some(TokenCounts::Field(field)) => field.to_owned(),
        Some(TokenCounts::StreamOption(option)) => format!("stream_options.{option}"),
        None => return Ok((capability, Finding::unknown("no way is known that is cheaper than logprobs"))),
    };
    let asked = Target { token_counts: true, logprobs: false, ..target.clone() };
    let trace = asking.attempt(&asked, row, json!({})).await?;
    Ok((capability, evidence(&trace, &how)))
}

async fn logprobs(asking: &mut Asking, target: &Target, row: &Row) -> Found {
    let capability = Capability::Logprobs;
    if !target.dialect.has_logprobs(target.api) {
        let how = format!("this engine has none in the {} stream", target.api);
        return Ok((capability, Finding::no(how)));
    }
    let asked = Target { logprobs: true, token_counts: false, ..target.clone() };
    let trace = asking.attempt(&asked, row, json!({})).await?;
    Ok((capability, evidence(&trace, "logprobs")))
}

/// What a failed request says: only an answer that refuses it is a no.
fn failed(failure: &Failure, status: Option<u16>, how: &str) -> Finding {
    let said = format!("{how} the request failed: {}", failure.told());
    let refused = failure.kind == FailureKind::HttpStatus
        && status.is_some_and(|s| (400..500).contains(&s) && !matches!(s, 408 | 429));
    if refused { Finding::no(said) } else { Finding::unknown(said) }
}

/// Whether each event with text said how many tokens it holds.
fn evidence(trace: &Trace, how: &str) -> Finding {
    if let Some(failure) = trace.facts.outcome.failure() {
        return failed(failure, trace.facts.http_status, &format!("with {how}"));
    }
    let EventTokens { one, many, none, unknown, textless } = trace.facts.event_tokens;
    if unknown > 0 || one + many + none == 0 {
        return Finding::no(format!(
            "asked with {how}, {unknown} events do not say how many tokens they hold"
        ));
    }
    let mut said = format!("{how}: {one} events of one token");
    for (n, what) in [(many, "of several"), (none, "of none"), (textless, "tokens without text")] {
        if n > 0 {
            said.push_str(&format!(", {n} {what}"));
        }
    }
    Finding::yes(said)
}

async fn ignore_eos(asking: &mut Asking, target: &Target, row: &Row) -> Found {
    let capability = Capability::IgnoreEos;
    let dialect = target.dialect;
    if dialect.refuses("ignore_eos") || dialect.ignores("ignore_eos") {
        let verb = if dialect.refuses("ignore_eos") { "refuses" } else { "does not heed" };
        return Ok((capability, Finding::no(format!("this engine {verb} it"))));
    }
    let asked = Target { ignore_eos: true, ..target.clone() };
    let row = Row { max_tokens: Some(SOME), ..row.clone() };
    let trace = asking.attempt(&asked, &row, json!({})).await?;
    let said = |n: u64| format!("{n} of {SOME} tokens were generated");
    let finding = match (trace.facts.outcome.failure(), trace.facts.output_tokens.count) {
        (Some(f), _) => failed(f, trace.facts.http_status, "with it"),
        (None, Some(n)) if n < u64::from(SOME) => Finding::no(said(n)),
        (None, Some(n)) if dialect != Dialect::OPENAI => Finding::yes(said(n)),
        // Of an engine that is not known, an answer as long as that shows nothing: it may be so without being told.
        (None, Some(n)) => {
            let without = asking.attempt(target, &row, json!({})).await?.facts.output_tokens.count;
            match without {
                Some(fewer) if fewer < n => Finding::yes(format!("{}, and {fewer} without it", said(n))),
                _ => Finding::unknown(format!("{}, and as many without it", said(n))),
            }
        }
        (None, None) => Finding::unknown("the engine does not count its tokens"),
    };
    Ok((capability, finding))
}

async fn seed(asking: &mut Asking, target: &Target, row: &Row) -> Found {
    let capability = Capability::Seed;
    if target.dialect.ignores("seed") {
        return Ok((capability, Finding::no("this engine does not heed it")));
    }
    let mut texts = Vec::new();
    for seed in [1, 1, 2] {
        let trace = asking.attempt(target, row, json!({"temperature": 1, "seed": seed})).await?;
        if let Some(f) = trace.facts.outcome.failure() {
            return Ok((capability, failed(f, trace.facts.http_status, "with it")));
        }
        texts.push((trace.text.output_hash, trace.text.output_chars));
    }
    let finding = match (texts[0] == texts[1], texts[1] == texts[2]) {
        (true, false) => Finding::yes("one seed twice gave the same text, another seed another"),
        (true, true) => Finding::unknown("two seeds gave the same text"),
        (false, _) => Finding::no("one seed twice gave different texts"),
    };
    Ok((capability, finding))
}

async fn token_id_prompts(asking: &mut Asking, target: &Target) -> Found {
    let capability = Capability::TokenIdPrompts;
    if !target.dialect.traits().token_id_prompts || target.api == Api::Chat {
        let how = match target.api {
            Api::Chat => "the chat endpoint takes messages",
            Api::Completions => "this engine takes text only",
        };
        return Ok((capability, Finding::no(how)));
    }
    let row = Row { body: RowBody::TokenIds(IDS.to_vec()), max_tokens: Some(FEW), line: 1 };
    let trace = asking.attempt(target, &row, json!({})).await?;
    let sent = IDS.len() as u64;
    let finding = match (trace.facts.outcome.failure(), trace.facts.prompt_tokens) {
        (Some(f), _) => failed(f, trace.facts.http_status, "with them"),
        (None, Some(n)) if n == sent => Finding::yes(format!("{n} ids sent, {n} prompt tokens counted")),
        (None, Some(n)) if n == sent + 1 => {
            Finding::yes(format!("{sent} ids sent, {n} prompt tokens counted: the engine adds one"))
        }
        (None, Some(n)) => {
            Finding::no(format!("{sent} ids sent, {n} prompt tokens counted: taken for something else"))
        }
        (None, None) => Finding::unknown("taken, but the engine does not count prompt tokens"),
    };
    Ok((capability, finding))
}

async fn cache_reset(asking: &mut Asking, target: &Target) -> Found {
    let finding = match target.dialect.traits().cache_reset {
        None => Finding::no("no way is known; restart the engine"),
        Some(_) => match super::looks::reset_cache(asking, target).await? {
            Ok(how) => Finding::yes(how),
            Err(how) => Finding::no(how),
        },
    };
    Ok((Capability::CacheReset, finding))
}

/// Goes away in the middle of an answer and watches the engine's own gauge.
async fn abort_on_disconnect(asking: &mut Asking, target: &Target, row: &Row) -> Found {
    let mut found = cut_off(asking, target, row, MANY[0]).await?;
    if matches!(&found, Cut::Refused(_)) {
        found = cut_off(asking, target, row, MANY[1]).await?;
    }
    let finding = match found {
        Cut::Found(finding) => finding,
        Cut::Refused(how) => Finding::unknown(how),
    };
    Ok((Capability::AbortOnDisconnect, finding))
}

/// What came of going away.
enum Cut {
    Found(Finding),
    /// The engine did not take the request.
    Refused(String),
}

async fn cut_off(asking: &mut Asking, target: &Target, row: &Row, tokens: u32) -> Result<Cut, String> {
    let unknown = |how: &str| Ok(Cut::Found(Finding::unknown(how)));
    let Some((path, name)) = target.dialect.traits().metrics.and_then(|m| Some((m.path, m.running?))) else {
        return unknown("this engine has no gauge of running requests");
    };
    let path = target.base_url.beside_v1(path);
    let watcher = asking.watcher();
    let running = async || -> Result<Option<f64>, String> {
        Ok(watcher.get(target, &path).await?.ok().and_then(|answer| Page::read(&answer.body).value(name)))
    };
    let mut looks = 0;
    loop {
        match running().await? {
            None => return unknown("the engine does not show its gauge of running requests"),
            // It may still show the request before this one.
            Some(n) if n > 0.0 && looks < IDLE_LOOKS => {
                looks += 1;
                tokio::time::sleep(IDLE_LOOK).await;
            }
            Some(n) if n > 0.0 => return unknown("the engine is busy with others"),
            Some(_) => break,
        }
    }
    let (cut, mut cancelled) = watch::channel(false);
    let change = if target.dialect.ignores("ignore_eos") || target.dialect.refuses("ignore_eos") {
        json!({})
    } else {
        json!({"ignore_eos": true})
    };
    let row = Row { max_tokens: Some(tokens), ..row.clone() };
    let seen_running = async {
        loop {
            match running().await? {
                Some(n) if n > 0.0 => return Ok::<(), String>(()),
                _ => watcher.wait().await,
            }
        }
    };
    // In less the engine cannot have finished by itself, had it gone on.
    let needed = asking.fastest_token.map(|one| one.as_secs_f64() * f64::from(tokens));
    let answer = asking.attempt_until(target, &row, change, &mut cancelled);
    tokio::pin!(answer);
    tokio::select! {
        seen = seen_running => seen?,
        ended = &mut answer => {
            return match ended?.facts.outcome.failure() {
                Some(f) => Ok(Cut::Refused(format!("the request failed: {}", f.told()))),
                None => unknown("the answer ended before it was seen to run"),
            };
        }
    }
    cut.send_replace(true);
    let ended: Trace = answer.await?;
    if ended.facts.outcome.is_success() {
        return unknown("the answer ended before the connection was closed");
    }
    let closed = watcher.now();
    while watcher.now() - closed < ABORT_WITHIN {
        match running().await? {
            None => return unknown("the engine's gauge could not be read any more"),
            Some(n) if n > 0.0 => watcher.wait().await,
            Some(_) => {
                let after = (watcher.now() - closed).as_secs_f64();
                // The answer may have come to its end by itself.
                let how = format!("it ran no more {after:.1} s after the connection was closed");
                return Ok(Cut::Found(match needed {
                    Some(needed) if after < needed / 4.0 => Finding::yes(how),
                    _ => Finding::unknown(format!("{how}; the answer may have ended by itself by then")),
                }));
            }
        }
    }
    let how = format!("it still ran {} s after the connection was closed", ABORT_WITHIN.as_secs_f64());
    Ok(Cut::Found(Finding::no(how)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_that_do_not_say_what_they_hold_are_no_evidence() {
        use common::probe::Verdict::{No, Yes};
        let mut trace = Trace::unsent(
            common::trace::Unsent::default(),
            common::trace::Failure::new(common::trace::FailureKind::Reset, "gone"),
            Nanos::ZERO,
        );
        let gone = evidence(&trace, "logprobs");
        assert!(
            gone.verdict == common::probe::Verdict::Unknown && gone.how.contains("reset: gone"),
            "{gone:?}"
        );
        let verdict_of = |kind, status| failed(&Failure::new(kind, "no"), status, "with it").verdict;
        assert_eq!(verdict_of(FailureKind::HttpStatus, Some(422)), No);
        for (kind, status) in [
            (FailureKind::HttpStatus, Some(503)),
            (FailureKind::HttpStatus, Some(429)),
            (FailureKind::TimeoutTotal, Some(200)),
            (FailureKind::Connect, None),
        ] {
            assert_eq!(verdict_of(kind, status), common::probe::Verdict::Unknown);
        }
        trace.facts.outcome = common::trace::Outcome::Success;
        let verdict = |tokens| {
            let mut trace = trace.clone();
            trace.facts.event_tokens = tokens;
            evidence(&trace, "logprobs").verdict
        };
        assert_eq!(verdict(EventTokens::default()), No);
        assert_eq!(verdict(EventTokens { one: 3, unknown: 1, ..Default::default() }), No);
        assert_eq!(verdict(EventTokens { one: 3, many: 1, ..Default::default() }), Yes);
    }
}
