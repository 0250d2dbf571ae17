//! Recipes by which an agent launches an engine, on a port that was free a moment ago.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::llama::parts;
use crate::ports::free_port;
use crate::process::binary;
use crate::search::pids_with_argument;

/// A recipe in a file of its own.
#[derive(Debug)]
pub struct Recipe {
    folder: TempDir,
    port: u16,
}

impl Recipe {
    /// Of a real llama.cpp with one of the models `ascii`, `eos` and `utf8`. None when no real engine is set up on this
    /// machine, which is said.
    ///
    /// # Panics
    /// When one is set up and its parts are missing.
    #[must_use]
    #[track_caller]
    pub fn llama(model: &str, slots: u32) -> Option<Self> {
        let [.., gguf] = parts(model)?;
        Self::llama_of(&gguf, slots)
    }

    /// The same with a model in a file.
    ///
    /// # Panics
    /// As [`Self::llama`].
    #[must_use]
    #[track_caller]
    pub fn llama_of(gguf: &Path, slots: u32) -> Option<Self> {
        let [python, script, _] = parts("ascii")?;
        let words = [
            &python,
            &script,
            &"--model".into(),
            &gguf.to_owned(),
            &"--slots".into(),
            &slots.to_string().into(),
        ];
        let words = words.map(|word: &PathBuf| word.display().to_string());
        Some(Self::write("tiny-llama", "llamacpp", &words, "--port", ""))
    }

    /// Of the simulated engine with these options. `vars` is the rest of the recipe's `[vars]`, a line each.
    #[must_use]
    #[track_caller]
    pub fn sim(options: &[&str], vars: &str) -> Self {
        let program = binary("sim-engine").display().to_string();
        let words = [&[program.as_str()][..], options, &["--listen"]].concat();
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        Self::write("sim", "openai", &words, "127.0.0.1:", vars)
    }

    /// Of the simulated engine, below a shell that needs so many seconds to end after SIGTERM.
    #[must_use]
    #[track_caller]
    pub fn slow_to_stop(seconds: u32) -> Self {
        let program = binary("sim-engine").display().to_string();
        let script = format!(
            "trap 'kill $child; sleep {seconds}; exit 0' TERM; '{program}' --listen \"$1\" & child=$!; while :; do wait; sleep 0.1; done"
        );
        Self::write("slow", "openai", &["/bin/sh".into(), "-c".into(), script, "sh".into()], "127.0.0.1:", "")
    }

    /// The port stands behind `before_port`, as a word of its own where that is an option.
    fn write(name: &str, dialect: &str, command: &[String], before_port: &str, vars: &str) -> Self {
        let folder = TempDir::new().unwrap_or_else(|e| panic!("no temporary folder: {e}"));
        let port = free_port().port();
        let mut words: Vec<String> = command.iter().map(|word| format!("{word:?}")).collect();
        if before_port.starts_with('-') {
            words.push(format!("{before_port:?}"));
            words.push("\"${port}\"".into());
        } else {
            words.push(format!("\"{before_port}${{port}}\""));
        }
        let text = format!(
            "name = \"{name}\"\ndialect = \"{dialect}\"\nbase_url = \"http://127.0.0.1:${{port}}\"\n\
             command = [{}]\nnotes = [\"for a test\"]\n\
             [ready]\ntimeout_seconds = 60\n[stop]\ngrace_seconds = 20\n[vars]\nport = {port}\n{vars}\n",
            words.join(", ")
        );
        let recipe = Self { folder, port };
        std::fs::write(recipe.path(), text).unwrap_or_else(|e| panic!("{}: {e}", recipe.path().display()));
        recipe
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("recipe.toml")
    }

    /// Where the engine listens once it is launched.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The processes of the engine: those whose command line ends with its port.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids: Vec<u32> = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        let port = self.port.to_string();
        // The agent's own command line may name it, too, as a variable of the recipe.
        let mut pids = pids_with_argument(&pids, &port);
        pids.retain(|pid| {
            let line = crate::search::command_line(*pid);
            [" ", ":"].iter().any(|before| line.trim_end().ends_with(&format!("{before}{port}")))
        });
        pids
    }

    /// Nobody listens on its port.
    #[must_use]
    pub fn port_is_free(&self) -> bool {
        std::net::TcpListener::bind(("127.0.0.1", self.port)).is_ok()
    }

    /// Waits until nothing of the engine is left.
    #[track_caller]
    pub fn expect_gone(&self) {
        crate::wait::eventually("the engine's processes to be gone and its port to be free", || {
            (self.pids().is_empty() && self.port_is_free()).then_some(())
        });
    }
}
