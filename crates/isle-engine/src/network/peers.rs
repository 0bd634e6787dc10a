//! Sandboxes of one family by name: `prod.work.isle` is the sandbox `work/prod`, and `prod.isle` the one that
//! the asker would mean by it, for those of its own tree, on the ports that the policy of the tree's root
//! names. It is decided here, at each look-up and each connection, and
//! the connection is made by the other sandbox's own agent: no packet ever goes from one to the other.

use std::sync::{Arc, Weak};
use std::time::Instant;

use isle_egress::{ConnectionResult, Denial, Gate, Name, Outcome, RunKey, SandboxStream, Target};

use super::Network;
use super::port_streams::{ConnectionSlot, has_ports};
use crate::sandbox::{Sandbox, SandboxState};
use isle_core::values::SandboxName;

/// How the names of sandboxes end.
const ENDING: &str = ".isle";
/// Said of a name that several sandboxes of the family have.
const SEVERAL: &str =
    "several sandboxes of the family are called so; write the whole name, such as prod.work.isle";
/// Said of a sandbox of the family that nobody reaches.
const NO_PORTS: &str = "it is of tier process, where nothing can listen";

/// The whole name by which a family knows a sandbox: as hosts are called, its own part first.
pub(crate) fn peer_name(sandbox: &Sandbox) -> String {
    let parts: Vec<&str> = sandbox.name.parts().rev().collect();
    format!("{}{ENDING}", parts.join(".").to_ascii_lowercase())
}

/// Whom a name means, of those who have it: the one of that whole name; else, by its own part, a child of the
/// asker, then a child of its parent, then whoever else is called so alone.
fn meant<'p>(
    asker: &SandboxName,
    name: &str,
    family: impl Iterator<Item = (&'p SandboxName, String)> + Clone,
) -> Result<Option<&'p SandboxName>, &'static str> {
    let short = |peer: &SandboxName| format!("{}{ENDING}", peer.last_part().to_ascii_lowercase()) == name;
    let parent = asker.parent();
    let whole = family.clone().filter(|(_, whole)| whole == name).map(|(peer, _)| peer);
    let short = family.map(|(peer, _)| peer).filter(|peer| short(peer));
    let own = short.clone().filter(|peer| peer.parent().as_ref() == Some(asker));
    let beside = short.clone().filter(|peer| parent.is_some() && peer.parent() == parent);
    let closest: [Vec<&SandboxName>; 4] = [whole.collect(), own.collect(), beside.collect(), short.collect()];
    match closest.into_iter().find(|found| !found.is_empty()).as_deref() {
        None => Ok(None),
        Some([peer]) => Ok(Some(peer)),
        // Names of sandboxes may differ by case alone, and names of hosts may not.
        Some(_) => Err(SEVERAL),
    }
}

/// What the gate of a sandbox knows of its family.
pub(super) struct Peering {
    network: Weak<Network>,
    sandbox: Weak<Sandbox>,
}

impl Peering {
    pub(super) fn of(network: &Arc<Network>, sandbox: &Arc<Sandbox>) -> Self {
        Self { network: Arc::downgrade(network), sandbox: Arc::downgrade(sandbox) }
    }

    /// The ports of a sandbox by its name, or a denial; `None` for names that are no sandbox's.
    pub(super) fn look_up(
        &self,
        gate: &Gate,
        name: &str,
        by: Option<&RunKey>,
    ) -> Option<Result<Vec<u16>, Denial>> {
        let name = named(name)?;
        let found = self.find(&name).map(|(_, _, ports)| ports);
        Some(found.map_err(|why| gate.deny_peer(name, why, by.cloned())))
    }

    /// Whether a port of a sandbox may be connected to, or a denial; `None` for hosts that are no sandbox.
    pub(super) fn may_connect(
        &self,
        gate: &Gate,
        host: &str,
        port: u16,
        by: Option<&RunKey>,
    ) -> Option<Result<(), Denial>> {
        let name = named(host)?;
        let found = self.find_on(&name, port).map(drop);
        Some(found.map_err(|why| gate.deny_peer(format!("{name}:{port}"), why, by.cloned())))
    }

    /// Carries a connection to another sandbox; `None` for hosts that are no sandbox.
    pub(super) async fn serve(
        &self,
        gate: &Gate,
        host: &str,
        port: u16,
        by: Option<&RunKey>,
        inside: &mut SandboxStream,
    ) -> Option<Outcome> {
        let name = named(host)?;
        let began = Instant::now();
        let target = format!("{name}:{port}");
        let (network, peer) = match self.find_on(&name, port) {
            Ok(found) => found,
            Err(why) => {
                let outcome = Outcome::Denied(gate.deny_peer(target, why, by.cloned()));
                inside.reply_outcome(&outcome).await;
                return Some(outcome);
            }
        };
        let all = Arc::clone(network.ports.peer_counts());
        drop(network);
        let connected = match ConnectionSlot::take(&peer.network.peers, &all) {
            Some(slot) => slot.dial(&peer, port).await.ok().flatten(),
            None => None,
        };
        drop(peer);
        let outcome = match connected {
            None => Outcome::Failed("nothing listens there, or too many are connected".into()),
            Some(mut stream) => {
                let carried = async {
                    let target = Target::parse(&target, None).map_err(std::io::Error::other)?;
                    inside.confirm_forwarded(&target).await?;
                    tokio::io::copy_bidirectional(inside, &mut stream).await
                };
                match carried.await {
                    Ok((sent, received)) => {
                        gate.note_peer(target, began.elapsed(), ConnectionResult::Closed { sent, received });
                        return Some(Outcome::Closed);
                    }
                    Err(error) => Outcome::Failed(error.to_string()),
                }
            }
        };
        if let Outcome::Failed(why) = &outcome {
            gate.note_peer(target, began.elapsed(), ConnectionResult::Failed(why.clone()));
        }
        inside.reply_outcome(&outcome).await;
        Some(outcome)
    }

