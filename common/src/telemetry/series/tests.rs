//! What a frame must keep, and what damage it must notice.

use proptest::prelude::*;

use super::*;
use crate::ids::{Digest, Nanos};
use crate::telemetry::{
    ClockSample, EngineHistogram, EngineSample, Event, EventKind, GpuInfo, GpuProcesses, GpuSample,
    HostSample, PowerSample,
};

fn frame(first_seq: u64, records: Vec<Record>) -> Frame {
    let agent = "gpu-host_1".parse().unwrap();
    Frame { agent, incarnation: Incarnation(u64::MAX), first_seq: Seq(first_seq), records }
}

fn record(kind: u8, at: u64, number: Option<u64>, text: &str) -> Record {
    let (gpu, at) = (kind, Nanos(at));
    let share = number.map(|n| n as f64 / 7.0);
    let small = number.map(|n| n as u32);
    match kind % 8 {
        0 => {
            let signals = [(text.to_owned(), "ok".to_owned())].into();
            let info = GpuInfo {
                uuid: text.into(),
                compute_capability: Some((9, -1)),
                signals,
                ..GpuInfo::default()
            };
            Record::Inventory(vec![info, GpuInfo::default()])
        }
        1 => Record::Power(PowerSample {
            gpu,
            at,
            energy_mj: number,
            average_mw: small,
            ..PowerSample::default()
        }),
        2 => Record::Gpu(GpuSample {
            gpu,
            at,
            throttle_reasons: number,
            power_throttled: number.map(Nanos),
            ..GpuSample::default()
        }),
        3 => Record::Processes(GpuProcesses {
            gpu,
            at,
            processes: vec![(1, number)],
            foreign: small.map(|p| vec![p, 2]),
        }),
        4 => Record::Host(HostSample {
            at,
            cpu_busy_seconds: share,
            network_sent_bytes: number,
            ..HostSample::default()
        }),
        5 => Record::Engine(EngineSample {
            at,
            running: share,
            ttft: share.map(|sum| EngineHistogram { sum, count: 3.0, buckets: vec![(0.1, 1.0), (0.5, 3.0)] }),
            ..EngineSample::default()
        }),
        6 => Record::Event(Event {
            at,
            gpu: Some(gpu),
            kind: EventKind::Xid,
            code: number,
            message: text.into(),
        }),
        _ => Record::Clock(ClockSample { at, offset_ns: small.map_or(0, |n| -i64::from(n)), bound_ns: 9 }),
    }
}

prop_compose! {
    fn records()(rows in prop::collection::vec((any::<u8>(), any::<u64>(), any::<Option<u64>>(), ".{0,20}"), 1..30))
        -> Vec<Record>
    {
        rows.into_iter().map(|(kind, at, number, text)| record(kind, at, number, &text)).collect()
    }
}

/// A file with a frame a record, and each frame's bytes.
fn file(records: &[Record]) -> (Vec<u8>, Vec<(u64, Frame)>) {
    let mut bytes = FILE_MAGIC.to_vec();
    let mut frames = Vec::new();
    for (i, r) in records.iter().enumerate() {
        let f = frame(i as u64, vec![r.clone()]);
        let offset = bytes.len() as u64;
        bytes.extend_from_slice(&encode(&f).unwrap());
        frames.push((offset, f));
    }
    (bytes, frames)
}

