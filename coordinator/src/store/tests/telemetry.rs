//! The files of telemetry: what is taken twice, torn, or another's.

use std::path::Path;

use common::disk::Disk;
use common::ids::{AgentName, Incarnation, Nanos, Seq};
use common::telemetry::series::{Frame, encode};
use common::telemetry::{ClockSample, GpuInfo, HostSample, Record};

use crate::store::RunStore;

use super::{SIM, agent, reopen, run_id, sim};

fn record(at: u64) -> Record {
    Record::Host(HostSample { at: Nanos(at), ..HostSample::default() })
}

/// All that is kept, of one agent.
fn kept(run: &RunStore) -> Vec<Record> {
    let series = run.telemetry_series().unwrap();
    assert_eq!(series.len(), 1);
    series[0].records().collect()
}

fn frame(name: &AgentName, process: u64, first: u64, at: &[u64]) -> Vec<u8> {
    let records = at.iter().map(|at| record(*at)).collect();
    let frame =
        Frame { agent: name.clone(), incarnation: Incarnation(process), first_seq: Seq(first), records };
    encode(&frame).unwrap()
}

#[test]
fn what_is_sent_again_is_kept_once_and_what_is_no_frame_of_the_sender_not_at_all() {
    let (_, _, store) = sim();
    let run = store.create_run(&run_id("r"), Nanos(1)).unwrap();
    let (sink, x) = (run.telemetry().unwrap(), agent("x"));
    let frames = [frame(&x, 1, 0, &[10, 11]), frame(&x, 1, 2, &[12])];
    let take = |frames: &[Vec<u8>]| sink.append(&x, Incarnation(1), frames).unwrap();
    assert_eq!(take(&frames), Seq(3));
    assert_eq!(take(&frames), Seq(3), "sent again: the answer was lost");
    let strange = [b"no frame".to_vec(), frame(&agent("y"), 1, 3, &[66]), frame(&x, 2, 3, &[66])];
    assert_eq!(take(&strange), Seq(3));
    // What was dropped on the way is a gap and no error.
    assert_eq!(take(&[frame(&x, 1, 9, &[20])]), Seq(10));
    assert_eq!(kept(&run), [10, 11, 12, 20].map(record));
}

#[test]
fn what_was_recorded_in_another_boot_stands_apart() {
    let (_, _, store) = sim();
    let (run, x) = (store.create_run(&run_id("r"), Nanos(1)).unwrap(), agent("x"));
    for (boot, at) in [(0, 900), (1, 10)] {
        run.telemetry_of(boot).unwrap().append(&x, Incarnation(1), &[frame(&x, 1, 0, &[at])]).unwrap();
    }
    let of = |boot| -> Vec<Record> {
        run.telemetry_series_of(boot)
            .unwrap()
            .iter()
            .flat_map(|series| series.records().collect::<Vec<_>>())
            .collect()
    };
    assert_eq!((of(0), of(1), of(2)), (vec![record(900)], vec![record(10)], Vec::new()));
}

#[test]
fn a_torn_tail_is_left_out_and_cut_before_more_comes() {
    let (disk, index, store) = sim();
    let run = store.create_run(&run_id("r"), Nanos(1)).unwrap();
    let x = agent("x");
    run.telemetry().unwrap().append(&x, Incarnation(7), &[frame(&x, 7, 0, &[10])]).unwrap();
    let path = Path::new(SIM).join("runs/r/telemetry/x-0000000000000007.tel");
    let torn = frame(&x, 7, 1, &[11, 12]);
    disk.open(&path).unwrap().append(&torn[..torn.len() - 3]).unwrap();
    assert_eq!(kept(&run), [record(10)]);
    drop((run, store));
    let run = reopen(&disk, &index).run(&run_id("r")).unwrap();
    let sink = run.telemetry().unwrap();
    assert_eq!(sink.append(&x, Incarnation(7), &[torn]).unwrap(), Seq(3));
    assert_eq!(kept(&run), [10, 11, 12].map(record));
}

#[test]
fn a_full_disk_is_an_error_and_what_was_kept_before_stays() {
    let (disk, _, store) = sim();
    let run = store.create_run(&run_id("r"), Nanos(1)).unwrap();
    let (sink, x) = (run.telemetry().unwrap(), agent("x"));
    assert_eq!(sink.append(&x, Incarnation(1), &[frame(&x, 1, 0, &[10])]).unwrap(), Seq(1));
    disk.set_capacity(0);
    assert!(sink.append(&x, Incarnation(1), &[frame(&x, 1, 1, &[11])]).is_err());
    disk.set_capacity(u64::MAX);
    // The agent sends it again.
    assert_eq!(sink.append(&x, Incarnation(1), &[frame(&x, 1, 1, &[11])]).unwrap(), Seq(2));
    assert_eq!(kept(&run), [10, 11].map(record));
}

/// The names of an agent's processes are random: the order of their files says nothing.
#[test]
fn processes_of_an_agent_follow_each_other_by_their_clock() {
    let (_, _, store) = sim();
    let run = store.create_run(&run_id("r"), Nanos(1)).unwrap();
    let (sink, x) = (run.telemetry().unwrap(), agent("x"));
    for (process, at) in [(5, 300), (9, 100), (1, 200)] {
        sink.append(&x, Incarnation(process), &[frame(&x, process, 0, &[at, at + 1])]).unwrap();
    }
    assert_eq!(kept(&run), [100, 101, 200, 201, 300, 301].map(record));
}

#[test]
fn a_part_is_shown_with_the_gpus_as_they_were_found_before() {
    let (_, _, store) = sim();
    let run = store.create_run(&run_id("r"), Nanos(1)).unwrap();
    let (sink, x) = (run.telemetry().unwrap(), agent("x"));
    let inventory =
        |name: &str| Record::Inventory(vec![GpuInfo { name: name.to_owned(), ..GpuInfo::default() }]);
    let clock = |at| Record::Clock(ClockSample { at: Nanos(at), ..ClockSample::default() });
    let seconds: [Vec<Record>; 5] = [
        vec![inventory("a"), record(100)],
        vec![inventory("b")],
        vec![record(200), clock(201)],
        vec![record(300), inventory("c")],
        vec![record(400), clock(401)],
    ];
    let mut first_seq = Seq(0);
    for records in seconds {
        let frame = Frame { agent: x.clone(), incarnation: Incarnation(1), first_seq, records };
        first_seq = sink.append(&x, Incarnation(1), &[encode(&frame).unwrap()]).unwrap();
    }
    let series = run.telemetry_series().unwrap();
    let between = |from, to| series[0].between(Nanos(from), Nanos(to));
    assert_eq!(between(150, 250), [inventory("b"), record(200), clock(201)]);
    assert_eq!(between(250, 399), [inventory("b"), record(300), inventory("c")]);
    assert_eq!(between(400, 900), [inventory("c"), record(400), clock(401)]);
    assert_eq!(between(500, 900), []);
    assert_eq!(series[0].clocks().iter().map(|c| c.at.0).collect::<Vec<_>>(), [201, 401]);
    assert_eq!(series[0].inventory().map(|gpus| gpus[0].name.as_str()), Some("c"));
}
