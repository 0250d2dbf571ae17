#!/usr/bin/env python3
"""Checks that the repository keeps its layout: who may depend on whom, and where a thing may be named.

The rules are the data at the top, each with its reason. A finding is printed as

    path:line: [rule] what is wrong; why

and makes the exit code 1. Warnings are printed and do not. `layout_test.py` shows each rule failing
and passing on made-up trees.

How Rust is read: comments and string literals are blanked, `use` trees are expanded to full paths
(`use std::{time::Instant}` names `std::time::Instant`), and a path that starts with an imported name
is completed from the file's imports. A first segment `crate`, `self` or `super` is a module of ours,
never a crate: a module called like a crate (`store::sled`) is named `self::sled`. Macros that write
paths are not followed.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from typing import NamedTuple

# ---------------------------------------------------------------------------------------------------
# The rules
# ---------------------------------------------------------------------------------------------------

# What may lie at the top level.
TOP_LEVEL = frozenset(
    "Cargo.toml Cargo.lock proto coordinator agent common deploy tests examples fuzz Makefile README.md"
    " ARCHITECTURE.md CONTRIBUTING.md CHANGELOG.md LICENSE docs .ci .config .cargo .gitignore"
    " .gitattributes rustfmt.toml clippy.toml deny.toml".split()
)

# Crate -> our crates that it may depend on, in any way (normal, dev or build).
OURS = {
    "common": set(),  # the domain: it knows nobody
    "proto": {"common"},
    "coordinator": {"common", "proto"},  # never the agent: they meet over the wire only
    "agent": {"common", "fake-cuda", "fake-nvml", "proto"},
    "sim-engine": set(),  # it plays another party; sharing code would hide a shared mistake
    "plimsoll-tests": {"common", "engines", "fake-nvml", "proto"},  # real binaries are run, not linked
    "cluster": {"common", "plimsoll-tests"},  # real binaries are run, not linked
    "proofs": {"common", "sim-engine"},  # the analysis against queues whose truth is known
    "sim": {"agent", "common", "coordinator"},  # the whole program in one process, in virtual time
    "scale": {"agent", "common", "coordinator"},  # benches of a coordinator and agents over real connections
    "engines": {"agent", "common"},  # what the agent makes of each engine's bytes
    "fake-nvml": set(),  # they play NVIDIA's libraries; sharing code would hide a shared mistake
    "fake-cuda": set(),
}

# Crate -> those of them that only its tests may take: it plays another party, and sharing code would hide a
# shared mistake.
OURS_FOR_TESTS = {"agent": {"fake-cuda", "fake-nvml"}, "engines": {"agent", "common"}}

# Taken as a dev-dependency only, by every crate but the tests.
DEV_ONLY = set("allocation-counter criterion insta proptest rcgen trycmd turmoil".split())
DEV_TOOLS = DEV_ONLY | {"serde_json", "tempfile"}
ERRORS_AND_LOGS = set("anyhow thiserror tracing tracing-subscriber".split())
SERIALISATION = set("postcard serde serde_json toml".split())
RANDOM = set("getrandom libm rand rand_chacha rand_core rand_distr".split())
WIRE = set("prost prost-types tokio tokio-stream tonic tonic-prost".split())

# Crate -> what it may take from a registry. A new dependency is a decision: it is added here, in a
# change that says why.
EXTERNAL = {
    "common": {"bytes", "crc32c", "hdrhistogram", "humantime", "rustix", "sha2", "thiserror", "zstd"}
    | RANDOM
    | SERIALISATION
    | DEV_TOOLS,
    "proto": {"bytes", "prost", "prost-types", "protox", "thiserror", "tonic", "tonic-prost", "tonic-prost-build"}
    | {"rustls", "rustls-webpki"}  # proto::tls: one reader of certificates and keys for both sides
    | DEV_TOOLS,
    "coordinator": set(
        "axum bytes clap comfy-table crc32c futures-core futures-util hdrhistogram http humantime indicatif jiff"
        " parquet ratatui reqwest rustix sha2 sled subtle tokenizers tokio-rustls toml zstd".split()
    )  # tokio-rustls: its own door, because tonic's says neither who failed a handshake nor why; parquet: the format that
    # analysis tools read fastest, and its pages are no thing to write by hand; axum: the live page; ratatui: the live
    # screen
    | ERRORS_AND_LOGS
    | SERIALISATION
    | RANDOM
    | WIRE
    | DEV_TOOLS,
    "agent": set(
        "bytes clap crc32c cudarc futures-core futures-util hdrhistogram http http-body-util httparse humantime hyper hyper-util"
        " memchr nvml-wrapper nvml-wrapper-sys procfs reqwest rustix rustls rustls-native-certs sha2 thread-priority tokio-rustls zstd".split()
    )  # rustls: what its errors mean is said to a person; hyper and http-body-util: only a bench, as its floor
    | ERRORS_AND_LOGS
    | SERIALISATION
    | RANDOM
    | WIRE
    | DEV_TOOLS,
    "sim-engine": set(
        "axum bytes clap futures-core futures-util http http-body-util hyper rustix tokio tokio-rustls tokio-stream"
        " ureq".split()
    )
    | ERRORS_AND_LOGS
    | SERIALISATION
    | RANDOM
    | DEV_TOOLS,
    "cluster": {"clap", "rustix", "serde"} | DEV_TOOLS,
    "proofs": {"anyhow", "clap", "libm"} | DEV_TOOLS,
    "sim": {"anyhow", "clap", "hyper-util", "serde", "tokio", "tonic", "tower", "tracing-subscriber"} | DEV_TOOLS,
    "scale": {"anyhow", "rustix", "serde", "tokio", "tonic"} | DEV_TOOLS,
    "engines": {"serde_json", "tokio"} | DEV_TOOLS,  # threads and blocking sockets; tokio only to drive the agent's client
    # The fakes play NVIDIA's libraries: of the wrappers, one takes the layouts of structs, and the tests are clients.
    "fake-nvml": {"libloading", "nvml-wrapper", "nvml-wrapper-sys", "rustix", "serde"} | DEV_TOOLS,
    "fake-cuda": {"cudarc", "rustix", "serde"} | DEV_TOOLS,
    "plimsoll-tests": set("bytes http http-body-util hyper jsonschema rustix sha2 tokio ureq".split())
    | ERRORS_AND_LOGS
    | SERIALISATION
    | RANDOM
    | DEV_TOOLS,
}

# Crate -> dependencies that stay out even if somebody adds them to the list above.
NEVER = {
    "common": (
        set("axum hyper hyper-util mio prost reqwest sled tokio tonic ureq".split()),
        "common is the domain: no runtime, no network, no store, no wire types",
    ),
    "proto": (
        set("axum hyper hyper-util reqwest sled ureq".split()),
        "proto is wire types and conversions: no application, no store",
    ),
    "agent": ({"sled"}, "the agent spools to its own segments; the store is the coordinator's"),
}


class Path(NamedTuple):
    """A Rust path that may be named only in some places, and in `within` if that is not everywhere."""

    rule: str
    path: str
    allowed: tuple  # a file, its stem, or a folder
    reason: str
    within: tuple = ()


PATHS = (
    Path("sled", "sled", ("coordinator/src/store/sled",), "one file knows the store's engine, so it can be replaced"),
    Path("nvml", "nvml_wrapper", ("agent/src/gpu/nvml", "tests/fake-nvml/tests"), "GPU libraries stay behind one file each"),
    Path("nvml", "nvml_wrapper_sys", ("agent/src/gpu/nvml", "tests/fake-nvml"), "GPU libraries stay behind one file each"),
    Path("cuda", "cudarc", ("agent/src/gpu/cuda", "tests/fake-cuda/tests"), "GPU libraries stay behind one file each"),
    Path(
        "hyper",
        "hyper",
        ("agent/benches", "examples", "tests"),
        "the measured path owns its connections; elsewhere use a client that hides them",
    ),
    Path(
        "http",
        "httparse",
        ("agent/src/engine/http",),
        "one reader of responses, beside the stamps of the reads that brought them",
    ),
    Path(
        "tls",
        "tokio_rustls",
        ("agent/src/engine", "agent/tests", "coordinator/src/rpc", "examples/sim-engine/src/tls", "tests"),
        "whom an agent trusts to be the engine is decided beside the measured path; who comes in, at the coordinator's door",
    ),
    Path(
        "clock",
        "std::time::Instant",
        ("common/src/clock", "examples/sim-engine/src/clock"),
        "time comes from common's Clock, so that a fleet can run in a simulation",
    ),
    Path(
        "clock",
        "std::time::SystemTime",
        ("common/src/clock", "examples/sim-engine/src/clock"),
        "time comes from common's Clock, so that a fleet can run in a simulation",
    ),
    Path(
        "disk",
        "std::fs",
        ("common/src/disk",),
        "the domain reaches files only through the Disk trait, whose simulated form loses what was not synced",
        within=("common",),
    ),
    Path(
        "wire-types",
        "proto::v1",
        ("proto", "coordinator/src/rpc", "agent/src/session"),
        "generated types stop at the edge: convert to the domain's",
    ),
    Path(
        "wire-types",
        "proto::wire",
        ("proto", "coordinator/src/rpc", "agent/src/session"),
        "generated types stop at the edge: convert to the domain's",
    ),
)


class Text(NamedTuple):
    """A pattern that no file may hold. `code`: only Rust files, comments and strings left out."""

    rule: str
    pattern: str
    code: bool
    reason: str
    exempt: tuple = ()  # a file, its stem, or a folder


OWN_FILES = (".ci/layout.py", ".ci/layout_test.py")  # they must write what they look for
# A library with C symbols takes pointers: one module of each fake, and the client of one that has no safe form.
# The same for the agent's calls of the real ones: one module for each library.
C_BOUNDARIES = (
    "tests/fake-nvml/src/ffi",
    "tests/fake-cuda/src/ffi",
    "tests/fake-cuda/tests/driver/ffi",
    "agent/src/gpu/nvml/raw",
    "agent/src/gpu/cuda/raw",
)
TEXTS = (
    Text("unsafe", r"\bunsafe\b", True, "no unsafe code; use a crate that wraps it, such as rustix", C_BOUNDARIES),
    Text("unfinished", r"\btodo!\s*[(\[{]", True, "unfinished code does not enter: file an issue instead"),
    Text("unfinished", r"\b(?:FIXME|XXX)\b", False, "unfinished code does not enter: file an issue instead", OWN_FILES),
    Text(
        "machine-path",
        r"(?<![\w.$}~:/-])/(?:work|root|home|Users)/[\w.]",
        False,
        "a path of one machine means nothing on another",
        OWN_FILES,
    ),
)

# Rust files longer than this get a warning: a reviewer asks why.
LONG_FILE = 500

# Not text to read, however they end up in the listing.
SKIPPED_FOLDERS = frozenset([".git", "target", ".real-engine", ".export-readers", "plimsoll-data", "plimsoll-spool", "__pycache__"])
LARGEST_TEXT = 2_000_000


class Finding(NamedTuple):
    path: str
    line: int
    rule: str
    message: str

    def __str__(self):
        return "%s:%d: [%s] %s" % (self.path, self.line, self.rule, self.message)


# ---------------------------------------------------------------------------------------------------
# Reading Rust
# ---------------------------------------------------------------------------------------------------

# What can hide code, in the order in which it is tried at each place. A lifetime ('a) is consumed as
# itself so that it does not open a character literal.
LITERALS = re.compile(
    r"""
      (?P<line>//[^\n]*)
    | (?P<block>/\*)
    | (?P<raw>\b(?:br|cr|r)(?P<hashes>\#*)".*?"(?P=hashes))
    | (?P<text>(?:\b[bc])?"(?:\\.|[^"\\])*")
    | (?P<char>(?:\bb)?'(?:\\(?:u\{[^}]*\}|x[0-9a-fA-F]{2}|.)|[^\\'\n])')
    | (?P<lifetime>'[A-Za-z_]\w*)
    """,
    re.VERBOSE | re.DOTALL,
)
BLOCK_EDGE = re.compile(r"/\*|\*/")


def blank(text):
    """The same number of lines, and nothing on them."""
    return re.sub(r"[^\n]", " ", text)


def code_of(source):
    """Rust source with its comments and literals blanked; offsets and lines stay as they were."""
    parts, position = [], 0
    while True:
        found = LITERALS.search(source, position)
        if found is None:
            parts.append(source[position:])
            return "".join(parts)
        parts.append(source[position : found.start()])
        end = found.end()
        if found.group("block"):
            end = end_of_block(source, end)
        parts.append(found.group() if found.group("lifetime") else blank(source[found.start() : end]))
        position = end


def end_of_block(source, position):
    """Where a block comment that was opened before `position` ends: they nest."""
    depth = 1
    for edge in BLOCK_EDGE.finditer(source, position):
        depth += 1 if edge.group() == "/*" else -1
        if depth == 0:
            return edge.end()
    return len(source)


class Named(NamedTuple):
    """A path as the code names it, completed from the file's imports."""

    path: tuple
    offset: int


USE = re.compile(r"\b(?:use|extern\s+crate)\s+(?=[\w:{*])")
USE_TOKEN = re.compile(r"r#(?=\w)|(?P<name>\w+|\*)|(?P<mark>::|[{},;])|\s+")
MODULE = re.compile(r"\bmod\s+(\w+)\s*[;{]")
INLINE = re.compile(r"(?<![\w.])(?:r#)?[A-Za-z_]\w*(?:\s*::\s*(?:r#)?[A-Za-z_]\w*)+")


def expand_use(code, position):
    """Expands a use tree from `position` to its `;`: (full path, name it gets here, offset) per leaf,
    and where the tree ends."""
    leaves, stack, prefix = [], [], []
    path, renamed, awaiting_name, offset = [], None, False, position

    def close():
        if path:
            full = tuple(prefix + [part for part in path if part != "self"]) if prefix else tuple(path)
            leaves.append((full, renamed or full[-1], offset))

    while True:
        token = USE_TOKEN.match(code, position)
        if token is None:
            break
        position = token.end()
        name, mark = token.group("name"), token.group("mark")
        if name == "as":
            awaiting_name = True
        elif name and awaiting_name:
            renamed, awaiting_name = name, False
        elif name:
            offset = token.start() if not path else offset
            path.append(name)
        elif mark == "{":
            stack.append(prefix)
            prefix, path, renamed = prefix + path, [], None
        elif mark in (",", "}", ";"):
            close()
            path, renamed = [], None
            if mark == "}" and stack:
                prefix = stack.pop()
            if mark == ";":
                break
    return leaves, position


def named_paths(code):
    """Every path that the code imports or writes out, with imported first segments completed."""
    result, spans = [], []
    # A module of this file hides a crate of its name.
    imports = {name: ("self", name) for name in MODULE.findall(code)}
    for use in USE.finditer(code):
        leaves, end = expand_use(code, use.end())
        spans.append((use.start(), end))
        for path, name, offset in leaves:
            result.append(Named(path, offset))
            if name not in ("*", "_", path[0]):
                imports[name] = path
    rest = list(code)
    for start, end in spans:
        rest[start:end] = blank(code[start:end])
    for written in INLINE.finditer("".join(rest)):
        parts = tuple(part.strip().removeprefix("r#") for part in written.group().split("::"))
        result.append(Named(parts, written.start()))
    return [Named(imports.get(path[0], path[:1]) + path[1:], offset) for path, offset in result]


def names(path, wanted):
    """Whether a path is the wanted one, lies inside it, or takes it in with a glob."""
    wanted = tuple(wanted.split("::"))
    if path and path[-1] == "*" and len(path) - 1 < len(wanted):
        return len(path) > 1 and wanted[: len(path) - 1] == path[:-1]
    return path[: len(wanted)] == wanted


# ---------------------------------------------------------------------------------------------------
# The checks
# ---------------------------------------------------------------------------------------------------


def lies_in(path, places):
    """Whether a file is one of the places, or `place.rs`, or inside the folder `place/`."""
    return any(path == p or path == p + ".rs" or path.startswith(p + "/") for p in places)


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def check_top_level(files):
    seen = set()
    for path in files:
        top = path.split("/", 1)[0]
        if top not in TOP_LEVEL and top not in seen:
            seen.add(top)
            yield Finding(top, 1, "top-level", "unexpected at the top of the repository; its place is in a folder")


def check_rust(path, source):
    code = code_of(source)
    seen = set()
    for named in named_paths(code):
        for rule in PATHS:
            if rule.within and not lies_in(path, rule.within):
                continue
            if lies_in(path, rule.allowed) or not names(named.path, rule.path):
                continue
            finding = Finding(
                path,
                line_of(code, named.offset),
                rule.rule,
                "`%s` is named outside %s; %s" % (rule.path, ", ".join(rule.allowed), rule.reason),
            )
            if finding not in seen:
                seen.add(finding)
                yield finding
    yield from check_text(path, code, code_rules=True)


def check_text(path, text, code_rules=False):
    for rule in TEXTS:
        if rule.code != code_rules or lies_in(path, rule.exempt):
            continue
        for found in re.finditer(rule.pattern, text):
            yield Finding(path, line_of(text, found.start()), rule.rule, "`%s`: %s" % (found.group(), rule.reason))


def check_length(path, source):
    lines = source.count("\n")
    if lines > LONG_FILE:
        yield Finding(path, LONG_FILE + 1, "long-file", "%d lines; above %d a reviewer asks why" % (lines, LONG_FILE))


def manifest_line(manifest_text, dependency):
    """The line of a manifest that names a dependency, or 1."""
    start = re.compile(r"(?:\[.*dependencies\.)?[\"']?%s[\"']?\s*[.=\]]" % re.escape(dependency))
    renamed = re.compile(r"package\s*=\s*\"%s\"" % re.escape(dependency))
    for number, line in enumerate(manifest_text.splitlines(), 1):
        if start.match(line.strip()) or renamed.search(line):
            return number
    return 1


def check_dependencies(root, metadata):
    ours = {package["name"] for package in metadata["packages"]}
    for package in metadata["packages"]:
        name = package["name"]
        manifest = os.path.relpath(package["manifest_path"], root).replace(os.sep, "/")
        if name not in OURS:
            yield Finding(manifest, 1, "crates", "crate `%s` has no rules; add it to .ci/layout.py" % name)
            continue
        text = read_text(os.path.join(root, manifest)) or ""
        never, why_never = NEVER.get(name, (set(), ""))
        for dependency in package["dependencies"]:
            wanted = dependency["name"]
            line = manifest_line(text, wanted)
            if wanted in ours:
                if wanted not in OURS[name]:
                    allowed = ", ".join(sorted(OURS[name])) or "none of ours"
                    message = "`%s` must not depend on `%s`; it may depend on: %s" % (name, wanted, allowed)
                    yield Finding(manifest, line, "crates", message)
                elif wanted in OURS_FOR_TESTS.get(name, ()) and dependency["kind"] != "dev":
                    message = "`%s` is for the tests of `%s`: a dev-dependency" % (wanted, name)
                    yield Finding(manifest, line, "crates", message)
            elif wanted in never:
                yield Finding(manifest, line, "dependencies", "`%s` in `%s`: %s" % (wanted, name, why_never))
            elif wanted in DEV_ONLY and dependency["kind"] != "dev" and name not in ("plimsoll-tests", "sim"):
                yield Finding(manifest, line, "dependencies", "`%s` is for tests: a dev-dependency" % wanted)
            elif wanted not in EXTERNAL[name]:
                message = "`%s` is not on the list of `%s`; add it to .ci/layout.py and say why" % (wanted, name)
                yield Finding(manifest, line, "dependencies", message)


def check(root, metadata):
    """All findings and all warnings for the tree at `root`."""
    files = listing(root)
    findings = list(check_top_level(files)) + list(check_dependencies(root, metadata))
    warnings = []
    for path in files:
        text = read_text(os.path.join(root, path))
        if text is None:
            continue
        findings += check_text(path, text)
        if path.endswith(".rs"):
            findings += check_rust(path, text)
            warnings += check_length(path, text)
    return sorted(set(findings)), warnings


# ---------------------------------------------------------------------------------------------------
# The tree
# ---------------------------------------------------------------------------------------------------


def read_text(path):
    """A file's text, or None for what is not text, is too large to be, or is gone."""
    try:
        if os.path.islink(path) or os.path.getsize(path) > LARGEST_TEXT:
            return None
        with open(path, "rb") as file:
            raw = file.read()
    except OSError:
        return None
    if b"\0" in raw:
        return None
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return None


def listing(root):
    """Every file that git tracks or would track; without git, every file outside build folders."""
    if os.path.exists(os.path.join(root, ".git")):
        command = ["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        found = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.decode("utf-8", "surrogateescape")
        return sorted({p for p in found.split("\0") if p and os.path.lexists(os.path.join(root, p))})
    files = []
    for folder, folders, inside in os.walk(root):
        folders[:] = [name for name in folders if name not in SKIPPED_FOLDERS]
        files += [os.path.relpath(os.path.join(folder, name), root).replace(os.sep, "/") for name in inside]
    return sorted(files)


def cargo_metadata(root):
    command = ["cargo", "metadata", "--no-deps", "--format-version", "1", "--locked"]
    return json.loads(subprocess.run(command, cwd=root, check=True, stdout=subprocess.PIPE).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument(
        "root", nargs="?", default=os.path.dirname(os.path.dirname(os.path.abspath(__file__))), help="default: this repository"
    )
    root = os.path.abspath(parser.parse_args().root)
    try:
        metadata = cargo_metadata(root)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit("layout: cannot read the workspace: %s" % error)
    findings, warnings = check(root, metadata)
    for warning in warnings:
        print("warning: %s" % str(warning))
    for finding in findings:
        print(finding)
    print("layout: %d findings, %d warnings" % (len(findings), len(warnings)))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
