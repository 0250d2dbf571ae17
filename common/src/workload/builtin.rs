//! The workload that is used when none is given: short to middling prompts, short to middling answers.
//!
//! It is generated, so that the binary needs no file, and pinned by its digest in the record.

use crate::seed::{Seed, Stream};

const ROWS: usize = 64;

const SUBJECTS: &[&str] = &[
    "a harbour at low tide",
    "the tide tables of an estuary",
    "a lock keeper's morning",
    "loading a bulk carrier",
    "the stability of a ship",
    "a storm in the shipping lane",
    "a crane that lifts containers",
    "the cargo manifest",
    "a pilot boarding at dawn",
    "the depth of a dredged channel",
    "ballast water",
    "a lighthouse and its lamp",
];
const TASKS: &[&str] = &[
    "Describe",
    "Explain to a child",
    "Summarise what matters about",
    "List three risks of",
    "Write a short story about",
    "Compare two views of",
];
const DETAILS: &[&str] = &[
    "The weather has turned and the wind is from the north.",
    "Nobody has checked the gauge since yesterday.",
    "Two ships wait outside for a berth.",
    "The load is measured in tonnes and the draught in metres.",
    "The record is kept in a book with a blue cover.",
    "A second opinion would be welcome.",
    "The crew has been awake since midnight.",
    "The mark on the hull is barely above the water.",
];

fn pick<'a>(random: &mut Stream, from: &[&'a str]) -> &'a str {
    from[random.below(from.len() as u64) as usize]
}

/// The bytes of the built-in workload, as a JSON Lines file.
#[must_use]
pub fn builtin() -> Vec<u8> {
    let mut random = Seed(1876).stream("builtin workload v1");
    let mut lines = String::new();
    for row in 0..ROWS {
        let mut prompt = format!("{} {}.", pick(&mut random, TASKS), pick(&mut random, SUBJECTS));
        // 0 to 7 details: prompts from about 30 to about 450 characters.
        for _ in 0..random.below(8) {
            prompt.push(' ');
            prompt.push_str(pick(&mut random, DETAILS));
        }
        // Distinct prompts, so that a prefix cache does not serve one row from another whole.
        prompt.push_str(&format!(" (case {row})"));
        let max_tokens = [16, 32, 32, 64, 64, 128][random.below(6) as usize];
        let line = serde_json::json!({"prompt": prompt, "max_tokens": max_tokens});
        lines.push_str(&line.to_string());
        lines.push('\n');
    }
    lines.into_bytes()
}
