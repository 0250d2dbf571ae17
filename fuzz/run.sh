#!/usr/bin/env bash
# Runs every fuzz target for SECONDS_EACH (default 20), from fuzz/seeds, with libFuzzer and the nightly compiler. It does
# what `cargo fuzz run` does, so that cargo-fuzz need not be installed. What it finds is written to fuzz/artifacts.
set -euo pipefail
cd "$(dirname "$0")"
seconds="${1:-20}"
if ! rustup run nightly rustc --version >/dev/null 2>&1; then
    printf 'FUZZING IS LEFT OUT: it needs a nightly compiler (rustup toolchain install nightly); the property tests of make test run the same checks\n'
    exit 0
fi
flags="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters"
flags+=" -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares -Cllvm-args=-simplifycfg-branch-fold-threshold=0 --cfg fuzzing"
host="$(rustup run nightly rustc -vV | sed -n 's/^host: //p')"
# With --target the flags are for the targets only, not for build scripts.
RUSTFLAGS="$flags" rustup run nightly cargo build --release --target "$host" --bins
mkdir -p artifacts
failed=0
for file in fuzz_targets/*.rs; do
    name="$(basename "$file" .rs)"
    mkdir -p "corpus/$name"
    printf '== %s\n' "$name"
    "target/$host/release/$name" "corpus/$name" "seeds/$name" -max_total_time="$seconds" -max_len=65536 \
        -rss_limit_mb=4096 -timeout=20 -artifact_prefix="artifacts/$name-" -print_final_stats=1 2>"artifacts/$name.log" \
        || { failed=1; tail -n 20 "artifacts/$name.log"; printf '%s FOUND SOMETHING: fuzz/artifacts/%s-*; keep it in fuzz/seeds/%s\n' "$name" "$name" "$name"; }
    sed -n 's/^stat::number_of_executed_units: */executions: /p' "artifacts/$name.log"
done
exit "$failed"
