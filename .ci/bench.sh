#!/usr/bin/env bash
# Measures what Plimsoll itself costs and prints tables; nothing is asserted. docs/benchmarks.md explains
# them. `make bench` runs it. Names of benches as arguments run only those.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

CARGO=${CARGO:-cargo}

# Bench and the crate that it is of, in the order in which they run.
benches=(stream:agent memory:agent lateness:agent telemetry:agent ingest:coordinator analysis:coordinator)

wanted=" ${*:-stream memory lateness telemetry ingest analysis} "
for name in "$@"; do
  if [[ " ${benches[*]} " != *" $name:"* ]]; then
    printf 'bench: there is no bench %s; there are stream, memory, lateness, telemetry, ingest and analysis\n' "$name" >&2
    exit 2
  fi
done

# The binaries that the lateness bench runs, and the benches.
"$CARGO" build --release --locked -p coordinator -p agent -p sim-engine
"$CARGO" bench --locked --no-run -p agent --bench stream --bench memory --bench lateness --bench telemetry
"$CARGO" bench --locked --no-run -p coordinator --bench ingest --bench analysis

printf '\n%s cores, kernel %s, %s\n' "$(nproc)" "$(uname -r)" \
  "$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1)"
started=$SECONDS
for entry in "${benches[@]}"; do
  name=${entry%:*}
  [[ "$wanted" == *" $name "* ]] || continue
  command=("$CARGO" bench --quiet --locked -p "${entry#*:}" --bench "$name")
  printf '\n$ %s\n' "${command[*]}"
  printf 'load over the last minute: %s\n' "$(cut -d ' ' -f 1 /proc/loadavg)"
  "${command[@]}"
done
printf '\nmeasured in %d s\n' "$((SECONDS - started))"
