//! Whose the processes on the GPUs are.

use std::sync::{Arc, Mutex};

use agent::gpu::probe::{ChildState, CudaDevice, CudaView};
use common::ids::Nanos;
use common::telemetry::{EventKind, GpuProcesses, Record};

use crate::support::{Fake, Watched, of_kind};

/// Two processes of this test, which are there to have numbers.
struct Sleepers(Vec<std::process::Child>);

impl Sleepers {
    fn new(n: usize) -> Self {
        Self((0..n).map(|_| std::process::Command::new("sleep").arg("1000").spawn().unwrap()).collect())
    }

    fn pid(&self, n: usize) -> u32 {
        self.0[n].id()
    }
}

impl Drop for Sleepers {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn processes(watched: &Watched, gpu: u8) -> Option<GpuProcesses> {
    let of_gpu = |record: &Record| match record {
        Record::Processes(processes) if processes.gpu == gpu => Some(processes.clone()),
        _ => None,
    };
    watched.records.iter().rev().find_map(of_gpu)
}

#[test]
fn the_engine_s_gpus_are_known_and_others_on_them_are_told_once() {
    let sleepers = Sleepers::new(2);
    let (own, other) = (sleepers.pid(0), sleepers.pid(1));
    let fake = Fake::new(&format!(
        r#"{{"clock": "manual", "gpus": [
            {{"processes": [{{"pid": {own}, "used_mib": 1000}}, {{"pid": {other}, "from_s": 5, "to_s": 9}}]}},
            {{"processes": [{{"pid": {other}, "used_mib": 7}}]}}]}}"#,
    ));
    let engine = Arc::new(Mutex::new(None));
    let asked = Arc::clone(&engine);
    let mut watched = fake.sampler_with(|config| {
        config.interval = Some(Nanos::from_millis(20));
        config.engine = Arc::new(move || asked.lock().unwrap().clone());
    });
    watched.until("processes", |records| {
        records.iter().any(|r| matches!(r, Record::Processes(p) if p.gpu == 1))
    });
    assert_eq!(processes(&watched, 0).unwrap().foreign, None, "nobody knows who the engine is");
    assert_eq!(processes(&watched, 0).unwrap().processes, [(own, Some(1000 << 20))]);

    // The tree is walked again when somebody new is on a GPU, or from time to time: a new engine is.
    *engine.lock().unwrap() = Some(vec![own, 1]);
    let used = |records: &[Record]| {
        let inventories =
            records.iter().rev().find_map(|r| if let Record::Inventory(g) = r { Some(g) } else { None });
        inventories.is_some_and(|gpus| gpus[0].used_by_engine == Some(true))
    };
    fake.advance_ms(1000);
    watched.until("the engine's GPU", used);
    assert_eq!(watched.sampler().inventory()[1].used_by_engine, Some(false));
    assert_eq!(watched.kinds().iter().filter(|kind| **kind == EventKind::ForeignProcess).count(), 0);

    fake.advance_ms(4000);
    let foreign = watched.event(EventKind::ForeignProcess);
    assert_eq!(foreign.gpu, Some(0));
    assert!(foreign.message.contains(&format!("{other} (sleep)")), "{}", foreign.message);
    watched.until("it in the list", |records| {
        records
            .iter()
            .any(|r| matches!(r, Record::Processes(p) if p.gpu == 0 && p.foreign == Some(vec![other])))
    });
    fake.advance_ms(4000);
    watched.until("its end", |records| of_kind(records, EventKind::ForeignProcess).count() == 2);
    // On a GPU that the engine does not use it is foreign, and nobody's business.
    assert_eq!(processes(&watched, 1).unwrap().foreign, Some(vec![other]));
    watched.stop();
}

/// As in a container: the driver's numbers are those of another process namespace.
#[test]
fn where_processes_cannot_be_compared_cuda_is_asked_once_for_an_engine() {
    let fake = Fake::new(
        r#"{"clock": "manual", "gpus": [
            {"processes": [{"pid": 3999999, "used_mib": 1000}]}, {"processes": [{"pid": 3999998, "used_mib": 7}]}]}"#,
    );
    let engine = Arc::new(Mutex::new(vec![77, 78]));
    let (is, asked) = (Arc::clone(&engine), Arc::new(Mutex::new(Vec::new())));
    let asks = Arc::clone(&asked);
    let mut watched = fake.sampler_with(|config| {
        config.interval = Some(Nanos::from_millis(20));
        config.same_numbers = false;
        config.engine = Arc::new(move || Some(is.lock().unwrap().clone()));
        config.ask_cuda = Arc::new(move |pid| {
            asks.lock().unwrap().push(pid);
            if pid == 77 {
                let device =
                    CudaDevice { pci_bus_id: "00000000:1A:00.0".to_owned(), ..CudaDevice::default() };
                Ok(CudaView { devices: vec![device], ..CudaView::default() })
            } else {
                Err(ChildState::TimedOut { seconds: 30 })
            }
        });
    });
    let used = |records: &[Record]| -> Option<Vec<Option<bool>>> {
        let last =
            records.iter().rev().find_map(|r| if let Record::Inventory(g) = r { Some(g) } else { None });
        Some(last?.iter().map(|gpu| gpu.used_by_engine).collect())
    };
    watched.until("CUDA's answer", |records| used(records) == Some(vec![Some(false), Some(true)]));
    assert_eq!(*asked.lock().unwrap(), [77]);
    assert_eq!(processes(&watched, 0).unwrap().foreign, None, "nothing is said of numbers that mean nothing");

    *engine.lock().unwrap() = vec![88];
    watched
        .until("another engine of which nothing is known", |records| used(records) == Some(vec![None, None]));
    assert_eq!(*asked.lock().unwrap(), [77, 88]);
    assert!(watched.event(EventKind::Degraded).message.contains("CUDA does not answer"));
    watched.stop();
}
