//! The real clock: several processes on one time line.

use crate::harness::{Fake, now_ns};

#[test]
fn copies_with_one_zero_are_on_one_time_line() {
    // Zero is an hour ago, and the counter has a step each microsecond of a growing power.
    let t0 = now_ns() - 3_600_000_000_000;
    let scenario = format!(
        r#"{{"t0_ns": {t0}, "gpus": [{{"power_w": [[0, 0], [7200, 700]], "energy": {{"period_s": 1e-6}}}}]}}"#
    );
    let fakes = [Fake::new(&scenario), Fake::new(&scenario)];
    let opened = fakes.each_ref().map(Fake::open);
    assert_eq!(fakes.each_ref().map(|fake| fake.control.t0_ns()), [Some(t0); 2]);
    let energy = |copy: usize| {
        let gpu = opened[copy].device_by_index(0).expect("a GPU");
        gpu.total_energy_consumption().expect("energy")
    };
    let joules = |us: i64| fakes[1].control.true_joules(0, 0, us);
    let read: Vec<(i64, u64)> = (0..100).map(|turn| ((now_ns() - t0) / 1000, energy(turn % 2))).collect();
    let after = (now_ns() - t0) / 1000;
    assert!(read.windows(2).all(|pair| pair[0].1 <= pair[1].1), "the copies disagree on the time: {read:?}");
    for ((before, mj), after) in read.iter().zip(read.iter().skip(1).map(|next| next.0).chain([after])) {
        let counted = *mj as f64 / 1000.0 - 1_000_000.0;
        assert!(joules(before - 1) - 0.001 <= counted && counted <= joules(after + 1), "{counted} J");
    }
}

#[test]
fn a_real_clock_begins_when_the_scenario_does_and_cannot_be_moved() {
    let before = now_ns();
    let fake = Fake::new("{}");
    let t0 = fake.control.t0_ns().expect("a zero");
    assert!((before..=now_ns()).contains(&t0));
    assert!(!fake.control.advance_us(1));
}
