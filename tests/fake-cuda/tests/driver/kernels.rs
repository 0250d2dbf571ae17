//! Contexts, memory, modules, and the time that kernels take.

use std::fs;

use fake_cuda::library;

use crate::harness::Fake;

const SCENARIO: &str = r#"{"kernel_ms": 3, "kernels_ms": {"burn": 20},
    "devices": [{"memory_mib": 8192, "used_mib": 1024, "uuid": "GPU-11111111-2222-3333-4444-555555555555"}]}"#;

#[test]
fn a_client_allocates_loads_and_launches() {
    let fake = Fake::without(&[]);
    let burns = fake.file("burns");
    let burns_name = burns.to_str().expect("a path");
    let found = fake.run("work", SCENARIO, &[("FAKE_NVML_BURN_FILE", burns_name)]);
    assert!(found.status.success() && !found.lines.contains_key("error"), "{:?}", found.lines);
    assert_eq!(found.get("loadless"), "Err(CUDA_ERROR_NOT_INITIALIZED)");
    assert_eq!(found.get("name"), "NVIDIA H200");
    assert_eq!((found.number("byte"), found.number("leaked")), (7, 0));
    assert_eq!(found.number("kept"), 4 << 20);
    assert_eq!(found.get("read"), "Some(0)");
    assert_eq!(found.get("too_much"), "Err(CUDA_ERROR_OUT_OF_MEMORY)");
    assert_eq!(found.get("no_ptx"), "Err(CUDA_ERROR_INVALID_PTX)");
    assert_eq!(found.get("no_kernel"), "Err(CUDA_ERROR_NOT_FOUND)");

    // Each kernel is written down when it is launched, and runs when the one before is over.
    let written = fs::read_to_string(&burns).expect("the burn file");
    let runs: Vec<(i64, i64)> = written
        .lines()
        .map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            assert_eq!(words[2..], ["GPU-11111111-2222-3333-4444-555555555555"]);
            (words[0].parse().expect("from"), words[1].parse().expect("to"))
        })
        .collect();
    let lengths: Vec<i64> = runs.iter().map(|(from, to)| (to - from) / 1_000_000).collect();
    assert_eq!(lengths, [20, 20, 3]);
    assert!(runs.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{runs:?}");
    assert!((found.number("before")..=found.number("launched")).contains(&runs[0].0));
    assert!(found.number("synchronized") >= runs[2].1, "it did not wait for the last");
}

#[test]
fn without_a_burn_file_none_is_written() {
    let fake = Fake::without(&[]);
    let found = fake.run("work", SCENARIO, &[]);
    assert!(found.number("synchronized") > found.number("before"));
    let files = fs::read_dir(fake.file("")).expect("the folder").count();
    assert_eq!(files, library::NAMES.len(), "something else than the library is there");
}
