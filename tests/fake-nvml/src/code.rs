//! NVML's return codes, by number and by name.
//!
//! Owns the names that a scenario may write and the texts of `nvmlErrorString`. A scenario may also write a number
//! that no NVML has: a client must survive that, so this module refuses none.

use std::ffi::CStr;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};

/// A return code other than success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) u32);

macro_rules! codes {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        impl Code {
            $(#[allow(dead_code, reason = "the table is NVML's, whole")]
            pub(crate) const $name: Code = Code($number);)*

            fn named(name: &str) -> Option<Code> {
                match name {
                    $(stringify!($name) => Some(Code::$name),)*
                    _ => None,
                }
            }
        }

        /// What `nvmlErrorString` says of a code.
        pub(crate) fn text(code: u32) -> &'static CStr {
            match code {
                0 => c"Success",
                $($number => $text,)*
                _ => c"Unknown Error",
            }
        }
    };
}

codes! {
    UNINITIALIZED = 1, c"Uninitialized";
    INVALID_ARGUMENT = 2, c"Invalid Argument";
    NOT_SUPPORTED = 3, c"Not Supported";
    NO_PERMISSION = 4, c"Insufficient Permissions";
    ALREADY_INITIALIZED = 5, c"Already Initialized";
    NOT_FOUND = 6, c"Not Found";
    INSUFFICIENT_SIZE = 7, c"Insufficient Size";
    INSUFFICIENT_POWER = 8, c"Insufficient External Power";
    DRIVER_NOT_LOADED = 9, c"Driver Not Loaded";
    TIMEOUT = 10, c"Timeout";
    IRQ_ISSUE = 11, c"Interrupt Request Issue";
    LIBRARY_NOT_FOUND = 12, c"NVML Shared Library Not Found";
    FUNCTION_NOT_FOUND = 13, c"Function Not Found";
    CORRUPTED_INFOROM = 14, c"Corrupted infoROM";
    GPU_IS_LOST = 15, c"GPU is lost";
    RESET_REQUIRED = 16, c"GPU requires restart";
    OPERATING_SYSTEM = 17, c"The operating system has blocked the request.";
    LIB_RM_VERSION_MISMATCH = 18, c"RM has detected an NVML/RM version mismatch.";
    IN_USE = 19, c"An operation cannot be performed because the GPU is currently in use.";
    MEMORY = 20, c"Insufficient memory.";
    NO_DATA = 21, c"No data.";
    VGPU_ECC_NOT_SUPPORTED = 22, c"The requested vgpu operation is not available on target device, because ECC is enabled.";
    INSUFFICIENT_RESOURCES = 23, c"Ran out of critical resources, other than memory.";
    FREQ_NOT_SUPPORTED = 24, c"The requested frequency is not supported.";
    ARGUMENT_VERSION_MISMATCH = 25, c"The provided version is invalid/unsupported.";
    DEPRECATED = 26, c"The requested functionality has been deprecated.";
    NOT_READY = 27, c"The system is not ready for the request.";
    GPU_NOT_FOUND = 28, c"No GPUs were found.";
    INVALID_STATE = 29, c"Resource not in correct state to perform requested operation.";
    RESET_TYPE_NOT_SUPPORTED = 30, c"Reset not supported for given device/parameters.";
    UNKNOWN = 999, c"Unknown Error";
}

/// A number, or a name as in `nvml.h` without `NVML_ERROR_`.
impl<'de> Deserialize<'de> for Code {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Form;

        impl Visitor<'_> for Form {
            type Value = Code;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a return code above 0, as a number or as a name such as NOT_SUPPORTED")
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Code, E> {
                match u32::try_from(number) {
                    Ok(code) if code > 0 => Ok(Code(code)),
                    _ => Err(E::custom(format_args!("{number} is not a return code of a failure"))),
                }
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<Code, E> {
                let bare = name.strip_prefix("NVML_ERROR_").unwrap_or(name);
                Code::named(bare).ok_or_else(|| E::custom(format_args!("no return code is called {name}")))
            }
        }

        deserializer.deserialize_any(Form)
    }
}
