//! CUDA's view of the GPUs, and a load on one of them that is known.
//!
//! It owns everything that touches the CUDA driver. It runs in the short-lived child `agent gpu-probe` only, which
//! [`super::probe`] starts and reads: a context takes hundreds of megabytes of the engine's GPU, and panics, sticky errors
//! and crashes of the driver end with the child. Who the devices are needs no context; only a load makes one.
//!
//! A load is a kernel of multiply-adds, or one that reads memory, both as PTX text that every driver since CUDA 11.0
//! translates. It is repeated in bursts of which the host's clock is told, so that what telemetry shows can be compared
//! with what was done. Guarded by `tests/gpu/child.rs` against a scripted driver.

mod raw;

use common::clock::Clock;
use common::ids::Nanos;

pub use raw::CudaError;
use raw::{Context, Device, Driver, Memory};

use super::probe::{Burn, Burnt, CudaDevice, CudaView, Load, bus_id, uuid};

/// Multiply-adds of one thread in one round of `fma_burn`.
const MULTIPLY_ADDS: u64 = 128;
/// Bytes that one thread reads in one round of `read_stream`.
const BYTES: u64 = 64;

/// Numbers of `CUdevice_attribute`.
const MULTIPROCESSORS: i32 = 16;
const CAPABILITY: (i32, i32) = (75, 76);

/// Threads of a block, and blocks of a multiprocessor: it is full.
const THREADS: u32 = 256;
const BLOCKS: u32 = 8;

/// How long a kernel should run: short enough for bursts of tens of milliseconds.
const KERNEL: Nanos = Nanos::from_millis(5);

/// Memory that is read: far more than any cache.
const READ_BYTES: u64 = 4 << 30;

/// Bursts whose instants are kept.
const KEPT_BURSTS: usize = 4096;

/// The devices that this process may see, in CUDA's order.
///
/// # Errors
/// When there is no driver, or it does not answer.
pub fn view() -> Result<CudaView, CudaError> {
    let Some(driver) = Driver::open()? else { return Ok(CudaView::default()) };
    let mut devices = Vec::new();
    for ordinal in 0..driver.count()? {
        let device = driver.device(ordinal)?;
        let capability =
            device.attribute(CAPABILITY.0).and_then(|m| Ok((m, device.attribute(CAPABILITY.1)?)));
        devices.push(CudaDevice {
            ordinal,
            uuid: uuid(device.uuid()?),
            pci_bus_id: bus_id(&device.bus_id()?),
            name: device.name()?,
            compute_capability: capability.ok(),
            memory_total_bytes: device.memory().ok(),
            memory_free_bytes: None,
            multiprocessors: device.attribute(MULTIPROCESSORS).ok(),
        });
    }
    Ok(CudaView { driver: driver.version().ok(), devices, burnt: None })
}

/// The same, and a load on one of them.
///
/// # Errors
/// As [`view`], and when the load cannot be put on it.
pub fn burn(burn: &Burn, clock: &dyn Clock) -> Result<CudaView, CudaError> {
    let mut view = view()?;
    let Some(driver) = Driver::open()? else { return Ok(view) };
    let device = driver.device(burn.ordinal)?;
    let context = device.enter()?;
    if let Some(found) = view.devices.iter_mut().find(|found| found.ordinal == burn.ordinal) {
        found.memory_free_bytes = Some(context.memory()?.0);
    }
    let held = if burn.hold_bytes > 0 { Some(context.allocate(burn.hold_bytes)?) } else { None };
    let work = Work::new(&context, device, burn.load)?;
    view.burnt = Some(work.run(burn, clock)?);
    // It is there until here.
    let _ = held;
    Ok(view)
}

/// A kernel that is ready to be started again and again.
struct Work<'a> {
    context: &'a Context,
    kernel: raw::Kernel,
    memories: Vec<Memory>,
    blocks: u32,
    rounds: u32,
    most_rounds: u32,
    load: Load,
}

impl<'a> Work<'a> {
    fn new(context: &'a Context, device: Device, load: Load) -> Result<Self, CudaError> {
        let multiprocessors = u32::try_from(device.attribute(MULTIPROCESSORS)?).unwrap_or(1).max(1);
        let blocks = multiprocessors * BLOCKS;
        let name = match load {
            Load::Compute => c"fma_burn",
            Load::Read => c"read_stream",
        };
        let kernel = context.kernel(PTX, name)?;
        let threads = u64::from(blocks) * u64::from(THREADS);
        let (memories, most_rounds) = match load {
            Load::Compute => (vec![context.allocate(4096)?], 1 << 20),
            Load::Read => {
                let bytes = READ_BYTES.min(context.memory()?.0 / 2);
                let rounds = (bytes / (threads * BYTES)).max(1);
                let data = context.allocate(rounds * threads * BYTES)?;
                (vec![data, context.allocate(4096)?], u32::try_from(rounds).unwrap_or(u32::MAX))
            }
        };
        Ok(Self { context, kernel, memories, blocks, rounds: 1000.min(most_rounds), most_rounds, load })
    }

    fn once(&self) -> Result<(), CudaError> {
        self.context.launch(&self.kernel, (self.blocks, THREADS), &self.memories, self.rounds)?;
        self.context.wait()
    }

    /// What one kernel does: operations, or bytes.
    fn amount(&self) -> f64 {
        let threads = f64::from(self.blocks) * f64::from(THREADS) * f64::from(self.rounds);
        match self.load {
            Load::Compute => threads * (MULTIPLY_ADDS * 2) as f64,
            Load::Read => threads * BYTES as f64,
        }
    }

    /// Makes one kernel last as long as it should.
    fn fit(&mut self, clock: &dyn Clock) -> Result<(), CudaError> {
        // The first translates the PTX and wakes the GPU.
        self.once()?;
        for _ in 0..3 {
            let start = clock.monotonic();
            self.once()?;
            let took = (clock.monotonic() - start).0.max(1);
            let rounds = u64::from(self.rounds) * KERNEL.0 / took;
            self.rounds = u32::try_from(rounds).unwrap_or(u32::MAX).clamp(1, self.most_rounds);
        }
        Ok(())
    }

    fn run(mut self, burn: &Burn, clock: &dyn Clock) -> Result<Burnt, CudaError> {
        self.fit(clock)?;
        let start = clock.monotonic();
        let end = start + burn.length;
        let (mut kernels, mut busy, mut bursts) = (0u64, Nanos::ZERO, Vec::new());
        let mut next = start;
        while clock.monotonic() < end {
            let off = burn.on.map_or(end, |on| (next + on).min(end));
            let began = clock.monotonic();
            while clock.monotonic() < off {
                self.once()?;
                kernels += 1;
            }
            let ended = clock.monotonic();
            busy = busy + (ended - began);
            if bursts.len() < KEPT_BURSTS {
                bursts.push((began, ended));
            }
            // By the schedule and not after what was: the bursts keep their distance.
            next = off + burn.off;
            std::thread::sleep((next.min(end) - clock.monotonic()).to_duration());
        }
        let rate = self.amount() * kernels as f64 / busy.as_secs_f64().max(1e-9);
        Ok(Burnt { kernels, busy, per_second: rate, bursts })
    }
}

/// The kernels; what a C library reads ends with a null character.
const PTX: &std::ffi::CStr =
    match std::ffi::CStr::from_bytes_with_nul(concat!(include_str!("cuda/kernels.ptx"), "\0").as_bytes()) {
        Ok(ptx) => ptx,
        Err(_) => panic!("a null character in the text"),
    };
