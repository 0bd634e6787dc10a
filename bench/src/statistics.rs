//! Many measurements as two numbers.

/// Measurements of one thing, in one unit.
#[derive(Debug, Default, Clone)]
pub(crate) struct Samples {
    values: Vec<f64>,
}

impl Samples {
    pub(crate) fn push(&mut self, value: f64) {
        self.values.push(value);
    }

    pub(crate) fn count(&self) -> usize {
        self.values.len()
    }

    pub(crate) fn median(&self) -> f64 {
        self.quantile(50)
    }

    pub(crate) fn p95(&self) -> f64 {
        self.quantile(95)
    }

    /// The smallest value that at least `percent` of all values do not exceed.
    fn quantile(&self, percent: usize) -> f64 {
        let mut sorted = self.values.clone();
        sorted.sort_by(f64::total_cmp);
        let rank = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
        sorted.get(rank).copied().unwrap_or(f64::NAN)
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        Self { values: values.into_iter().collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_a_value_that_was_measured() {
        let samples: Samples = [9.0, 1.0, 5.0].into_iter().collect();
        assert!((samples.median() - 5.0).abs() < f64::EPSILON);
    }

    #[test]
    fn one_in_twenty_is_above_the_p95() {
        let samples: Samples = (1..=100).map(f64::from).collect();
        assert!((samples.p95() - 95.0).abs() < f64::EPSILON);
    }

    #[test]
    fn nothing_measured_is_not_a_number() {
        assert!(Samples::default().median().is_nan());
    }
}
