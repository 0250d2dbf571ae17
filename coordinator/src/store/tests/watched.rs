//! A store on a disk that is full, or does not answer, under watch.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{io, thread};

use common::disk::{Disk, DiskFile, SimDisk};
use common::ids::{Incarnation, Nanos, Seq};

use super::{SIM, agent, block, run_id};
use crate::ingest::{Ack, IngestError, start};
use crate::store::watched::{Standing, WatchedDisk, WatchedIndex};
use crate::store::{DiskWatch, Failing, MemoryIndex, Store};

/// A disk whose syncs wait for a word, once that is asked for.
#[derive(Clone)]
struct Stalling {
    disk: SimDisk,
    gate: Arc<Mutex<Option<Gate>>>,
}

struct Gate {
    arrived: Sender<()>,
    leave: Receiver<()>,
}

impl Stalling {
    /// From now on the next sync tells that it has begun, and ends when the other side is dropped or says so.
    fn stall(&self) -> (Receiver<()>, Sender<()>) {
        let ((arrived, begun), (go, leave)) = (channel(), channel());
        *self.gate.lock().unwrap() = Some(Gate { arrived, leave });
        (begun, go)
    }
}

impl Disk for Stalling {
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(StallingFile(self.disk.open(path)?, self.clone())))
    }
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.disk.read(path)
    }
    fn replace(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        self.disk.replace(path, content)
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.disk.create_dir_all(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.sync_dir(path)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        self.disk.list(path)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }
    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.disk.remove_dir_all(path)
    }
}

struct StallingFile(Box<dyn DiskFile>, Stalling);

impl DiskFile for StallingFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.append(bytes)
    }
    fn sync(&mut self) -> io::Result<()> {
        let gate = self.1.gate.lock().unwrap().take();
        if let Some(gate) = gate {
            let _ = gate.arrived.send(());
            let _ = gate.leave.recv();
        }
        self.0.sync()
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.0.truncate(len)
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, buffer)
    }
}

fn watched(disk: impl Disk + 'static) -> (DiskWatch, MemoryIndex, Store) {
    let (watch, index) = (DiskWatch::default(), MemoryIndex::default());
    let disk = Arc::new(WatchedDisk(Arc::new(disk), watch.clone()));
    let under_watch = WatchedIndex(Arc::new(index.clone()), watch.clone(), Path::new(SIM).join("index"));
    let store = Store::with_index(Path::new(SIM), disk, Arc::new(under_watch)).unwrap();
    (watch, index, store)
}

#[tokio::test]
async fn a_full_disk_is_seen_with_its_folder_and_forgotten_when_it_takes_again() {
    let disk = SimDisk::default();
    let (watch, _index, store) = watched(disk.clone());
    let run = store.create_run(&run_id("r"), Nanos(1)).unwrap();
    let ingest = start(&run).unwrap();
    ingest.submit(vec![block("x", 0, 0, 3)]).await.unwrap();
    assert_eq!(watch.standing(), Standing::default());
    disk.set_capacity(0);
    let refused = ingest.submit(vec![block("x", 0, 3, 2)]).await.unwrap_err();
    assert!(matches!(refused, IngestError::Disk { full: true, .. }), "{refused}");
    let (folder, why) = watch.standing().refused.unwrap();
    assert_eq!(folder, run.dir().join("segments"));
    assert!(!why.is_empty());
    disk.mend();
    assert_eq!(ingest.submit(vec![block("x", 0, 3, 2)]).await.unwrap(), Ack::UpTo(Seq(5)));
    assert_eq!(watch.standing(), Standing::default());
}

#[tokio::test]
async fn an_index_that_refuses_is_seen_too() {
    let (watch, index, store) = watched(SimDisk::default());
    let run = store.create_run(&run_id("r"), Nanos(1)).unwrap();
    let ingest = start(&run).unwrap();
    index.set_failing(Some(Failing::Everything));
    ingest.submit(vec![block("x", 0, 0, 3)]).await.unwrap_err();
    assert_eq!(watch.standing().refused.unwrap().0, Path::new(SIM).join("index"));
    index.set_failing(None);
    ingest.submit(vec![block("x", 0, 0, 3)]).await.unwrap();
    assert_eq!(watch.standing(), Standing::default());
}

/// Nothing is acknowledged meanwhile, and nothing is lost when the disk answers again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_does_not_come_back_is_seen_until_it_does() {
    let disk = Stalling { disk: SimDisk::default(), gate: Arc::default() };
    let (watch, _index, store) = watched(disk.clone());
    let run = store.create_run(&run_id("r"), Nanos(1)).unwrap();
    let ingest = start(&run).unwrap();
    let (begun, go) = disk.stall();
    let submitted = tokio::spawn({
        let ingest = ingest.clone();
        async move { ingest.submit(vec![block("x", 0, 0, 3)]).await }
    });
    thread::spawn(move || begun.recv_timeout(Duration::from_secs(60))).join().unwrap().unwrap();
    let (number, path) = watch.standing().oldest.unwrap();
    assert!(path.starts_with(run.dir().join("segments")), "{}", path.display());
    assert_eq!(watch.standing().oldest.unwrap().0, number, "another call is taken for it");
    assert_eq!(ingest.mark(&agent("x"), Incarnation(9)), Seq(0));
    drop(go);
    assert_eq!(submitted.await.unwrap().unwrap(), Ack::UpTo(Seq(3)));
    assert_eq!(watch.standing(), Standing::default());
}
