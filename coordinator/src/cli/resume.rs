//! `coordinator resume`: the command of a run, as it was kept, once more.
//!
//! What was typed is kept with the run, by the options' names, and goes through the same checks as if it were typed
//! again. Values that may be secret are not kept: they have to be typed again. What is typed after the run's name wins.

use std::any::TypeId;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches};

use super::options::{Options, ResumeOptions};
use super::{browse, config, usage};
use crate::kept::{self, KeptCommand, KeptRun};
use crate::record::{VALUE_HIDDEN, name_only};
use crate::store::RunState;

/// Options that are not kept: they were expanded, or say nothing about the run.
const NOT_KEPT: &[&str] = &["config", "metadata", "log", "help", "data", "web", "plain"];

/// The command that was typed, for a later `resume`; `matches` are those of the subcommand.
pub(super) fn remember(name: &str, matches: &ArgMatches) -> KeptCommand {
    let mut kept = KeptCommand { name: name.to_owned(), ..KeptCommand::default() };
    let command = Options::command();
    let Some(sub) = command.find_subcommand(name) else { return kept };
    for arg in sub.get_arguments() {
        let (id, Some(long)) = (arg.get_id().as_str(), arg.get_long()) else { continue };
        if NOT_KEPT.contains(&long) || matches.value_source(id) != Some(ValueSource::CommandLine) {
            continue;
        }
        let is_path = arg.get_value_parser().type_id() == TypeId::of::<PathBuf>();
        let value = |raw: &std::ffi::OsStr| match is_path {
            // It may be resumed from another folder.
            true => std::path::absolute(raw).unwrap_or_else(|_| raw.into()).display().to_string(),
            false => raw.to_string_lossy().into_owned(),
        };
        let takes_value = arg.get_action().takes_values();
        let raw = matches.get_raw(id).filter(|_| takes_value);
        let values: Vec<String> = raw.into_iter().flatten().map(value).collect();
        if VALUE_HIDDEN.contains(&format!("--{long}").as_str()) {
            kept.hidden.insert(long.to_owned(), values.iter().map(|v| name_only(v)).collect());
        } else {
            kept.options.insert(long.to_owned(), values);
        }
    }
    kept
}

/// The words of a kept command, with what is typed now in the place of what was typed then.
///
/// # Errors
/// A hidden value that has to be typed again.
fn words(kept: &KeptCommand, typed: &[OsString], data: &Path) -> anyhow::Result<Vec<OsString>> {
    for (option, names) in &kept.hidden {
        if !config::is_typed(typed, option) {
            let names = names.join(", ");
            bail!(
                "its --{option} {names} is not kept, for it may be secret: type it again after the run's name"
            );
        }
    }
    let mut words: Vec<OsString> = vec!["coordinator".into(), kept.name.clone().into()];
    for (option, values) in kept.options.iter().filter(|(option, _)| !config::is_typed(typed, option)) {
        if values.is_empty() {
            words.push(format!("--{option}").into());
        }
        words.extend(values.iter().map(|value| OsString::from(format!("--{option}={value}"))));
    }
    words.push("--data".into());
    words.push(data.into());
    words.extend_from_slice(typed);
    Ok(words)
}

