//! Checks of what this crate reads from outside: see [`common::fuzz`]. Those of the measured path are in
//! `engine/fuzz.rs`.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use common::dialect::Dialect;
use common::disk::{Disk, SimDisk};
use common::fuzz::{self, Target};
use common::ids::{AgentName, Nanos, RunId, Seq};
use common::trace::segment::Block;

pub use crate::engine::fuzz::{EVENTS, HTTP, SSE};
use crate::launch::Recipe;
use crate::spool::held;
use crate::telemetry::engine::Page;

/// A spool whose segment is of any bytes, or of any blocks whose checksums fit: what is read of it is contiguous, whole
/// and its own, and the file stays as it was.
pub const SPOOL: Target = Target {
    name: "spool",
    valid: fuzz::segment_inputs,
    check: |bytes| {
        spool_is_sound(bytes);
        spool_is_sound(&fuzz::in_a_segment(bytes));
    },
};

#[expect(clippy::expect_used, reason = "a check fails by a panic")]
fn spool_is_sound(file: &[u8]) {
    let (disk, dir) = (SimDisk::default(), Path::new("/spool/a"));
    let agent: AgentName = "a".parse().expect("a name");
    let run: RunId = "r".parse().expect("a name");
    let path = dir.join("runs/r/0-1-0000000000000007.seg");
    disk.replace(&path, file).expect("it takes all");
    let segments = held::segments_of(&disk, dir, &agent, &run).expect("any bytes can be read");
    assert_eq!(segments.len(), 1);
    assert!(segments[0].torn_bytes <= segments[0].bytes && segments[0].bytes == file.len() as u64);
    for backlog in held::backlogs(&disk, dir, &agent, &run).expect("any bytes can be read") {
        let mut next = backlog.held_from(Seq(0)).expect("it is not empty");
        let (mut taken, mut traces) = (0, 0);
        while next < backlog.next() {
            let (blocks, after) = backlog.read_from(&disk, next, 1).expect("it can be read");
            assert!(after > next, "no progress");
            for bytes in blocks {
                let block = Block::decode(&bytes).expect("only whole blocks are given");
                let header = block.header();
                assert_eq!((&header.agent, header.incarnation.0, header.first_seq), (&agent, 7, next));
                (next, taken) = (block.next_seq(), taken + bytes.len());
                traces += u64::from(header.count);
            }
            assert_eq!(next, after);
        }
        assert!(taken <= file.len());
        assert_eq!(traces, backlog.traces());
    }
    assert_eq!(disk.read(&path).expect("it is there"), file, "reading changed it");
}

/// Recipes of engines: understood or refused with the file's name; secrets of the environment are not shown.
pub const RECIPE: Target = Target {
    name: "recipe",
    valid: || {
        let files = [
            include_bytes!("../../deploy/engines/vllm.toml").as_slice(),
            include_bytes!("../../deploy/engines/llamacpp.toml").as_slice(),
            b"name = \"x\"\ndialect = \"vllm\"\ncommand = [\"serve\", \"${a}\"]\nbase_url = \"http://127.0.0.1:${port}\"\n\
              env_secret = [\"E\"]\nlog = \"l\"\n[env]\nE = 1\n[ready]\npath = \"/h\"\ntimeout_seconds = 6\n\
              [stop]\ngrace_seconds = 3\n[vars]\nport = 8000\na = \"${recipe_dir}\"\n",
        ];
        files.map(<[u8]>::to_vec).to_vec()
    },
    check: |bytes| {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("plimsoll-fuzz-{}-{number}.toml", std::process::id());
        let path = std::env::temp_dir().join(name);
        if std::fs::write(&path, bytes).is_err() {
            return;
        }
        let loaded = Recipe::load(&path, None, &[("checkpoint".to_owned(), "c".to_owned())]);
        let over = Recipe::load(&path, Some(&path), &[]);
        let _ = std::fs::remove_file(&path);
        match loaded {
            Ok(recipe) => {
                assert!(!recipe.command.is_empty() && !recipe.name.is_empty());
                let _ = (format!("{recipe:?}"), recipe.check_dialect(str::parse::<Dialect>));
            }
            Err(e) => assert!(e.to_string().contains("plimsoll-fuzz-"), "{e}"),
        }
        drop(over);
    },
};

/// Pages of metrics, under the names of every dialect.
pub const PROMETHEUS: Target = Target {
    name: "prometheus",
    valid: || {
        vec![
            b"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine=\"0\",m=\"a b\"} 2.0 1700\n\
              vllm:generation_tokens_total 12\nvllm:time_to_first_token_seconds_bucket{le=\"0.1\"} 3\n\
              vllm:time_to_first_token_seconds_bucket{le=\"+Inf\"} 4 # {t=\"x\"} 0.5 17\n\
              vllm:time_to_first_token_seconds_sum 1.5\nvllm:time_to_first_token_seconds_count 4\n"
                .to_vec(),
            b"sglang:num_running_reqs{x=\"\\\"}\"} NaN\nsglang:token_usage 0.5\nllamacpp:requests_processing 1\n".to_vec(),
        ]
    },
    check: |bytes| {
        let page = Page::read(bytes);
        let lines = bytes.split(|&b| b == b'\n').count();
        for metrics in Dialect::all().filter_map(|dialect| dialect.traits().metrics) {
            let sample = page.sample(&metrics, Nanos(7));
            for histogram in [sample.ttft, sample.queue_time, sample.e2e].into_iter().flatten() {
                let buckets = histogram.buckets;
                assert!(buckets.len() <= lines && buckets.windows(2).all(|pair| pair[0].0 < pair[1].0));
                assert!(buckets.iter().all(|(bound, _)| bound.is_finite()));
            }
        }
    },
};

/// Every check of this crate.
pub const TARGETS: &[Target] = &[SSE, EVENTS, HTTP, SPOOL, RECIPE, PROMETHEUS];

#[cfg(test)]
mod tests {
    use super::*;
    use common::fuzz_twin;

    fuzz_twin!(sse_of_any_bytes, SSE, 512);
    fuzz_twin!(events_of_any_bytes, EVENTS, 512);
    fuzz_twin!(http_of_any_bytes, HTTP, 256);
    fuzz_twin!(spools_of_any_bytes, SPOOL, 256);
    fuzz_twin!(recipes_of_any_bytes, RECIPE, 256);
    fuzz_twin!(metrics_of_any_bytes, PROMETHEUS, 512);
}
