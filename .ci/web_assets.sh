#!/usr/bin/env bash
# Fetches the chart library that pages embed, from its registry package, into .web-assets/. Nothing of it is in the
# repository; the package is taken only when its digest is the pinned one.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

package=uplot
version=1.6.32
sha512=KIMVnG68zvu5XXUbC4LQEPnhwOxBuLyW1AHtpm6IKTXImkbLgkMy+jabjLgSLMasNuGGzQm/ep3tOkyTxpiQIw==
folder=.web-assets/$package-$version

[[ -d "$folder" ]] && exit
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
printf 'setup: fetching %s %s\n' "$package" "$version"
npm pack "$package@$version" --silent --pack-destination "$work" >/dev/null
found=$(python3 - "$work/$package-$version.tgz" <<'PY'
import base64, hashlib, sys
print(base64.b64encode(hashlib.sha512(open(sys.argv[1], "rb").read()).digest()).decode())
PY
)
if [[ "$found" != "$sha512" ]]; then
  printf 'setup: %s %s has the digest %s and not the pinned %s; it is not used\n' "$package" "$version" "$found" "$sha512" >&2
  exit 1
fi
tar -xzf "$work/$package-$version.tgz" -C "$work"
mkdir -p .web-assets
mkdir "$work/kept"
cp "$work"/package/{LICENSE,dist/uPlot.iife.min.js,dist/uPlot.min.css} "$work/kept"
mv -T "$work/kept" "$folder"
