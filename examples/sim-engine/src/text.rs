//! Prompts and outputs as text.
//!
//! Owns the token count of a prompt (one token per 4 characters, rounded up, at least 1: a plain rule that anybody
//! can check, not a tokenizer), the seeded length of an answer and its words. Everything here is a pure function of
//! the prompt, the request's `seed` and the engine's `--seed`: the same request gets the same answer, whatever else
//! runs. One word is one token; a token's id is its word's place in [`WORDS`].

use std::sync::Arc;

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use crate::prefix::BLOCK_TOKENS;

/// The vocabulary. No word needs escaping in JSON.
pub(crate) const WORDS: [&str; 64] = [
    " the", " keel", " of", " a", " ship", " and", " cargo", " in", " hold", " to", " draft", " with",
    " line", " on", " hull", " as", " tide", " by", " mast", " from", " load", " at", " deck", " under",
    " anchor", " over", " bow", " when", " stern", " while", " rope", " near", " harbor", " past", " pilot",
    " until", " wave", " before", " wind", " after", " sail", " slow", " ballast", " full", " buoy", " deep",
    " chart", " calm", " crew", " late", " rudder", " long", " quay", " high", " bell", " low", " salt",
    " north", " fog", " south", " lamp", " east", " shore", " west",
];

/// Characters per prompt token.
const CHARS_PER_TOKEN: u64 = 4;

/// Tokens of a prompt with so many characters.
#[must_use]
pub fn prompt_tokens(chars: u64) -> u32 {
    u32::try_from(chars.div_ceil(CHARS_PER_TOKEN).max(1)).unwrap_or(u32::MAX)
}

/// FNV-1a, 64 bits: stable over platforms and releases, which the standard hasher is not.
#[must_use]
pub(crate) fn prompt_hash(text: &str) -> u64 {
    fnv(FNV_START, text.as_bytes())
}

const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;

fn fnv(start: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(start, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// Each full block of a text prompt, named by everything up to its end (see [`crate::prefix`]).
#[must_use]
pub(crate) fn text_blocks(text: &str) -> Arc<[u64]> {
    let block_chars = BLOCK_TOKENS as usize * CHARS_PER_TOKEN as usize;
    // Where each character ends; the last one of each full block is the one of interest.
    let ends = text.char_indices().map(|(at, char)| at + char.len_utf8());
    let ends = ends.skip(block_chars - 1).step_by(block_chars);
    let mut known = (0, FNV_START);
    ends.map(|end| {
        known = (end, fnv(known.1, &text.as_bytes()[known.0..end]));
        known.1
    })
    .collect()
}

/// The same of a prompt in token ids.
#[must_use]
pub(crate) fn id_blocks(ids: impl Iterator<Item = u64>) -> Arc<[u64]> {
    let mut known = FNV_START;
    let hashes = ids.map(|id| {
        known = fnv(known, &id.to_le_bytes());
        known
    });
    hashes.skip(BLOCK_TOKENS as usize - 1).step_by(BLOCK_TOKENS as usize).collect()
}

/// The tokens of one answer, in order and without end.
#[derive(Debug)]
pub(crate) struct Words {
    random: ChaCha8Rng,
}

impl Words {
    /// Also draws the length that the answer has of itself: uniform between `least` and `most`.
    pub(crate) fn seeded(
        engine_seed: u64,
        request_seed: u64,
        hash: u64,
        least: u32,
        most: u32,
    ) -> (Self, u32) {
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&engine_seed.to_le_bytes());
        seed[8..16].copy_from_slice(&request_seed.to_le_bytes());
        seed[16..24].copy_from_slice(&hash.to_le_bytes());
        let mut random = ChaCha8Rng::from_seed(seed);
        let least = least.clamp(1, most.max(1));
        let choices = u64::from(most.max(least) - least) + 1;
        // Multiply and shift: without the bias of a remainder that could matter for a 32-bit range.
        let step = (u64::from(random.next_u32()) * choices) >> 32;
        let length = least.saturating_add(u32::try_from(step).unwrap_or(0));
        (Self { random }, length)
    }

    /// The id of the next token.
    pub(crate) fn next_id(&mut self) -> usize {
        self.random.next_u32() as usize % WORDS.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_counts_a_token_per_four_characters_begun() {
        assert_eq!([0, 1, 4, 5, 8, 9].map(prompt_tokens), [1, 1, 1, 2, 2, 3]);
    }

    #[test]
    fn blocks_are_full_and_name_everything_before_them() {
        let text = "é".repeat(64) + &"b".repeat(64) + "c";
        let blocks = text_blocks(&text);
        assert_eq!(blocks.len(), 2);
        assert_eq!(blocks[0], prompt_hash(&"é".repeat(64)));
        assert_eq!(text_blocks(&text[..130])[..], blocks[..1], "one block and a bit");
        let other = text_blocks(&("e".repeat(64) + &"b".repeat(64)));
        assert_ne!(other[1], blocks[1], "the same block after another beginning");
        assert_eq!(text_blocks(&"x".repeat(63)).len(), 0);
        assert_eq!(id_blocks(0..47).len(), 2);
        assert_eq!(id_blocks(0..32)[..], id_blocks(0..47)[..]);
    }

    #[test]
    fn lengths_are_a_function_of_the_seeds_and_stay_in_range() {
        let length =
            |engine, request, prompt: &str| Words::seeded(engine, request, prompt_hash(prompt), 2, 9).1;
        let of_prompts = |engine| (0..200).map(|n| length(engine, 0, &n.to_string())).collect::<Vec<_>>();
        assert_eq!(of_prompts(1), of_prompts(1));
        assert_ne!(of_prompts(1), of_prompts(2));
        assert_ne!(of_prompts(1), (0..200).map(|n| length(1, 5, &n.to_string())).collect::<Vec<_>>());
        let seen: std::collections::BTreeSet<_> = of_prompts(1).into_iter().collect();
        assert_eq!(seen, (2..=9).collect());
    }

    #[test]
    fn words_do_not_depend_on_the_length() {
        let words = |most| {
            let (mut words, _) = Words::seeded(1, 2, 3, 1, most);
            (0..20).map(|_| words.next_id()).collect::<Vec<_>>()
        };
        assert_eq!(words(5), words(500));
    }

    #[test]
    fn no_word_needs_escaping() {
        for word in WORDS {
            assert_eq!(serde_json::to_string(word).unwrap(), format!("\"{word}\""));
        }
        let different: std::collections::BTreeSet<_> = WORDS.into_iter().collect();
        assert_eq!(different.len(), WORDS.len());
    }
}
