//! What the steps work with: one GPU that is read, and a child that loads it.

use std::sync::Arc;
use std::thread::JoinHandle;

use common::clock::Clock;
use common::ids::Nanos;
use common::telemetry::energy::{EnergyInput, WindowEnergy, window_energy};
use common::telemetry::{GpuInfo, GpuSample, PowerSample, Window};

use super::super::pace::Ticks;
use super::super::probe::{Burn, Burnt, Child, ChildState, CudaView, run_child};
use super::super::{Batch, GpuSource, Gpus, Signals};

/// One GPU, and the means to load it.
pub(super) struct Bench {
    pub(super) source: Box<dyn GpuSource>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) gpu: u8,
    pub(super) info: GpuInfo,
    /// Of the steps' full times.
    pub(super) scale: f64,
    /// What CUDA shows, or why it shows nothing.
    pub(super) view: Result<CudaView, ChildState>,
    /// Mean power of an idle GPU, once it is known.
    pub(super) idle_watts: Option<f64>,
    /// Between two steps of the energy counter, once that is known.
    pub(super) period: Option<Nanos>,
}

/// What was read over some time.
#[derive(Debug, Default)]
pub(super) struct Series {
    pub(super) power: Vec<PowerSample>,
    pub(super) slow: Vec<GpuSample>,
}

/// A load that is under way.
pub(super) type Burning = JoinHandle<Result<CudaView, ChildState>>;

impl Bench {
    pub(super) fn new(
        source: Box<dyn GpuSource>,
        clock: Arc<dyn Clock>,
        gpu: u8,
        gpus: &[GpuInfo],
        scale: f64,
    ) -> Self {
        let info = gpus.get(usize::from(gpu)).cloned().unwrap_or_default();
        let view = child(None).and_then(|child| run_child(&child, &*clock));
        Self { source, clock, gpu, info, scale, view, idle_watts: None, period: None }
    }

    /// A step's time, of its full one.
    pub(super) fn time(&self, seconds: f64) -> Nanos {
        Nanos::from_secs_f64(seconds * self.scale)
    }

    /// All GPUs but this one.
    pub(super) fn others(&self) -> Gpus {
        let mut this = Gpus::NONE;
        this.insert(self.gpu);
        this.others()
    }

    /// Whether a signal can be read.
    pub(super) fn has(&self, signal: super::super::Signal) -> bool {
        self.info.signals.get(signal.name()).is_some_and(|answer| answer == "ok")
    }

    /// Reads power every `every`, and `slow` signals with it, until `done` says so of the time that passed.
    pub(super) fn watch_until(
        &mut self,
        every: Nanos,
        slow: Signals,
        mut done: impl FnMut(Nanos) -> bool,
    ) -> Series {
        let start = self.clock.monotonic();
        let mut ticks = Ticks::new(start, every);
        let mut series = Series::default();
        let (mut power, mut other) = (Batch::default(), Batch::default());
        loop {
            let now = self.clock.monotonic();
            if done(now - start) {
                return series;
            }
            std::thread::sleep((ticks.next(now) - now).to_duration());
            power.clear();
            other.clear();
            if self.source.power(self.others(), &mut power).is_ok() {
                series.power.append(&mut power.samples);
            }
            if slow != Signals::NONE && self.source.slow(self.others(), slow, &mut other).is_ok() {
                series.slow.append(&mut other.samples);
            }
        }
    }

    /// The same for a fixed time.
    pub(super) fn watch(&mut self, every: Nanos, slow: Signals, length: Nanos) -> Series {
        self.watch_until(every, slow, |passed| passed >= length)
    }

    /// CUDA's number for this GPU, or why it has none.
    pub(super) fn ordinal(&self) -> Result<i32, String> {
        let view = self.view.as_ref().map_err(ChildState::to_string)?;
        let device = view.devices.iter().find(|device| device.uuid == self.info.uuid);
        device.map(|device| device.ordinal).ok_or_else(|| {
            format!("CUDA does not show {} to this process; see CUDA_VISIBLE_DEVICES", self.info.uuid)
        })
    }

    /// Puts a load on this GPU, in a child.
    pub(super) fn burn(&self, burn: Burn) -> Result<Burning, String> {
        let burn = Burn { ordinal: self.ordinal()?, ..burn };
        let child = child(Some(burn)).map_err(|error| error.to_string())?;
        let clock = Arc::clone(&self.clock);
        Ok(std::thread::spawn(move || run_child(&child, &*clock)))
    }

    /// A load, and everything that is read while its child lives and a little longer.
    pub(super) fn watched(&mut self, burn: Burn, slow: Signals) -> Result<(Series, Burnt), String> {
        let burning = self.burn(burn)?;
        let mut ended = None;
        let series = self.watch_until(Nanos::from_millis(5), slow, |passed| {
            if ended.is_none() && burning.is_finished() {
                ended = Some(passed);
            }
            // Averages look back over a second: they are shifted by half of it.
            ended.is_some_and(|at| passed - at >= Nanos::from_millis(700))
        });
        Ok((series, burnt(burning)?))
    }

    /// Energy of a window, from what is given of the samples.
    pub(super) fn energy(&self, samples: &[PowerSample], window: Window) -> WindowEnergy {
        let limit = self.info.limit_range_mw.map(|(_, most)| f64::from(most) / 1e3);
        let input = EnergyInput { limit_watts: limit, ..EnergyInput::default() };
        window_energy(samples, window, &input)
    }
}

/// What a load came to, once it has ended.
pub(super) fn burnt(burning: Burning) -> Result<Burnt, String> {
    let view = burning.join().map_err(|_| "the thread that waited for the load ended".to_owned())?;
    view.map_err(|error| error.to_string())?.burnt.ok_or_else(|| "CUDA shows no device".to_owned())
}

fn child(burn: Option<Burn>) -> Result<Child, ChildState> {
    // This is the user's own command in the user's own environment; nothing of it is left out.
    let environment =
        std::env::vars_os().filter_map(|(n, v)| Some((n.into_string().ok()?, v.into_string().ok()?)));
    Ok(Child { burn, ..Child::new(environment.collect())? })
}

/// Samples with the energy counter only, with average power only, with instant power only.
pub(super) fn apart(samples: &[PowerSample]) -> [Vec<PowerSample>; 3] {
    let only = |energy: bool, average: bool, instant: bool| {
        let keep = |sample: &PowerSample| PowerSample {
            energy_mj: sample.energy_mj.filter(|_| energy),
            average_mw: sample.average_mw.filter(|_| average),
            instant_mw: sample.instant_mw.filter(|_| instant),
            ..*sample
        };
        samples.iter().map(keep).collect()
    };
    [only(true, false, false), only(false, true, false), only(false, false, true)]
}

/// The names of those three.
pub(super) const METHODS: [&str; 3] = ["counter", "average_power", "instant_power"];
