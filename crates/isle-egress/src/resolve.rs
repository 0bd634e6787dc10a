//! From a name to addresses. The gate asks the system it runs on, exactly as every other program there
//! does, so that `/etc/hosts`, split DNS and the like hold; a fixed table can stand before it. Names below
//! `localhost` are this machine, whatever anybody says: nobody outside is asked about them.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::address::{Class, classify};
use crate::host::Name;

/// How long a name may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How many names are asked for at once: each takes a thread of the runtime while it waits.
const AT_ONCE: usize = 64;
/// How many addresses of one name are looked at.
const MOST_ADDRESSES: usize = 16;

/// Names with fixed addresses.
pub type Table = HashMap<Name, Vec<IpAddr>>;

/// Resolves names.
#[derive(Debug)]
pub struct Resolver {
    table: Table,
    turns: Semaphore,
}

impl Default for Resolver {
    fn default() -> Self {
        Self::new(Table::new())
    }
}

impl Resolver {
    /// Names of the table have its addresses; all others are asked of the system.
    #[must_use]
    pub fn new(table: Table) -> Self {
        Self { table, turns: Semaphore::new(AT_ONCE) }
    }

    /// The addresses of a name that are not public: those that have to be granted, too. None when the name
    /// has none, or is not known now.
    pub async fn inside(&self, name: &Name) -> Vec<IpAddr> {
        let mut addresses = self.resolve(name).await.unwrap_or_default();
        addresses.retain(|&address| classify(address) != Class::Public);
        addresses
    }

    /// The addresses of a name.
    pub(crate) async fn resolve(&self, name: &Name) -> io::Result<Vec<IpAddr>> {
        if let Some(addresses) = self.table.get(name) {
            return Ok(addresses.clone());
        }
        let text = name.as_str();
        if text == "localhost" || text.ends_with(".localhost") {
            return Ok(vec![Ipv4Addr::LOCALHOST.into()]);
        }
        let lookup = async {
            let _turn = self.turns.acquire().await.map_err(io::Error::other)?;
            // With the dot at its end no search list of the host applies. The port means nothing here.
            let found = tokio::net::lookup_host((format!("{name}."), 1)).await?;
            let mut addresses = Vec::new();
            for socket_address in found.take(4 * MOST_ADDRESSES) {
                if !addresses.contains(&socket_address.ip()) && addresses.len() < MOST_ADDRESSES {
                    addresses.push(socket_address.ip());
                }
            }
            Ok(addresses)
        };
        tokio::time::timeout(PATIENCE, lookup).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn names_below_localhost_are_this_machine_and_the_table_comes_first() {
        let name = |text: &str| Name::parse(text).unwrap();
        let elsewhere: IpAddr = "127.0.0.9".parse().unwrap();
        let resolver = Resolver::new([(name("own.localhost"), vec![elsewhere])].into());
        for (text, address) in [
            ("own.localhost", elsewhere),
            ("a.localhost", Ipv4Addr::LOCALHOST.into()),
            ("b.a.localhost", Ipv4Addr::LOCALHOST.into()),
        ] {
            assert_eq!(resolver.resolve(&name(text)).await.unwrap(), [address], "{text}");
        }
    }
}
