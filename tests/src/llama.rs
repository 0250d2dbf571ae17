//! A real llama.cpp server as a process, where one is set up.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::http;
use crate::process::Process;

/// Names the folder that `make real-engine` makes.
const VARIABLE: &str = "PLIMSOLL_REAL_ENGINE";

/// The interpreter, the script that serves, and a model. None when no real engine is set up, which is said.
#[track_caller]
pub(crate) fn parts(model: &str) -> Option<[PathBuf; 3]> {
    let Some(folder) = std::env::var_os(VARIABLE).filter(|f| !f.is_empty()).map(PathBuf::from) else {
        println!("skipped: {VARIABLE} is not set; `make test` sets up a real llama.cpp and runs this test");
        return None;
    };
    let python = folder.join("venv/bin/python");
    let gguf = folder.join(format!("{model}.gguf"));
    for file in [&python, &gguf] {
        assert!(file.is_file(), "{VARIABLE} is set and {} is missing: `make real-engine`", file.display());
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("real_engine/serve.py");
    Some([python, script, gguf])
}

/// A running llama.cpp server on a port of its own.
#[derive(Debug)]
pub struct LlamaServer {
    _process: Process,
    url: String,
}

impl LlamaServer {
    /// Starts it with one of the models `ascii`, `eos` and `utf8`. None when no real engine is set up on this machine,
    /// which is said.
    ///
    /// # Panics
    /// When one is set up and does not start.
    #[must_use]
    #[track_caller]
    pub fn start(model: &str, slots: u32) -> Option<Self> {
        let [python, script, gguf] = parts(model)?;
        let mut command = Command::new(python);
        command.arg(script).arg("--model").arg(gguf);
        command.args(["--slots", &slots.to_string(), "--until-parent-exits"]);
        let mut process = Process::start(command);
        let url = process.expect("LISTEN", |process| {
            let out = process.stdout();
            let (line, _) = out.split_once('\n')?;
            line.strip_prefix("LISTEN ").map(str::to_owned)
        });
        Some(Self { _process: process, url })
    }

    /// Its base URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The value of a counter of its `/metrics`, without the prefix `llamacpp:`.
    ///
    /// # Panics
    /// When it does not answer, or has none of this name.
    #[must_use]
    #[track_caller]
    pub fn counter(&self, name: &str) -> u64 {
        http::counter(&http::get(&format!("{}/metrics", self.url)), &format!("llamacpp:{name}"))
    }
}
