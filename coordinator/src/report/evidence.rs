//! What the notes below the table say of tokens and of the engine's own time: whether counts agree, what the events
//! held, what came in one burst.
//!
//! It exists because such things change what a number means without changing the number. A line stands only where
//! there is something to say. It must never judge: of two counts that differ it says which one is taken.

use std::collections::BTreeMap;

use common::summary::{Numbers, TokenEvidence};

use super::notes::wrap;
use super::table::{number, percent_up};

/// Adds the lines of the trials with `numbers`. What objectives were lost to is said elsewhere, where there are any.
pub(super) fn notes(numbers: &[&Numbers], with_objectives: bool, lines: &mut Vec<String>) {
    let said = [
        counts(numbers),
        retokenized(numbers),
        prompt_lengths(numbers),
        events(numbers),
        bursts(numbers),
        short_outputs(numbers).filter(|_| !with_objectives),
        engine_time(numbers),
    ];
    said.into_iter().flatten().for_each(|text| wrap(&text, "", lines));
}

fn sum(numbers: &[&Numbers], of: impl Fn(&TokenEvidence) -> u64) -> u64 {
    numbers.iter().map(|n| of(&n.token_evidence)).sum()
}

fn successful(numbers: &[&Numbers]) -> u64 {
    numbers.iter().map(|n| n.successful).sum()
}

fn counts(numbers: &[&Numbers]) -> Option<String> {
    let (compared, differ) = (sum(numbers, |e| e.counts_compared), sum(numbers, |e| e.counts_differ));
    let text = format!(
        "Output tokens by usage and by the stream's own count differ for {differ} of {compared} requests; usage is \
         taken."
    );
    (differ > 0).then_some(text)
}

fn retokenized(numbers: &[&Numbers]) -> Option<String> {
    let differ = sum(numbers, |e| e.retokenized_differ);
    let compared = sum(numbers, |e| e.retokenized_compared);
    let most = numbers.iter().filter_map(|n| n.token_evidence.retokenized_relative_difference);
    let most = most.max_by(f64::total_cmp).filter(|_| differ > 0)?;
    Some(format!(
        "Output tokens by the engine and by its text, tokenised again, differ for {differ} of {compared} requests, by \
         at most {}% of a trial's tokens; the engine's are taken.",
        percent_up(most)
    ))
}

fn prompt_lengths(numbers: &[&Numbers]) -> Option<String> {
    let compared = sum(numbers, |e| e.prompt_lengths_compared);
    let differ = sum(numbers, |e| e.prompt_lengths_differ);
    let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
    for (kind, n) in numbers.iter().flat_map(|n| &n.token_evidence.prompt_length_differences) {
        *kinds.entry(kind).or_default() += n;
    }
    let mut kinds: Vec<(&str, u64)> = kinds.into_iter().collect();
    kinds.sort_by_key(|&(_, n)| std::cmp::Reverse(n));
    let (&(first, _), rest) = kinds.split_first()?;
    // More than was sent was added on the way.
    let all_more = kinds.iter().all(|(kind, _)| kind.parse::<i64>().is_ok_and(|d| d > 0));
    let why = if all_more { ": a BOS token or a template" } else { "" };
    Some(if rest.is_empty() {
        format!("prompt_tokens is {} than sent for {differ} of {compared} requests{why}.", by_how_much(first))
    } else {
        let kinds: Vec<String> =
            kinds.iter().map(|(kind, n)| format!("{} for {n}", by_how_much(kind))).collect();
        let kinds = kinds.join(", ");
        format!("prompt_tokens is not what was sent for {differ} of {compared} requests ({kinds}){why}.")
    })
}

/// A kind of difference in words.
fn by_how_much(kind: &str) -> String {
    match kind.strip_prefix('-') {
        Some(less) => format!("{less} less"),
        None if kind.parse::<u64>().is_ok() => format!("{kind} more"),
        None => kind.to_owned(),
    }
}

fn events(numbers: &[&Numbers]) -> Option<String> {
    let one = sum(numbers, |e| e.events_with_one_token);
    let several = sum(numbers, |e| e.events_with_several_tokens);
    let none = sum(numbers, |e| e.events_without_token);
    let unknown = sum(numbers, |e| e.events_with_unknown_tokens);
    let textless = sum(numbers, |e| e.events_without_text);
    if one + several + none == 0 {
        return None;
    }
    // A token without text at the end of a stream is an end of sequence, and usual.
    if several + none + unknown == 0 && textless <= successful(numbers) {
        return None;
    }
    let held = format!("{one} held one token, {several} several, {none} none");
    let unknown = if unknown > 0 { format!(", {unknown} did not say") } else { String::new() };
    let textless = match textless {
        0 => String::new(),
        n => format!("; {n} more without text held tokens"),
    };
    Some(format!("Of the events with text {held}{unknown}{textless}."))
}

