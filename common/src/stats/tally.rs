//! Durations that are too many to be kept one by one: how often each occurs, exactly.
//!
//! The gaps between content events are by far the most samples of a trial, a hundred to a request. They are whole
//! nanoseconds that lie close together, so that a counter for each value takes less memory than a list of them, and
//! nothing has to be sorted. Nothing is rounded or binned: a percentile is that of the list, to the last bit, and so is
//! the mean, which is summed in ascending order. A property test holds it against the list.

use std::collections::BTreeMap;

use super::{Distribution, Place, place};
use crate::ids::Nanos;

/// Bits of a duration that a page's counters tell apart: a page is 65.5 us.
const PAGE_BITS: u32 = 16;
/// Values of a page are a list up to here, where the list is half as long as the counters.
const FEW: usize = 1 << PAGE_BITS;
/// A page that has counters lists its values up to here before it counts them. Counted one by one, each value would wait
/// for a counter to come from memory: that took half the time of a report.
const WAITING: usize = 1 << 14;
/// Pages that are found by their number, up to 4.3 s. Above it gaps are few.
const NEAR_PAGES: u64 = 1 << 16;

/// How often each duration occurs.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    near: Vec<Page>,
    far: BTreeMap<u64, Page>,
    /// By value, 2^32 each: what did not fit into its counter.
    carried: BTreeMap<u64, u64>,
    n: u64,
}

/// Durations that agree in all bits but the last [`PAGE_BITS`].
#[derive(Debug, Clone, Default)]
struct Page {
    /// In any order; with counters only those that are not counted yet.
    values: Vec<u16>,
    counts: Option<Box<[u32]>>,
}

impl Page {
    /// Adds a value, and says whether the list is so long that it should be counted.
    #[inline]
    fn add(&mut self, low: u16) -> bool {
        self.values.push(low);
        self.values.len() >= if self.counts.is_some() { WAITING } else { FEW }
    }

    fn counts(&mut self) -> &mut [u32] {
        self.counts.get_or_insert_with(|| vec![0; 1 << PAGE_BITS].into_boxed_slice())
    }

    /// Adds a value several times, and says whether its counter ran over.
    fn count(&mut self, low: u16, times: u32) -> bool {
        let count = &mut self.counts()[usize::from(low)];
        let (sum, over) = count.overflowing_add(times);
        *count = sum;
        over
    }

    /// Counts what is listed. Gives the values whose counters ran over.
    fn settle(&mut self) -> Vec<u16> {
        let mut over = Vec::new();
        let mut values = std::mem::take(&mut self.values);
        let counts = self.counts();
        for &low in &values {
            let count = &mut counts[usize::from(low)];
            *count = count.wrapping_add(1);
            if *count == 0 {
                over.push(low);
            }
        }
        values.clear();
        values.shrink_to(WAITING);
        self.values = values;
        over
    }

    /// Its values in ascending order, each with how often it occurs; a value may come several times. To be settled
    /// before where it has counters.
    fn each(&self, mut each: impl FnMut(u16, u32)) {
        match &self.counts {
            None => {
                let mut values = self.values.clone();
                values.sort_unstable();
                values.into_iter().for_each(|value| each(value, 1));
            }
            // A value that occurs a multiple of 2^32 times has a counter of 0, and what is carried must be seen.
            Some(counts) => (0..=u16::MAX).zip(counts).for_each(|(low, &count)| each(low, count)),
        }
    }
}

impl Tally {
    /// Adds a duration, in nanoseconds.
    #[inline]
    pub fn add(&mut self, nanos: u64) {
        self.n += 1;
        let number = nanos >> PAGE_BITS;
        if self.page(number).add(nanos as u16) {
            self.settle(number);
        }
    }

    fn page(&mut self, number: u64) -> &mut Page {
        if number >= NEAR_PAGES {
            return self.far.entry(number).or_default();
        }
        let number = number as usize;
        if number >= self.near.len() {
            self.near.resize_with(number + 1, Page::default);
        }
        &mut self.near[number]
    }

    fn settle(&mut self, number: u64) {
        for low in self.page(number).settle() {
            *self.carried.entry(whole(number, low)).or_default() += 1;
        }
    }

    fn add_times(&mut self, nanos: u64, times: u32) {
        self.n += u64::from(times);
        if self.page(nanos >> PAGE_BITS).count(nanos as u16, times) {
            *self.carried.entry(nanos).or_default() += 1;
        }
    }

    /// Takes what another has.
    pub fn absorb(&mut self, mut other: Self) {
        // The smaller one is added to the larger one.
        if other.n > self.n {
            std::mem::swap(self, &mut other);
        }
        for (&value, &times) in &other.carried {
            *self.carried.entry(value).or_default() += times;
            self.n += times << 32;
        }
        let near = (0..).zip(other.near);
        for (number, page) in near.chain(other.far) {
            page.values.iter().for_each(|&low| self.add(whole(number, low)));
            let counts = (0..=u16::MAX).zip(page.counts.iter().flatten());
            for (low, &times) in counts.filter(|(_, times)| **times > 0) {
                self.add_times(whole(number, low), times);
            }
        }
    }

