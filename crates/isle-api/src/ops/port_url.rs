//! `port_url`: the address of a port of a sandbox, with a ticket to it.

use crate::{Effect, Method, Operation, Route, Toolset};
use isle_core::values::{SandboxName, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The operation `port_url`.
#[derive(Debug)]
pub struct PortUrl;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Sandbox name, default "default".
    pub sandbox: Option<SandboxName>,
    /// Port inside the sandbox.
    pub port: u16,
    /// How long the ticket is good, default 1h, at most 1d.
    pub lifetime: Option<Span>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    pub sandbox: SandboxName,
    pub port: u16,
    /// For a browser: sets a cookie and leads to the program. Holds the ticket.
    pub url: String,
    /// The same place without the ticket, for programs that send the header.
    pub base_url: String,
    /// Where the listener is, for programs that cannot look up names below the domain.
    pub address: String,
    /// Send it in the header.
    pub ticket: String,
    /// The name of the header.
    pub header: &'static str,
    pub expires_at: String,
    /// Whether something listens on the port now.
    pub listening: bool,
}

impl Operation for PortUrl {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "port_url";
    const TITLE: &'static str = "Get the URL of a port";
    const DESCRIPTION: &'static str = "Get a URL and a short-lived ticket for a port of a sandbox. Each port is an origin of its own; the ticket opens nothing else.";
    const ROUTE: Route = Route { method: Method::Post, path: "/sandboxes/{sandbox}/ports/{port}/url" };
    // A ticket is a credential, and credentials do not go to models.
    const TOOLSET: Toolset = Toolset::None;
    const EFFECT: Effect = Effect::Changes;
}