fn bursts(numbers: &[&Numbers]) -> Option<String> {
    let bursts: u64 = numbers.iter().map(|n| n.coalesced_streams).sum();
    let of = successful(numbers);
    let text =
        format!("The text of {bursts} of {of} successful requests came in one burst: their TTFT is an E2E.");
    (bursts > 0).then_some(text)
}

fn short_outputs(numbers: &[&Numbers]) -> Option<String> {
    let short: u64 = numbers.iter().map(|n| n.short_outputs).sum();
    let of = successful(numbers);
    let text =
        format!("{short} of {of} successful requests brought fewer tokens than asked for under ignore_eos.");
    (short > 0).then_some(text)
}

fn engine_time(numbers: &[&Numbers]) -> Option<String> {
    let said = sum(numbers, |e| e.requests_with_engine_time);
    let times = numbers.iter().filter_map(|n| n.latency_seconds.engine_time.p50);
    let time = range(times)?;
    let overhead = range(numbers.iter().filter_map(|n| n.latency_seconds.engine_overhead.p50));
    let overhead = overhead.map_or_else(String::new, |overhead| {
        format!(", and {overhead} s more from the first byte written to the end")
    });
    let of = successful(numbers);
    Some(format!("By its own clock the engine took {time} s (median) for {said} of {of} requests{overhead}."))
}

/// The smallest and the largest median of a trial; one number where both show as the same.
fn range(medians: impl Iterator<Item = f64> + Clone) -> Option<String> {
    let least = number(medians.clone().min_by(f64::total_cmp)?);
    let most = number(medians.max_by(f64::total_cmp)?);
    Some(if least == most { least } else { format!("{least} to {most}") })
}

#[cfg(test)]
mod tests {
    use common::ids::Nanos;
    use common::trace::{EngineTime, EventTokens, Trace};

    use super::super::tests::{good, report, trial};
    use super::super::{Report, render_table};

    /// What stands below the table of a trial of `n` successes, each changed by its number.
    fn below(n: u64, change: impl Fn(usize, &mut Trace)) -> String {
        let mut traces = good(n);
        traces.iter_mut().enumerate().for_each(|(i, t)| change(i, t));
        unwrapped(&report(vec![trial(0, "4", 0, &traces, &[])]))
    }

    fn unwrapped(report: &Report) -> String {
        let text = render_table(report);
        assert!(text.lines().all(|line| line.chars().count() <= super::super::table::WIDTH), "{text}");
        text.replace("\n  ", " ")
    }

    #[track_caller]
    fn says(text: &str, what: &str) {
        assert!(text.lines().any(|line| line == what), "{what:?} is no line of\n{text}");
    }

    #[test]
    fn where_there_is_nothing_to_say_nothing_is_said() {
        let nothing = below(20, |_, _| ());
        // All that there is agrees: that is no news.
        let agrees = below(20, |_, t| {
            t.facts.stream_tokens = t.facts.output_tokens.count;
            t.facts.event_tokens = EventTokens { one: 8, textless: 1, ..EventTokens::default() };
            (t.facts.sent_prompt_tokens, t.facts.prompt_tokens) = (Some(9), Some(9));
        });
        assert_eq!(nothing, agrees);
        for word in ["usage", "tokenised", "prompt_tokens", "events", "burst", "ignore_eos", "clock"] {
            assert!(!nothing.contains(word), "{word:?} stands in\n{nothing}");
        }
    }

    #[test]
    fn counts_that_disagree_are_said_with_their_sources() {
        let text = below(20, |i, t| t.facts.stream_tokens = (i > 3).then_some(if i < 7 { 7 } else { 8 }));
        says(
            &text,
            "Output tokens by usage and by the stream's own count differ for 3 of 16 requests; usage is taken.",
        );
        let mut with_text = report(vec![trial(0, "4", 0, &good(3), &[])]);
        let numbers = with_text.trials[0].summary.numbers.as_mut().unwrap();
        let e = &mut numbers.token_evidence;
        (e.retokenized_compared, e.retokenized_differ) = (3, 2);
        e.retokenized_relative_difference = Some(0.012_341);
        says(
            &unwrapped(&with_text),
            "Output tokens by the engine and by its text, tokenised again, differ for 2 of 3 requests, by at most \
             1.24% of a trial's tokens; the engine's are taken.",
        );
    }

