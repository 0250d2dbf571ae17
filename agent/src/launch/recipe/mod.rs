//! A recipe: how one engine is started, in a TOML file of this host.
//!
//! ```toml
//! name = "vllm"                      # names the log and the record
//! dialect = "vllm"                   # how the engine is spoken to
//! command = ["vllm", "serve", "${checkpoint}", "--port", "${port}"]
//! base_url = "http://127.0.0.1:${port}"
//! working_dir = "."                  # default: the agent's
//! env_inherit = true                 # default: the engine gets the agent's environment, and [env] on top
//! env_secret = ["MY_LICENCE"]        # besides what is called KEY, TOKEN, SECRET or PASSWORD
//! log = "logs"                       # folder; default: beside the agent's spool
//! notes = ["prefix cache on"]        # what differs from the other engines; goes into the record
//! [env]
//! VLLM_SERVER_DEV_MODE = 1
//! [ready]
//! path = "/health"                   # default: the dialect's. It must not make the engine generate
//! timeout_seconds = 600
//! [stop]
//! grace_seconds = 30                 # between SIGTERM and SIGKILL
//! [vars]
//! port = 8000                        # `--engine-var port=8001` wins
//! ```
//!
//! `${name}` is replaced in `command`, `base_url`, `working_dir`, `log` and the values of `[env]`; `${recipe_dir}` is
//! the recipe's folder. A program with a `/` in it, `working_dir` and `log` are relative to the file that names them;
//! a program without one is looked for in the PATH. An argument is passed on as it is: use `${recipe_dir}` or an
//! absolute path in it.
//!
//! An overlay is a second file of the same fields, each of them optional. What it says wins; tables are merged, lists
//! replaced. It may also edit the command: `command_remove = ["--dtype"]` takes an option out with its value,
//! `command_append = ["--dtype", "float32"]` puts words at the end, in this order.
//!
//! Every error names the file and the field. Guarded by `tests` here and, for the recipes of `deploy/engines`, by
//! `tests/launch/recipes`.

mod file;
#[cfg(test)]
mod tests;
mod vars;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use common::ids::Nanos;
use common::plan::BaseUrl;

pub use file::Source;
use file::{Fields, Text};
use vars::{RECIPE_DIR, Vars};

use super::scrub::{Scrub, is_secret};

/// Long enough for a large checkpoint from a slow disk.
const DEFAULT_READY: Nanos = Nanos::from_secs(1200);
const DEFAULT_GRACE: Nanos = Nanos::from_secs(30);

/// What is wrong with a recipe.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("recipe {file}: {}{problem}", .field.as_ref().map_or(String::new(), |f| format!("{f}: ")))]
pub struct RecipeError {
    /// The file, or both where an overlay was laid over it.
    pub file: String,
    /// The field, as `table.key`.
    pub field: Option<String>,
    /// What is wrong with it.
    pub problem: String,
}

impl RecipeError {
    fn new(file: &Path, field: Option<String>, problem: String) -> Self {
        Self { file: file.display().to_string(), field, problem }
    }
}

/// How one engine is started. Its `Debug` shows no values of the environment.
#[derive(Clone)]
pub struct Recipe {
    /// Of letters, digits, `.`, `_` and `-`.
    pub name: String,
    /// How the engine is spoken to; see [`Recipe::check_dialect`].
    pub dialect: String,
    /// Program and arguments, variables replaced. May hold secrets.
    pub command: Vec<String>,
    /// On top of what is inherited. May hold secrets.
    pub env: BTreeMap<String, String>,
    /// The engine gets the agent's environment too.
    pub env_inherit: bool,
    /// Names whose values are secret although they do not look so.
    pub env_secret: Vec<String>,
    /// None: the agent's.
    pub working_dir: Option<PathBuf>,
    /// Where the engine will answer, on this host.
    pub base_url: BaseUrl,
    /// Asked to find out whether it is ready. None: the dialect's.
    pub ready_path: Option<String>,
    /// How long it may take until it is ready.
    pub ready_timeout: Nanos,
    /// Between SIGTERM and SIGKILL.
    pub grace: Nanos,
    /// Folder for logs. None: the agent's.
    pub log_dir: Option<PathBuf>,
    /// What differs from other engines, for people.
    pub notes: Vec<String>,
    /// The recipe's file.
    pub source: Source,
    /// The overlay's file.
    pub overlay: Option<Source>,
    /// Values of variables that are called like secrets.
    secret_vars: Vec<String>,
}

