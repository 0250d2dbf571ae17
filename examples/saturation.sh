#!/bin/sh
# Finds an engine's knee from two agent hosts, started by hand. Prints each command before it runs it.
set -eu

usage() {
    cat <<'USAGE'
Usage:
  saturation.sh agent COORDINATOR_HOST          on each of the two agent hosts
  saturation.sh coordinator ENGINE_URL [FLAG…]  on the coordinator's host
  saturation.sh -n …                            print the command, do not run it

The order does not matter: an agent waits for its coordinator, and stays for the next sweep. The engine's URL must
be reachable from both agent hosts, and so must port 7000 of the coordinator's host. Further flags go to the
coordinator as they are, for example --workload examples/workloads/mixed.jsonl --metadata my-engine.json.

The agents need the coordinator's join token: set PLIMSOLL_TOKEN to the same secret on all three hosts, or start the
coordinator first, which makes a token and prints it, and set it for the agents.

Environment:
  PORT    where the coordinator listens for agents   (7000)
  AGENTS  how many agents it waits for               (2)
  RATES   requests per second to try                 (1,2,4,8)
  BIN     directory of the binaries                  (from PATH)
  PLIMSOLL_TOKEN  the join token                     (made by the coordinator)

Example, with the simulated engine on the coordinator's host c:
  c$  sim-engine --listen 0.0.0.0:8000
  c$  export PLIMSOLL_TOKEN=$(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n')
  c$  examples/saturation.sh coordinator http://c:8000
  a$  PLIMSOLL_TOKEN=... examples/saturation.sh agent c
  b$  PLIMSOLL_TOKEN=... examples/saturation.sh agent c
USAGE
}

run() {
    printf '+'
    printf ' %s' "$@"
    printf '\n'
    if [ "$dry_run" = no ]; then
        exec "$@"
    fi
}

dry_run=no
if [ "${1-}" = -n ]; then
    dry_run=yes
    shift
fi

port=${PORT:-7000}
bin=${BIN:+$BIN/}
role=${1-}
[ $# -gt 0 ] && shift

case $role in
    agent)
        if [ $# -ne 1 ]; then
            usage >&2
            exit 2
        fi
        run "${bin}agent" --join "$1:$port"
        ;;
    coordinator)
        if [ $# -lt 1 ]; then
            usage >&2
            exit 2
        fi
        url=$1
        shift
        run "${bin}coordinator" sweep --agents "${AGENTS:-2}" --listen "0.0.0.0:$port" \
            --rates "${RATES:-1,2,4,8}" --base-url "$url" --slo ttft=1s --slo tpot=50ms "$@"
        ;;
    -h | --help | help)
        usage
        ;;
    *)
        usage >&2
        exit 2
        ;;
esac
