//! Calls of the CUDA driver, each by its own symbol and with its code as a plain number.
//!
//! Why not the safe calls of `cudarc`: they panic where a symbol or the library is missing, and take the driver's code
//! for a Rust enum, which is undefined behaviour for a code that the bindings do not know. So `cudarc` finds and loads
//! the library here, once it has said that there is one, and the symbols' types are written down below.
//!
//! This is one of two files of the agent in which `unsafe` is allowed (the other is `nvml/raw.rs`). What it relies on: a
//! symbol has the type that `cuda.h` gives it. It must be used in the child that `probe` starts, and nowhere else: the
//! library may end the process.

#![allow(unsafe_code, reason = "calls of a C library; see the module's documentation")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;

use cudarc::driver::sys;

/// Why a call did not do what it should.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CudaError {
    /// There is no library.
    #[error(
        "no CUDA driver (libcuda.so.1); install NVIDIA's driver, or let the container have its compute part"
    )]
    Absent,
    /// The library has no such symbol.
    #[error("the CUDA driver lacks {0}: it is too old for this")]
    Missing(&'static str),
    /// A call failed.
    #[error("{call}: {name} ({code})")]
    Failed {
        /// Which.
        call: &'static str,
        /// The driver's number.
        code: i32,
        /// The driver's name for it.
        name: String,
    },
}

/// `CUDA_ERROR_NO_DEVICE`.
pub(super) const NO_DEVICE: i32 = 100;

/// Calls a symbol by its name, with the types of its arguments, and gives the driver's code.
macro_rules! code {
    ($name:ident($($argument:expr => $type:ty),*)) => {{
        const NAME: &str = stringify!($name);
        // SAFETY: the library is there (see `Driver::open`), and the type is that of `cuda.h`.
        let symbol = unsafe { sys::culib().get::<unsafe extern "C" fn($($type),*) -> c_int>(NAME.as_bytes()) };
        match symbol {
            // SAFETY: pointers among the arguments are to values that outlive the call.
            Ok(call) => Ok(unsafe { call($($argument),*) }),
            Err(_) => Err(CudaError::Missing(NAME)),
        }
    }};
}

/// The same, and makes an error of a code that is one.
macro_rules! call {
    ($name:ident($($arguments:tt)*)) => {
        match code!($name($($arguments)*)) {
            Ok(0) => Ok(()),
            Ok(code) => Err(CudaError::Failed { call: stringify!($name), code, name: name_of(code) }),
            Err(missing) => Err(missing),
        }
    };
}

