//! A recipe's file as it is written, and an overlay laid over it.
//!
//! Every file is read for itself, so that what is wrong is reported with the file and the line it stands in.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use common::ids::Digest;
use serde::de::{self, Deserialize, Deserializer, Visitor};

use super::RecipeError;

/// The fields of a recipe or an overlay. In a recipe some must be there, in an overlay none.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Fields {
    pub(super) name: Option<String>,
    pub(super) dialect: Option<String>,
    pub(super) command: Option<Vec<String>>,
    #[serde(default)]
    command_remove: Vec<String>,
    #[serde(default)]
    command_append: Vec<String>,
    #[serde(default)]
    pub(super) env: BTreeMap<String, Text>,
    pub(super) env_inherit: Option<bool>,
    pub(super) env_secret: Option<Vec<String>>,
    pub(super) working_dir: Option<String>,
    pub(super) base_url: Option<String>,
    #[serde(default)]
    pub(super) ready: Ready,
    #[serde(default)]
    pub(super) stop: Stop,
    pub(super) log: Option<String>,
    pub(super) notes: Option<Vec<String>>,
    #[serde(default)]
    pub(super) vars: BTreeMap<String, Text>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ready {
    pub(super) path: Option<String>,
    pub(super) timeout_seconds: Option<u64>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stop {
    pub(super) grace_seconds: Option<u64>,
}

/// Text that may be written as a whole number: `port = 8000`.
#[derive(Debug, Clone)]
pub(super) struct Text(pub(super) String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = Text;
            // A boolean is refused: an environment knows `1`, `true` and `yes`, and they are not the same.
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text or a whole number")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Text, E> {
                Ok(Text(text.to_owned()))
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Text, E> {
                Ok(Text(number.to_string()))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// A file that was read, for the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// As it was given.
    pub path: PathBuf,
    /// Of its bytes.
    pub sha256: Digest,
}

/// Reads one file.
pub(super) fn read(path: &Path) -> Result<(Fields, Source), RecipeError> {
    let bytes =
        std::fs::read(path).map_err(|e| RecipeError::new(path, None, format!("cannot be read: {e}")))?;
    let text =
        std::str::from_utf8(&bytes).map_err(|_| RecipeError::new(path, None, "is not UTF-8 text".into()))?;
    let fields = toml::from_str(text).map_err(|e| {
        let at = e.span().map_or(0, |span| span.start);
        let line = text[..at.min(text.len())].matches('\n').count() + 1;
        RecipeError::new(path, field_at(text, at), format!("line {line}: {}", e.message()))
    })?;
    Ok((fields, Source { path: path.to_owned(), sha256: Digest::of(&bytes) }))
}

impl Fields {
    /// Refuses what only an overlay may have.
    pub(super) fn refuse_edits(&self, path: &Path) -> Result<(), RecipeError> {
        for (field, words) in
            [("command_remove", &self.command_remove), ("command_append", &self.command_append)]
        {
            if !words.is_empty() {
                let problem = "is for overlays; write the command as it is meant".to_owned();
                return Err(RecipeError::new(path, Some(field.into()), problem));
            }
        }
        Ok(())
    }

    /// Lays `over` on top: what it says wins, tables are merged, lists are replaced; then the command is edited.
    pub(super) fn overlay(&mut self, over: Self, path: &Path) -> Result<(), RecipeError> {
        fn take<T>(under: &mut Option<T>, over: Option<T>) {
            if over.is_some() {
                *under = over;
            }
        }
        take(&mut self.name, over.name);
        take(&mut self.dialect, over.dialect);
        take(&mut self.command, over.command);
        take(&mut self.env_inherit, over.env_inherit);
        take(&mut self.env_secret, over.env_secret);
        take(&mut self.working_dir, over.working_dir);
        take(&mut self.base_url, over.base_url);
        take(&mut self.ready.path, over.ready.path);
        take(&mut self.ready.timeout_seconds, over.ready.timeout_seconds);
        take(&mut self.stop.grace_seconds, over.stop.grace_seconds);
        take(&mut self.log, over.log);
        take(&mut self.notes, over.notes);
        self.env.extend(over.env);
        self.vars.extend(over.vars);
        let command = self.command.get_or_insert_default();
        for option in &over.command_remove {
            remove(command, option).map_err(|e| RecipeError::new(path, Some("command_remove".into()), e))?;
        }
        command.extend(over.command_append);
        Ok(())
    }
}

/// Takes `option` out of a command with its value: what follows it up to the next option. `-1` is a value.
fn remove(command: &mut Vec<String>, option: &str) -> Result<(), String> {
    let is_option = |word: &String| {
        let rest = word.strip_prefix('-');
        rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit() || c == '.'))
    };
    let Some(at) = command.iter().position(|word| word == option) else {
        return Err(format!("{option:?} is not in the command; write it as it stands there"));
    };
    let values = if option.starts_with('-') {
        command[at + 1..].iter().take_while(|word| !is_option(word)).count()
    } else {
        0
    };
    command.drain(at..=at + values);
    Ok(())
}

/// The name of the field that byte `at` belongs to, as `table.key`; none before the first field.
fn field_at(text: &str, at: usize) -> Option<String> {
    let lines: Vec<&str> = text[..line_end(text, at)].lines().collect();
    let key = lines.iter().rposition(|line| {
        table_of(line).is_some() || line.split_once('=').is_some_and(|(key, _)| is_key(key))
    })?;
    if let Some(table) = table_of(lines[key]) {
        return Some(table.to_owned());
    }
    let name = lines[key].split_once('=').map_or("", |(key, _)| key).trim();
    match lines[..key].iter().rev().find_map(|line| table_of(line)) {
        Some(table) => Some(format!("{table}.{name}")),
        None => Some(name.to_owned()),
    }
}

fn line_end(text: &str, at: usize) -> usize {
    let at = at.min(text.len());
    text[at..].find('\n').map_or(text.len(), |length| at + length)
}

fn is_key(text: &str) -> bool {
    let text = text.trim().trim_matches('"');
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
}

/// A line that opens a table, also one whose bracket is not closed: that may be what is wrong.
fn table_of(line: &str) -> Option<&str> {
    let name = line.trim().strip_prefix('[')?.split(']').next()?.trim();
    is_key(name).then_some(name)
}
