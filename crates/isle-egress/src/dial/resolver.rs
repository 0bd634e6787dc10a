//! Name resolution. The gate uses the system resolver, as every other program on the host does, so that
//! `/etc/hosts`, split DNS and the like apply; a fixed table takes precedence. `localhost` and names below it
//! are always this machine and are not looked up.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::policy::address_class::{AddressClass, classify};
use crate::policy::host::Name;

/// Timeout of one lookup.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);
/// Concurrent lookups: each blocks a thread of the runtime while it waits.
const AT_ONCE: usize = 64;
/// Concurrent lookups of one sandbox, so that slow DNS servers hold up only the sandbox that uses them.
const AT_ONCE_EACH: usize = 8;
/// Maximum number of addresses of one name.
const MOST_ADDRESSES: usize = 16;

/// Names with fixed addresses.
pub type Table = HashMap<Name, Vec<IpAddr>>;

/// Resolves names.
#[derive(Debug)]
pub struct Resolver {
    table: Table,
    lookup_slots: Arc<Semaphore>,
}

/// Limits the concurrent lookups of one sandbox.
#[derive(Debug, Clone)]
pub(crate) struct LookupSlots(Arc<Semaphore>);

impl Default for LookupSlots {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(AT_ONCE_EACH)))
    }
}

impl Default for Resolver {
    fn default() -> Self {
        Self::new(Table::new())
    }
}

impl Resolver {
    /// Names of the table have its addresses; all others are resolved by the system.
    #[must_use]
    pub fn new(table: Table) -> Self {
        Self { table, lookup_slots: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    /// The addresses of a name that are not public and have to be granted as addresses. Empty when there are
    /// none, or when the name cannot be resolved.
    pub async fn private_addresses(&self, name: &Name) -> Vec<IpAddr> {
        let mut addresses = self.resolve(name, &LookupSlots::default()).await.unwrap_or_default();
        addresses.retain(|&address| classify(address) != AddressClass::Public);
        addresses
    }

    /// Resolves a name, within the limit of the caller.
    pub(crate) async fn resolve(&self, name: &Name, own: &LookupSlots) -> io::Result<Vec<IpAddr>> {
        if let Some(addresses) = self.table.get(name) {
            return Ok(addresses.clone());
        }
        let text = name.as_str();
        if text == "localhost" || text.ends_with(".localhost") {
            return Ok(vec![Ipv4Addr::LOCALHOST.into()]);
        }
        let lookup = async {
            let own = Arc::clone(&own.0).acquire_owned().await.map_err(io::Error::other)?;
            let turn = Arc::clone(&self.lookup_slots).acquire_owned().await.map_err(io::Error::other)?;
            let question = format!("{name}.");
            let asking = tokio::task::spawn_blocking(move || {
                // Held by the thread, which continues after a timeout.
                let _turns = (own, turn);
                addresses_of(&question)
            });
            asking.await.map_err(io::Error::other)?
        };
        tokio::time::timeout(LOOKUP_TIMEOUT, lookup)
            .await
            .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }
}

/// Asks the system resolver. With a dot at the end, no search list applies to the name.
fn addresses_of(name: &str) -> io::Result<Vec<IpAddr>> {
    let mut addresses = Vec::new();
    // The port has no meaning here.
    for found in (name, 1).to_socket_addrs()?.take(4 * MOST_ADDRESSES) {
        if !addresses.contains(&found.ip()) && addresses.len() < MOST_ADDRESSES {
            addresses.push(found.ip());
        }
    }
    Ok(addresses)
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
            assert_eq!(
                resolver.resolve(&name(text), &LookupSlots::default()).await.unwrap(),
                [address],
                "{text}"
            );
        }
    }
}