impl Recipe {
    /// Reads `path`, with `overlay` laid over it and the values of `vars` on top of `[vars]`.
    ///
    /// # Errors
    /// The first thing that is wrong, with file and field. Nothing of the host has been looked at but the two files.
    pub fn load(path: &Path, overlay: Option<&Path>, vars: &[(String, String)]) -> Result<Self, RecipeError> {
        let (mut fields, source) = file::read(path)?;
        fields.refuse_edits(path)?;
        let mut command_dir = folder(path);
        let mut working_dir_base = folder(path);
        let mut log_base = folder(path);
        let mut over_source = None;
        if let Some(over_path) = overlay {
            let (over, source) = file::read(over_path)?;
            for (said, base) in [
                (over.command.is_some(), &mut command_dir),
                (over.working_dir.is_some(), &mut working_dir_base),
                (over.log.is_some(), &mut log_base),
            ] {
                if said {
                    *base = folder(over_path);
                }
            }
            fields.overlay(over, over_path)?;
            over_source = Some(source);
        }
        let file = match overlay {
            Some(over) => format!("{} with {}", path.display(), over.display()),
            None => path.display().to_string(),
        };
        let bases =
            Bases { recipe: folder(path), command: command_dir, working: working_dir_base, log: log_base };
        let resolved = resolve(fields, vars, &bases, source, over_source);
        resolved.map_err(|(field, problem)| RecipeError { file, field: Some(field), problem })
    }

    /// Refuses a dialect that `known` does not know; what `known` says is the rest of the message.
    ///
    /// # Errors
    /// With file and field.
    pub fn check_dialect<T, E: fmt::Display>(
        &self,
        known: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<T, RecipeError> {
        known(&self.dialect)
            .map_err(|e| RecipeError::new(&self.source.path, Some("dialect".into()), e.to_string()))
    }

    /// What must not be shown: secrets of its environment, its variables and its command, and of the environment that
    /// the engine inherits.
    pub(super) fn scrub(&self) -> Scrub {
        let mut scrub = Scrub::default();
        for (name, value) in &self.env {
            if self.env_secret.contains(name) || is_secret(name, value) {
                scrub.hide(value);
            }
        }
        for value in &self.secret_vars {
            scrub.hide(value);
        }
        for (name, value) in std::env::vars_os() {
            let (name, value) = (name.to_string_lossy(), value.to_string_lossy());
            if self.env_secret.iter().any(|secret| *secret == name) || is_secret(&name, &value) {
                scrub.hide(&value);
            }
        }
        scrub.hide_options(&self.command);
        scrub
    }
}

impl fmt::Debug for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recipe")
            .field("name", &self.name)
            .field("file", &self.source.path)
            .finish_non_exhaustive()
    }
}

/// The folders that relative paths start from.
struct Bases {
    recipe: PathBuf,
    command: PathBuf,
    working: PathBuf,
    log: PathBuf,
}

fn folder(file: &Path) -> PathBuf {
    // Absolute, because the engine may be started in another folder.
    let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    file.parent().map(Path::to_owned).unwrap_or_default()
}

/// A field and what is wrong with it.
type Wrong = (String, String);

