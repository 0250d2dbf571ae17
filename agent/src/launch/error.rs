//! What can go wrong with an engine's life, for a person: what happened, where, what to do.

use std::io;
use std::path::PathBuf;

use common::ids::Nanos;

use super::log::LogEnd;
use super::port::Owner;
use super::protocol::Exit;
use super::recipe::RecipeError;

/// Why an engine was not started, is not ready, or is not gone. No message holds a secret that [`super::Recipe`] knows.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The recipe.
    #[error(transparent)]
    Recipe(#[from] RecipeError),
    /// The base URL's host has no address.
    #[error("recipe {recipe}: base_url: {host}: {source}; an engine is started on the agent's own host")]
    Host {
        /// The recipe's file.
        recipe: PathBuf,
        /// The host.
        host: String,
        /// From the lookup, or from binding.
        source: io::Error,
    },
    /// Somebody has the port already. Nothing was started.
    #[error("{engine} was not started: port {port} is held by {owner}; end that, or give another port")]
    PortTaken {
        /// The recipe's name.
        engine: String,
        /// The port.
        port: u16,
        /// Who has it.
        owner: Owner,
    },
    /// The working folder.
    #[error("recipe {recipe}: working_dir: {} is no folder", .path.display())]
    WorkingDir {
        /// The recipe's file.
        recipe: PathBuf,
        /// The folder.
        path: PathBuf,
    },
    /// The log.
    #[error("no log can be written at {}: {problem}; say another folder with `log` in the recipe", .path.display())]
    Log {
        /// The file, or its folder.
        path: PathBuf,
        /// What the system says.
        problem: String,
    },
    /// There is no such program.
    #[error(
        "recipe {recipe}: command: the program {program:?} was not found, or the interpreter that its first line \
         names; install it, or write its absolute path"
    )]
    NoProgram {
        /// The recipe's file.
        recipe: PathBuf,
        /// The program.
        program: String,
    },
    /// The program cannot be run.
    #[error("recipe {recipe}: command: the program {program:?} cannot be run: {problem}")]
    Program {
        /// The recipe's file.
        recipe: PathBuf,
        /// The program.
        program: String,
        /// What the system says.
        problem: String,
    },
    /// The process between agent and engine.
    #[error("the engine's supervisor cannot be started: {0}; is the agent's own program still there?")]
    Supervisor(String),
    /// The engine ended before it was ready.
    #[error("{engine} ended with {exit} before it was ready; {log}")]
    Exited {
        /// The recipe's name.
        engine: String,
        /// How it ended.
        exit: Exit,
        /// The end of its log.
        log: Box<LogEnd>,
    },
    /// It did not become ready in time. It still runs.
    #[error(
        "{engine} was not ready after {} s (ready.timeout_seconds): {path} last gave {answer}; {log}",
        .waited.0 / 1_000_000_000
    )]
    NotReady {
        /// The recipe's name.
        engine: String,
        /// How long.
        waited: Nanos,
        /// What was asked for.
        path: String,
        /// The last answer.
        answer: String,
        /// The end of its log.
        log: Box<LogEnd>,
    },
    /// Processes that SIGKILL does not end.
    #[error(
        "{engine} does not end: {}; SIGKILL was sent, so a driver or a dead disk holds them, and the host may have to \
         be restarted", processes(.pids)
    )]
    WillNotEnd {
        /// The recipe's name.
        engine: String,
        /// Those left, as far as they are known.
        pids: Vec<i32>,
    },
    /// The engine is gone and its port is not free.
    #[error("{engine} has ended, but port {port} is still held by {owner}; end that before the next start")]
    PortHeld {
        /// The recipe's name.
        engine: String,
        /// The port.
        port: u16,
        /// Who has it.
        owner: Owner,
    },
}

fn processes(pids: &[i32]) -> String {
    match pids {
        [] => "its processes".into(),
        pids => format!("processes {}", pids.iter().map(i32::to_string).collect::<Vec<_>>().join(", ")),
    }
}