    /// A sandbox of the family by its name, if that port of it may be reached.
    fn find_on(&self, name: &str, port: u16) -> Result<(Arc<Network>, Arc<Sandbox>), Option<&'static str>> {
        let (network, peer, ports) = self.find(name)?;
        if ports.contains(&port) { Ok((network, peer)) } else { Err(None) }
    }

    /// A sandbox of the family by its name, and the ports that may be reached; or why it is not, where that
    /// is not a matter of policy.
    fn find(&self, name: &str) -> Result<Found, Option<&'static str>> {
        let (network, sandbox) = self.network.upgrade().zip(self.sandbox.upgrade()).ok_or(None)?;
        let ports = network.peer_ports(&sandbox);
        let relatives = network.relatives(&sandbox);
        let family = relatives.iter().map(|peer| (&peer.name, peer_name(peer)));
        let meant = meant(&sandbox.name, name, family)?;
        let peer = meant.and_then(|meant| relatives.iter().find(|peer| peer.name == *meant)).ok_or(None)?;
        match has_ports(peer) {
            Err(_) => Err(Some(NO_PORTS)),
            Ok(()) => Ok((Arc::clone(&network), Arc::clone(peer), ports)),
        }
    }
}

/// Another sandbox, the network it is found by, and the ports of it that may be reached.
type Found = (Arc<Network>, Arc<Sandbox>, Vec<u16>);

/// Whether a host is the name of a sandbox.
pub(super) fn is_peer(host: &str) -> bool {
    named(host).is_some()
}

/// The name of a sandbox as hosts have it; `None` for other names.
fn named(host: &str) -> Option<String> {
    let name = Name::parse(host).ok()?;
    name.as_str().ends_with(ENDING).then(|| name.as_str().to_owned())
}

impl Network {
    /// Ports on which a sandbox reaches others of its family; none unless the policy of its root says so.
    pub(crate) fn peer_ports(&self, sandbox: &Sandbox) -> Vec<u16> {
        let policy = self.config.spawn_policies.of(&sandbox.root());
        policy.map(|policy| policy.peer_ports.clone()).unwrap_or_default()
    }

    /// The other sandboxes of a family that can be reached.
    pub(crate) fn peers(&self, sandbox: &Sandbox) -> Vec<Arc<Sandbox>> {
        let mut peers = self.relatives(sandbox);
        peers.retain(|one| has_ports(one).is_ok());
        peers
    }

    /// The other sandboxes of a family where these may reach each other. A sandbox whose root was made anew
    /// has none: it ends with the old one.
    fn relatives(&self, sandbox: &Sandbox) -> Vec<Arc<Sandbox>> {
        if self.peer_ports(sandbox).is_empty() {
            return Vec::new();
        }
        let Some(root) = self.fleet.get(&sandbox.root()) else { return Vec::new() };
        let mut family = self.fleet.family(&root.id);
        family.insert(0, root);
        if !family.iter().any(|one| one.id == sandbox.id) {
            return Vec::new();
        }
        family.retain(|one| one.id != sandbox.id && one.state() == SandboxState::Running);
        family
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_means_the_closest_of_the_family_or_nobody() {
        let everybody: Vec<SandboxName> =
            ["work", "work/a", "work/b", "work/work", "work/a/b", "work/a/x", "work/b/x", "work/b/X"]
                .map(|name| name.parse().unwrap())
                .into();
        let ask = |asker: &str, name: &str| {
            let asker: SandboxName = asker.parse().unwrap();
            let whole = |peer: &SandboxName| {
                let parts: Vec<&str> = peer.parts().rev().collect();
                format!("{}.isle", parts.join(".").to_ascii_lowercase())
            };
            let others = everybody.iter().filter(|peer| **peer != asker).map(|peer| (peer, whole(peer)));
            meant(&asker, name, others).map(|peer| peer.map_or("", SandboxName::as_str).to_owned())
        };
        for (asker, name, peer) in [
            ("work", "a.isle", "work/a"),
            ("work", "b.isle", "work/b"),
            ("work/a", "b.isle", "work/a/b"),
            ("work/b", "b.isle", "work/a/b"),
            ("work/a", "b.work.isle", "work/b"),
            ("work/a/x", "b.isle", "work/a/b"),
            ("work/a", "x.isle", "work/a/x"),
            ("work/a", "work.isle", "work"),
            ("work", "work.isle", "work/work"),
            ("work/a", "work.work.isle", "work/work"),
            ("work/a", "nobody.isle", ""),
            ("work/a", "x.a.work.isle", "work/a/x"),
        ] {
            assert_eq!(ask(asker, name), Ok(peer.to_owned()), "{asker}: {name}");
        }
        for (asker, name) in [("work", "x.isle"), ("work/b", "x.isle"), ("work", "x.b.work.isle")] {
            assert_eq!(ask(asker, name), Err(SEVERAL), "{asker}: {name}");
        }
    }

    #[test]
    fn names_of_sandboxes_are_read_as_names_of_hosts_are() {
        for (text, name) in [
            ("helper.isle", Some("helper.isle")),
            ("Helper.ISLE.", Some("helper.isle")),
            ("a.b_c.isle", Some("a.b_c.isle")),
            ("isle", None),
            (".isle", None),
            ("helper.isle.example.com", None),
            ("helperisle", None),
            ("evil\0.isle", None),
        ] {
            assert_eq!(named(text).as_deref(), name, "{text}");
        }
    }
}
