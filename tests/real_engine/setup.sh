#!/usr/bin/env bash
# Sets up the real llama.cpp for tests, in .real-engine/ at the repository's top (ignored by git):
#
#   .real-engine/venv/                    a Python environment with the pinned server
#   .real-engine/{ascii,eos,utf8}.gguf    tiny random models, made on the spot (see gguf.py)
#
# Safe to repeat, and to run twice at once: what is there and current is kept.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
top=$(cd -- "$here/../.." && pwd)
dir="$top/.real-engine"
venv="$dir/venv"
requirements="$here/requirements.txt"
python=${PYTHON:-python3}

fail() {
  printf 'real engine: %s\n' "$1" >&2
  exit 1
}

command -v "$python" >/dev/null || fail "no $python; install Python 3.10 or newer"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
  fail "$("$python" --version) is too old; install Python 3.10 or newer, or name one with PYTHON="

mkdir -p "$dir"
if command -v flock >/dev/null; then
  exec 9>"$dir/lock"
  flock 9
fi

# The copy of the requirements is written last: it says that the environment is complete.
if ! cmp -s "$requirements" "$dir/installed.txt" || ! "$venv/bin/python" -c 'import xllamacpp' 2>/dev/null; then
  printf 'real engine: installing into .real-engine/venv\n'
  rm -rf "$venv" "$dir/installed.txt"
  "$python" -m venv "$venv" >"$dir/venv.log" 2>&1 ||
    fail "cannot make a Python environment (on Debian and Ubuntu: apt-get install python3-venv); see .real-engine/venv.log"
  "$venv/bin/python" -m pip --disable-pip-version-check --no-input install --only-binary :all: \
    --requirement "$requirements" >"$dir/pip.log" 2>&1 ||
    fail "cannot install $(grep -v '^#' "$requirements"); see .real-engine/pip.log"
  cp -- "$requirements" "$dir/installed.txt"
fi

for mode in ascii eos utf8; do
  model="$dir/$mode.gguf"
  if [[ ! -s "$model" || "$here/gguf.py" -nt "$model" ]]; then
    "$python" "$here/gguf.py" --mode "$mode" "$model" >/dev/null
  fi
done
printf 'real engine: ready in .real-engine (%s)\n' "$(grep -v '^#' "$requirements")"
