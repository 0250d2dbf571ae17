//! What the end-to-end tests are written with: processes, engines, and what a run leaves.
//!
//! The tests run the binaries that users run, `coordinator`, `agent` and `sim-engine` from the target folder, and see
//! only what a user sees: exit codes, standard output and error, files, and the engine's own log. Nothing of
//! the program is linked, but for its clock.
//!
//! Every process is ended by its id when its value goes, every wait has a deadline, and a failure shows the command
//! line and all that was said. [`Results`] checks a run's books whenever it reads them: there is no test without
//! `scheduled == recorded`.

mod agent;
pub mod browser;
mod certificates;
mod coordinator;
mod driven;
mod engine;
mod http;
mod llama;
mod ports;
mod process;
mod proxy;
mod recipe;
mod results;
pub mod schema;
mod search;
mod tmux;
mod values;
mod wait;

pub use agent::Agent;
pub use certificates::{Issued, Lab};
pub use coordinator::{Coordinator, Finished, Running};
pub use driven::DrivenBrowser;
pub use engine::{Engine, arrival_order};
pub use http::{get, metric};
pub use llama::LlamaServer;
pub use ports::free_port;
pub use process::{Ended, Process, binary, descendants, limit_files, signal};
pub use proxy::Recorder;
pub use recipe::Recipe;
pub use results::{CLOCKS, Results};
pub use rustix::process::Signal;
pub use search::{command_line, files_with, pids_with_argument};
pub use tmux::Tmux;
pub use values::{brief, by, count, counts, has, list, number, opt_number, text};
pub use wait::{PATIENCE, eventually, within};
