//! What is new in a submission, by example. The property test covers the combinations.

use common::ids::Seq;

use crate::ingest::admit::{Admission, Confusion, admit};
use crate::store::tests::block;

#[test]
fn old_blocks_are_dropped_and_new_ones_taken_up_to_a_gap() {
    let blocks = [block("x", 0, 0, 3), block("x", 0, 3, 2), block("x", 1, 5, 1), block("x", 1, 7, 1)];
    let admission = |mark, range: std::ops::Range<usize>| admit(Seq(mark), &blocks[range]).unwrap();
    assert_eq!(admission(0, 0..3), Admission { take: 0..3, mark: Seq(6), duplicates: 0, gap: false });
    assert_eq!(admission(3, 0..3), Admission { take: 1..3, mark: Seq(6), duplicates: 3, gap: false });
    assert_eq!(admission(6, 0..3), Admission { take: 0..0, mark: Seq(6), duplicates: 6, gap: false });
    assert_eq!(admission(0, 1..2), Admission { take: 0..0, mark: Seq(0), duplicates: 0, gap: true });
    assert_eq!(admission(3, 0..4), Admission { take: 1..3, mark: Seq(6), duplicates: 3, gap: true });
}

#[test]
fn a_confused_agent_is_named() {
    assert_eq!(admit(Seq(0), &[]), Err(Confusion::Empty));
    let mixed = admit(Seq(0), &[block("x", 0, 0, 1), block("y", 0, 1, 1)]).unwrap_err().to_string();
    assert!(mixed.contains("agent x") && mixed.contains("agent y"), "{mixed}");
    let overlap = admit(Seq(4), &[block("x", 0, 3, 3)]).unwrap_err().to_string();
    for part in ["agent x", "0000000000000009", "3 to 6", "but 4 is"] {
        assert!(overlap.contains(part), "{overlap}");
    }
}
