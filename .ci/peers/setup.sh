#!/usr/bin/env bash
# Installs the clients that `make bench-peers` measures Plimsoll beside, in .bench-peers/ (ignored by git, 3 GB):
#
#   .bench-peers/clients/         a Python environment for vllm bench and SGLang's two clients
#   .bench-peers/trimmed/         their code, out of the engines' wheels; see trimmed.py
#   .bench-peers/aiperf/          AIPerf
#   .bench-peers/guidellm/        GuideLLM, without PyTorch; see torch_loader.py
#   .bench-peers/inference-perf/  inference-perf; needs Python 3.12
#   .bench-peers/tokenizer/       the tokenizer that all of them are given; see tokenizer.py
#
# Safe to repeat: what is complete is kept. What cannot be installed is left out, with a line that says so.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
top=$(cd -- "$here/../.." && pwd)
dir="$top/.bench-peers"
python=${PYTHON:-python3}

vllm=0.33.0
sglang=0.5.23
aiperf=0.13.0
guidellm=0.8.1
inference_perf=0.7.0

say() {
  printf 'peers: %s\n' "$1"
}

# What the clients import of other packages. `datasets` would only read from a hub.
client_packages=(aiohttp msgspec numpy orjson pillow psutil pybase64 pydantic regex requests tokenizers tqdm transformers)
# GuideLLM's own list of what it needs, without torch; and jinja2, which torch would bring.
guidellm_packages=('click~=8.4.0' 'culsans~=0.10.0' 'datasets>=5.0.1' eval_type_backport faker 'ftfy>=6.0.0'
  'httpx[http2]<1.0.0' jinja2 loguru 'more-itertools>=10.8.0' msgpack 'numpy>=2.0.0' protobuf 'pydantic-settings>=2.0.0'
  'pydantic>=2.11.7' 'pyyaml>=6.0.0' rich sanic tabulate transformers 'typing-extensions>=4.15.0' 'uvloop>=0.18'
  'websockets>=13.0')

pip() {
  local environment=$1
  shift
  "$environment/bin/python" -m pip --disable-pip-version-check --no-input "$@"
}

packages_of() {
  "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'
}

# Each of these installs one thing into a folder that was just made. Their last command decides: called with `||`,
# `set -e` does not hold in them, so each command is tied to the next.
install_clients() {
  "$python" -m venv "$1" && pip "$1" install "${client_packages[@]}"
}

install_tokenizer() {
  "$dir/clients/bin/python" "$here/tokenizer.py" "$1"
}

# The wheels are big (vLLM's 336 MB), what is kept of them is not.
install_vllm() {
  pip "$dir/clients" download --no-deps --dest "$1/wheel" "vllm==$vllm" &&
    unzip -q "$1"/wheel/vllm-*.whl 'vllm/benchmarks/*' -d "$1" && rm -r "$1/wheel"
}

install_sglang() {
  pip "$dir/clients" download --no-deps --dest "$1/wheel" "sglang==$sglang" &&
    unzip -q "$1"/wheel/sglang-*.whl 'sglang/benchmark/*' 'sglang/srt/rust_extensions/_bench*' -d "$1" && rm -r "$1/wheel"
}

install_aiperf() {
  "$python" -m venv "$1" && pip "$1" install "aiperf==$aiperf"
}

install_guidellm() {
  local packages
  "$python" -m venv "$1" && pip "$1" install --no-deps "guidellm==$guidellm" && pip "$1" install "${guidellm_packages[@]}" &&
    packages=$(packages_of "$1") && mkdir "$packages/torch" && cp "$here/torch_loader.py" "$packages/torch/__init__.py"
}

# Python 3.12 or newer, from PATH or from pyenv.
python_312() {
  local found
  for found in python3.13 python3.12 "$HOME"/.pyenv/versions/3.1[23].*/bin/python "$python"; do
    if "$found" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null; then
      printf '%s\n' "$found"
      return
    fi
  done
  printf 'no Python 3.12 or newer\n' >&2
  return 1
}

install_inference-perf() {
  local newer
  newer=$(python_312) && "$newer" -m venv "$1" && pip "$1" install "inference-perf==$inference_perf"
}

# Installs a thing unless its marker names this version already.
install() {
  local name=$1 version=$2 folder=${3:-$dir/$1}
  local marker="$dir/$name.installed"
  [[ "$(cat "$marker" 2>/dev/null)" == "$version" && -d "$folder" ]] && return
  say "installing $name $version"
  rm -rf "$folder" "$marker"
  mkdir -p "$folder"
  if "install_$name" "$folder" >"$dir/$name.log" 2>&1; then
    printf '%s\n' "$version" >"$marker"
  else
    rm -rf "$folder"
    say "$name is left out: it could not be installed ($(tail -n 1 "$dir/$name.log")); all of it is in .bench-peers/$name.log"
    return 1
  fi
}

has_packages_to_install() {
  command -v apt-get >/dev/null && [[ "$(id -u)" == 0 ]]
}

mkdir -p "$dir"
if command -v flock >/dev/null; then
  exec 9>"$dir/lock"
  flock 9
fi

for tool in wrk unzip; do
  if ! command -v "$tool" >/dev/null; then
    has_packages_to_install && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$tool" >"$dir/$tool.log" 2>&1 ||
      say "$tool is missing; on Debian and Ubuntu: sudo apt-get install $tool"
  fi
done

if install clients "$(sha256sum <<<"${client_packages[*]}" | cut -c 1-12)"; then
  install tokenizer "$(sha256sum <"$here/tokenizer.py" | cut -c 1-12)" || true
  install vllm "$vllm" "$dir/trimmed/vllm-$vllm" || true
  install sglang "$sglang" "$dir/trimmed/sglang-$sglang" || true
fi
install aiperf "$aiperf" || true
install guidellm "$guidellm" || true
install inference-perf "$inference_perf" || true

say "ready in .bench-peers ($(du -sh "$dir" | cut -f 1)): $(cd "$dir" && printf '%s ' *.installed | sed 's/\.installed//g')"
