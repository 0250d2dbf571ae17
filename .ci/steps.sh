#!/usr/bin/env bash
# Runs make targets one after the other and prints how long each took; stops at the first that fails.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

names=()
seconds=()
results=()

summary() {
  local i
  printf '\n%-12s %8s  %s\n' step seconds result
  for i in "${!names[@]}"; do
    printf '%-12s %8d  %s\n' "${names[$i]}" "${seconds[$i]}" "${results[$i]}"
  done
}

for name in "$@"; do
  printf '\n==> %s\n' "$name"
  started=$SECONDS
  status=0
  "${MAKE:-make}" --no-print-directory "$name" || status=$?
  names+=("$name")
  seconds+=($((SECONDS - started)))
  if ((status != 0)); then
    results+=("failed with $status")
    summary
    exit "$status"
  fi
  results+=(ok)
done
summary
