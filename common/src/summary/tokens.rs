//! What there is to check a trial's token counts by: how many tokens its events held, whether the engine's counts
//! agree with each other and with the text, and whether a prompt that was sent as token ids arrived as such.
//!
//! It exists because a rate in tokens per second is only as good as the counts behind it. It must never change a
//! count, nor choose between two that differ: it says that they do. Over the successes; the tests beside it hold each
//! number.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::trace::{Facts, TokenSource};

/// Kinds of a difference that are told apart; the rest is under [`OTHER`]. A BOS token or a template gives one kind or
/// a few; more of them are noise, and must not make the report long.
const KINDS: usize = 8;
/// The name of the rest.
const OTHER: &str = "other";

/// What there is to check the counts of tokens by, over the successes.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TokenEvidence {
    /// Events with text that are shown to hold one token.
    pub events_with_one_token: u64,
    /// Events with text that are shown to hold several.
    pub events_with_several_tokens: u64,
    /// Events with text that hold none, by the engine's count.
    pub events_without_token: u64,
    /// Events with text that do not say how many they hold.
    pub events_with_unknown_tokens: u64,
    /// Events without text that hold tokens: text was held back, or the token has none.
    pub events_without_text: u64,
    /// Requests whose output tokens come from usage and were counted by the events too.
    pub counts_compared: u64,
    /// Those of them for which the two differ.
    pub counts_differ: u64,
    /// Requests whose known output tokens were held against the text, tokenised again.
    pub retokenized_compared: u64,
    /// Those of them for which the two differ.
    pub retokenized_differ: u64,
    /// Σ|text's tokens − known tokens| / Σ known tokens, over those compared. None without any.
    pub retokenized_relative_difference: Option<f64>,
    /// Requests whose prompt was sent as token ids and for which the engine said how long it was.
    pub prompt_lengths_compared: u64,
    /// Those of them for which the two differ.
    pub prompt_lengths_differ: u64,
    /// Requests by `prompt_tokens` − tokens sent, where that is not 0: the 8 most frequent differences, and the rest
    /// under `other`.
    pub prompt_length_differences: BTreeMap<String, u64>,
    /// Requests for which the engine said how long it took.
    pub requests_with_engine_time: u64,
}

/// Takes successes one at a time.
#[derive(Debug, Default)]
pub(super) struct TokenTally {
    evidence: TokenEvidence,
    prompt_differences: BTreeMap<i64, u64>,
    counted: u64,
    difference: u64,
}

impl TokenTally {
    /// Takes a success.
    pub(super) fn add(&mut self, facts: &Facts) {
        let e = &mut self.evidence;
        let events = facts.event_tokens;
        e.events_with_one_token += u64::from(events.one);
        e.events_with_several_tokens += u64::from(events.many);
        e.events_without_token += u64::from(events.none);
        e.events_with_unknown_tokens += u64::from(events.unknown);
        e.events_without_text += u64::from(events.textless);
        e.requests_with_engine_time += u64::from(facts.engine_time.total().is_some());
        // A count that comes from the stream is not held against the stream.
        let usage = facts.output_tokens.count.filter(|_| facts.output_tokens.source == TokenSource::Usage);
        if let Some((usage, stream)) = usage.zip(facts.stream_tokens) {
            e.counts_compared += 1;
            e.counts_differ += u64::from(usage != stream);
        }
        if let Some((said, sent)) = facts.prompt_tokens.zip(facts.sent_prompt_tokens) {
            e.prompt_lengths_compared += 1;
            if said != u64::from(sent) {
                e.prompt_lengths_differ += 1;
                let difference = i128::from(said) - i128::from(sent);
                let difference = i64::try_from(difference).unwrap_or(i64::MAX);
                *self.prompt_differences.entry(difference).or_default() += 1;
            }
        }
    }

    /// Holds a success's known output tokens against its text, tokenised again.
    pub(super) fn compare_retokenized(&mut self, counted: u64, retokenized: u64) {
        self.evidence.retokenized_compared += 1;
        self.evidence.retokenized_differ += u64::from(counted != retokenized);
        self.counted = self.counted.saturating_add(counted);
        self.difference = self.difference.saturating_add(counted.abs_diff(retokenized));
    }

