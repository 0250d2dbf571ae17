//! The commands on a real folder, without a coordinator.

use std::sync::Arc;

use common::disk::OsDisk;
use common::ids::{Epoch, Incarnation, Nanos, Seq, TrialId};
use common::trace::segment::BlockOrigin;

use super::*;
use crate::spool::Spool;
use crate::spool::tests::trace;

fn spool(place: &Place, agent: &str, run: &str, trial: u32, traces: u64) -> Arc<Spool> {
    let origin = BlockOrigin {
        agent: agent.parse().unwrap(),
        incarnation: Incarnation(0xfeed_0000_0000_0001),
        trial: TrialId(trial),
        epoch: Epoch(trial + 1),
    };
    let run = run.parse().unwrap();
    let spool =
        Spool::create(&OsDisk, &place.spool.join(agent), &run, origin, Seq(u64::from(trial % 8) * 100))
            .unwrap();
    if traces > 0 {
        spool.append(&(0..traces).map(trace).collect::<Vec<_>>()).unwrap();
    }
    spool
}

fn place() -> (tempfile::TempDir, Place) {
    let folder = tempfile::tempdir().unwrap();
    let place = Place { spool: folder.path().join("spool") };
    std::fs::create_dir(&place.spool).unwrap();
    (folder, place)
}

fn remove(place: &Place, arguments: &[&str]) -> anyhow::Result<u8> {
    let spool = place.spool.to_str().unwrap();
    let given = ["spool", "rm", "--spool", spool].into_iter().chain(arguments.iter().copied());
    let Command::Rm(options) = Options::try_parse_from(given).unwrap().command else { panic!("not rm") };
    remove::run(&options)
}

fn held(place: &Place) -> Vec<(String, u32, u64, bool)> {
    let holdings = look(&OsDisk, place).unwrap();
    let segments = holdings.iter().flat_map(|h| &h.segments);
    segments.map(|s| (s.run.to_string(), s.origin.trial.0, s.traces, s.sealed)).collect()
}

#[test]
fn what_no_coordinator_has_sealed_is_removed_only_when_that_is_said() {
    let (_folder, place) = place();
    spool(&place, "a", "r1", 0, 3);
    spool(&place, "a", "r1", 1, 2);
    spool(&place, "b", "r2", 0, 1);
    spool(&place, "b", "r3", 0, 0);
    let mut holdings = look(&OsDisk, &place).unwrap();
    holdings[0].segments[0].mark_sealed(&OsDisk).unwrap();
    assert_eq!(
        held(&place),
        [
            ("r1".into(), 0, 3, true),
            ("r1".into(), 1, 2, false),
            ("r2".into(), 0, 1, false),
            ("r3".into(), 0, 0, false)
        ]
    );
    let said = |result: anyhow::Result<u8>| result.unwrap_err().to_string();
    assert!(
        said(remove(&place, &["r1"])).starts_with("2 traces that no coordinator has sealed would be lost")
    );
    assert!(said(remove(&place, &["--all"])).starts_with("3 traces"));
    assert!(said(remove(&place, &["r9"])).contains("holds nothing of run r9"));
    assert_eq!(held(&place).len(), 4, "nothing was removed");
    // A segment without traces is no loss.
    assert_eq!(remove(&place, &["r3"]).unwrap(), 0);
    assert_eq!(remove(&place, &["--sealed"]).unwrap(), 0);
    assert_eq!(held(&place), [("r1".into(), 1, 2, false), ("r2".into(), 0, 1, false)]);
    assert_eq!(remove(&place, &["r1", "--yes"]).unwrap(), 0);
    assert_eq!(remove(&place, &["--all", "--force"]).unwrap(), 0);
    assert!(held(&place).is_empty());
}

#[test]
fn a_spool_that_an_agent_has_is_looked_at_and_not_touched() {
    let (_folder, place) = place();
    spool(&place, "a", "r", 0, 3);
    let _agent = FolderLock::take(&place.spool.join("a")).unwrap();
    assert_eq!(held(&place).len(), 1);
    let refused = remove(&place, &["--all", "--yes"]).unwrap_err().to_string();
    assert!(refused.contains("is in use by a running agent (process "), "{refused}");
    let holdings = look(&OsDisk, &place).unwrap();
    assert!(holdings[0].in_use.is_some());
    assert_eq!(held(&place).len(), 1);
}

#[test]
fn a_spool_that_is_not_there_is_not_empty() {
    let (_folder, place) = place();
    assert!(held(&place).is_empty());
    let missing = Place { spool: place.spool.join("elsewhere") };
    assert!(look(&OsDisk, &missing).err().unwrap().to_string().starts_with("there is no folder "));
}

#[test]
fn the_command_line_says_what_goes() {
    let parse = |line: &str| Options::try_parse_from(line.split(' '));
    for bad in ["spool rm", "spool rm r --all", "spool rm --sealed --all", "spool push", "spool"] {
        assert!(parse(bad).is_err(), "{bad}");
    }
    for good in ["spool rm r", "spool rm --all --yes", "spool ls --json", "spool push --join h:1 r"] {
        assert!(parse(good).is_ok(), "{good}");
    }
    assert!(run(&["agent".into(), "--join".into(), "h:1".into()]).is_none());
}

/// Long names are shortened, so that a line fits a terminal; short ones are not.
#[test]
fn the_table_fits_a_terminal() {
    let (_folder, place) = place();
    spool(&place, "a", "r", 7, 64);
    let table = list::table(&list::listing("S", &look(&OsDisk, &place).unwrap(), Nanos::ZERO));
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 2);
    assert!(lines[0].starts_with("RUN  TRIAL  AGENT  PROCESS   SEGMENTS  TRACES "), "{table}");
    assert!(lines[1].starts_with("r        7  a      feed0000         1      64 "), "{table}");
    assert!(lines[1].contains("  unsealed  "), "{table}");
    let long = "n".repeat(64);
    spool(&place, &long, &long, u32::MAX - 1, 64);
    let table = list::table(&list::listing("S", &look(&OsDisk, &place).unwrap(), Nanos::ZERO));
    assert!(table.lines().all(|line| line.len() <= 100 && line.is_ascii()), "{table}");
    assert!(table.contains('~'));
    assert_eq!(list::table(&list::listing("S", &[], Nanos::ZERO)), "S holds no traces\n");
}
