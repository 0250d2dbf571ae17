//! What a coordinator may ask of an agent, in one place. docs/security.md lists every number here.
//!
//! A coordinator that the agent has joined is trusted to name a target and a load. It is not trusted to be right: an order
//! that would take endless memory is refused with the number, before anything is made for it.

use std::time::Duration;

use common::fleet::TrialOrder;
use common::ids::Nanos;
use common::plan::MAX_ARRIVALS;
use common::schedule::Arrival;
use common::workload::MAX_WORKLOAD_BYTES;
use proto::v1::Welcome;

/// Bytes of a control message from the coordinator: a warm-up of the most rows is about 1 MiB.
pub(super) const MAX_CONTROL_MESSAGE: usize = 4 << 20;

/// Bytes of a page of a slice, or of a chunk of a workload: both are about 256 KiB.
pub(super) const MAX_DATA_MESSAGE: usize = 1 << 20;

/// Idle connections to the engine before a start: as many as there are ports.
const MAX_WARM_CONNECTIONS: u32 = 65_536;

/// Of a heartbeat's interval.
const HEARTBEATS: std::ops::RangeInclusive<Nanos> = Nanos::from_millis(100)..=Nanos::from_secs(60);

/// The longest lease: an agent that nobody leads must not go on sending for longer.
const MAX_LEASE: Nanos = Nanos::from_secs(300);

/// A coordinator that was reached must have answered within this.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// The TLS handshake must have ended within this.
pub(super) const HANDSHAKE_WITHIN: Duration = Duration::from_secs(5);

/// Refuses terms under which an agent would send for ever, or do nothing but heartbeats.
pub(super) fn check_welcome(w: &Welcome) -> Result<(), String> {
    let (beat, lease) = (Nanos(w.heartbeat_interval_ns), Nanos(w.lease_ns));
    if !HEARTBEATS.contains(&beat) {
        return Err(format!("it wants a heartbeat every {} s, which makes no sense", beat.as_secs_f64()));
    }
    if lease <= beat || lease > MAX_LEASE {
        return Err(format!("it grants a lease of {} s, which makes no sense", lease.as_secs_f64()));
    }
    Ok(())
}

/// Refuses an order that would take endless memory.
pub(super) fn check_order(order: &TrialOrder) -> Result<(), String> {
    if order.slice_count > MAX_ARRIVALS {
        return Err(format!(
            "the slice has {} arrivals, more than the {MAX_ARRIVALS} that are taken",
            order.slice_count
        ));
    }
    if order.workload_bytes > MAX_WORKLOAD_BYTES {
        return Err(format!(
            "the workload has {} bytes, more than the {MAX_WORKLOAD_BYTES} that are taken",
            order.workload_bytes
        ));
    }
    if order.warm_connections > MAX_WARM_CONNECTIONS {
        return Err(format!(
            "{} connections are to be opened, more than {MAX_WARM_CONNECTIONS}",
            order.warm_connections
        ));
    }
    Ok(())
}

/// Refuses a slice that no schedule makes: out of order, or with rows that the workload has not.
pub(super) fn check_slice(slice: &[Arrival], rows: usize) -> Result<(), String> {
    if let Some(pair) = slice.windows(2).find(|p| p[0].index >= p[1].index || p[0].at > p[1].at) {
        return Err(format!("the slice is out of order at arrival {}", pair[1].index));
    }
    match slice.iter().find(|a| a.row as usize >= rows) {
        Some(a) => Err(format!("arrival {} wants row {}, and the workload has {rows} rows", a.index, a.row)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::ids::ArrivalIndex;

    #[test]
    fn terms_that_make_no_sense_are_refused() {
        let welcome = |beat: u64, lease: u64| Welcome {
            heartbeat_interval_ns: beat,
            lease_ns: lease,
            ..Welcome::default()
        };
        let second = 1_000_000_000;
        assert_eq!(check_welcome(&welcome(second, 15 * second)), Ok(()));
        for (beat, lease, word) in [
            (0, 15 * second, "heartbeat"),
            (u64::MAX, u64::MAX, "heartbeat"),
            (second, 0, "lease"),
            (second, u64::MAX, "lease"),
        ] {
            assert!(check_welcome(&welcome(beat, lease)).unwrap_err().contains(word), "{beat} {lease}");
        }
    }

    #[test]
    fn a_slice_that_no_schedule_makes_is_refused() {
        let arrival = |index, at, row| Arrival { index: ArrivalIndex(index), at: Nanos(at), row };
        assert_eq!(check_slice(&[arrival(0, 1, 0), arrival(4, 1, 1)], 2), Ok(()));
        assert!(check_slice(&[arrival(4, 1, 0), arrival(4, 2, 0)], 2).unwrap_err().contains("order"));
        assert!(check_slice(&[arrival(1, 9, 0), arrival(2, 8, 0)], 2).unwrap_err().contains("order"));
        assert!(check_slice(&[arrival(1, 9, 2)], 2).unwrap_err().contains("row 2"));
    }
}
