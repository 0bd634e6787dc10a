//! `runtimes`: what this host can isolate with, and what it lacks.

use crate::{Effect, Method, Operation, Route, Toolset};
use isle_core::backend::{Fact, Offer};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The operation `runtimes`.
#[derive(Debug)]
pub struct Runtimes;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    /// Every tier of every backend, with its capabilities and what it would enforce.
    pub tiers: Vec<Offer>,
    /// What was found on this host, by section; told to the operator.
    pub facts: BTreeMap<String, Vec<Fact>>,
}

impl Operation for Runtimes {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "runtimes";
    const TITLE: &'static str = "Tiers of this host";
    const DESCRIPTION: &'static str = "Which backends and tiers this host offers, what each can do and enforces, what is missing and how to fix it.";
    const ROUTE: Route = Route { method: Method::Get, path: "/runtimes" };
    const TOOLSET: Toolset = Toolset::None;
    const EFFECT: Effect = Effect::Reads;
}
