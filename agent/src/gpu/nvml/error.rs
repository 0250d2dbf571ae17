//! What an error of NVML means for whoever wants to read a GPU.
//!
//! The classes are those of `SourceError`; which code belongs to which was tried against scripted libraries, see
//! `tests/gpu/states.rs`.

use nvml_wrapper::error::NvmlError;

use super::super::SourceError;

/// Of a call that names a GPU; `what` is what was asked, in words.
pub(super) fn of_gpu(error: &NvmlError, what: &str) -> SourceError {
    use NvmlError as E;
    match error {
        E::NotSupported => SourceError::Unsupported(format!("{what}: this GPU does not have it")),
        E::FailedToLoadSymbol(_) | E::FunctionNotFound => {
            SourceError::Unsupported(format!("{what}: this driver's library does not have it"))
        }
        E::UnexpectedVariant(code) => {
            SourceError::Unsupported(format!("{what}: an answer that nobody knows ({code})"))
        }
        E::InvalidArg | E::IncorrectBits(_) | E::Utf8Error(_) => {
            SourceError::Unsupported(format!("{what}: {error}"))
        }
        E::NoPermission => SourceError::Denied(format!(
            "{what}: not permitted; the agent's user needs access to the GPU's device files"
        )),
        E::GpuLost | E::ResetRequired | E::Uninitialized | E::DriverNotLoaded | E::LibRmVersionMismatch => {
            SourceError::Lost(format!("{what}: {error}"))
        }
        E::Unknown => SourceError::Unknown(format!("{what}: {error}")),
        _ => SourceError::Transient(format!("{what}: {error}")),
    }
}

/// Of opening the library at `path`.
pub(super) fn of_opening(error: &NvmlError, path: &str) -> SourceError {
    use NvmlError as E;
    match error {
        E::LibloadingError(_) | E::LibraryNotFound => SourceError::Absent(format!(
            "no NVML ({path}): {error}; install NVIDIA's driver, or name the library with --nvml-lib or PLIMSOLL_NVML"
        )),
        E::FailedToLoadSymbol(_) | E::FunctionNotFound => {
            SourceError::Absent(format!("{path} is not NVML: {error}; name another with --nvml-lib"))
        }
        E::DriverNotLoaded => SourceError::DriverUnusable(
            "NVIDIA's driver is not loaded: load it (modprobe nvidia), or run where the GPUs are".to_owned(),
        ),
        E::LibRmVersionMismatch => SourceError::DriverUnusable(format!(
            "the loaded driver and {path} are of different versions, as after an upgrade: reload the driver or restart \
             the host, then the agent"
        )),
        E::NoPermission => SourceError::Denied(
            "NVML may not be asked here; the agent's user needs access to /dev/nvidiactl and the GPUs' files"
                .to_owned(),
        ),
        E::GpuLost | E::ResetRequired => {
            SourceError::DriverUnusable(format!("NVML does not open: {error}; see the kernel's log"))
        }
        _ => SourceError::DriverUnusable(format!("NVML does not open: {error}")),
    }
}
