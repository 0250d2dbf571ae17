//! When kernels run.
//!
//! Owns the streams, each a time until which it is busy, and the burn file, by which the fake NVML learns of it. A
//! kernel is known to end at its launch, so its line is written then. It must write a line at once, whole and at the
//! file's end: other processes write there too.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::PathBuf;

use rustix::time::{ClockId, clock_gettime};

use crate::code::Code;

/// `CLOCK_MONOTONIC` in nanoseconds.
pub(crate) fn now() -> i64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// A stream, by its device and number; 0 is the default stream of each.
type Key = (usize, usize);

/// The streams, and the events on them.
#[derive(Debug, Default)]
pub(crate) struct Kernels {
    /// Until when each stream is busy.
    busy: BTreeMap<Key, i64>,
    /// When each event is over; `None` before it is recorded.
    events: BTreeMap<usize, Option<i64>>,
    last: usize,
    burn_file: Option<PathBuf>,
}

impl Kernels {
    /// No stream but the default ones. Kernels are written down in `burn_file`.
    pub(crate) fn new(burn_file: Option<PathBuf>) -> Self {
        Self { burn_file, ..Self::default() }
    }

    fn key(&self, device: usize, stream: usize) -> Result<Key, Code> {
        let key = (device, stream);
        if stream == 0 || self.busy.contains_key(&key) { Ok(key) } else { Err(Code::INVALID_HANDLE) }
    }

    /// A new stream of a device.
    pub(crate) fn create(&mut self, device: usize) -> usize {
        self.last += 1;
        self.busy.insert((device, self.last), 0);
        self.last
    }

    /// Takes a stream away; what runs there runs on.
    pub(crate) fn destroy(&mut self, device: usize, stream: usize) -> Result<(), Code> {
        self.busy.remove(&(device, stream)).map(|_| ()).ok_or(Code::INVALID_HANDLE)
    }

    /// Starts a kernel when its stream is free.
    pub(crate) fn launch(
        &mut self,
        device: usize,
        stream: usize,
        uuid: &str,
        run_ms: f64,
    ) -> Result<(), Code> {
        let key = self.key(device, stream)?;
        let from = self.until(device, stream)?.max(now());
        let to = from + (run_ms * 1e6).round() as i64;
        self.busy.insert(key, to);
        self.write_down(from, to, uuid).map_err(|error| {
            eprintln!("fake-cuda: cannot write the burn file: {error}");
            Code::OPERATING_SYSTEM
        })
    }

    fn write_down(&self, from: i64, to: i64, uuid: &str) -> io::Result<()> {
        let Some(path) = &self.burn_file else { return Ok(()) };
        let mut file = OpenOptions::new().append(true).create(true).open(path)?;
        file.write_all(format!("{from} {to} {uuid}\n").as_bytes())
    }

    /// Until when a stream is busy.
    pub(crate) fn until(&self, device: usize, stream: usize) -> Result<i64, Code> {
        Ok(self.busy.get(&self.key(device, stream)?).copied().unwrap_or(0))
    }

    /// Until when a device is busy.
    pub(crate) fn device_until(&self, device: usize) -> i64 {
        self.busy.iter().filter(|(key, _)| key.0 == device).map(|(_, &until)| until).max().unwrap_or(0)
    }

    /// A new event.
    pub(crate) fn create_event(&mut self) -> usize {
        self.last += 1;
        self.events.insert(self.last, None);
        self.last
    }

    /// Takes an event away.
    pub(crate) fn destroy_event(&mut self, event: usize) -> Result<(), Code> {
        self.events.remove(&event).map(|_| ()).ok_or(Code::INVALID_HANDLE)
    }

    /// Lets an event be over when what is in the stream now is.
    pub(crate) fn record(&mut self, event: usize, device: usize, stream: usize) -> Result<(), Code> {
        let until = self.until(device, stream)?.max(now());
        *self.events.get_mut(&event).ok_or(Code::INVALID_HANDLE)? = Some(until);
        Ok(())
    }

    /// Lets a stream wait for an event.
    pub(crate) fn wait_event(&mut self, event: usize, device: usize, stream: usize) -> Result<(), Code> {
        let (key, over) = (self.key(device, stream)?, self.event(event)?);
        let busy = self.busy.entry(key).or_default();
        *busy = over.unwrap_or(0).max(*busy);
        Ok(())
    }

    /// When an event is over.
    pub(crate) fn event(&self, event: usize) -> Result<Option<i64>, Code> {
        self.events.get(&event).copied().ok_or(Code::INVALID_HANDLE)
    }
}
