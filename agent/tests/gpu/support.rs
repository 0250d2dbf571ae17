//! What the tests share: a copy of the fake NVML with a scenario of its own, a source on it, and a sampler whose
//! records are waited for.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agent::gpu::engine::EngineProcesses;
use agent::gpu::nvml::NvmlSource;
use agent::gpu::{Config, GpuSource, Sampler};
use common::clock::{Clock, ManualClock, SystemClock};
use common::ids::Nanos;
use common::telemetry::{Event, EventKind, PowerSample, Record};
use fake_nvml::{Control, library};

/// The longest that a condition is waited for: its error says what was missing.
const PATIENCE: Nanos = Nanos::from_secs(60);

pub(crate) struct Fake {
    _folder: tempfile::TempDir,
    pub(crate) library: PathBuf,
    pub(crate) control: Control,
    clock: Arc<ManualClock>,
}

impl Fake {
    pub(crate) fn new(scenario: &str) -> Self {
        Self::without(&[], scenario)
    }

    /// A library that lacks symbols.
    pub(crate) fn without(symbols: &[&str], scenario: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let library = library::place(folder.path(), symbols).unwrap();
        let control = Control::open(&library).unwrap();
        assert!(control.load(scenario), "the scenario is refused: {scenario}");
        Self { _folder: folder, library, control, clock: Arc::new(ManualClock::default()) }
    }

    /// A source whose stamps are the scenario's time, when that is moved by [`Fake::advance_ms`].
    pub(crate) fn source(&self) -> NvmlSource {
        NvmlSource::new(Some(self.library.as_os_str()), Arc::clone(&self.clock) as Arc<dyn Clock>)
    }

    /// Moves the scenario's manual clock, and that of the source's stamps.
    pub(crate) fn advance_ms(&self, ms: u64) {
        self.clock.advance(Nanos::from_millis(ms));
        assert!(self.control.advance_us(ms * 1000), "the scenario's clock is not manual");
    }

    /// A sampler in real time, with a short time of looking for the counter's period.
    pub(crate) fn sampler_with(&self, change: impl FnOnce(&mut Config)) -> Watched {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let source = NvmlSource::new(Some(self.library.as_os_str()), Arc::clone(&clock));
        Watched::new(Box::new(source), clock, change)
    }
}

/// A sampler, and everything that it has recorded so far.
pub(crate) struct Watched {
    sampler: Option<Sampler>,
    pub(crate) records: Vec<Record>,
}

impl Watched {
    pub(crate) fn new(
        source: Box<dyn GpuSource>,
        clock: Arc<dyn Clock>,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        let mut config = Config::new(source, nobody());
        config.looking = Nanos::from_millis(100);
        config.slow = Nanos::from_millis(20);
        change(&mut config);
        Self { sampler: Some(Sampler::start(config, clock)), records: Vec::new() }
    }

    pub(crate) fn sampler(&self) -> &Sampler {
        self.sampler.as_ref().unwrap()
    }

    /// Waits until the records so far are enough.
    pub(crate) fn until(&mut self, what: &str, enough: impl Fn(&[Record]) -> bool) {
        let until = SystemClock.monotonic() + PATIENCE;
        loop {
            let taken = self.sampler().records.take(Duration::from_millis(20));
            self.records.extend(taken.unwrap_or_default());
            if enough(&self.records) {
                return;
            }
            let events = self.events();
            assert!(SystemClock.monotonic() < until, "{what} did not come; events: {events:#?}");
        }
    }

    /// Waits for an event of a kind, and gives it.
    pub(crate) fn event(&mut self, kind: EventKind) -> Event {
        self.until(kind.name(), |records| of_kind(records, kind).next().is_some());
        of_kind(&self.records, kind).next().cloned().unwrap()
    }

    /// Waits for so many more power samples of a GPU, and gives them.
    pub(crate) fn power(&mut self, gpu: u8, more: usize) -> Vec<PowerSample> {
        let before = self.records.len();
        self.until("power", |records| power(&records[before..], gpu).len() >= more);
        power(&self.records[before..], gpu)
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        let event =
            |record: &Record| if let Record::Event(event) = record { Some(event.clone()) } else { None };
        self.records.iter().filter_map(event).collect()
    }

    pub(crate) fn kinds(&self) -> Vec<EventKind> {
        self.events().iter().map(|event| event.kind).collect()
    }

    /// Ends it, and says which threads were stuck.
    pub(crate) fn stop(&mut self) -> Vec<&'static str> {
        self.sampler.take().unwrap().stop(Duration::from_secs(30))
    }

    /// Ends it without patience.
    pub(crate) fn stop_within(&mut self, patience: Duration) -> Vec<&'static str> {
        self.sampler.take().unwrap().stop(patience)
    }
}

pub(crate) fn nobody() -> EngineProcesses {
    Arc::new(|| None)
}

pub(crate) fn of_kind(records: &[Record], kind: EventKind) -> impl Iterator<Item = &Event> {
    records.iter().filter_map(move |record| match record {
        Record::Event(event) => Some(event).filter(|event| event.kind == kind),
        _ => None,
    })
}

pub(crate) fn power(records: &[Record], gpu: u8) -> Vec<PowerSample> {
    let of_gpu = |record: &Record| match record {
        Record::Power(sample) if sample.gpu == gpu => Some(*sample),
        _ => None,
    };
    records.iter().filter_map(of_gpu).collect()
}
