//! A real llama.cpp server as a process, where one is set up.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::http;
use crate::ports::free_port;
use crate::process::Process;
use crate::search::pids_with_argument;

/// Names the folder that `make real-engine` makes.
const VARIABLE: &str = "PLIMSOLL_REAL_ENGINE";

/// The interpreter, the script that serves, and a model. None when no real engine is set up, which is said.
#[track_caller]
fn parts(model: &str) -> Option<[PathBuf; 3]> {
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

/// A recipe by which an agent launches a llama.cpp server, on a port that was free a moment ago.
#[derive(Debug)]
pub struct LlamaRecipe {
    folder: TempDir,
    port: u16,
}

impl LlamaRecipe {
    /// For one of the models `ascii`, `eos` and `utf8`. None when no real engine is set up on this machine, which is
    /// said.
    ///
    /// # Panics
    /// When one is set up and its parts are missing.
    #[must_use]
    #[track_caller]
    pub fn new(model: &str, slots: u32) -> Option<Self> {
        let [.., gguf] = parts(model)?;
        Self::of(&gguf, slots)
    }

    /// For a model in a file.
    ///
    /// # Panics
    /// As [`Self::new`].
    #[must_use]
    #[track_caller]
    pub fn of(gguf: &Path, slots: u32) -> Option<Self> {
        let [python, script, _] = parts("ascii")?;
        let gguf = gguf.to_owned();
        let folder = TempDir::new().unwrap_or_else(|e| panic!("no temporary folder: {e}"));
        let port = free_port().port();
        let command =
            [&python, &script, &"--model".into(), &gguf, &"--slots".into(), &slots.to_string().into()];
        let words: Vec<String> =
            command.iter().map(|word| format!("{:?}", word.display().to_string())).collect();
        let text = format!(
            "name = \"tiny-llama\"\ndialect = \"llamacpp\"\nbase_url = \"http://127.0.0.1:${{port}}\"\n\
             command = [{}, \"--port\", \"${{port}}\"]\nnotes = [\"random weights\"]\n\
             [ready]\ntimeout_seconds = 60\n[stop]\ngrace_seconds = 10\n[vars]\nport = {port}\n",
            words.join(", ")
        );
        let recipe = Self { folder, port };
        std::fs::write(recipe.path(), text).unwrap_or_else(|e| panic!("{}: {e}", recipe.path().display()));
        Some(recipe)
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("llama.toml")
    }

    /// Where the server listens once it is launched.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The processes of the server: those whose command line names its port.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids: Vec<u32> = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        let port = format!("--port {} ", self.port);
        pids_with_argument(&pids, &port)
    }

    /// Nobody listens on its port.
    #[must_use]
    pub fn port_is_free(&self) -> bool {
        std::net::TcpListener::bind(("127.0.0.1", self.port)).is_ok()
    }
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
