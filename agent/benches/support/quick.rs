//! How much is measured: `BENCH_QUICK=1` asks for less (`make bench-quick`).

/// How often things take turns, where `full` is what is asked for otherwise.
pub(crate) fn turns(full: usize) -> usize {
    if std::env::var_os("BENCH_QUICK").is_some_and(|value| value == "1") { 1 } else { full }
}
