//! `stats`: what is counted and measured, the same facts that `/metrics` gives to Prometheus.

use crate::{Effect, Method, Operation, Route, Toolset};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a metric is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum MetricType {
    /// Only goes up, until the daemon is started anew.
    Counter,
    /// Goes up and down.
    Gauge,
    /// How often a value was in which range.
    Histogram,
}

/// One metric with all its values.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    #[serde(rename = "type")]
    pub kind: MetricType,
    /// In words.
    pub help: &'static str,
    /// One for each combination of labels there was.
    pub samples: Vec<Sample>,
}

/// One value of a metric.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct Sample {
    /// What it is about.
    pub labels: BTreeMap<&'static str, String>,
    /// The value; of a histogram, the sum of all that was measured.
    pub value: f64,
    /// Of a histogram: how often something was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Of a histogram: its ranges.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub buckets: Vec<Bucket>,
}

/// One range of a histogram, and all ranges below it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct Bucket {
    /// Its upper bound.
    pub up_to: f64,
    /// How often a value was not above it.
    pub count: u64,
}

/// The operation `stats`.
#[derive(Debug)]
pub struct Stats;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Only metrics whose names contain this, such as run.
    pub name: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    pub metrics: Vec<Metric>,
}

impl Operation for Stats {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "stats";
    const TITLE: &'static str = "Metrics";
    const DESCRIPTION: &'static str = "Counts and durations since the daemon started: runs by state, sandboxes, queue, denials, limits, the process itself.";
    const ROUTE: Route = Route { method: Method::Get, path: "/stats" };
    const TOOLSET: Toolset = Toolset::Admin;
    const EFFECT: Effect = Effect::Reads;
}
