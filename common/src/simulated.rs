//! Whether this thread carries out a simulation: a whole fleet on one thread, in virtual time.
//!
//! Where work would go to another thread, because it waits for a disk or takes the processor for long, a simulation does
//! it on the spot: a second thread would make the order of things, and so a failing seed, impossible to repeat. Nothing
//! else may depend on it.
//!
//! With the feature `sabotage`, which no release has, a simulation can also break one of the promises that it checks, to
//! show that it would notice.

use std::cell::Cell;

thread_local! {
    static SIMULATED: Cell<bool> = const { Cell::new(false) };
}

/// Says that all that runs on this thread is simulated.
pub fn simulate() {
    SIMULATED.set(true);
}

/// Whether it is.
#[must_use]
pub fn is_simulated() -> bool {
    SIMULATED.get()
}

/// A promise that can be broken on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sabotage {
    /// What is written is not synced.
    SkipSync,
    /// Traces are acknowledged before they are stored.
    AcknowledgeEarly,
    /// Traces of a trial that is not the open one are taken, too.
    IgnoreEpoch,
    /// What is delivered twice is stored twice.
    NoDedupe,
    /// A lease counts from the coordinator's answer, and not from what was answered.
    LeaseFromReceipt,
    /// A sequence number is given to two traces.
    ReuseNumber,
    /// Traces that are to wait for the drain are delivered before.
    DeliverEarly,
}

impl Sabotage {
    /// All of them, by name.
    pub const ALL: [(&'static str, Self); 7] = [
        ("skip-sync", Self::SkipSync),
        ("acknowledge-early", Self::AcknowledgeEarly),
        ("ignore-epoch", Self::IgnoreEpoch),
        ("no-dedupe", Self::NoDedupe),
        ("lease-from-receipt", Self::LeaseFromReceipt),
        ("reuse-number", Self::ReuseNumber),
        ("deliver-early", Self::DeliverEarly),
    ];
}

#[cfg(feature = "sabotage")]
thread_local! {
    static BROKEN: Cell<Option<Sabotage>> = const { Cell::new(None) };
}

/// Breaks a promise on this thread.
#[cfg(feature = "sabotage")]
pub fn sabotage(what: Option<Sabotage>) {
    BROKEN.set(what);
}

/// Whether this promise is broken: never without the feature.
#[must_use]
pub fn is_sabotaged(what: Sabotage) -> bool {
    #[cfg(feature = "sabotage")]
    return BROKEN.get() == Some(what);
    #[cfg(not(feature = "sabotage"))]
    {
        let _ = what;
        false
    }
}
