#!/usr/bin/env bash
# A sweep against a simulated engine, on this machine alone: it finds the knee, prints the report and
# ends the engine. The exit code is the sweep's. `make demo` builds and runs it.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

# The engine: its slots fill between 4 and 8 requests a second, so that the knee lies inside the sweep.
SLOTS=${DEMO_SLOTS:-8}
PREFILL_RATE=${DEMO_PREFILL_RATE:-8000} # tokens a second
PREFILL_BASE_MS=${DEMO_PREFILL_BASE_MS:-5}
STEP_MS=${DEMO_STEP_MS:-12}
STEP_PER_SEQ_MS=${DEMO_STEP_PER_SEQ_MS:-1.5}

# The sweep. The budget for late sends is wider than its default: here engine, agents and coordinator
# share the machine's cores.
RATES=${DEMO_RATES:-1,2,4,8}
AGENTS=${DEMO_AGENTS:-2}
DURATION=${DEMO_DURATION:-10s}
REPEATS=${DEMO_REPEATS:-1}
LATE_BUDGET=${DEMO_LATE_BUDGET:-20ms}
DATA=${DEMO_DATA:-./plimsoll-data}
# The live page, on a free port.
WEB=${DEMO_WEB:-127.0.0.1:0}

BIN=${DEMO_BIN:-target/debug}
START_SECONDS=10

logs=$(mktemp -d)
engine=

# shellcheck disable=SC2329 # the trap below runs it
finish() {
  local status=$?
  trap - EXIT
  if [[ -n "$engine" ]]; then
    kill -TERM "$engine" 2>/dev/null || true
    for _ in {1..40}; do
      kill -0 "$engine" 2>/dev/null || break
      sleep 0.05
    done
    kill -KILL "$engine" 2>/dev/null || true
    wait "$engine" 2>/dev/null || true
  fi
  if ((status != 0 && status < 128)) && [[ -s "$logs/engine.err" ]]; then
    printf '\nthe simulated engine said, last:\n' >&2
    tail -n 20 "$logs/engine.err" >&2
  fi
  rm -rf "$logs"
  exit "$status"
}
trap finish EXIT
trap 'exit 129' HUP
trap 'exit 143' TERM
# Ctrl-C reaches the coordinator, which drains and reports; then this script goes on to its end.
trap : INT

# In a process group of its own, so that Ctrl-C does not end the engine under the draining sweep.
# Made here, for the loop below may look before the engine has opened it.
: >"$logs/engine.out"
set -m
"$BIN/sim-engine" --listen 127.0.0.1:0 --slots "$SLOTS" \
  --prefill-rate "$PREFILL_RATE" --prefill-base-ms "$PREFILL_BASE_MS" \
  --step-ms "$STEP_MS" --step-per-seq-ms "$STEP_PER_SEQ_MS" \
  </dev/null >"$logs/engine.out" 2>"$logs/engine.err" &
engine=$!
set +m

url=
deadline=$((SECONDS + START_SECONDS))
while [[ -z "$url" ]]; do
  url=$(sed -n 's/^sim-engine listening on \(http[^ ]*\)$/\1/p;q' "$logs/engine.out")
  [[ -n "$url" ]] && break
  if ! kill -0 "$engine" 2>/dev/null; then
    printf 'demo: the simulated engine ended before it listened\n' >&2
    exit 1
  fi
  if ((SECONDS >= deadline)); then
    printf 'demo: the simulated engine did not listen within %d s\n' "$START_SECONDS" >&2
    exit 1
  fi
  sleep 0.05
done

command=("$BIN/coordinator" sweep --rates "$RATES" --local-agents "$AGENTS" --base-url "$url"
  --slo ttft=1s --slo tpot=50ms --duration "$DURATION" --repeats "$REPEATS"
  --late-budget "$LATE_BUDGET" --data "$DATA" --web "$WEB")
printf '$ %s\n' "${command[*]}"
status=0
"${command[@]}" || status=$?
exit "$status"
