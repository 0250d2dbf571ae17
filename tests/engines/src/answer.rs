//! Decides what an engine says: how many tokens, which text comes out with each, why it ends.
//!
//! Tokens are pieces of words and of characters: a character of several tokens comes out with its last one, and the
//! tokens before it carry no text, as in byte-level vocabularies.

use crate::ask::Ask;
use crate::expected::Channel;
use crate::rng::{self, Rng};
use crate::state::State;

/// Words as a small model would say them; some need escapes in JSON.
const WORDS: &[&str] = &[
    " the",
    " of",
    "a",
    "ing",
    " is",
    "\n",
    " \"quoted\"",
    " back\\slash",
    "\t",
    " naïve",
    "é",
    ".",
    ",",
    " 12",
    "Error",
    " x",
    "\u{10}",
    " data:",
    "[DONE]",
    " null",
    "}",
    "{\"a\":",
    " Straße",
    "ß",
];
/// Characters that take several tokens, with how many.
const SPLIT: &[(&str, usize)] = &[("€", 3), ("语", 3), ("😀", 4), ("👩‍🚀", 2), (" ü", 2)];
/// The id of the token that ends an answer.
const END: u32 = 2;
/// Tokens where a request says no number.
const DEFAULT_TOKENS: u64 = 16;

/// One token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) id: u32,
    /// The text that comes out with it; empty where it is held back.
    pub(crate) text: String,
    pub(crate) channel: Channel,
}

/// What of a request this engine heeds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Habits {
    /// `ignore_eos`.
    pub(crate) ignores_eos: bool,
    /// `seed`.
    pub(crate) has_seed: bool,
    /// The prefix cache works in blocks of so many tokens.
    pub(crate) cache_block: u64,
}

/// What will be said.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) tokens: Vec<Token>,
    /// `length` or `stop`.
    pub(crate) finish: &'static str,
    pub(crate) prompt_ids: Vec<u32>,
    /// Prompt tokens found in the prefix cache.
    pub(crate) cached: u64,
    /// The request's number.
    pub(crate) number: u64,
}

impl Answer {
    /// The answer to `ask`.
    pub(crate) fn to(ask: &Ask, habits: Habits, state: &State) -> Self {
        let prompt_ids = ask.prompt_ids();
        let number = state.serve();
        let cached = state.look_up(&prompt_ids) / habits.cache_block * habits.cache_block;
        let drawn = match ask.seed.filter(|_| habits.has_seed) {
            _ if ask.temperature == 0.0 => 0,
            Some(seed) => rng::hash([1, seed as u64]),
            None => rng::hash([2, number]),
        };
        let seed = rng::hash(prompt_ids.iter().map(|&id| u64::from(id)).chain([drawn]));
        let limit = ask.max_tokens.unwrap_or(DEFAULT_TOKENS);
        let mut rng = Rng::new(seed);
        // About two answers in five want to end before the 25th token.
        let wants = 4 + rng.below(50) as u64;
        let ends = !(ask.ignore_eos && habits.ignores_eos) && wants < limit;
        let mut tokens = spoken(&mut rng, if ends { wants - 1 } else { limit } as usize);
        if ends {
            tokens.push(Token { id: END, text: String::new(), channel: Channel::Answer });
        }
        Self { tokens, finish: if ends { "stop" } else { "length" }, prompt_ids, cached, number }
    }

    /// Tokens of the prompt.
    pub(crate) fn prompt_tokens(&self) -> u64 {
        self.prompt_ids.len() as u64
    }

    /// Tokens of the answer.
    pub(crate) fn len(&self) -> u64 {
        self.tokens.len() as u64
    }

    /// The first `n` tokens are reasoning.
    pub(crate) fn reason(&mut self, n: usize) {
        self.tokens.iter_mut().take(n).for_each(|t| t.channel = Channel::Reasoning);
    }

    /// All of it is the arguments of a tool call.
    pub(crate) fn call_tool(&mut self) {
        self.tokens.iter_mut().for_each(|t| t.channel = Channel::ToolCall);
        self.finish = "tool_calls";
    }

    /// The context is full after half of the tokens.
    pub(crate) fn run_out(&mut self) {
        self.stop_after(self.tokens.len() / 2);
        self.finish = "length";
    }

    /// Ends after `n` tokens, for whatever reason.
    pub(crate) fn stop_after(&mut self, n: usize) {
        self.tokens.truncate(n.max(1));
    }

    /// Every piece of a character of several tokens comes out as a replacement character.
    pub(crate) fn break_characters(&mut self) {
        for token in self.tokens.iter_mut().filter(|t| (130..300).contains(&t.id)) {
            token.text = "\u{fffd}".to_owned();
        }
    }

    /// Whether the token at `at` is the last.
    pub(crate) fn is_last(&self, at: usize) -> bool {
        at + 1 == self.tokens.len()
    }
}

