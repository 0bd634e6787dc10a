//! From a name to addresses. The gate asks the system it runs on, exactly as every other program there
//! does, so that `/etc/hosts`, split DNS and the like hold; a fixed table can stand before it. Names below
//! `localhost` are this machine, whatever anybody says: nobody outside is asked about them.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::address::{Class, classify};
use crate::host::Name;

/// How long a name may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How many names are asked for at once: each takes a thread of the runtime while it waits.
const AT_ONCE: usize = 64;
/// How many of them one sandbox may ask for at once: names whose servers are slow are its own problem.
const AT_ONCE_EACH: usize = 8;
/// How many addresses of one name are looked at.
const MOST_ADDRESSES: usize = 16;

/// Names with fixed addresses.
pub type Table = HashMap<Name, Vec<IpAddr>>;

/// Resolves names.
#[derive(Debug)]
pub struct Resolver {
    table: Table,
    turns: Arc<Semaphore>,
}

/// The turns of one sandbox.
#[derive(Debug, Clone)]
pub(crate) struct Turns(Arc<Semaphore>);

impl Default for Turns {
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
    /// Names of the table have its addresses; all others are asked of the system.
    #[must_use]
    pub fn new(table: Table) -> Self {
        Self { table, turns: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    /// The addresses of a name that are not public: those that have to be granted, too. None when the name
    /// has none, or is not known now.
    pub async fn inside(&self, name: &Name) -> Vec<IpAddr> {
        let mut addresses = self.resolve(name, &Turns::default()).await.unwrap_or_default();
        addresses.retain(|&address| classify(address) != Class::Public);
        addresses
    }

    /// The addresses of a name, asked for in one of the asker's turns.
    pub(crate) async fn resolve(&self, name: &Name, own: &Turns) -> io::Result<Vec<IpAddr>> {
        if let Some(addresses) = self.table.get(name) {
            return Ok(addresses.clone());
        }
        let text = name.as_str();
        if text == "localhost" || text.ends_with(".localhost") {
            return Ok(vec![Ipv4Addr::LOCALHOST.into()]);
        }
        let lookup = async {
            let own = Arc::clone(&own.0).acquire_owned().await.map_err(io::Error::other)?;
            let turn = Arc::clone(&self.turns).acquire_owned().await.map_err(io::Error::other)?;
            let question = format!("{name}.");
            let asking = tokio::task::spawn_blocking(move || {
                // The thread's, which goes on asking when nobody waits for it any more.
                let _turns = (own, turn);
                addresses_of(&question)
            });
            asking.await.map_err(io::Error::other)?
        };
        tokio::time::timeout(PATIENCE, lookup).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }
}

/// Asks the system. With the dot at its end no search list of the host applies to a name.
fn addresses_of(name: &str) -> io::Result<Vec<IpAddr>> {
    let mut addresses = Vec::new();
    // The port means nothing here.
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
            assert_eq!(resolver.resolve(&name(text), &Turns::default()).await.unwrap(), [address], "{text}");
        }
    }
}
