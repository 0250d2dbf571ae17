//! The fake NVML as its clients see it: through `nvml-wrapper`, loaded as the real one is.
//!
//! Each test loads a copy of its own, so that they run side by side. Time is a manual clock wherever it can be.

mod burn;
mod energy;
mod faults;
mod harness;
mod identity;
mod readings;
mod time;
mod xid;
