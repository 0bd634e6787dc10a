//! Arguments of the commands about the network of a sandbox.

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub(crate) struct AllowArguments {
    /// The sandbox; with --all it is left out
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Hosts, such as example.com:443, *.example.com or 10.0.0.5:5432; /tcp, /tls or /http may follow;
    /// 'https://example.com/v1/* GET,POST' for some requests only; or pip, npm, apt, cargo for what these
    /// use on this host
    #[arg(required_unless_present = "all", value_name = "HOST[:PORT]")]
    pub(crate) hosts: Vec<String>,
    /// All sandboxes of the namespace, those that are made later included
    #[arg(long)]
    pub(crate) all: bool,
    /// How long, such as 1h; until it is taken back when left out
    #[arg(long = "for", value_name = "DURATION")]
    pub(crate) lifetime: Option<String>,
    /// Bytes in both directions, in all, such as 100M
    #[arg(long, value_name = "SIZE")]
    pub(crate) total: Option<String>,
    /// Bytes per second, such as 1M
    #[arg(long, value_name = "SIZE")]
    pub(crate) rate: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RevokeArguments {
    /// The sandbox; with --all it is left out
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Grants as `isle grants` shows them
    #[arg(required_unless_present = "all", value_name = "GRANT")]
    pub(crate) hosts: Vec<String>,
    /// What all sandboxes of the namespace were granted
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct GrantsArguments {
    /// The same as `isle grants list`
    pub(crate) name: Option<String>,
    #[command(subcommand)]
    pub(crate) command: Option<GrantsCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GrantsCommand {
    /// List what a sandbox may reach and asks for; without a name, what all of the namespace do
    List {
        /// The sandbox
        name: Option<String>,
    },
    /// Grant exactly what a request names
    Approve(ApproveArguments),
    /// Deny what a request names; for a while it is not asked for again
    Deny {
        /// The request, as `isle grants list` shows it
        request: String,
    },
    /// Take grants back, as `isle revoke`
    Revoke(RevokeArguments),
    /// Show requests as they are made, until interrupted
    Watch {
        /// Those of all namespaces
        #[arg(long)]
        all: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ApproveArguments {
    /// The request, as `isle grants list` shows it
    pub(crate) request: String,
    /// For what: once, the run that asked, the sandbox, or all of its namespace
    #[arg(long, value_name = "SCOPE", value_parser = ["once", "run", "sandbox", "namespace"])]
    pub(crate) scope: Option<String>,
    /// How long, such as 1h
    #[arg(long = "for", value_name = "DURATION")]
    pub(crate) lifetime: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct NetArguments {
    /// The sandbox
    pub(crate) name: String,
    /// Newest entries to show
    #[arg(long, value_name = "COUNT", default_value_t = 50)]
    pub(crate) limit: usize,
}

#[derive(Debug, Args)]
pub(crate) struct ExposeArguments {
    /// The sandbox
    pub(crate) name: String,
    /// Port inside the sandbox
    pub(crate) port: u16,
    /// Port of this host; 0 is any that is free, the same when left out
    #[arg(long, value_name = "PORT")]
    pub(crate) host_port: Option<u16>,
    /// Wait until something listens, at most this long, such as 10s
    #[arg(long, value_name = "DURATION")]
    pub(crate) wait: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct UnexposeArguments {
    /// The sandbox
    pub(crate) name: String,
    /// Port inside the sandbox
    pub(crate) port: u16,
}
