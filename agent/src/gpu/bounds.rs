//! Which numbers of a GPU cannot be true.
//!
//! A driver may answer a call with success and with nonsense: a 32-bit stub returned millions of watts, a field that
//! nobody filled in is 0. Such a number is absent here, and never data. Bounds are wide: they are no judgement of a
//! reading, only of a library.

/// The most that a GPU draws whose limit is not known, milliwatts.
const MOST_MW: u32 = 5_000_000;

/// How far above its limit a GPU may be for some milliseconds.
const OVER_LIMIT: u32 = 3;

/// Power; `limit` is the highest that could be set, or none where it is not known. A GPU that answers draws some.
#[must_use]
pub fn power(mw: u64, limit: Option<u32>) -> Option<u32> {
    let most = limit.map_or(MOST_MW, |limit| limit.saturating_mul(OVER_LIMIT).min(MOST_MW));
    u32::try_from(mw).ok().filter(|&mw| mw > 0 && mw <= most)
}

/// A power limit.
#[must_use]
pub fn limit(mw: u64) -> Option<u32> {
    power(mw, None)
}

/// The energy counter: it starts with the driver, so it is above 0, and no GPU has used 300 GWh.
#[must_use]
pub fn energy(mj: u64) -> Option<u64> {
    (mj > 0 && mj < 1 << 60).then_some(mj)
}

/// The mean power that the energy counter may imply over a second, milliwatts, before it is taken for another counter.
#[must_use]
pub fn implied(limit: Option<u32>) -> u64 {
    limit.map_or(u64::from(MOST_MW), |limit| u64::from(limit) * 3 / 2)
}

/// A share.
#[must_use]
pub fn percent(value: u64) -> Option<u32> {
    u32::try_from(value).ok().filter(|&value| value <= 100)
}

/// A temperature in degrees Celsius. Chips shut down below 130, and 0 is what a sensor says that is not there.
#[must_use]
pub fn temperature(celsius: u64) -> Option<u32> {
    u32::try_from(celsius).ok().filter(|&celsius| celsius > 0 && celsius < 200)
}

/// A clock; an idle one may stand.
#[must_use]
pub fn clock(mhz: u64) -> Option<u32> {
    u32::try_from(mhz).ok().filter(|&mhz| mhz < 20_000)
}

/// Memory in use.
#[must_use]
pub fn memory(bytes: u64, total: Option<u64>) -> Option<u64> {
    (bytes <= total.unwrap_or(1 << 45)).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_absent_and_spikes_are_not() {
        assert_eq!(power(700_000, Some(700_000)), Some(700_000));
        assert_eq!(power(1_300_000, Some(700_000)), Some(1_300_000), "some milliseconds above the limit");
        assert_eq!(power(0, Some(700_000)), None);
        assert_eq!(power(4_000_000, Some(700_000)), None);
        assert_eq!(power(4_990_000_000_000_000_000, None), None);
        assert_eq!(power(4_000_000, None), Some(4_000_000));
        assert_eq!((energy(0), energy(1), energy(u64::MAX)), (None, Some(1), None));
        assert_eq!((percent(100), percent(101)), (Some(100), None));
        assert_eq!((temperature(0), temperature(45), temperature(65_535)), (None, Some(45), None));
        assert_eq!((clock(0), clock(1980), clock(u64::MAX)), (Some(0), Some(1980), None));
        assert_eq!((memory(5, Some(4)), memory(5, Some(5)), memory(u64::MAX, None)), (None, Some(5), None));
    }
}