    pub(super) fn evidence(self) -> TokenEvidence {
        TokenEvidence {
            retokenized_relative_difference: (self.counted > 0)
                .then(|| self.difference as f64 / self.counted as f64),
            prompt_length_differences: most_frequent(self.prompt_differences),
            ..self.evidence
        }
    }
}

/// The [`KINDS`] most frequent, of equals the smaller difference first, and the sum of the rest.
fn most_frequent(differences: BTreeMap<i64, u64>) -> BTreeMap<String, u64> {
    let mut kinds: Vec<(i64, u64)> = differences.into_iter().collect();
    kinds.sort_by_key(|&(difference, n)| (std::cmp::Reverse(n), difference.unsigned_abs()));
    let rest: u64 = kinds.iter().skip(KINDS).map(|(_, n)| n).sum();
    let named = kinds.into_iter().take(KINDS).map(|(difference, n)| (difference.to_string(), n));
    named.chain((rest > 0).then(|| (OTHER.to_owned(), rest))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Nanos;
    use crate::slo::SloSet;
    use crate::summary::fixture::{agents, failure, input, samples, success, trial};
    use crate::summary::{Numbers, Summariser, TrialSummary};
    use crate::trace::{Channel, EngineTime, EventTokens, FailureKind, OutputTokens, Trace};

    fn numbers(traces: &[Trace]) -> Numbers {
        trial("1", &SloSet::default(), traces).numbers.expect("the books balance")
    }

    /// `n` successes, each changed by its number.
    fn changed(n: u64, change: impl Fn(u64, &mut Trace)) -> Vec<Trace> {
        let of = |i| {
            let mut trace = success(i, i * 1_000, 100, 500, 5);
            change(i, &mut trace);
            trace
        };
        (0..n).map(of).collect()
    }

    #[test]
    fn events_are_summed_over_the_successes_only() {
        let tokens = EventTokens { one: 4, many: 3, none: 2, unknown: 1, textless: 5 };
        let mut traces = changed(2, |_, t| t.facts.event_tokens = tokens);
        let mut failed = failure(2, 0, 10, FailureKind::Reset);
        failed.facts.event_tokens = tokens;
        traces.push(failed);
        let e = numbers(&traces).token_evidence;
        assert_eq!(
            (e.events_with_one_token, e.events_with_several_tokens, e.events_without_token),
            (8, 6, 4)
        );
        assert_eq!((e.events_with_unknown_tokens, e.events_without_text), (2, 10));
        let nothing = numbers(&changed(2, |_, _| ())).token_evidence;
        assert_eq!(nothing, TokenEvidence::default());
    }

    #[test]
    fn only_usage_is_held_against_the_stream() {
        let e = numbers(&changed(6, |i, t| {
            t.facts.stream_tokens = [Some(5), Some(5), Some(4), None, Some(4), Some(5)][i as usize];
            match i {
                4 => t.facts.output_tokens.source = TokenSource::StreamCounts,
                5 => t.facts.output_tokens = OutputTokens::default(),
                _ => {}
            }
        }))
        .token_evidence;
        assert_eq!((e.counts_compared, e.counts_differ), (3, 1));
    }

    #[test]
    fn the_text_is_held_against_known_counts_by_the_sum_of_what_differs() {
        let (none, agents) = (SloSet::default(), agents(&["a1"]));
        let traces = changed(3, |_, _| ());
        let mut summariser = Summariser::new(input(3, &none, &agents));
        samples(&traces).for_each(|s| summariser.add(s));
        // One too few and one too many do not make up for each other.
        for retokenized in [5, 4, 6] {
            summariser.compare_retokenized(5, retokenized);
        }
        let n = summariser.finish().numbers.unwrap();
        let e = &n.token_evidence;
        assert_eq!((e.retokenized_compared, e.retokenized_differ), (3, 2));
        assert_eq!(e.retokenized_relative_difference, Some(2.0 / 15.0));
        assert_eq!((n.output_tokens, n.requests_with_token_counts), (15, 3), "evidence changes no count");
    }

    #[test]
    fn prompts_of_another_length_are_counted_by_how_much() {
        let e = numbers(&changed(7, |i, t| {
            t.facts.sent_prompt_tokens =
                [Some(10), Some(10), Some(10), Some(10), None, Some(10), Some(10)][i as usize];
            t.facts.prompt_tokens =
                [Some(11), Some(11), Some(10), Some(7), Some(9), None, Some(u64::MAX)][i as usize];
        }))
        .token_evidence;
        assert_eq!((e.prompt_lengths_compared, e.prompt_lengths_differ), (5, 4));
        let kinds = [("-3".to_owned(), 1), ("1".to_owned(), 2), (i64::MAX.to_string(), 1)];
        assert_eq!(e.prompt_length_differences, kinds.into());
    }

    #[test]
    fn the_most_frequent_differences_keep_their_names() {
        // Difference d occurs d times, 1 to 11.
        let e = numbers(&changed(66, |i, t| {
            let d = (1..).find(|d| i < d * (d + 1) / 2).unwrap();
            t.facts.sent_prompt_tokens = Some(10);
            t.facts.prompt_tokens = Some(10 + d);
        }))
        .token_evidence;
        let differences = e.prompt_length_differences;
        assert_eq!(differences.len(), KINDS + 1);
        assert_eq!((differences["11"], differences["4"], differences[OTHER]), (11, 4, 1 + 2 + 3));
        assert_eq!(differences.values().sum::<u64>(), e.prompt_lengths_differ);
    }

    #[test]
    fn channels_and_the_engines_time_have_distributions_over_those_that_have_them() {
        let traces = changed(4, |i, t| {
            let first_token = Some(Nanos::from_millis(50 + i));
            match i {
                0 => t.clocks.content.iter_mut().for_each(|e| e.channel = Channel::Reasoning),
                1 => t.clocks.content[0].channel = Channel::Reasoning,
                2 => {
                    let generation = Some(Nanos::from_millis(300));
                    t.facts.engine_time =
                        EngineTime { queue: Some(Nanos::from_millis(8)), first_token, generation };
                }
                _ => t.facts.engine_time = EngineTime { first_token, ..EngineTime::default() },
            }
        });
        let n = numbers(&traces);
        let l = &n.latency_seconds;
        assert_eq!((l.first_answer.n, l.first_answer.max), (3, Some(0.2)), "the second event answers");
        assert_eq!((l.first_reasoning.n, l.first_reasoning.max), (2, Some(0.1)));
        assert_eq!((l.engine_queue.n, l.engine_queue.max), (1, Some(0.008)));
        assert_eq!((l.engine_first_token.n, l.engine_first_token.max), (2, Some(0.053)));
        assert_eq!((l.engine_time.n, l.engine_time.max), (1, Some(0.36)));
        assert_eq!((l.engine_overhead.n, l.engine_overhead.max), (1, Some(0.14)));
        assert_eq!(n.token_evidence.requests_with_engine_time, 1);
    }

    #[test]
    fn a_summary_of_before_there_was_evidence_is_read() {
        let summary = trial("1", &SloSet::default(), &changed(2, |_, _| ()));
        let mut json = serde_json::to_value(&summary).unwrap();
        let fields = json.as_object_mut().unwrap();
        fields.remove("token_evidence").expect("it is written");
        let latencies = fields["latency_seconds"].as_object_mut().unwrap();
        for name in [
            "first_answer",
            "first_reasoning",
            "engine_queue",
            "engine_first_token",
            "engine_time",
            "engine_overhead",
        ] {
            latencies.remove(name).expect("it is written");
        }
        let read: TrialSummary = serde_json::from_value(json).unwrap();
        let n = read.numbers.expect("the numbers are there");
        assert_eq!((n.token_evidence, n.latency_seconds.first_answer.n), (TokenEvidence::default(), 0));
        assert_eq!(n.latency_seconds.ttft.n, 2);
    }
}
