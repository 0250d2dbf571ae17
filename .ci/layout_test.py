#!/usr/bin/env python3
"""Shows that each rule of layout.py can fail and can pass, on made-up trees in a temporary folder."""

import os
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
import layout  # noqa: E402  (after the line that keeps it from leaving files in the tree)


def dependency(name, kind=None):
    return {"name": name, "kind": kind}


class Tree(unittest.TestCase):
    """A made-up repository; every test adds to it."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        self.packages = []

    def write(self, path, text):
        full = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as file:
            file.write(text)

    def crate(self, name, *dependencies, folder=None):
        folder = folder or name
        manifest = "[package]\nname = \"%s\"\n\n[dependencies]\n" % name
        manifest += "".join("%s.workspace = true\n" % d["name"] for d in dependencies)
        self.write(folder + "/Cargo.toml", manifest)
        path = os.path.join(self.root, folder, "Cargo.toml")
        self.packages.append({"name": name, "manifest_path": path, "dependencies": list(dependencies)})

    def check(self):
        return layout.check(self.root, {"packages": self.packages})

    def findings(self):
        return sorted({(f.path, f.line, f.rule) for f in self.check()[0]})

    def assert_clean(self):
        self.assertEqual([str(f) for f in self.check()[0]], [])

    def assert_found(self, *expected):
        self.assertEqual(self.findings(), sorted(expected))


class TopLevel(Tree):
    def test_known_entries_pass(self):
        for name in ("README.md", "Makefile", ".gitignore", "docs/adr/0001.md", ".ci/run"):
            self.write(name, "text\n")
        self.assert_clean()

    def test_an_unexpected_entry_fails_once(self):
        self.write("scripts/one.sh", "true\n")
        self.write("scripts/two.sh", "true\n")
        self.write("notes.txt", "text\n")
        self.assert_found(("notes.txt", 1, "top-level"), ("scripts", 1, "top-level"))

    def test_build_folders_do_not_count(self):
        self.write("target/debug/x.rs", "use sled::Db;\n")
        self.write(".real-engine/venv/x.py", "pass\n")
        self.assert_clean()

    def test_with_git_ignored_files_do_not_count_and_untracked_do(self):
        subprocess.run(["git", "init", "-q", self.root], check=True)
        self.write(".gitignore", "/ignored\n")
        self.write("ignored/x.txt", "text\n")
        self.write("stray.txt", "text\n")
        self.assert_found(("stray.txt", 1, "top-level"))


class Crates(Tree):
    def test_allowed_edges_pass(self):
        common, proto = dependency("common"), dependency("proto")
        self.crate("common")
        self.crate("proto", common)
        self.crate("coordinator", common, proto)
        self.crate("agent", common, proto)
        self.crate("sim-engine", folder="examples/sim-engine")
        self.crate("plimsoll-tests", common, dependency("proto", "dev"), folder="tests")
        self.crate("engines", dependency("agent", "dev"), dependency("common", "dev"), folder="tests/engines")
        self.assert_clean()

    def test_what_is_for_tests_only_fails_elsewhere(self):
        self.crate("agent")
        self.crate("common")
        self.crate("engines", dependency("agent"), dependency("common", "dev"), folder="tests/engines")
        self.assert_found(("tests/engines/Cargo.toml", 5, "crates"))

    def test_forbidden_edges_fail_in_every_kind(self):
        self.crate("common", dependency("proto", "dev"))
        self.crate("proto", dependency("agent", "dev"))
        self.crate("coordinator", dependency("agent", "dev"))
        self.crate("agent", dependency("coordinator"))
        self.crate("sim-engine", dependency("common", "dev"), folder="examples/sim-engine")
        self.crate("plimsoll-tests", dependency("coordinator", "dev"), folder="tests")
        self.assert_found(
            ("common/Cargo.toml", 5, "crates"),
            ("proto/Cargo.toml", 5, "crates"),
            ("coordinator/Cargo.toml", 5, "crates"),
            ("agent/Cargo.toml", 5, "crates"),
            ("examples/sim-engine/Cargo.toml", 5, "crates"),
            ("tests/Cargo.toml", 5, "crates"),
        )

    def test_a_crate_without_rules_fails(self):
        self.crate("extra", folder="common/extra")
        self.assert_found(("common/extra/Cargo.toml", 1, "crates"))

    def test_listed_dependencies_pass(self):
        self.crate("common", dependency("serde"), dependency("proptest", "dev"))
        self.crate("proto", dependency("prost"), dependency("protox", "build"))
        self.crate("coordinator", dependency("sled"), dependency("tonic"))
        self.crate("agent", dependency("hyper"), dependency("tokio"))
        self.assert_clean()

    def test_what_common_and_proto_must_never_have_fails(self):
        for name in ("tokio", "tonic", "sled", "hyper", "reqwest", "prost"):
            with self.subTest(name):
                self.packages.clear()
                self.crate("common", dependency("serde"), dependency(name))
                self.assert_found(("common/Cargo.toml", 6, "dependencies"))
        for name in ("sled", "hyper"):
            with self.subTest(name):
                self.packages.clear()
                self.crate("proto", dependency(name))
                self.assert_found(("proto/Cargo.toml", 5, "dependencies"))

    def test_an_unlisted_dependency_fails(self):
        self.crate("coordinator", dependency("openssl"))
        self.assert_found(("coordinator/Cargo.toml", 5, "dependencies"))

    def test_a_test_tool_outside_dev_dependencies_fails(self):
        self.crate("agent", dependency("proptest"))
        self.assert_found(("agent/Cargo.toml", 5, "dependencies"))


class RustPaths(Tree):
    """Every path rule, in its place and out of it."""

    PLACES = (  # rule, code, a place where it passes, a place where it fails
        ("sled", "use sled::Db;\n", "coordinator/src/store/sled.rs", "coordinator/src/store/mod.rs"),
        ("nvml", "use nvml_wrapper::Nvml;\n", "agent/src/gpu/nvml.rs", "agent/src/gpu/mod.rs"),
        ("cuda", "use cudarc::driver;\n", "agent/src/gpu/cuda.rs", "agent/src/main.rs"),
        ("hyper", "use hyper::client;\n", "agent/benches/stream/readers.rs", "agent/src/load/pacer.rs"),
        ("hyper", "use hyper::server;\n", "examples/sim-engine/src/main.rs", "coordinator/src/web/mod.rs"),
        ("hyper", "use hyper::server;\n", "tests/src/lib.rs", "common/src/lib.rs"),
        ("clock", "use std::time::Instant;\n", "common/src/clock.rs", "common/src/plan.rs"),
        ("clock", "use std::time::SystemTime;\n", "common/src/clock/system.rs", "agent/src/lib.rs"),
        ("clock", "use std::time::Instant;\n", "examples/sim-engine/src/clock.rs", "examples/sim-engine/src/main.rs"),
        ("disk", "use std::fs;\n", "common/src/disk/real.rs", "common/src/trace/mod.rs"),
        ("disk", "use std::fs;\n", "coordinator/src/report/mod.rs", "common/src/disks.rs"),
        ("wire-types", "use proto::v1::Join;\n", "coordinator/src/rpc/join.rs", "coordinator/src/fleet/mod.rs"),
        ("wire-types", "use proto::wire::Join;\n", "agent/src/session/mod.rs", "agent/src/load/mod.rs"),
        ("wire-types", "use proto::v1::Join;\n", "proto/src/convert/mod.rs", "tests/tests/e2e.rs"),
        ("wire-types", "use proto::v1::Join;\n", "coordinator/src/rpc.rs", "coordinator/src/rpc_helpers.rs"),
    )

    def test_each_rule_passes_in_its_place_and_fails_elsewhere(self):
        for rule, code, inside, outside in self.PLACES:
            with self.subTest(rule=rule, inside=inside):
                self.setUp()
                self.write(inside, code)
                self.assert_clean()
                self.write(outside, "\n" + code)
                self.assert_found((outside, 2, rule))

    def assert_code(self, code, *lines):
        """The lines at which code in the wrong place names the clock."""
        self.setUp()
        self.write("common/src/plan.rs", code)
        self.assert_found(*(("common/src/plan.rs", line, "clock") for line in lines))

    def test_every_way_to_name_a_path_is_seen(self):
        self.assert_code("fn f() { std::time::Instant::now(); }\n", 1)
        self.assert_code("fn f() { ::std::time::Instant::now(); }\n", 1)
        self.assert_code("use std::time::{\n    Duration,\n    Instant as Now,\n};\n", 3)
        self.assert_code("use std::{io, time::{Duration, Instant}};\n", 1)
        self.assert_code("use std::time;\nfn f(t: time::Instant) {}\n", 2)
        self.assert_code("use std::time as t;\nfn f(x: t::Instant) {}\n", 2)
        self.assert_code("use std::time::{self, Duration};\nfn f(t: time::Instant) {}\n", 2)
        self.assert_code("use std::time;\nuse time::Instant;\n", 2)
        self.assert_code("use std::time::*;\n", 1)
        self.assert_code("macro_rules! m { () => { std::time::Instant::now() } }\n", 1)
        self.assert_code("type T = <std::time::Instant as Sub>::Output;\n", 1)
        self.assert_code("/* a /* nested */ comment */ pub use std::time::Instant;\n", 1)
        self.assert_code("fn f<'a>(x: &'a str) -> char { 'a' }\nuse std::time::Instant;\n", 2)

    def test_what_only_looks_like_it_passes(self):
        self.assert_code("use std::time::Duration;\n")
        self.assert_code("use crate::clock::Instant;\n")
        self.assert_code("// use std::time::Instant;\n/// [`std::time::Instant`]\n/* std::time::Instant */\n")
        self.assert_code('const A: &str = "std::time::Instant";\nconst B: &str = r#"use " std::time::Instant"#;\n')
        self.assert_code("fn f() -> char { '\"' }\nfn g() -> char { '\\'' }\nuse std::time::Duration;\n")

    def test_a_module_called_like_a_crate_is_not_the_crate(self):
        self.write("coordinator/src/store/mod.rs", "mod sled;\npub use self::sled::Store;\nfn f(s: sled::Store) {}\n")
        self.write("coordinator/src/run.rs", "use crate::store::sled;\nuse crate::hyper::X;\nfn f(s: sled::Store) {}\n")
        self.assert_clean()

    def test_extern_crate_is_seen(self):
        self.write("agent/src/lib.rs", "extern crate hyper;\n")
        self.assert_found(("agent/src/lib.rs", 1, "hyper"))


class Texts(Tree):
    def test_unsafe_fails_in_code_only(self):
        self.write("agent/src/a.rs", "#![forbid(unsafe_code)]\n// unsafe is forbidden\nconst A: &str = \"unsafe\";\n")
        self.assert_clean()
        self.write("agent/src/b.rs", "fn f() {\n    unsafe { g() }\n}\n")
        self.assert_found(("agent/src/b.rs", 2, "unsafe"))

    def test_unsafe_is_left_to_the_boundaries_to_c(self):
        self.write("tests/fake-nvml/src/ffi.rs", "unsafe fn f() {}\n")
        self.write("tests/fake-nvml/src/ffi/device.rs", "unsafe fn f() {}\n")
        self.assert_clean()
        self.write("tests/fake-nvml/src/world.rs", "unsafe fn f() {}\n")
        self.write("tests/fake-nvml/tests/ffi.rs", "unsafe fn f() {}\n")
        self.assert_found(("tests/fake-nvml/src/world.rs", 1, "unsafe"), ("tests/fake-nvml/tests/ffi.rs", 1, "unsafe"))

    def test_unfinished_code_fails(self):
        self.write("agent/src/a.rs", "// todo!() is refused\nfn f() { mktemp(\"XXXXXX\") }\n")
        self.assert_clean()
        self.write("agent/src/b.rs", "fn f() {\n    todo!()\n}\n")
        self.write("docs/c.md", "one\nFIXME: two\n")
        self.write(".ci/d.sh", "# XXX\n")
        self.assert_found(
            ("agent/src/b.rs", 2, "unfinished"), ("docs/c.md", 2, "unfinished"), (".ci/d.sh", 1, "unfinished")
        )

    def test_machine_paths_fail(self):
        self.write("README.md", "see docs/work/x, ~/work/y, $HOME/root/z, http://host/home/index, /etc/plimsoll\n")
        self.assert_clean()
        self.write("docs/a.md", "in /work/x\n`/root/.cargo`\n/home/me/x\n")
        self.assert_found(*(("docs/a.md", line, "machine-path") for line in (1, 2, 3)))

    def test_binary_files_and_links_are_left_alone(self):
        self.write("docs/a.bin", "\0 /work/x\n")
        os.symlink("/nowhere", os.path.join(self.root, "docs", "link"))
        self.assert_clean()


class Length(Tree):
    def test_a_long_file_warns_and_does_not_fail(self):
        self.write("agent/src/short.rs", "//\n" * layout.LONG_FILE)
        self.write("agent/src/long.rs", "//\n" * (layout.LONG_FILE + 1))
        findings, warnings = self.check()
        self.assertEqual(findings, [])
        self.assertEqual([(w.path, w.rule) for w in warnings], [("agent/src/long.rs", "long-file")])


class Messages(Tree):
    def test_a_message_names_file_line_rule_and_reason(self):
        self.write("agent/src/a.rs", "\nuse sled::Db;\n")
        (finding,), _ = self.check()
        self.assertRegex(str(finding), r"^agent/src/a\.rs:2: \[sled\] .*coordinator/src/store/sled; .+")


if __name__ == "__main__":
    unittest.main()
