//! Arguments of the commands about the network of a sandbox.

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
#[command(after_help = super::examples::ALLOW)]
pub(crate) struct AllowArguments {
    /// Sandbox name; omitted with --all
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Hosts, such as example.com:443, *.example.com or 10.0.0.5:5432, optionally with /tcp, /tls or /http;
    /// 'https://example.com/v1/* GET,POST' for certain requests only; or pip, npm, apt, cargo for the
    /// registries these use on this host
    #[arg(required_unless_present = "all", value_name = "HOST[:PORT]")]
    pub(crate) hosts: Vec<String>,
    /// Grant to all current and future sandboxes of the namespace
    #[arg(long)]
    pub(crate) all: bool,
    /// Expire the grant after this time, such as 1h (default: until revoked)
    #[arg(long = "for", value_name = "DURATION")]
    pub(crate) lifetime: Option<String>,
    /// Maximum number of bytes in both directions, such as 100M
    #[arg(long, value_name = "SIZE")]
    pub(crate) total: Option<String>,
    /// Maximum bytes per second, such as 1M
    #[arg(long, value_name = "SIZE")]
    pub(crate) rate: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RevokeArguments {
    /// Sandbox name; omitted with --all
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Grants as printed by `isle grants`
    #[arg(required_unless_present = "all", value_name = "GRANT")]
    pub(crate) hosts: Vec<String>,
    /// Revoke grants of the whole namespace
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct GrantsArguments {
    /// Sandbox name; same as `isle grants list NAME`
    pub(crate) name: Option<String>,
    #[command(subcommand)]
    pub(crate) command: Option<GrantsCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GrantsCommand {
    /// List grants and pending requests of a sandbox, or of the namespace
    List {
        /// Sandbox name
        name: Option<String>,
    },
    /// Approve a request
    Approve(ApproveArguments),
    /// Deny a request; the same request is suppressed for a while
    Deny {
        /// Request id as printed by `isle grants list`
        request: String,
    },
    /// Revoke grants; same as `isle revoke`
    Revoke(RevokeArguments),
    /// Print new requests until interrupted
    Watch {
        /// Requests of all namespaces
        #[arg(long)]
        all: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ApproveArguments {
    /// Request id as printed by `isle grants list`
    pub(crate) request: String,
    /// Grant for one connection, the requesting run, the sandbox, or its namespace
    #[arg(long, value_name = "SCOPE", value_parser = ["once", "run", "sandbox", "namespace"])]
    pub(crate) scope: Option<String>,
    /// Expire the grant after this time, such as 1h
    #[arg(long = "for", value_name = "DURATION")]
    pub(crate) lifetime: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct NetArguments {
    /// Sandbox name
    pub(crate) name: String,
    /// Maximum number of entries to show, newest first
    #[arg(long, value_name = "COUNT", default_value_t = 50)]
    pub(crate) limit: usize,
}

#[derive(Debug, Args)]
#[command(after_help = super::examples::EXPOSE)]
pub(crate) struct ExposeArguments {
    /// Sandbox name
    pub(crate) name: String,
    /// Port inside the sandbox
    pub(crate) port: u16,
    /// Port on this host; 0 selects a free port (default: same as PORT)
    #[arg(long, value_name = "PORT")]
    pub(crate) host_port: Option<u16>,
    /// Wait up to this long until the port accepts connections, such as 10s
    #[arg(long, value_name = "DURATION")]
    pub(crate) wait: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct UnexposeArguments {
    /// Sandbox name
    pub(crate) name: String,
    /// Port inside the sandbox
    pub(crate) port: u16,
}

#[derive(Debug, Args)]
pub(crate) struct UrlArguments {
    /// Sandbox name
    pub(crate) name: String,
    /// Port inside the sandbox
    pub(crate) port: u16,
    /// Lifetime of the ticket, such as 10m (default: 1h)
    #[arg(long = "for", value_name = "DURATION")]
    pub(crate) lifetime: Option<String>,
    /// Wait up to this long until the port accepts connections, such as 10s
    #[arg(long, value_name = "DURATION")]
    pub(crate) wait: Option<String>,
}
