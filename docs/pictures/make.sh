#!/usr/bin/env bash
# Makes the pictures of the docs from a run: a sweep against the simulated engine, seen while it goes on (its page in Chromium,
# its screen in tmux), and its report.html.
# PICTURES_RUN=FOLDER takes the report.html of a run that is there, such as one of a real engine. `make pictures` builds first.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."

BIN=${PICTURES_BIN:-target/debug}
OUT=${PICTURES_OUT:-docs/pictures}
chromium=$(.ci/setup.sh chromium)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

run=${PICTURES_RUN:-}
if [[ -z "$run" ]]; then
  DEMO_BIN="$BIN" DEMO_DATA="$work/data" DEMO_RATES=${PICTURES_RATES:-1,2,4,6,8} DEMO_REPEATS=${PICTURES_REPEATS:-2} \
    DEMO_DURATION=${PICTURES_DURATION:-15s} .ci/demo.sh
  run=$(printf '%s\n' "$work"/data/runs/* | tail -n 1)
fi
page=$(realpath -- "$run/report.html")

# A copy that shows one section alone. Its policy goes, for it knows the page's own style only.
alone() {
  sed -e '0,/<meta http-equiv="Content-Security-Policy"[^>]*>/s///' \
    -e "0,/<\/head>/s//<style>body > header, main > section:not(#$1) { display: none; } main { padding: 0 1.5rem; }<\/style><\/head>/" \
    "$page" >"$work/$1.html"
  printf '%s\n' "$work/$1.html"
}

# picture NAME WIDTH HEIGHT FILE [OPTION...]: what a window of that size shows of a page.
picture() {
  local name=$1 width=$2 height=$3 file=$4
  shift 4
  "$chromium" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars --user-data-dir="$work/profile" \
    --virtual-time-budget=10000 --window-size="$width,$height" --screenshot="$work/$name.png" "$@" "file://$file" \
    >"$work/$name.log" 2>&1
  [[ -s "$work/$name.png" ]] || { cat "$work/$name.log" >&2; exit 1; }
  mv "$work/$name.png" "$OUT/$name.png"
  printf 'wrote %s\n' "$OUT/$name.png"
}

mkdir -p "$OUT"
picture report 1240 960 "$page"
picture report-dark 1240 960 "$page" --blink-settings=preferredColorScheme=0
picture report-charts 1240 1180 "$(alone over-rate)"
picture report-trial 1240 1360 "$(alone in-time)"

# While it goes on, in the terminal of a tmux of its own and with a page. At 62 s four of its five trials are over.
address=127.0.0.1:$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
tmux=(tmux -L "plimsoll-pictures-$$" -f /dev/null)
trap '"${tmux[@]}" kill-server 2>/dev/null || true; rm -rf "$work"' EXIT
"${tmux[@]}" new-session -d -x 100 -y 40 "DEMO_BIN='$BIN' DEMO_DATA='$work/live' DEMO_RATES=1,2,4,6,8 DEMO_DURATION=12s \
  DEMO_WEB=$address NO_COLOR=1 .ci/demo.sh; sleep 60"
sleep 62
"${tmux[@]}" capture-pane -p >"$OUT/screen.txt"
printf 'wrote %s\n' "$OUT/screen.txt"
# Its events never end, so that no virtual time can wait for them.
"$chromium" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars --user-data-dir="$work/live-profile" \
  --timeout=6000 --window-size=1240,1500 --screenshot="$work/live.png" "http://$address/" >"$work/live.log" 2>&1
mv "$work/live.png" "$OUT/live.png"
printf 'wrote %s\n' "$OUT/live.png"
