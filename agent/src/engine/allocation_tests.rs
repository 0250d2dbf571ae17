//! Reading an event allocates nothing: what grows with a response are the trace's own stamps and text, which double.

use allocation_counter::measure;

use super::stamp_tests::{Framing, answer, run};

/// Allocations of a whole request with so many events, each in a read of its own or all of them in reads of a kilobyte.
fn allocations(events: usize, framing: Framing, one_each: bool) -> u64 {
    let (bytes, ends) = answer(events, framing);
    let sizes: Vec<usize> = if one_each {
        let mut last = 0;
        let cuts = ends.iter().map(|&end| if end == ends[events] { bytes.len() } else { end });
        cuts.map(|cut| cut - std::mem::replace(&mut last, cut)).collect()
    } else {
        bytes.chunks(1024).map(<[u8]>::len).collect()
    };
    let mut seen = 0;
    let counted = measure(|| seen = run(&bytes, &sizes, true).clocks.content.len());
    assert_eq!(seen, events);
    counted.count_total
}

#[test]
fn an_event_costs_no_allocation() {
    for framing in [Framing::Chunked(1), Framing::Length, Framing::UntilClosed] {
        for one_each in [true, false] {
            let (few, many) = (allocations(500, framing, one_each), allocations(8_000, framing, one_each));
            // Sixteen times as many events are four doublings of stamps and of text, and some more of a line that is cut
            // by the end of a read and of the script's own.
            assert!(many - few <= 12, "{framing:?}, {one_each}: {few} for 500 events, {many} for 8,000");
        }
    }
}