fn name_of(code: c_int) -> String {
    let mut name: *const c_char = std::ptr::null();
    let asked = code!(cuGetErrorName(code => c_int, &mut name => *mut *const c_char));
    if asked != Ok(0) || name.is_null() {
        return "a code that the driver has no name for".to_owned();
    }
    // SAFETY: the driver's texts are constants.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}

/// The driver, with `cuInit` done.
#[derive(Debug, Clone, Copy)]
pub(super) struct Driver(());

/// A device, by the driver's handle.
#[derive(Debug, Clone, Copy)]
pub(super) struct Device(c_int);

impl Driver {
    /// Loads and initialises it. None when there is no device, which is no failure.
    pub(super) fn open() -> Result<Option<Self>, CudaError> {
        // SAFETY: it loads the library and lets it go.
        if !unsafe { sys::is_culib_present() } {
            return Err(CudaError::Absent);
        }
        match call!(cuInit(0 => c_uint)) {
            Ok(()) => Ok(Some(Self(()))),
            Err(CudaError::Failed { code: NO_DEVICE, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// 13000 is 13.0.
    pub(super) fn version(self) -> Result<i32, CudaError> {
        let mut version = 0;
        call!(cuDriverGetVersion(&mut version => *mut c_int))?;
        Ok(version)
    }

    /// Devices that this process may see.
    pub(super) fn count(self) -> Result<i32, CudaError> {
        let mut count = 0;
        call!(cuDeviceGetCount(&mut count => *mut c_int))?;
        Ok(count)
    }

    /// One of them.
    pub(super) fn device(self, ordinal: i32) -> Result<Device, CudaError> {
        let mut device = 0;
        call!(cuDeviceGet(&mut device => *mut c_int, ordinal => c_int))?;
        Ok(Device(device))
    }
}

impl Device {
    pub(super) fn name(self) -> Result<String, CudaError> {
        text(|to, length| call!(cuDeviceGetName(to => *mut c_char, length => c_int, self.0 => c_int)))
    }

    pub(super) fn bus_id(self) -> Result<String, CudaError> {
        text(|to, length| call!(cuDeviceGetPCIBusId(to => *mut c_char, length => c_int, self.0 => c_int)))
    }

    /// With the second form, which of an instance (MIG) gives the instance's.
    pub(super) fn uuid(self) -> Result<[u8; 16], CudaError> {
        let mut uuid = [0u8; 16];
        let to = uuid.as_mut_ptr();
        match call!(cuDeviceGetUuid_v2(to => *mut u8, self.0 => c_int)) {
            Err(CudaError::Missing(_)) => call!(cuDeviceGetUuid(to => *mut u8, self.0 => c_int))?,
            other => other?,
        }
        Ok(uuid)
    }

    pub(super) fn memory(self) -> Result<u64, CudaError> {
        let mut bytes = 0usize;
        call!(cuDeviceTotalMem_v2(&mut bytes => *mut usize, self.0 => c_int))?;
        Ok(bytes as u64)
    }

    /// By the number that `cuda.h` gives it.
    pub(super) fn attribute(self, attribute: c_int) -> Result<i32, CudaError> {
        let mut value = 0;
        call!(cuDeviceGetAttribute(&mut value => *mut c_int, attribute => c_int, self.0 => c_int))?;
        Ok(value)
    }

    /// Makes its context this thread's. The context takes memory on the device until the process ends.
    pub(super) fn enter(self) -> Result<Context, CudaError> {
        let mut context = null_mut();
        call!(cuDevicePrimaryCtxRetain(&mut context => *mut *mut c_void, self.0 => c_int))?;
        call!(cuCtxSetCurrent(context => *mut c_void))?;
        Ok(Context(()))
    }
}

fn text(call: impl FnOnce(*mut c_char, c_int) -> Result<(), CudaError>) -> Result<String, CudaError> {
    let mut bytes = [0u8; 256];
    // One less: there is a null character at the end, whatever the driver writes.
    call(bytes.as_mut_ptr().cast(), 255)?;
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(255);
    Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
}

/// A context that is this thread's.
#[derive(Debug)]
pub(super) struct Context(());

/// Memory on the device; the process's end frees it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Memory(u64);

/// A kernel, with the arguments that it takes.
#[derive(Debug)]
pub(super) struct Kernel(*mut c_void);

impl Context {
    /// Free bytes and all.
    pub(super) fn memory(&self) -> Result<(u64, u64), CudaError> {
        let (mut free, mut total) = (0usize, 0usize);
        call!(cuMemGetInfo_v2(&mut free => *mut usize, &mut total => *mut usize))?;
        Ok((free as u64, total as u64))
    }

    pub(super) fn allocate(&self, bytes: u64) -> Result<Memory, CudaError> {
        let mut at = 0u64;
        call!(cuMemAlloc_v2(&mut at => *mut u64, bytes as usize => usize))?;
        Ok(Memory(at))
    }

    /// A kernel of a PTX text.
    pub(super) fn kernel(&self, ptx: &CStr, name: &CStr) -> Result<Kernel, CudaError> {
        let (mut module, mut kernel) = (null_mut(), null_mut());
        call!(cuModuleLoadData(&mut module => *mut *mut c_void, ptx.as_ptr().cast() => *const c_void))?;
        call!(cuModuleGetFunction(
            &mut kernel => *mut *mut c_void, module => *mut c_void, name.as_ptr() => *const c_char
        ))?;
        Ok(Kernel(kernel))
    }

    /// Starts a kernel of `blocks` of `threads`. Its arguments are those memories, then a number.
    pub(super) fn launch(
        &self,
        kernel: &Kernel,
        (blocks, threads): (u32, u32),
        memories: &[Memory],
        number: u32,
    ) -> Result<(), CudaError> {
        let mut addresses: Vec<u64> = memories.iter().map(|memory| memory.0).collect();
        let mut number = number;
        let mut arguments: Vec<*mut c_void> =
            addresses.iter_mut().map(|address| std::ptr::from_mut(address).cast()).collect();
        arguments.push(std::ptr::from_mut(&mut number).cast());
        call!(cuLaunchKernel(
            kernel.0 => *mut c_void,
            blocks => c_uint, 1 => c_uint, 1 => c_uint,
            threads => c_uint, 1 => c_uint, 1 => c_uint,
            0 => c_uint, null_mut() => *mut c_void,
            arguments.as_mut_ptr() => *mut *mut c_void, null_mut() => *mut *mut c_void
        ))
    }

    /// Waits until all kernels have ended.
    pub(super) fn wait(&self) -> Result<(), CudaError> {
        call!(cuCtxSynchronize())
    }
}
