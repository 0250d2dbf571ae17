//! What is counted of a trial's requests.

use std::collections::BTreeMap;

use crate::trace::{Facts, TokenSource};

#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) successful: u64,
    pub(super) good: u64,
    pub(super) output_tokens: u64,
    pub(super) input_tokens: u64,
    pub(super) cached_tokens: u64,
    pub(super) with_output: u64,
    pub(super) with_input: u64,
    pub(super) with_cached: u64,
    pub(super) sources: BTreeMap<TokenSource, u64>,
    pub(super) itl_proven: u64,
    pub(super) reconnections: u64,
    pub(super) done_without_finish: u64,
    pub(super) short_outputs: u64,
    pub(super) coalesced_streams: u64,
    pub(super) content_events: u64,
    pub(super) coalesced_events: u64,
    pub(super) repeated_prompts: u64,
    pub(super) synthetic: u64,
}

impl Counts {
    pub(super) fn add_success(&mut self, facts: &Facts, itl_proven: bool) {
        self.successful += 1;
        *self.sources.entry(facts.output_tokens.source).or_default() += 1;
        let add = |count: Option<u64>, sum: &mut u64, known: &mut u64| {
            if let Some(count) = count {
                *sum = sum.saturating_add(count);
                *known += 1;
            }
        };
        add(facts.output_tokens.count, &mut self.output_tokens, &mut self.with_output);
        add(facts.prompt_tokens, &mut self.input_tokens, &mut self.with_input);
        add(facts.cached_tokens, &mut self.cached_tokens, &mut self.with_cached);
        self.itl_proven += u64::from(itl_proven);
        self.done_without_finish += u64::from(facts.done_seen && facts.finish_reason.is_none());
        self.short_outputs += u64::from(facts.short_output);
        self.coalesced_streams += u64::from(facts.stream_coalesced);
        self.coalesced_events += u64::from(facts.coalesced_events);
    }
}