    /// How many durations there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.n
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.n == 0
    }

    fn pages(&self, mut each: impl FnMut(u64, &Page)) {
        (0..).zip(&self.near).for_each(|(number, page)| each(number, page));
        self.far.iter().for_each(|(&number, page)| each(number, page));
    }

    /// Durations in ascending order, each with how often it occurs; one may come several times.
    fn ascending(&mut self, mut each: impl FnMut(Nanos, u64)) {
        let mut waiting = Vec::new();
        self.pages(|number, page| {
            if page.counts.is_some() {
                waiting.push(number);
            }
        });
        waiting.into_iter().for_each(|number| self.settle(number));
        self.pages(|number, page| {
            page.each(|low, times| {
                let value = whole(number, low);
                let carried = if self.carried.is_empty() { None } else { self.carried.get(&value) };
                let times = u64::from(times) + (carried.copied().unwrap_or(0) << 32);
                if times > 0 {
                    each(Nanos(value), times);
                }
            });
        });
    }

    /// How they are distributed, in seconds: as a list of them is.
    #[must_use]
    pub fn distribution(&mut self) -> Distribution {
        let n = self.n;
        let places = [50.0, 90.0, 95.0, 99.0, 99.9].map(|p| place(n, p));
        let mut found = [[None; 2]; 5];
        let (mut sum, mut passed, mut max) = (0.0, 0, None);
        self.ascending(|value, times| {
            let seconds = value.as_secs_f64();
            // One by one: a product would be rounded otherwise than the sum of a list.
            (0..times).for_each(|_| sum += seconds);
            let here = passed..passed + times;
            for (found, place) in found.iter_mut().zip(&places) {
                let Some(Place { below, above, .. }) = place else { continue };
                if here.contains(below) {
                    found[0] = Some(seconds);
                }
                if here.contains(above) {
                    found[1] = Some(seconds);
                }
            }
            passed = here.end;
            max = Some(seconds);
        });
        let at = |i: usize| {
            let [below, above] = found[i];
            Some(places[i]?.between(below?, above?))
        };
        let mean = (n > 0).then(|| sum / n as f64);
        Distribution { max, ..Distribution::from_parts(n, mean, [at(0), at(1), at(2), at(3), at(4)]) }
    }
}

fn whole(page: u64, low: u16) -> u64 {
    (page << PAGE_BITS) | u64::from(low)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tally(values: &[u64]) -> Tally {
        let mut tally = Tally::default();
        values.iter().for_each(|&value| tally.add(value));
        tally
    }

    fn of_list(values: &[u64]) -> Distribution {
        Distribution::of(values.iter().map(|&value| Nanos(value).as_secs_f64()).collect())
    }

    proptest! {
        /// Also when it is put together of two, whichever is the larger.
        #[test]
        fn it_is_distributed_as_the_list_to_the_last_bit(
            values in prop::collection::vec(prop_oneof![0u64..40, 9_000_000u64..9_200_000, any::<u64>()], 0..400),
            cut: prop::sample::Index,
        ) {
            let expected = of_list(&values);
            prop_assert_eq!(&tally(&values).distribution(), &expected);
            let (one, two) = values.split_at(cut.index(values.len() + 1));
            let mut both = tally(one);
            both.absorb(tally(two));
            prop_assert_eq!(&both.distribution(), &expected);
            prop_assert_eq!((both.len(), both.is_empty()), (values.len() as u64, values.is_empty()));
        }
    }

    #[test]
    fn a_page_that_fills_counts() {
        let values: Vec<u64> = (0..3 * FEW as u64).map(|i| i * 7919 % 50_000 + (1 << 33) * (i % 2)).collect();
        let mut all = tally(&values);
        assert!(all.near[0].counts.is_some());
        assert_eq!(all.distribution(), of_list(&values));
        let (one, two) = values.split_at(FEW);
        let mut both = tally(two);
        both.absorb(tally(one));
        assert_eq!(both.distribution(), of_list(&values));
    }

    #[test]
    fn a_counter_that_runs_over_is_carried() {
        let mut tally = tally(&[5]);
        tally.add_times(5, u32::MAX);
        tally.add_times(6, 3);
        // Counted when it is asked for.
        assert_eq!(tally.near[0].values, [5]);
        let times = |tally: &mut Tally| {
            let mut times = Vec::new();
            tally.ascending(|value, n| times.push((value.0, n)));
            times
        };
        assert_eq!((times(&mut tally), tally.len()), (vec![(5, 1 << 32), (6, 3)], (1 << 32) + 3));
        let mut twice = tally.clone();
        twice.absorb(tally);
        assert_eq!((times(&mut twice), twice.len()), (vec![(5, 2 << 32), (6, 6)], (2 << 32) + 6));
    }
}
