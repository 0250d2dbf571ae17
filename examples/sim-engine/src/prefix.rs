//! The prefix cache: which beginnings of prompts the engine still knows.
//!
//! Owns the blocks in the cache and their order of use. As in vLLM, a prompt is cut into blocks of [`BLOCK_TOKENS`]
//! tokens, a block is named by a hash of *everything up to its end*, and only full blocks are kept; what is hit is the
//! longest run of known blocks from the prompt's beginning. The least recently used block goes first, and of one
//! prompt's blocks the last first: a block without those before it is of no use. (Here the cache has a capacity of
//! its own; in vLLM it lives in the free part of the KV cache.)
//!
//! Must never count a prompt's last token as a hit: an engine has to compute that one to have something to sample
//! from.

use std::collections::{BTreeMap, HashMap};

/// Tokens of a block, as in vLLM.
pub const BLOCK_TOKENS: u32 = 16;

/// See the module's page.
#[derive(Debug)]
pub(crate) struct PrefixCache {
    /// Blocks that fit.
    capacity: usize,
    /// When each block was last used; a stamp names one block.
    used: HashMap<u64, u64>,
    by_use: BTreeMap<u64, u64>,
    next_stamp: u64,
}

impl PrefixCache {
    /// Room for so many tokens; less than a block is no room.
    pub(crate) fn new(tokens: u32) -> Self {
        Self {
            capacity: (tokens / BLOCK_TOKENS) as usize,
            used: HashMap::new(),
            by_use: BTreeMap::new(),
            next_stamp: 0,
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.capacity > 0
    }

    /// How many tokens of a prompt are known; they count as used.
    pub(crate) fn hit(&mut self, blocks: &[u64], prompt_tokens: u32) -> u32 {
        let usable = prompt_tokens.saturating_sub(1) / BLOCK_TOKENS;
        let usable = blocks.iter().take(usable as usize);
        let known = usable.take_while(|block| self.used.contains_key(block)).count();
        self.touch(blocks.get(..known).unwrap_or_default());
        known as u32 * BLOCK_TOKENS
    }

    /// The blocks of a prompt that was computed are known from now on, as far as there is room.
    pub(crate) fn insert(&mut self, blocks: &[u64]) {
        // More than fits would push out its own beginning, which is the part that can be hit.
        let blocks = blocks.get(..self.capacity).unwrap_or(blocks);
        self.touch(blocks);
        while self.used.len() > self.capacity {
            let Some((_, oldest)) = self.by_use.pop_first() else { return };
            self.used.remove(&oldest);
        }
    }

    fn touch(&mut self, blocks: &[u64]) {
        for block in blocks.iter().rev() {
            self.next_stamp += 1;
            if let Some(before) = self.used.insert(*block, self.next_stamp) {
                self.by_use.remove(&before);
            }
            self.by_use.insert(self.next_stamp, *block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_from_the_beginning_is_hit() {
        let mut cache = PrefixCache::new(160);
        cache.insert(&[1, 2, 3]);
        assert_eq!(cache.hit(&[1, 2, 3, 4], 70), 48);
        assert_eq!(cache.hit(&[1, 2, 9, 3], 70), 32);
        assert_eq!(cache.hit(&[9, 1], 70), 0);
        assert_eq!(cache.hit(&[], 70), 0);
    }

    #[test]
    fn the_last_token_is_always_computed() {
        let mut cache = PrefixCache::new(160);
        cache.insert(&[1, 2]);
        assert_eq!([33, 32, 17, 16, 1].map(|tokens| cache.hit(&[1, 2], tokens)), [32, 16, 16, 0, 0]);
    }

    #[test]
    fn the_least_recently_used_goes_and_the_end_of_a_prompt_before_its_beginning() {
        let mut cache = PrefixCache::new(64);
        cache.insert(&[1, 2]);
        cache.insert(&[11, 12]);
        assert_eq!(cache.hit(&[1, 2], 40), 32, "used again");
        cache.insert(&[21]);
        assert_eq!(cache.hit(&[11, 12], 40), 16, "its end went first");
        assert_eq!(cache.hit(&[1, 2], 40), 32);
        cache.insert(&[31, 32, 33, 34, 35]);
        assert_eq!(cache.hit(&[31, 32, 33, 34, 35], 90), 64, "as much as there is room for");
        assert_eq!(cache.hit(&[1, 2], 40), 0);
        assert!(!PrefixCache::new(15).is_on());
    }
}
