//! The text that Prometheus reads.

use std::fmt::Write;

use super::{Bucket, Metric, MetricType, Sample};

/// Its content type.
pub const TEXT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Metrics as text.
#[must_use]
pub fn text(metrics: &[Metric]) -> String {
    let mut out = String::with_capacity(16 * 1024);
    for metric in metrics {
        let kind = match metric.kind {
            MetricType::Counter => "counter",
            MetricType::Gauge => "gauge",
            MetricType::Histogram => "histogram",
        };
        // Writing to a string cannot fail.
        writeln!(out, "# HELP {} {}\n# TYPE {} {kind}", metric.name, metric.help, metric.name).ok();
        for sample in &metric.samples {
            match metric.kind {
                MetricType::Counter | MetricType::Gauge => {
                    line(&mut out, metric.name, "", sample, None, sample.value);
                }
                MetricType::Histogram => histogram(&mut out, metric.name, sample),
            }
        }
    }
    out
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below what a float counts exactly")]
fn histogram(out: &mut String, name: &str, sample: &Sample) {
    let count = sample.count.unwrap_or(0) as f64;
    for Bucket { up_to, count } in &sample.buckets {
        line(out, name, "_bucket", sample, Some(&up_to.to_string()), *count as f64);
    }
    line(out, name, "_bucket", sample, Some("+Inf"), count);
    line(out, name, "_sum", sample, None, sample.value);
    line(out, name, "_count", sample, None, count);
}

fn line(out: &mut String, name: &str, ending: &str, sample: &Sample, bound: Option<&str>, value: f64) {
    out.push_str(name);
    out.push_str(ending);
    let labels = sample.labels.iter().map(|(name, value)| (*name, value.as_str()));
    let mut first = true;
    for (name, value) in labels.chain(bound.map(|bound| ("le", bound))) {
        out.push(if std::mem::take(&mut first) { '{' } else { ',' });
        write!(out, "{name}=\"{}\"", escaped(value)).ok();
    }
    if !first {
        out.push('}');
    }
    writeln!(out, " {value}").ok();
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_written_as_prometheus_reads_them() {
        let plain = Sample {
            labels: [("state", "a\"b\\c\nd".to_owned())].into(),
            value: 3.0,
            count: None,
            buckets: Vec::new(),
        };
        let times = Sample {
            labels: [("tier", "container".to_owned())].into(),
            value: 1.5,
            count: Some(3),
            buckets: vec![Bucket { up_to: 0.1, count: 1 }, Bucket { up_to: 1.0, count: 2 }],
        };
        let metrics = [
            Metric { name: "isle_a_total", kind: MetricType::Counter, help: "Words.", samples: vec![plain] },
            Metric { name: "isle_b", kind: MetricType::Histogram, help: "More.", samples: vec![times] },
        ];
        let expected = r#"# HELP isle_a_total Words.
# TYPE isle_a_total counter
isle_a_total{state="a\"b\\c\nd"} 3
# HELP isle_b More.
# TYPE isle_b histogram
isle_b_bucket{tier="container",le="0.1"} 1
isle_b_bucket{tier="container",le="1"} 2
isle_b_bucket{tier="container",le="+Inf"} 3
isle_b_sum{tier="container"} 1.5
isle_b_count{tier="container"} 3
"#;
        assert_eq!(text(&metrics), expected);
    }
}
