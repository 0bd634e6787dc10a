//! Sandboxes of one family by name: `NAME.isle` is the sandbox NAME, for those of its own tree, on the ports
//! that the policy of the tree's root names. It is decided here, at each look-up and each connection, and
//! the connection is made by the other sandbox's own agent: no packet ever goes from one to the other.

use std::sync::{Arc, Weak};
use std::time::Instant;

use isle_egress::{Denial, Fate, Gate, Inside, Name, Outcome, Target};

use super::reach::{Place, has_ports};
use crate::engine::Inner;
use crate::sandbox::{Sandbox, SandboxState};

/// How the names of sandboxes end.
const ENDING: &str = ".isle";
/// Said of a sandbox of the family that nobody reaches.
const NO_PORTS: &str = "it is of tier process, where nothing can listen";

/// The name by which a family knows a sandbox.
pub(crate) fn peer_name(sandbox: &Sandbox) -> String {
    format!("{}{ENDING}", sandbox.name.as_str().to_ascii_lowercase())
}

/// What the gate of a sandbox knows of its family.
pub(super) struct Peering {
    engine: Weak<Inner>,
    sandbox: Weak<Sandbox>,
}

impl Peering {
    pub(super) fn of(engine: &Arc<Inner>, sandbox: &Arc<Sandbox>) -> Self {
        Self { engine: Arc::downgrade(engine), sandbox: Arc::downgrade(sandbox) }
    }

    /// The ports of a sandbox by its name, or a denial; `None` for names that are no sandbox's.
    pub(super) fn look_up(&self, gate: &Gate, name: &str) -> Option<Result<Vec<u16>, Denial>> {
        let name = named(name)?;
        Some(self.find(&name).map(|(_, _, ports)| ports).map_err(|why| gate.deny_peer(name, why)))
    }

    /// Whether a port of a sandbox may be connected to, or a denial; `None` for hosts that are no sandbox.
    pub(super) fn may_connect(&self, gate: &Gate, host: &str, port: u16) -> Option<Result<(), Denial>> {
        let name = named(host)?;
        let found = self.find_on(&name, port).map(drop);
        Some(found.map_err(|why| gate.deny_peer(format!("{name}:{port}"), why)))
    }

    /// Carries a connection to another sandbox; `None` for hosts that are no sandbox.
    pub(super) async fn serve(
        &self,
        gate: &Gate,
        host: &str,
        port: u16,
        inside: &mut Inside,
    ) -> Option<Outcome> {
        let name = named(host)?;
        let began = Instant::now();
        let target = format!("{name}:{port}");
        let (engine, peer) = match self.find_on(&name, port) {
            Ok(found) => found,
            Err(why) => {
                let outcome = Outcome::Denied(gate.deny_peer(target, why));
                inside.turn_away(&outcome).await;
                return Some(outcome);
            }
        };
        let all = Arc::clone(&engine.forwards.peers);
        drop(engine);
        let connected = match Place::take(&peer.network.peers, &all) {
            Some(place) => place.dial(&peer, port).await.ok().flatten(),
            None => None,
        };
        drop(peer);
        let outcome = match connected {
            None => Outcome::Failed("nothing listens there, or too many are connected".into()),
            Some(mut stream) => {
                let carried = async {
                    let target = Target::parse(&target, None).map_err(std::io::Error::other)?;
                    inside.open_way(&target).await?;
                    tokio::io::copy_bidirectional(inside, &mut stream).await
                };
                match carried.await {
                    Ok((sent, received)) => {
                        gate.note_peer(target, began.elapsed(), Fate::Closed { sent, received });
                        return Some(Outcome::Closed);
                    }
                    Err(error) => Outcome::Failed(error.to_string()),
                }
            }
        };
        if let Outcome::Failed(why) = &outcome {
            gate.note_peer(target, began.elapsed(), Fate::Failed(why.clone()));
        }
        inside.turn_away(&outcome).await;
        Some(outcome)
    }

    /// A sandbox of the family by its name, if that port of it may be reached.
    fn find_on(&self, name: &str, port: u16) -> Result<(Arc<Inner>, Arc<Sandbox>), Option<&'static str>> {
        let (engine, peer, ports) = self.find(name)?;
        if ports.contains(&port) { Ok((engine, peer)) } else { Err(None) }
    }

    /// A sandbox of the family by its name, and the ports that may be reached; or why it is not, where that
    /// is not a matter of policy.
    fn find(&self, name: &str) -> Result<Found, Option<&'static str>> {
        let (engine, sandbox) = self.engine.upgrade().zip(self.sandbox.upgrade()).ok_or(None)?;
        let ports = engine.peer_ports(&sandbox);
        let mut same = engine.relatives(&sandbox).into_iter().filter(|peer| peer_name(peer) == name);
        // Names of sandboxes may differ by case alone, and names of hosts may not.
        match (same.next(), same.next()) {
            (Some(peer), None) if has_ports(&peer).is_err() => Err(Some(NO_PORTS)),
            (Some(peer), None) => Ok((engine, peer, ports)),
            _ => Err(None),
        }
    }
}

/// Another sandbox, whose engine it is, and the ports of it that may be reached.
type Found = (Arc<Inner>, Arc<Sandbox>, Vec<u16>);

/// Whether a host is the name of a sandbox.
pub(super) fn is_peer(host: &str) -> bool {
    named(host).is_some()
}

/// The name of a sandbox as hosts have it; `None` for other names.
fn named(host: &str) -> Option<String> {
    let name = Name::parse(host).ok()?;
    name.as_str().ends_with(ENDING).then(|| name.as_str().to_owned())
}

impl Inner {
    /// Ports on which a sandbox reaches others of its family; none unless the policy of its root says so.
    pub(crate) fn peer_ports(&self, sandbox: &Sandbox) -> Vec<u16> {
        let policy = self.config.spawn_policies.of(&sandbox.root().name);
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
        let mut family = self.family(&root.id);
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
