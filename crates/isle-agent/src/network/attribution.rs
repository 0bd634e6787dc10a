//! Which run a DNS query or a connection belongs to: found by its socket, and by the processes that have it
//! open. A socket that belongs to several runs, or to none that is known, is attributed to none, and then
//! has the grants of the whole sandbox. The number of checked descriptors is bounded, since programs choose
//! how many there are.

use std::fs;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::rc::Rc;

use isle_setup::threads;

use crate::processes::{self, uts_tag};
use crate::run::{Run, RunKind};
use crate::serve::Shared;

/// Maximum number of descriptors that are checked for one socket.
const MAX_CHECKED: usize = 8192;

/// The protocol of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Tcp,
    Udp,
}

/// The run of the program whose socket has this address.
pub(super) fn of_peer(agent: &Shared, protocol: Protocol, peer: SocketAddr) -> Option<String> {
    // Usually there is one run, and all processes belong to it.
    if let Some(run) = only_run(agent) {
        return run;
    }
    let tables = match protocol {
        Protocol::Tcp => ["/proc/self/net/tcp", "/proc/self/net/tcp6"],
        Protocol::Udp => ["/proc/self/net/udp", "/proc/self/net/udp6"],
    };
    let sockets: Vec<u64> = tables
        .iter()
        .filter_map(|table| fs::read_to_string(table).ok())
        .flat_map(|table| sockets_of(&table, protocol, peer))
        .collect();
    // With several sockets of one address it is not known which it was.
    let &[socket] = sockets.as_slice() else { return None };
    of_socket(agent, socket)
}

/// The run of a process, or thread.
pub(super) fn of_process(agent: &Shared, pid: u32) -> Option<String> {
    let run = processes::run_of(agent, i32::try_from(pid).ok()?)?;
    requested(&run)
}

/// The only run, when there is exactly one; `Some(None)` when the host did not request it.
fn only_run(agent: &Shared) -> Option<Option<String>> {
    let mut owners = agent.runs.active().into_iter().map(|run| {
        let call = run.state.borrow().on_behalf_of.upgrade();
        requested(&call.unwrap_or(run))
    });
    let first = owners.next()?;
    owners.all(|owner| owner == first).then_some(first)
}

fn requested(run: &Rc<Run>) -> Option<String> {
    (run.kind == RunKind::Requested).then(|| run.id.clone())
}

/// The run to which all processes with this socket belong.
fn of_socket(agent: &Shared, socket: u64) -> Option<String> {
    let link = format!("socket:[{socket}]");
    let (mut checked, mut found) = (0, None);
    for pid in uts_tag::sandbox_pids() {
        // When the first thread has exited, the entries of the others still show the descriptors.
        let Some(entry) = threads::entry(pid) else { continue };
        let Ok(descriptors) = fs::read_dir(entry.join("fd")) else { continue };
        for descriptor in descriptors.flatten() {
            checked += 1;
            if checked > MAX_CHECKED {
                return None;
            }
            if fs::read_link(descriptor.path()).is_ok_and(|target| target.as_os_str() == link.as_str()) {
                let run = of_process(agent, u32::try_from(pid).ok()?)?;
                if found.get_or_insert_with(|| run.clone()) != &run {
                    return None;
                }
                break;
            }
        }
    }
    found
}

/// The inodes of the sockets in one of the kernel's tables that have this local address. UDP queries also
/// come from sockets that are bound on every address. A socket without a holder has inode 0.
fn sockets_of(table: &str, protocol: Protocol, peer: SocketAddr) -> Vec<u64> {
    let socket = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let (address, port) = fields.nth(1)?.split_once(':')?;
        let number: u64 = fields.nth(7)?.parse().ok()?;
        let own = u16::from_str_radix(port, 16).ok()? == peer.port() && {
            let address = read_address(address)?.to_canonical();
            address == peer.ip().to_canonical() || (protocol == Protocol::Udp && address.is_unspecified())
        };
        (own && number != 0).then_some(number)
    };
    table.lines().skip(1).filter_map(socket).collect()
}

/// Parses an address of these tables: 32-bit words in host byte order, as hexadecimal digits.
fn read_address(text: &str) -> Option<IpAddr> {
    let word = |at: usize| {
        let digits = text.get(at * 8..at * 8 + 8)?;
        u32::from_str_radix(digits, 16).ok().map(u32::to_ne_bytes)
    };
    match text.len() {
        8 => word(0).map(IpAddr::from),
        32 => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?];
            <[u8; 16]>::try_from(words.concat()).ok().map(Ipv6Addr::from).map(IpAddr::V6)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";

    #[test]
    fn a_socket_is_found_by_its_own_address() {
        let four = format!(
            "{HEAD}   0: 0100007F:A001 0112C6C6:01BB 01 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0 20 4 30 10 -1\n\
                     1: 0112C6C6:01BB 0100007F:A001 01 00000000:00000000 00:00000000 00000000     0        0 9 1 0 20 4 30 10 -1\n\
                     2: 00000000:A002 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 12 1 0 0\n\
                     3: 0100007F:A003 0112C6C6:01BB 06 00000000:00000000 00:00000000 00000000     0        0 0 3 0\n"
        );
        let peer = |text: &str| text.parse::<SocketAddr>().unwrap();
        assert_eq!(sockets_of(&four, Protocol::Tcp, peer("127.0.0.1:40961")), [4711]);
        assert_eq!(sockets_of(&four, Protocol::Udp, peer("127.0.0.1:40962")), [12], "bound to every address");
        assert_eq!(sockets_of(&four, Protocol::Tcp, peer("127.0.0.1:40962")), Vec::<u64>::new());
        for other in ["127.0.0.2:40961", "127.0.0.1:40963", "127.0.0.1:9"] {
            assert_eq!(sockets_of(&four, Protocol::Udp, peer(other)), Vec::<u64>::new(), "{other}");
        }
        let six = format!(
            "{HEAD}   0: 0000000000000000FFFF00000100007F:A001 0000000000000000FFFF00000112C6C6:01BB 01 00000000:00000000 00:00000000 00000000  1000        0 815 1 0\n"
        );
        assert_eq!(sockets_of(&six, Protocol::Tcp, peer("127.0.0.1:40961")), [815]);
        for broken in ["", "x", "a b c", "0: 1:2 3", "0: 0100007F:A001 x x x x x x y"] {
            assert_eq!(
                sockets_of(&format!("{HEAD}{broken}\n"), Protocol::Udp, peer("127.0.0.1:40961")),
                Vec::<u64>::new()
            );
        }
    }

    #[test]
    fn the_tables_of_this_machine_are_read() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (_accepted, peer) = listener.accept().unwrap();
        let number = rustix::fs::fstat(&stream).unwrap().st_ino;
        let table = fs::read_to_string("/proc/self/net/tcp").unwrap();
        assert_eq!(sockets_of(&table, Protocol::Tcp, peer), [number]);
    }
}
