//! `${name}` in a recipe.
//!
//! A variable's value is put in as it is: it is not looked at again, split into words or shown to a shell.

use std::collections::{BTreeMap, BTreeSet};

/// The folder of the recipe's file. It needs no value.
pub(super) const RECIPE_DIR: &str = "recipe_dir";

/// The variables of one recipe, and which of them it uses.
pub(super) struct Vars {
    values: BTreeMap<String, String>,
    used: BTreeSet<String>,
}

impl Vars {
    pub(super) fn new(values: BTreeMap<String, String>) -> Self {
        Self { values, used: BTreeSet::new() }
    }

    /// `text` with the variables' values in it.
    pub(super) fn expand(&mut self, text: &str) -> Result<String, String> {
        let mut expanded = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            let (name, after) =
                after.split_once('}').ok_or_else(|| format!("{text:?} has a ${{ without its }}"))?;
            if !is_name(name) {
                return Err(format!("${{{name}}} is no variable; names are of letters, digits and _"));
            }
            self.used.insert(name.to_owned());
            let value = self.values.get(name).ok_or_else(|| no_value(name))?;
            expanded.push_str(before);
            expanded.push_str(value);
            rest = after;
        }
        expanded.push_str(rest);
        Ok(expanded)
    }

    /// The first of `names` that was used nowhere, and what would have been.
    pub(super) fn unused<'a>(&self, mut names: impl Iterator<Item = &'a str>) -> Option<String> {
        let name = names.find(|&name| !self.used.contains(name))?;
        let known: Vec<_> =
            self.used.iter().filter(|n| *n != RECIPE_DIR).map(|n| format!("${{{n}}}")).collect();
        let has = if known.is_empty() { "no variables".into() } else { known.join(", ") };
        Some(format!("a value was given for {name:?}, but the recipe has {has}"))
    }
}

fn no_value(name: &str) -> String {
    format!(
        "${{{name}}} has no value; give it with --engine-var {name}=VALUE, or under [vars] in the file or an overlay"
    )
}

pub(super) fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