proptest! {
    #[test]
    fn a_frame_gives_back_what_it_took(records in records(), seq: u32) {
        let f = frame(u64::from(seq), records);
        let mut bytes = encode(&f).unwrap();
        let len = bytes.len();
        bytes.extend_from_slice(b"and on");
        prop_assert_eq!(decode(&bytes).unwrap(), (f.clone(), len));
        prop_assert_eq!(f.next_seq().0, u64::from(seq) + f.records.len() as u64);
    }

    /// Cut anywhere: the frames before the cut are all there, and nothing else.
    #[test]
    fn a_torn_tail_is_cut_where_it_begins(records in records(), cut: prop::sample::Index) {
        let (whole, frames) = file(&records);
        let torn = &whole[..cut.index(whole.len() + 1)];
        let scan = scan(torn).unwrap();
        let ends = frames.iter().skip(1).map(|f| f.0).chain([whole.len() as u64]);
        let fit = ends.take_while(|&end| end <= torn.len() as u64).count();
        prop_assert_eq!(&scan.frames[..], &frames[..fit]);
        prop_assert_eq!(scan.damage.is_none(), scan.good_len as usize == torn.len());
        prop_assert!(scan.damage.is_none_or(|d| d == SeriesError::Torn));
        // Nothing is lost that was whole, and what follows can be appended where the good part ends.
        let expected = frames.get(fit).map_or(whole.len() as u64, |f| f.0);
        prop_assert_eq!(scan.good_len, if torn.len() < FILE_MAGIC.len() { 0 } else { expected });
    }

    /// One flipped bit is noticed wherever it is, and what was before it is kept.
    #[test]
    fn a_flipped_bit_is_noticed(records in records(), at: prop::sample::Index, bit in 0u8..8) {
        let (mut bytes, frames) = file(&records);
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        match scan(&bytes) {
            Err(e) => prop_assert!(at < FILE_MAGIC.len() && e == SeriesError::Magic),
            Ok(scan) => {
                let before = frames.iter().skip(1).take_while(|f| f.0 <= at as u64).count();
                prop_assert_eq!(&scan.frames[..], &frames[..before]);
                prop_assert!(scan.damage.is_some() && scan.good_len == frames[before].0);
            }
        }
    }

    #[test]
    fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = scan(&bytes);
        let _ = decode(&bytes);
        let mut behind_the_magic = FILE_MAGIC.to_vec();
        behind_the_magic.extend_from_slice(&bytes);
        let _ = scan(&behind_the_magic);
    }
}

#[test]
fn another_file_is_not_telemetry() {
    for other in [&b"PLIMTEL\x02"[..], b"PLIMSEG\x02", b"hello"] {
        assert_eq!(scan(other).unwrap_err(), SeriesError::Magic);
    }
    let empty = scan(b"").unwrap();
    assert!(empty.frames.is_empty() && empty.damage.is_none() && empty.good_len == 0);
}

fn framed(body: &[u8]) -> Vec<u8> {
    let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
    bytes.extend_from_slice(&crc32c::crc32c(body).to_le_bytes());
    bytes.extend_from_slice(body);
    bytes
}

#[test]
fn a_frame_is_neither_empty_nor_larger_than_allowed() {
    assert_eq!(encode(&frame(0, Vec::new())), Err(SeriesError::Content("numbers")));
    assert_eq!(encode(&frame(u64::MAX, vec![record(1, 1, None, "")])), Err(SeriesError::Content("numbers")));
    let message = "x".repeat(MAX_CONTENT_BYTES);
    assert!(matches!(encode(&frame(0, vec![record(6, 1, None, &message)])), Err(SeriesError::TooLarge(_))));
    // A checksum that fits does not make it honest: sixteen megabytes and one, of zeroes.
    let bomb = zstd::bulk::compress(&vec![0; MAX_CONTENT_BYTES + 1], 1).unwrap();
    assert_eq!(decode(&framed(&bomb)), Err(SeriesError::Content("compression")));
    // Nor do bytes behind the last record.
    let mut content = postcard::to_stdvec(&frame(0, vec![record(1, 1, None, "")])).unwrap();
    content.push(0);
    let longer = zstd::bulk::compress(&content, 1).unwrap();
    assert_eq!(decode(&framed(&longer)), Err(SeriesError::Content("numbers")));
}

/// The bytes of version 1, pinned: a change here needs a new version.
#[test]
fn the_format_is_pinned() {
    let records: Vec<Record> = (0..8).map(|kind| record(kind, 5, Some(300), "t")).collect();
    let content = postcard::to_stdvec(&frame(9, records)).unwrap();
    assert_eq!(content[..12], [10, b'g', b'p', b'u', b'-', b'h', b'o', b's', b't', b'_', b'1', 255]);
    assert_eq!(
        (content.len(), Digest::of(&content).to_string()[..16].to_owned()),
        (235, "c13827f8fa5752c0".to_owned())
    );
}
