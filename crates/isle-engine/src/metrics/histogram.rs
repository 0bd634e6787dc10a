//! Durations, counted by range.

use std::time::Duration;

use super::Bucket;

/// Upper bounds in seconds, ascending.
pub(super) type Buckets = &'static [f64];

/// How often a duration was in which range.
#[derive(Debug)]
pub(super) struct Histogram {
    bounds: Buckets,
    /// One more than there are bounds: what was above all of them.
    counts: Vec<u64>,
    sum: Duration,
}

impl Histogram {
    pub(super) fn new(bounds: Buckets) -> Self {
        Self { bounds, counts: vec![0; bounds.len() + 1], sum: Duration::ZERO }
    }

    pub(super) fn add(&mut self, took: Duration) {
        let seconds = took.as_secs_f64();
        let range = self.bounds.partition_point(|bound| *bound < seconds);
        self.counts[range] += 1;
        self.sum += took;
    }

    pub(super) fn sum(&self) -> f64 {
        self.sum.as_secs_f64()
    }

    pub(super) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Each bound, and how many were not above it.
    pub(super) fn cumulative(&self) -> Vec<Bucket> {
        let mut below = 0;
        let each = self.bounds.iter().zip(&self.counts);
        each.map(|(bound, count)| {
            below += count;
            Bucket { up_to: *bound, count: below }
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_counts_in_its_range_and_all_above() {
        let mut histogram = Histogram::new(&[0.1, 1.0]);
        for millis in [0, 100, 101, 5000] {
            histogram.add(Duration::from_millis(millis));
        }
        let of = |up_to: f64, count: u64| Bucket { up_to, count };
        assert_eq!(histogram.cumulative(), [of(0.1, 2), of(1.0, 3)]);
        assert_eq!(histogram.count(), 4);
        assert!((histogram.sum() - 5.201).abs() < 1e-9);
    }
}