    #[test]
    fn prompts_of_another_length_are_said_with_the_difference() {
        let of = |said: fn(usize) -> u64| {
            below(4, |i, t| (t.facts.sent_prompt_tokens, t.facts.prompt_tokens) = (Some(10), Some(said(i))))
        };
        says(
            &of(|_| 11),
            "prompt_tokens is 1 more than sent for 4 of 4 requests: a BOS token or a template.",
        );
        says(&of(|i| if i == 0 { 7 } else { 10 }), "prompt_tokens is 3 less than sent for 1 of 4 requests.");
        says(
            &of(|i| if i == 0 { 7 } else { 12 }),
            "prompt_tokens is not what was sent for 4 of 4 requests (2 more for 3, 3 less for 1).",
        );
        says(
            &of(|i| if i == 0 { 10 } else { 10 + i as u64 / 2 }),
            "prompt_tokens is 1 more than sent for 2 of 4 requests: a BOS token or a template.",
        );
        // Differences are told apart within a trial, and summed over the trials.
        let mut traces = good(9);
        for (trace, i) in traces.iter_mut().zip(1..) {
            (trace.facts.sent_prompt_tokens, trace.facts.prompt_tokens) = (Some(10), Some(10 + i));
        }
        let text = unwrapped(&report(vec![trial(0, "4", 0, &traces, &[]), trial(1, "4", 1, &traces, &[])]));
        let line = text.lines().find(|l| l.starts_with("prompt_tokens")).unwrap();
        assert!(line.contains("for 18 of 18 requests (") && line.contains("other for 2)."), "{line}");
    }

    #[test]
    fn events_that_are_not_tokens_are_said() {
        let of = |tokens: EventTokens| below(2, |_, t| t.facts.event_tokens = tokens);
        let none = EventTokens::default();
        says(
            &of(EventTokens { one: 5, many: 2, none: 1, unknown: 0, textless: 1 }),
            "Of the events with text 10 held one token, 4 several, 2 none; 2 more without text held tokens.",
        );
        says(
            &of(EventTokens { one: 5, unknown: 1, ..none }),
            "Of the events with text 10 held one token, 0 several, 0 none, 2 did not say.",
        );
        says(
            &of(EventTokens { one: 5, textless: 3, ..none }),
            "Of the events with text 10 held one token, 0 several, 0 none; 6 more without text held tokens.",
        );
        assert!(
            !of(EventTokens { unknown: 8, ..none }).contains("events"),
            "without evidence there is nothing"
        );
    }

    #[test]
    fn bursts_and_short_outputs_are_said_once() {
        let burst = below(4, |i, t| t.facts.stream_coalesced = i == 0);
        says(&burst, "The text of 1 of 4 successful requests came in one burst: their TTFT is an E2E.");
        let short = |t: &mut Trace| t.facts.short_output = true;
        let lost = below(4, |_, t| short(t));
        assert_eq!(lost.matches("short_output 4").count(), 1, "{lost}");
        assert!(!lost.contains("ignore_eos"), "the causes say it already:\n{lost}");
        let mut traces = good(4);
        short(&mut traces[0]);
        let asked = report(vec![trial(0, "4", 0, &traces, &[])]);
        let nothing_asked = Report { slos: Default::default(), ..asked };
        says(
            &unwrapped(&nothing_asked),
            "1 of 4 successful requests brought fewer tokens than asked for under ignore_eos.",
        );
    }

    #[test]
    fn the_engines_own_time_is_said_with_what_is_beside_it() {
        let timed = |milliseconds: u64| {
            let mut traces = good(4);
            for trace in &mut traces[..3] {
                let ms = |ms| Some(Nanos::from_millis(ms));
                trace.facts.engine_time =
                    EngineTime { queue: None, first_token: ms(milliseconds), generation: ms(40) };
            }
            traces
        };
        // Each takes 100 ms.
        let one = unwrapped(&report(vec![trial(0, "4", 0, &timed(30), &[])]));
        says(
            &one,
            "By its own clock the engine took 0.070 s (median) for 3 of 4 requests, and 0.030 s more from the first \
             byte written to the end.",
        );
        let two = report(vec![trial(0, "4", 0, &timed(30), &[]), trial(1, "8", 0, &timed(10), &[])]);
        says(
            &unwrapped(&two),
            "By its own clock the engine took 0.050 to 0.070 s (median) for 6 of 8 requests, and 0.030 to 0.050 s \
             more from the first byte written to the end.",
        );
    }
}
