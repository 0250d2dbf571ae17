//! `--config FILE`: options from a TOML file, under the flags' names. A flag that is typed wins.
//!
//! ```toml
//! rates = [1, 2, 4, 8]
//! base-url = "http://10.0.0.9:8000"
//! slo = ["ttft=500ms", "tpot=40ms"]
//! ignore-eos = true
//! ```
//!
//! The file's entries are put in front of what was typed, as if they had been typed: so they are checked and refused
//! by the same code, with the same words.

use std::ffi::OsString;
use std::path::Path;

use anyhow::{Context, anyhow, bail};
use clap::Command;
use toml::{Table, Value};

/// Options that mean the same thing: one of them typed, and the file's others are not taken.
const ALTERNATIVES: &[&[&str]] = &[&["requests", "duration"], &["slo", "ttft-slo", "tpot-slo", "e2e-slo"]];

/// The command line with the file's options in it; the same command line when it names no file.
///
/// # Errors
/// A file that cannot be read, is not TOML, or has an option that the command does not know.
pub(super) fn expand(words: Vec<OsString>, command: &Command) -> anyhow::Result<Vec<OsString>> {
    let Some(path) = value_of(&words, "config") else { return Ok(words) };
    let shown = Path::new(&path).display().to_string();
    let text = std::fs::read_to_string(&path).with_context(|| format!("--config {shown}"))?;
    let table: Table = text.parse().map_err(|e| anyhow!("--config {shown}: {e}"))?;
    // The subcommand's name is the first word that is one.
    let found = words.iter().enumerate().skip(1).find_map(|(at, word)| {
        let sub = command.find_subcommand(word.to_str()?)?;
        Some((at, sub))
    });
    let Some((at, sub)) = found else { return Ok(words) };
    let mut expanded: Vec<OsString> = words[..=at].to_vec();
    for (key, value) in &table {
        let known = sub.get_arguments().any(|a| a.get_long() == Some(key) && key != "config");
        if !known {
            bail!("--config {shown}: `{key}` is not an option of `coordinator {}`", sub.get_name());
        }
        if !is_typed(&words, key) {
            let option = option(key, value).map_err(|e| anyhow!("--config {shown}: `{key}`: {e}"))?;
            expanded.extend(option.into_iter().map(OsString::from));
        }
    }
    expanded.extend_from_slice(&words[at + 1..]);
    Ok(expanded)
}

fn value_of(words: &[OsString], name: &str) -> Option<OsString> {
    let flag = format!("--{name}");
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let text = word.to_string_lossy();
        if text == flag.as_str() {
            return words.next().cloned();
        }
        if let Some(value) = text.strip_prefix(&flag).and_then(|rest| rest.strip_prefix('=')) {
            return Some(value.into());
        }
    }
    None
}

/// Whether the option, or another that means the same thing, was typed.
pub(super) fn is_typed(words: &[OsString], key: &str) -> bool {
    let same = ALTERNATIVES.iter().find(|group| group.contains(&key)).copied();
    let typed = |name: &str| {
        let flag = format!("--{name}");
        words.iter().any(|w| {
            let text = w.to_string_lossy();
            text == flag.as_str() || text.strip_prefix(&flag).is_some_and(|rest| rest.starts_with('='))
        })
    };
    typed(key) || same.is_some_and(|group| group.iter().any(|name| typed(name)))
}

/// The words of one option. A list is one option for each element, but for lists that clap splits at commas the
/// effect is the same.
fn option(key: &str, value: &Value) -> Result<Vec<String>, String> {
    match value {
        Value::Boolean(true) => Ok(vec![format!("--{key}")]),
        Value::Boolean(false) => Ok(Vec::new()),
        Value::Array(values) => {
            let each = values.iter().map(|v| scalar(v).map(|text| format!("--{key}={text}")));
            each.collect()
        }
        value => Ok(vec![format!("--{key}={}", scalar(value)?)]),
    }
}

fn scalar(value: &Value) -> Result<String, String> {
    match value {
        Value::String(s) => Ok(s.clone()),
        Value::Integer(i) => Ok(i.to_string()),
        Value::Float(f) => Ok(f.to_string()),
        other => Err(format!("expected text or a number, not {}", other.type_str())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::options::Options;
    use clap::CommandFactory;

    fn expanded(toml: &str, typed: &str) -> Result<String, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sweep.toml");
        std::fs::write(&path, toml).unwrap();
        let line = format!("coordinator sweep --config {} {typed}", path.display());
        let words = line.split_whitespace().map(OsString::from).collect();
        let words = expand(words, &Options::command()).map_err(|e| format!("{e:#}"))?;
        let text: Vec<String> = words.iter().map(|w| w.to_string_lossy().into_owned()).collect();
        Ok(text.join(" ").replace(&format!(" --config {}", path.display()), ""))
    }

    #[test]
    fn the_file_speaks_first_and_flags_win() {
        let toml = "rates = [1, 2.5, \"inf\"]\nignore-eos = true\nlogprobs = false\nduration = \"9s\"\nslo = [\"ttft=1s\"]";
        assert_eq!(
            expanded(toml, "--seed 3").unwrap(),
            "coordinator sweep --duration=9s --ignore-eos --rates=1 --rates=2.5 --rates=inf --slo=ttft=1s --seed 3"
        );
        assert_eq!(
            expanded(toml, "--rates=8 --requests 5 --tpot-slo 1s").unwrap(),
            "coordinator sweep --ignore-eos --rates=8 --requests 5 --tpot-slo 1s"
        );
    }

    #[test]
    fn what_the_file_gets_wrong_is_named() {
        assert!(
            expanded("rate = 3", "").unwrap_err().contains("`rate` is not an option of `coordinator sweep`")
        );
        assert!(expanded("rates = [[1]]", "").unwrap_err().contains("`rates`: expected text or a number"));
        assert!(expanded("rates = [1", "").unwrap_err().contains("sweep.toml"));
        let missing = ["coordinator", "run", "--config=/no/such"].map(OsString::from).to_vec();
        assert!(expand(missing, &Options::command()).unwrap_err().to_string().contains("--config /no/such"));
        let none = ["coordinator", "runs"].map(OsString::from).to_vec();
        assert_eq!(expand(none.clone(), &Options::command()).unwrap(), none);
    }
}