fn spoken(rng: &mut Rng, n: usize) -> Vec<Token> {
    let mut tokens = Vec::with_capacity(n);
    let token =
        |id: usize, text: &str| Token { id: id as u32, text: text.to_owned(), channel: Channel::Answer };
    // The first token has text, so that every engine has a first event.
    while tokens.len() < n {
        let (text, pieces) = SPLIT[rng.below(SPLIT.len())];
        if !tokens.is_empty() && rng.below(6) == 0 && tokens.len() + pieces <= n {
            (1..pieces).for_each(|piece| tokens.push(token(130 + piece, "")));
            tokens.push(token(140 + pieces, text));
        } else {
            let word = rng.below(WORDS.len());
            tokens.push(token(300 + word, WORDS[word]));
        }
    }
    tokens
}

/// How tokens are put into events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// One event for each token, with or without text.
    Token,
    /// Events have text: a token that is held back comes with the next that is not.
    Text,
    /// The first token alone, then so many at a time.
    Interval(usize),
    /// One to four at a time, as speculation has it.
    Bursts,
    /// All in one.
    All,
}

/// The ranges of tokens that make an event each. An event never spans two channels.
pub(crate) fn events(tokens: &[Token], by: By) -> Vec<std::ops::Range<usize>> {
    let mut ranges = Vec::new();
    let mut begin = 0;
    for at in 0..tokens.len() {
        let last = at + 1 == tokens.len();
        let other_channel = !last && tokens[at + 1].channel != tokens[at].channel;
        let size = at + 1 - begin;
        let full = match by {
            By::Token => true,
            By::Text => !tokens[at].text.is_empty(),
            By::Interval(n) => begin == 0 || size == n,
            By::Bursts => size == [1, 3, 2, 4][ranges.len() % 4],
            By::All => false,
        };
        if full || last || other_channel {
            ranges.push(begin..at + 1);
            begin = at + 1;
        }
    }
    ranges
}

/// The text of some tokens.
pub(crate) fn text_of(tokens: &[Token]) -> String {
    tokens.iter().map(|t| t.text.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ask::Api;

    const HABITS: Habits = Habits { ignores_eos: true, has_seed: true, cache_block: 1 };

    fn answer(fields: &str, habits: Habits, state: &State) -> Answer {
        let body = format!(r#"{{"prompt":"one two three","max_tokens":40{fields}}}"#);
        Answer::to(&Ask::read(Api::Completions, body.as_bytes()).unwrap(), habits, state)
    }

    #[test]
    fn the_same_seed_gives_the_same_text_and_greed_needs_none() {
        let state = State::default();
        let text = |fields: &str, habits| text_of(&answer(fields, habits, &state).tokens);
        let (four, five) = (r#","ignore_eos":true,"seed":4"#, r#","ignore_eos":true,"seed":5"#);
        assert_eq!(text(four, HABITS), text(four, HABITS));
        assert_ne!(text(four, HABITS), text(five, HABITS));
        let seedless = Habits { has_seed: false, ..HABITS };
        assert_ne!(text(four, seedless), text(four, seedless));
        let greedy = r#","temperature":0"#;
        assert_eq!(text(greedy, seedless), text(&format!("{greedy},\"seed\":9"), HABITS));
    }

    #[test]
    fn ignore_eos_gives_the_number_asked_for_and_without_it_some_end_earlier() {
        let state = State::default();
        let seeds = 0..50;
        let run = |seed: i64, eos: bool, habits| {
            answer(&format!(r#","seed":{seed},"ignore_eos":{eos}"#), habits, &state)
        };
        assert!(seeds.clone().all(|s| run(s, true, HABITS).len() == 40));
        let early = |habits, eos| seeds.clone().filter(|&s| run(s, eos, habits).finish == "stop").count();
        assert!((10..50).contains(&early(HABITS, false)));
        let deaf = Habits { ignores_eos: false, ..HABITS };
        assert_eq!(early(deaf, true), early(HABITS, false));
        let some = run(1, true, HABITS).tokens;
        assert!(!some[0].text.is_empty());
        let held = (0..50).any(|s| run(s, true, HABITS).tokens.iter().any(|t| t.text.is_empty()));
        assert!(held, "some text is held back");
    }

    #[test]
    fn every_token_is_in_one_event() {
        let state = State::default();
        for seed in 0..50 {
            let mut answer = answer(&format!(r#","seed":{seed}"#), HABITS, &state);
            answer.reason(5);
            for by in [By::Token, By::Text, By::Interval(4), By::Bursts, By::All] {
                let ranges = events(&answer.tokens, by);
                let all: Vec<usize> = ranges.iter().cloned().flatten().collect();
                assert_eq!(all, (0..answer.tokens.len()).collect::<Vec<_>>(), "{by:?}");
                for range in ranges {
                    let channel = answer.tokens[range.start].channel;
                    assert!(answer.tokens[range].iter().all(|t| t.channel == channel));
                }
            }
        }
    }
}