/// Goes on with a run.
pub(super) fn resume(options: &ResumeOptions) -> anyhow::Result<u8> {
    let typed = options.again.clone();
    if config::is_typed(&typed, "data") || config::is_typed(&typed, "config") {
        let text = "--data stands before the run's name, and --config was expanded when the run was made";
        return Ok(usage(&anyhow!(text)));
    }
    let (id, kept, workload) = {
        let store = browse::open(&options.data)?;
        let run = browse::find(&store, &options.run)?;
        if browse::capture_of(&run)?.is_some() {
            bail!("{} is a capture: it has no trials to send", run.id());
        }
        let kept = KeptRun::read(&run).with_context(|| format!("run {}", run.id()))?;
        if run.record()?.state == RunState::Finished {
            bail!("run {0} is finished; see `coordinator report {0}`", run.id());
        }
        let workload = Some(run.dir().join(kept::WORKLOAD)).filter(|path| path.is_file());
        (run.id().clone(), kept, workload)
    };
    let Some(mut command) = kept.command.clone() else {
        bail!("run {id} was made by a version that did not keep its command; it cannot be resumed");
    };
    // The file may be gone or changed; what was sent is kept. A built-in workload is built in.
    if let (Some(given), Some(own)) = (command.options.get_mut("workload"), workload) {
        *given = vec![own.display().to_string()];
    }
    let words = match words(&command, &typed, &options.data) {
        Ok(words) => words,
        Err(e) => return Ok(usage(&anyhow!("resume {id}: {e}"))),
    };
    let matches = Options::command().try_get_matches_from(words);
    let matches = matches.and_then(|m| Options::from_arg_matches(&m).map(|o| (m, o)));
    let (matches, again) = match matches {
        Ok(both) => both,
        Err(e) => e.exit(),
    };
    let Some((common, rates)) = again.command.sending() else {
        bail!("run {id}: {} sends nothing", command.name);
    };
    let sub = matches.subcommand().map_or(&matches, |(_, sub)| sub);
    super::execute(common, &rates, sub, super::Which::Again(id, Box::new(kept)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn kept(line: &str) -> KeptCommand {
        let matches = Options::command().try_get_matches_from(line.split_whitespace()).unwrap();
        let (name, sub) = matches.subcommand().unwrap();
        remember(name, sub)
    }

    fn again(kept: &KeptCommand, typed: &str) -> Result<String, String> {
        let typed: Vec<OsString> = typed.split_whitespace().map(OsString::from).collect();
        let words = words(kept, &typed, Path::new("d")).map_err(|e| e.to_string())?;
        let text: Vec<String> = words.iter().map(|w| w.to_string_lossy().into_owned()).collect();
        Ok(text.join(" "))
    }

    #[test]
    fn what_was_typed_is_typed_again_and_what_is_typed_now_wins() {
        let kept = kept(
            "coordinator sweep --rates 1,2.5 --ignore-eos --slo ttft=1s --slo e2e=9s --listen 127.0.0.1:7 --agents 3 --data x",
        );
        let line = again(&kept, "--agents 2").unwrap();
        assert_eq!(
            line,
            "coordinator sweep --ignore-eos --listen=127.0.0.1:7 --rates=1 --rates=2.5 --slo=ttft=1s --slo=e2e=9s --data d --agents 2"
        );
        // What comes out means the same.
        let matches = Options::command().try_get_matches_from(line.split(' ')).unwrap();
        let options = Options::from_arg_matches(&matches).unwrap();
        let (common, rates) = options.command.sending().unwrap();
        assert_eq!(rates.rates, ["1", "2.5"]);
        assert_eq!((common.agents.agents, common.objectives.slo.len()), (Some(2), 2));
    }

    #[test]
    fn paths_are_found_again_from_another_folder() {
        let kept = kept("coordinator run --rate 1 --workload some/rows.jsonl --metadata m.json");
        let here = std::env::current_dir().unwrap().join("some/rows.jsonl");
        assert_eq!(kept.options["workload"], [here.display().to_string()]);
        assert!(!kept.options.contains_key("metadata"), "it is in the record already");
    }

    #[test]
    fn what_may_be_secret_is_not_kept_and_asked_for() {
        let line = ["coordinator", "run", "--rate", "1", "--header", "x-a: planted"];
        let matches = Options::command().try_get_matches_from(line).unwrap();
        let (name, sub) = matches.subcommand().unwrap();
        let kept = remember(name, sub);
        assert!(!serde_json::to_string(&kept).unwrap().contains("planted"));
        let said = again(&kept, "").unwrap_err();
        assert!(said.contains("--header x-a: …"), "{said}");
        assert!(again(&kept, "--header=x-a:b").unwrap().ends_with("--header=x-a:b"));
    }

    #[test]
    fn nothing_is_made_up() {
        let kept = kept("coordinator sweep --rates 4");
        assert_eq!(kept.options, BTreeMap::from([("rates".to_owned(), vec!["4".to_owned()])]));
    }
}
