//! Arguments of the commands about the network of a sandbox.

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct AllowArguments {
    /// The sandbox
    pub(crate) name: String,
    /// Hosts, such as example.com:443, *.example.com or 10.0.0.5:5432; /tcp, /tls or /http may follow;
    /// or pip, npm, apt, cargo for what these use on this host
    #[arg(required = true, value_name = "HOST[:PORT]")]
    pub(crate) hosts: Vec<String>,
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
    /// The sandbox
    pub(crate) name: String,
    /// Grants as `isle grants` shows them
    #[arg(required = true, value_name = "GRANT")]
    pub(crate) hosts: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct GrantsArguments {
    /// The sandbox
    pub(crate) name: String,
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
