#!/usr/bin/env bash
# Makes a machine ready: installs what can be installed here, and says in one line how to get the rest.
#
#   setup.sh build   what compiling needs (make build, make demo)
#   setup.sh python  what the real engine's set-up needs (make real-engine)
#   setup.sh all     all of that, and what the tests and lints need
#   setup.sh chromium  only says which browser the tests take
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

# The newest one that every supported toolchain can compile.
nextest_version=0.9.114

fail() {
  printf 'setup: %s\n' "$1" >&2
  exit 1
}

# True when the first dotted version is at least the second.
at_least() {
  [[ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" == "$2" ]]
}

require_rust() {
  local wanted found
  wanted=$(sed -n 's/^rust-version *= *"\(.*\)"/\1/p' Cargo.toml)
  if ! command -v cargo >/dev/null || ! command -v rustc >/dev/null; then
    fail "Rust is missing; install $wanted or newer with rustup (https://rustup.rs), then run this again"
  fi
  found=$(rustc --version | sed -n 's/^rustc \([0-9.]*\).*/\1/p')
  at_least "$found" "$wanted" || fail "rustc $found is too old; run: rustup update stable (needs $wanted or newer)"
}

# Runs a command as root, or fails when that needs a password.
as_root() {
  if [[ "$(id -u)" == 0 ]]; then
    "$@"
  else
    sudo -n "$@"
  fi
}

can_be_root() {
  [[ "$(id -u)" == 0 ]] || { command -v sudo >/dev/null && sudo -n true 2>/dev/null; }
}

# Installs the named Debian packages; on any other system, says what is missing.
install_packages() {
  local what=$1
  shift
  if command -v apt-get >/dev/null && can_be_root; then
    printf 'setup: installing %s\n' "$*"
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
  else
    fail "$what missing; on Debian and Ubuntu: sudo apt-get install $*"
  fi
}

require_c() {
  command -v cc >/dev/null || install_packages "a C compiler is" gcc libc6-dev
}

has_python() {
  command -v python3 >/dev/null && python3 -c 'import ensurepip, venv' 2>/dev/null
}

require_python() {
  has_python || install_packages "python3 with venv is" python3 python3-venv
}

# A test runs the commands of docs/security.md.
require_openssl() {
  command -v openssl >/dev/null || install_packages "openssl is" openssl
}

# Tests see the live screen in a real terminal.
require_tmux() {
  command -v tmux >/dev/null || install_packages "tmux is" tmux
}

# npm and python3 fetch and check what pages embed.
require_web_assets() {
  command -v npm >/dev/null || install_packages "npm is" npm
  command -v python3 >/dev/null || install_packages "python3 is" python3
  .ci/web_assets.sh
}

# Where it is, under the names that its packages give it: a file, for its driver takes no name.
find_chromium() {
  type -P chromium || type -P chromium-browser || type -P google-chrome
}

# Tests open the pages in it, and drive it by its driver.
require_chromium() {
  # The driver, too: without it the live page is not walked.
  { find_chromium && type -P chromedriver; } >/dev/null || install_packages "Chromium is" chromium chromium-driver fonts-dejavu-core
}

require_component() {
  local component=$1
  cargo "${component#rust}" --version >/dev/null 2>&1 && return
  command -v rustup >/dev/null || fail "$component is missing; install it with the Rust toolchain"
  rustup component add "$component"
}

require_nextest() {
  cargo nextest --version >/dev/null 2>&1 && return
  printf 'setup: building cargo-nextest %s, once, some minutes\n' "$nextest_version"
  cargo install --locked cargo-nextest --version "$nextest_version"
}

case "${1:-all}" in
build)
  require_rust
  require_c
  require_web_assets
  ;;
python)
  require_python
  ;;
all)
  require_rust
  require_c
  require_web_assets
  require_python
  require_openssl
  require_chromium
  require_tmux
  require_component rustfmt
  require_component clippy
  require_nextest
  ;;
chromium)
  find_chromium || fail "no Chromium; run: .ci/setup.sh all"
  ;;
*) fail "usage: setup.sh [build|python|all|chromium]" ;;
esac