fn resolve(
    fields: Fields,
    given: &[(String, String)],
    bases: &Bases,
    source: Source,
    overlay: Option<Source>,
) -> Result<Recipe, Wrong> {
    let values = values(fields.vars, given, bases)?;
    let secret_vars = values.iter().filter(|(n, v)| is_secret(n, v)).map(|(_, v)| v.clone()).collect();
    let mut vars = Vars::new(values);
    let name = required("name", fields.name)?;
    if !name.starts_with(|c: char| c.is_ascii_alphanumeric())
        || !name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
    {
        return wrong("name", format!("{name:?} cannot name a file; use letters, digits, '.', '_' and '-'"));
    }
    let dialect = required("dialect", fields.dialect)?;
    let command = command(required("command", fields.command)?, &mut vars, &bases.command)?;
    let mut env = BTreeMap::new();
    for (name, Text(value)) in fields.env {
        let field = format!("env.{name}");
        if name.is_empty() || name.contains(['=', '\0']) {
            return wrong(&field, "is no name for a variable of the environment".into());
        }
        env.insert(name, expand(&mut vars, &field, &value)?);
    }
    let base_url = expand(&mut vars, "base_url", &required("base_url", fields.base_url)?)?;
    let base_url = base_url.parse().map_err(|e| ("base_url".to_owned(), format!("{e}")))?;
    let mut path_of = |field: &str, value: Option<String>, base: &Path| match value {
        Some(value) => expand(&mut vars, field, &value).map(|value| Some(base.join(value))),
        None => Ok(None),
    };
    let working_dir = path_of("working_dir", fields.working_dir, &bases.working)?;
    let log_dir = path_of("log", fields.log, &bases.log)?;
    if let Some(problem) = vars.unused(given.iter().map(|(name, _)| name.as_str())) {
        return wrong("--engine-var", problem);
    }
    check_ready(&dialect, fields.ready.path.as_deref())?;
    Ok(Recipe {
        name,
        dialect,
        command,
        env,
        env_inherit: fields.env_inherit.unwrap_or(true),
        env_secret: fields.env_secret.unwrap_or_default(),
        working_dir,
        base_url,
        ready_path: fields.ready.path,
        ready_timeout: fields.ready.timeout_seconds.map_or(DEFAULT_READY, Nanos::from_secs),
        grace: fields.stop.grace_seconds.map_or(DEFAULT_GRACE, Nanos::from_secs),
        log_dir,
        notes: fields.notes.unwrap_or_default(),
        source,
        overlay,
        secret_vars,
    })
}

fn wrong<T>(field: &str, problem: String) -> Result<T, Wrong> {
    Err((field.to_owned(), problem))
}

fn required<T>(field: &str, value: Option<T>) -> Result<T, Wrong> {
    value.ok_or_else(|| (field.to_owned(), "is missing".to_owned()))
}

fn expand(vars: &mut Vars, field: &str, text: &str) -> Result<String, Wrong> {
    let expanded = vars.expand(text).map_err(|problem| (field.to_owned(), problem))?;
    if expanded.contains('\0') {
        return wrong(field, "holds a NUL, which no program can be given".into());
    }
    Ok(expanded)
}

fn values(
    written: BTreeMap<String, Text>,
    given: &[(String, String)],
    bases: &Bases,
) -> Result<BTreeMap<String, String>, Wrong> {
    let mut values = BTreeMap::new();
    for (name, Text(value)) in written {
        let field = format!("vars.{name}");
        if !vars::is_name(&name) || name == RECIPE_DIR {
            return wrong(
                &field,
                format!("cannot be a variable; use letters, digits and _, not {RECIPE_DIR}"),
            );
        }
        if value.contains("${") {
            return wrong(&field, "holds another variable, which would not be replaced; write it out".into());
        }
        values.insert(name, value);
    }
    values.extend(given.iter().cloned());
    let Some(folder) = bases.recipe.to_str() else {
        return wrong(RECIPE_DIR, "the recipe's folder is not UTF-8; move it".into());
    };
    values.insert(RECIPE_DIR.to_owned(), folder.to_owned());
    Ok(values)
}

fn command(words: Vec<String>, vars: &mut Vars, base: &Path) -> Result<Vec<String>, Wrong> {
    let expand = |(at, word): (usize, &String)| expand(vars, &format!("command[{at}]"), word);
    let mut words = words.iter().enumerate().map(expand).collect::<Result<Vec<_>, _>>()?;
    match words.first_mut() {
        None => return wrong("command", "is empty; its first word is the program".into()),
        Some(program) if program.is_empty() => return wrong("command[0]", "names no program".into()),
        Some(program) if program.contains('/') => {
            *program = base.join(&*program).to_string_lossy().into_owned();
        }
        Some(_) => {}
    }
    Ok(words)
}

/// Being asked whether it is ready must cost an engine nothing: no trial may begin with a token of ours in its cache.
fn check_ready(dialect: &str, path: Option<&str>) -> Result<(), Wrong> {
    let Some(path) = path else { return Ok(()) };
    if !path.starts_with('/') || !path.chars().all(|c| c.is_ascii_graphic()) {
        return wrong(
            "ready.path",
            format!("{path:?} cannot be requested; it starts with / and has no blanks"),
        );
    }
    if path.starts_with("/health_generate") || (dialect == "sglang" && path == "/health") {
        return wrong("ready.path", format!("{path} makes this engine generate a token; leave it out"));
    }
    Ok(())
}
