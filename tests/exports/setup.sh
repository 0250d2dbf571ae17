#!/usr/bin/env bash
# Installs what reads an export, for the test of the snippets in docs/exports.md, in .export-readers/ at the repository's top
# (ignored by git). Safe to repeat: what is there and current is kept.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
dir="$(cd -- "$here/../.." && pwd)/.export-readers"
requirements="$here/requirements.txt"
python=${PYTHON:-python3}

fail() {
  printf 'export readers: %s\n' "$1" >&2
  exit 1
}

command -v "$python" >/dev/null || fail "no $python; install Python 3.11 or newer"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
  fail "$("$python" --version) is too old; install Python 3.11 or newer, or name one with PYTHON="

mkdir -p "$dir"
if command -v flock >/dev/null; then
  exec 9>"$dir/lock"
  flock 9
fi

# The copy of the requirements is written last: it says that the environment is complete.
if ! cmp -s "$requirements" "$dir/installed.txt"; then
  printf 'export readers: installing into .export-readers/venv\n'
  rm -rf "$dir/venv" "$dir/installed.txt"
  "$python" -m venv "$dir/venv" >"$dir/venv.log" 2>&1 ||
    fail "cannot make a Python environment (on Debian and Ubuntu: apt-get install python3-venv); see .export-readers/venv.log"
  "$dir/venv/bin/python" -m pip --disable-pip-version-check --no-input install --only-binary :all: \
    --requirement "$requirements" >"$dir/pip.log" 2>&1 || fail "cannot install them; see .export-readers/pip.log"
  cp -- "$requirements" "$dir/installed.txt"
fi
printf 'export readers: ready in .export-readers (%s)\n' "$(grep -v '^#' "$requirements" | tr '\n' ' ')"
