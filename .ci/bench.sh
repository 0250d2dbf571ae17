#!/usr/bin/env bash
# Measures what Plimsoll costs, by itself and beside other clients, and prints tables; nothing is asserted.
# docs/benchmarks.md explains them. `make bench` runs it. Names of benches as arguments run only those.
# BENCH_QUICK=1: a quick form of each, in 3 minutes. PEERS: options of .ci/peers/bench.py.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

CARGO=${CARGO:-cargo}
PEERS=${PEERS:-}
quick=${BENCH_QUICK:-0}
if [[ "$quick" == 1 ]]; then
  export BENCH_QUICK ANALYSIS_TRACES=${ANALYSIS_TRACES:-10000,100000}
fi

# Bench and the crate that it is of, in the order in which they run.
benches=(stream:agent memory:agent pacing:agent lateness:agent telemetry:agent ingest:coordinator analysis:coordinator fleet:scale around: peers:)

wanted=" ${*:-stream memory pacing lateness telemetry ingest analysis fleet around peers} "
for name in "$@"; do
  if [[ " ${benches[*]} " != *" $name:"* ]]; then
    printf 'bench: there is no bench %s; there are stream, memory, pacing, lateness, telemetry, ingest, analysis, fleet, around and peers\n' "$name" >&2
    exit 2
  fi
done

# The binaries that the lateness bench runs, and the benches.
"$CARGO" build --release --locked -p coordinator -p agent -p sim-engine
if [[ "$wanted" != " peers " ]]; then
  "$CARGO" bench --locked --no-run -p agent --bench stream --bench memory --bench pacing --bench lateness --bench telemetry
  "$CARGO" bench --locked --no-run -p coordinator --bench ingest --bench analysis
  [[ "$wanted" != *" fleet "* ]] || "$CARGO" bench --locked --no-run -p scale --bench fleet
fi

printf '\n%s cores, kernel %s, %s\n' "$(nproc)" "$(uname -r)" \
  "$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1)"
started=$SECONDS
for entry in "${benches[@]}"; do
  name=${entry%:*}
  [[ "$wanted" == *" $name "* && "$name" != peers ]] || continue
  command=("$CARGO" bench --quiet --locked -p "${entry#*:}" --bench "$name")
  [[ "$name" != around ]] || command=(python3 .ci/around.py --bin "${CARGO_TARGET_DIR:-target}/release")
  printf '\n$ %s\n' "${command[*]}"
  printf 'load over the last minute: %s\n' "$(cut -d ' ' -f 1 /proc/loadavg)"
  "${command[@]}"
done
if [[ "$wanted" == *" peers "* ]]; then
  read -ra options <<<"$PEERS"
  [[ "$quick" != 1 ]] || options+=(--quick)
  printf '\n$ python3 .ci/peers/bench.py %s\n' "${options[*]}"
  if compgen -G '.bench-peers/*.installed' >/dev/null || [[ "$*" == peers ]]; then
    python3 .ci/peers/bench.py "${options[@]}"
  else
    printf 'beside other clients: none is installed (make peers-setup)\n'
  fi
fi
printf '\nmeasured in %d s\n' "$((SECONDS - started))"
