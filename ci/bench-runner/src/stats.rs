//! Medians, and confidence intervals of their ratios.

/// The median of the samples; 0 without samples.
pub(crate) fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// A ratio of medians with its 95 % confidence interval.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ratio {
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Ratio {
    /// The ratio of a single value.
    pub(crate) fn of_one(value: f64) -> Self {
        let (low, high) = (value, value);
        Self { value, low, high }
    }
}

/// `median(of) / median(to)`. The interval is a bootstrap: both sides are resampled with
/// replacement 2 000 times, always with the same random numbers.
pub(crate) fn ratio(of: &[f64], to: &[f64]) -> Ratio {
    let mut random = Random::new(0x9e37_79b9_7f4a_7c15);
    let mut draws: Vec<f64> = (0..2000)
        .map(|_| median(&random.draw(of)) / median(&random.draw(to)))
        .collect();
    draws.sort_by(f64::total_cmp);
    let at = |share: f64| draws[(share * (draws.len() - 1) as f64) as usize];
    Ratio {
        value: median(of) / median(to),
        low: at(0.025),
        high: at(0.975),
    }
}

/// xorshift64, which suffices for drawing samples.
pub(crate) struct Random(u64);

impl Random {
    /// Starts from a seed that is not 0.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn draw(&mut self, samples: &[f64]) -> Vec<f64> {
        (0..samples.len())
            .map(|_| samples[self.below(samples.len())])
            .collect()
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

#[test]
fn a_ratio_lies_within_its_interval() {
    assert_eq!(
        (median(&[]), median(&[3.0, 1.0, 2.0]), median(&[1.0, 2.0])),
        (0.0, 2.0, 1.5)
    );
    let of: Vec<f64> = (0..101).map(|n| 100.0 + f64::from(n % 10)).collect();
    let to: Vec<f64> = of.iter().map(|x| x * 2.0).collect();
    let ratio = ratio(&of, &to);
    assert_eq!(ratio.value, 0.5);
    assert!(
        ratio.low <= 0.5 && 0.5 <= ratio.high && ratio.high - ratio.low < 0.1,
        "{ratio:?}"
    );
}
