//! Student's t: the quantile by which an interval's half width is a multiple of its standard error.

/// The `p` quantile (0.5 to 1, exclusive) of Student's t with `df` degrees of freedom, at least 1.
///
/// The distribution function for whole degrees of freedom is a finite sum (Abramowitz and Stegun, Handbook of
/// Mathematical Functions, 26.7.3 and 26.7.4); it is inverted by bisection, to the last few bits.
#[must_use]
pub fn t_quantile(p: f64, df: u32) -> f64 {
    let inside = 2.0 * p - 1.0;
    let mut high = 1.0;
    while central_probability(high, df) < inside && high < 1e12 {
        high *= 2.0;
    }
    let mut low = 0.0;
    // 60 halvings of an interval that is at most twice its upper end leave less than a rounding error.
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if central_probability(middle, df) < inside {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high)
}

/// P(|T| < t), A(t|ν) in the handbook.
fn central_probability(t: f64, df: u32) -> f64 {
    let theta = libm::atan(t / f64::from(df).sqrt());
    let (sin, cos) = (libm::sin(theta), libm::cos(theta));
    let square = cos * cos;
    // Odd: cos θ + 2/3 cos³ θ + 2·4/(3·5) cos⁵ θ + …; even: 1 + 1/2 cos² θ + 1·3/(2·4) cos⁴ θ + …; both up to the
    // power ν − 2, and in both the factor of a power j comes from the one before by (j − 1)/j.
    let odd = df % 2 == 1;
    let (mut power, mut term) = if odd { (1, cos) } else { (0, 1.0) };
    let mut sum = 0.0;
    while power + 2 <= df {
        sum += term;
        power += 2;
        term *= f64::from(power - 1) / f64::from(power) * square;
    }
    if odd { std::f64::consts::FRAC_2_PI * (theta + sin * sum) } else { sin * sum }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the tables in print (Abramowitz and Stegun, table 26.10) and, to six digits, as every statistics package
    /// has them.
    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (p, df, expected) in [
            (0.975, 1, 12.706_205),
            (0.975, 2, 4.302_653),
            (0.975, 5, 2.570_582),
            (0.975, 9, 2.262_157),
            (0.975, 10, 2.228_139),
            (0.975, 19, 2.093_024),
            (0.975, 29, 2.045_230),
            (0.975, 120, 1.979_930),
            (0.995, 9, 3.249_836),
            (0.95, 4, 2.131_847),
            (0.975, 1_000_000, 1.959_966),
        ] {
            let t = t_quantile(p, df);
            assert!((t - expected).abs() < 1e-6, "t({p}, {df}) = {t}, not {expected}");
        }
    }
}
