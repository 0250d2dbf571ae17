//! Symbols of GPM.

use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlGpmMetric_t__bindgen_ty_1, nvmlGpmMetricsGet_t, nvmlGpmSample_t, nvmlGpmSupport_t,
    nvmlReturn_t,
};

use super::{handle, index, on_device, put, returned};
use crate::code::Code;
use crate::gpm;
use crate::world::World;

/// The only version of both structs.
const VERSION: u32 = 1;

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlGpmQueryDeviceSupport(
    device: nvmlDevice_t,
    support: *mut nvmlGpmSupport_t,
) -> nvmlReturn_t {
    // SAFETY: the caller's pointer, which it has set the version of.
    if support.is_null() || unsafe { (*support).version } != VERSION {
        return Code::INVALID_ARGUMENT.0;
    }
    let answer = on_device("nvmlGpmQueryDeviceSupport", device, |d| Ok(gpm::is_supported(d.gpu)));
    let support_of = |yes: bool| nvmlGpmSupport_t { version: VERSION, isSupportedDevice: yes.into() };
    // SAFETY: as above.
    returned(answer.and_then(|yes| unsafe { put(support, support_of(yes)) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlGpmSampleAlloc(sample: *mut nvmlGpmSample_t) -> nvmlReturn_t {
    let allocated = || Ok(World::enter("nvmlGpmSampleAlloc", None)?.open()?.samples.alloc());
    // SAFETY: the caller's pointer.
    returned(allocated().and_then(|number| unsafe { put(sample, handle(number)) }))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmSampleFree(sample: nvmlGpmSample_t) -> nvmlReturn_t {
    let freed = || World::enter("nvmlGpmSampleFree", None)?.open()?.samples.free(index(sample)?);
    returned(freed())
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmSampleGet(device: nvmlDevice_t, sample: nvmlGpmSample_t) -> nvmlReturn_t {
    let taken = || -> Result<(), Code> {
        let gpu = index(device)?;
        let mut world = World::enter("nvmlGpmSampleGet", Some(gpu))?;
        let running = world.open()?;
        let (now, supported) = running.device(gpu).map(|d| (d.now, gpm::is_supported(d.gpu)))?;
        if !supported {
            return Err(Code::NOT_SUPPORTED);
        }
        running.samples.take(index(sample)?, gpu, now)
    };
    returned(taken())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlGpmMetricsGet(request: *mut nvmlGpmMetricsGet_t) -> nvmlReturn_t {
    // SAFETY: the caller's pointer, which it has set to something, whole.
    let Some(request) = (unsafe { request.as_mut() }) else { return Code::INVALID_ARGUMENT.0 };
    returned(metrics_get(request))
}

fn metrics_get(request: &mut nvmlGpmMetricsGet_t) -> Result<(), Code> {
    let mut world = World::enter("nvmlGpmMetricsGet", None)?;
    let running = world.open()?;
    let metrics = request.metrics.get_mut(..request.numMetrics as usize);
    let metrics = metrics.filter(|_| request.version == VERSION).ok_or(Code::INVALID_ARGUMENT)?;
    let (gpu, from, to) = running.samples.between(index(request.sample1)?, index(request.sample2)?)?;
    running.device(gpu)?;
    for metric in metrics {
        let value = gpm::metric(&running.scenario, gpu, metric.metricId, from, to);
        metric.metricInfo = nvmlGpmMetric_t__bindgen_ty_1 {
            shortName: c"FAKE".as_ptr().cast_mut(),
            longName: c"A metric of the fake NVML".as_ptr().cast_mut(),
            unit: c"".as_ptr().cast_mut(),
        };
        (metric.nvmlReturn, metric.value) = match value {
            Ok(value) => (0, value),
            Err(Code(code)) => (code, 0.0),
        };
    }
    Ok(())
}
