//! Leaving out points without leaving out extremes.
//!
//! A page cannot hold a million points, and a chart that dropped the one request that took a minute would lie. So the time
//! is cut into stretches, and of each the smallest and the largest stay. It must never make up a point, or move one.

/// Of a series in the order of time at most about `most` points: all where they are not more, else the smallest and the
/// largest of each of `most / 2` stretches of equal length. Values are finite.
pub(super) fn series(points: Vec<(f64, f64)>, most: usize) -> Vec<(f64, f64)> {
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return points };
    if points.len() <= most {
        return points;
    }
    let (from, length) = (first.0, last.0 - first.0);
    let stretches = (most / 2).max(1);
    let mut kept: Vec<Option<[(usize, f64); 2]>> = vec![None; stretches];
    for (i, (at, value)) in points.iter().enumerate() {
        let kept = &mut kept[stretch(at - from, length, stretches)];
        let [low, high] = kept.get_or_insert([(i, *value); 2]);
        if *value < low.1 {
            *low = (i, *value);
        }
        if *value > high.1 {
            *high = (i, *value);
        }
    }
    let mut indices: Vec<usize> = kept.into_iter().flatten().flatten().map(|(i, _)| i).collect();
    indices.sort_unstable();
    indices.dedup();
    indices.into_iter().map(|i| points[i]).collect()
}

/// In which of so many stretches of `length` something lies that is `at` from its beginning; what is beyond belongs to the
/// last.
pub(super) fn stretch(at: f64, length: f64, stretches: usize) -> usize {
    if length <= 0.0 {
        return 0;
    }
    ((at / length * stretches as f64).max(0.0) as usize).min(stretches - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn few_points_all_stay() {
        let points: Vec<(f64, f64)> = (0..10).map(|i| (f64::from(i), f64::from(i))).collect();
        assert_eq!(series(points.clone(), 10), points);
        assert_eq!(series(Vec::new(), 10), []);
    }

    proptest! {
        #[test]
        fn what_stays_is_bounded_in_order_and_has_the_extremes(
            values in prop::collection::vec(-1e9..1e9f64, 1..400),
            most in 2..100usize,
        ) {
            let points: Vec<(f64, f64)> = values.iter().enumerate().map(|(i, v)| (i as f64, *v)).collect();
            let kept = series(points.clone(), most);
            prop_assert!(kept.len() <= most.max(2));
            prop_assert!(kept.is_sorted_by(|a, b| a.0 < b.0));
            prop_assert!(kept.iter().all(|p| points.contains(p)));
            let ends = |p: &[(f64, f64)]| {
                let values = p.iter().map(|(_, v)| *v);
                (values.clone().fold(f64::MAX, f64::min), values.fold(f64::MIN, f64::max))
            };
            prop_assert_eq!(ends(&kept), ends(&points));
        }
    }
}
