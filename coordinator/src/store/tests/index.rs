//! Both implementations of the index keep its contract.

use common::seed::Seed;

use crate::store::memory::Failing;
use crate::store::sled::SledIndex;
use crate::store::{Index, IndexBatch, MemoryIndex};

fn batch(changes: &[(&str, Option<&str>)]) -> IndexBatch {
    let mut batch = IndexBatch::default();
    for (key, value) in changes {
        match value {
            Some(value) => batch.put(key.as_bytes().to_vec(), value.as_bytes().to_vec()),
            None => batch.remove(key.as_bytes().to_vec()),
        }
    }
    batch
}

fn exercise(index: &dyn Index) {
    assert_eq!(index.get(b"a").unwrap(), None);
    index.commit(&batch(&[("a1", Some("x")), ("a2", Some("y")), ("b", Some("z"))])).unwrap();
    index.commit(&batch(&[("a1", None), ("a3", Some("first")), ("a3", Some("second"))])).unwrap();
    assert_eq!(index.get(b"a1").unwrap(), None);
    let pairs = index.scan(b"a").unwrap();
    let expected = [("a2", "y"), ("a3", "second")];
    assert_eq!(pairs, expected.map(|(k, v)| (k.as_bytes().to_vec(), v.as_bytes().to_vec())));
    assert!(index.scan(b"c").unwrap().is_empty());
    index.commit(&IndexBatch::default()).unwrap();
}

#[test]
fn both_indexes_keep_the_contract() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("index");
    let sled = SledIndex::open(&path).unwrap();
    exercise(&sled);
    drop(sled);
    let reopened = SledIndex::open(&path).unwrap();
    assert_eq!(reopened.get(b"a3").unwrap().as_deref(), Some(&b"second"[..]));

    let memory = MemoryIndex::default();
    exercise(&memory);
    memory.crash(&mut Seed(1).stream("crash"));
    assert_eq!(memory.get(b"a3").unwrap().as_deref(), Some(&b"second"[..]));
}

/// The index in memory is meaner than a disk: what failed may survive or not, and both happen.
#[test]
fn a_commit_that_failed_survives_or_not() {
    let outcomes: Vec<bool> = (0..20)
        .map(|seed| {
            let memory = MemoryIndex::default();
            memory.set_failing(Some(Failing::Flushes));
            memory.commit(&batch(&[("k", Some("v"))])).unwrap_err();
            assert!(memory.get(b"k").unwrap().is_some());
            memory.crash(&mut Seed(seed).stream("crash"));
            memory.get(b"k").unwrap().is_some()
        })
        .collect();
    assert!(outcomes.contains(&true) && outcomes.contains(&false));
}
