//! The driver's result codes, by number and by name.
//!
//! Owns the names that a scenario may write and that `cuGetErrorName` tells. A scenario may also write a number that
//! no driver has: the bindings of a client take it for one of theirs, and a client has to guard against that.

use std::ffi::CStr;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};

/// A result other than success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) u32);

macro_rules! codes {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        impl Code {
            $(#[allow(dead_code, reason = "a scenario may name it")]
            pub(crate) const $name: Code = Code($number);)*

            fn named(name: &str) -> Option<Code> {
                match name {
                    $(stringify!($name) => Some(Code::$name),)*
                    _ => None,
                }
            }
        }

        /// The name and the text of a code of the driver's.
        pub(crate) fn described(code: u32) -> Option<(&'static CStr, &'static CStr)> {
            /// The full name, which needs its end mark.
            const fn named(name: &'static str) -> &'static CStr {
                match CStr::from_bytes_with_nul(name.as_bytes()) {
                    Ok(name) => name,
                    Err(_) => c"",
                }
            }
            match code {
                0 => Some((c"CUDA_SUCCESS", c"no error")),
                $($number => Some((const { named(concat!("CUDA_ERROR_", stringify!($name), "\0")) }, $text)),)*
                _ => None,
            }
        }
    };
}

codes! {
    INVALID_VALUE = 1, c"invalid argument";
    OUT_OF_MEMORY = 2, c"out of memory";
    NOT_INITIALIZED = 3, c"initialization error";
    DEINITIALIZED = 4, c"driver shutting down";
    STUB_LIBRARY = 34, c"CUDA driver is a stub library";
    DEVICE_UNAVAILABLE = 46, c"CUDA-capable device(s) is/are busy or unavailable";
    NO_DEVICE = 100, c"no CUDA-capable device is detected";
    INVALID_DEVICE = 101, c"invalid device ordinal";
    INVALID_IMAGE = 200, c"device kernel image is invalid";
    INVALID_CONTEXT = 201, c"invalid device context";
    NO_BINARY_FOR_GPU = 209, c"no kernel image is available for execution on the device";
    ECC_UNCORRECTABLE = 214, c"uncorrectable ECC error encountered";
    INVALID_PTX = 218, c"a PTX JIT compilation failed";
    UNSUPPORTED_PTX_VERSION = 222, c"the provided PTX was compiled with an unsupported toolchain.";
    OPERATING_SYSTEM = 304, c"OS call failed or operation not supported on this OS";
    INVALID_HANDLE = 400, c"invalid resource handle";
    NOT_FOUND = 500, c"named symbol not found";
    NOT_READY = 600, c"device not ready";
    ILLEGAL_ADDRESS = 700, c"an illegal memory access was encountered";
    LAUNCH_OUT_OF_RESOURCES = 701, c"too many resources requested for launch";
    LAUNCH_TIMEOUT = 702, c"the launch timed out and was terminated";
    LAUNCH_FAILED = 719, c"unspecified launch failure";
    NOT_PERMITTED = 800, c"operation not permitted";
    NOT_SUPPORTED = 801, c"operation not supported";
    SYSTEM_NOT_READY = 802, c"system not yet initialized";
    SYSTEM_DRIVER_MISMATCH = 803, c"system has unsupported display driver / cuda driver combination";
    UNKNOWN = 999, c"unknown error";
}

/// A number, or a name as in `cuda.h` without `CUDA_ERROR_`.
impl<'de> Deserialize<'de> for Code {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Form;

        impl Visitor<'_> for Form {
            type Value = Code;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a result above 0, as a number or as a name such as NO_DEVICE")
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Code, E> {
                match u32::try_from(number) {
                    Ok(code) if code > 0 => Ok(Code(code)),
                    _ => Err(E::custom(format_args!("{number} is not the result of a failure"))),
                }
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<Code, E> {
                let bare = name.strip_prefix("CUDA_ERROR_").unwrap_or(name);
                Code::named(bare).ok_or_else(|| E::custom(format_args!("no result is called {name}")))
            }
        }

        deserializer.deserialize_any(Form)
    }
}
