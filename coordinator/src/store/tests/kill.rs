//! A coordinator that is killed: what it acknowledged is there when the directory is opened again.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use common::disk::OsDisk;
use common::ids::{Incarnation, Nanos, Seq, TrialId};

use super::{agent, block, run_id};
use crate::ingest::{self, Ack};
use crate::store::{RunEvent, Store};

/// Tells [`a_victim`] where to write.
const DIR: &str = "PLIMSOLL_TEST_KILL_DIR";

/// Not a test by itself: the process that is killed. It stores blocks for ever and prints what was acknowledged.
#[test]
fn a_victim() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let store = Store::open(&PathBuf::from(dir), Arc::new(OsDisk)).unwrap();
    let run = store.run(&run_id("r")).or_else(|_| store.create_run(&run_id("r"), Nanos(1))).unwrap();
    let ingest = ingest::start(&run).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        loop {
            let mark = ingest.mark(&agent("x"), Incarnation(9));
            let answer = ingest.submit(vec![block("x", 0, mark.0, 3)]).await.unwrap();
            assert_eq!(answer, Ack::UpTo(Seq(mark.0 + 3)));
            let epoch = run.next_epoch().unwrap();
            run.append_event(&RunEvent::TrialPrepared { trial: TrialId(0), epoch }).unwrap();
            println!("\nacknowledged {} {}", mark.0 + 3, run.events().unwrap().len());
        }
    });
}

#[test]
fn nothing_acknowledged_is_lost_when_the_process_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let mut before = (0, 0);
    for round in 1..=4 {
        let mut victim = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "store::tests::kill::a_victim", "--nocapture", "--test-threads=1"])
            .env(DIR, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(victim.stdout.take().unwrap()).lines();
        let mut acknowledged = lines.map_while(Result::ok).filter_map(|line| {
            let (traces, events) = line.strip_prefix("acknowledged ")?.split_once(' ')?;
            Some((traces.parse::<u64>().ok()?, events.parse::<usize>().ok()?))
        });
        let last = acknowledged.nth(round * 3).expect("the victim ended by itself");
        victim.kill().unwrap();
        victim.wait().unwrap();
        let last = acknowledged.last().unwrap_or(last);
        assert!(last > before);

        let store = Store::open(dir.path(), Arc::new(OsDisk)).unwrap();
        let run = store.run(&run_id("r")).unwrap();
        let mark = run.mark(&agent("x"), Incarnation(9)).unwrap();
        assert!(mark.0 >= last.0, "{last:?} was acknowledged, {mark} is there");
        assert!(run.events().unwrap().len() >= last.1);
        let expected: Vec<_> = (0..mark.0 / 3).map(|i| block("x", 0, i * 3, 3)).collect();
        assert_eq!(super::read(&run, 0), expected);
        before = (mark.0, last.1);
    }
}
