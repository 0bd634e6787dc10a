//! What a program does to the sockets of its proxy.

use serde_json::json;

use super::{TUNNEL, WORD, ground, reaching};
use crate::harness::{per_connection, require};
use crate::servers::{Server, allow, python};

/// What a program does to the sockets it was given, and to the calls that are answered by the agent.
const TRICKS: &str = r#"
import ctypes, json, os, select, struct, sys, threading
port, evil = int(sys.argv[1]), int(sys.argv[2])
libc = ctypes.CDLL(None, use_errno=True)
proxy = ('127.0.0.1', 3128)
def attempt(deed):
    try: return deed()
    except OSError as error: return errno.errorcode.get(error.errno, str(error))
def packed(port): return struct.pack('=HH4s8x', socket.AF_INET, socket.htons(port), socket.inet_aton('127.0.0.1'))
def connect(number, address):
    if libc.connect(number, address, len(address)): raise OSError(ctypes.get_errno(), '')
    return 'connected'
def echoed(one, text=b'hello'):
    one.sendall(text)
    return one.recv(64) == text
found = {}
# Descriptors go nowhere, neither before the way is open nor afterwards.
reader, writer = os.pipe()
one = tunnel(port, [writer] * 10)
for _ in range(5):
    one.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [writer] * 10))])
    assert one.recv(1) == b'x'
os.close(writer)
found['descriptors'] = bool(select.select([reader], [], [], 30)[0]) and os.read(reader, 1) == b''
found['still open'] = echoed(one)
# Foreign descriptors, and what is connected already.
ours, theirs = socket.socketpair()
found['a pair'] = attempt(lambda: connect(ours.fileno(), packed(3128)))
found['a file'] = attempt(lambda: connect(os.open('/dev/null', os.O_RDONLY), packed(3128)))
found['nothing'] = attempt(lambda: connect(4000, packed(3128)))
found['again'] = attempt(lambda: connect(one.fileno(), packed(evil)))
found['undone'] = attempt(lambda: connect(one.fileno(), struct.pack('=H14x', socket.AF_UNSPEC)))
def fresh(address):
    another = socket.socket()
    return connect(another.fileno(), address)
found['no address'] = attempt(lambda: fresh(b''))
found['half an address'] = attempt(lambda: fresh(packed(3128)[:8]))
bare = socket.socket()
def nowhere():
    if libc.connect(bare.fileno(), ctypes.c_void_p(8), 16): raise OSError(ctypes.get_errno(), '')
found['no memory'] = attempt(nowhere)
found['a local name'] = attempt(lambda: fresh(struct.pack('=H14s', socket.AF_UNIX, b'\0name')))
found['after all that'] = attempt(lambda: (bare.connect(proxy), 'connected')[1])
# The address changes while it is looked at: it is the proxy's, or refused.
address = ctypes.create_string_buffer(packed(3128), 16)
good, bad, over = struct.pack('!H', 3128), struct.pack('!H', evil), []
def change():
    while not over:
        ctypes.memmove(ctypes.addressof(address) + 2, bad, 2); ctypes.memmove(ctypes.addressof(address) + 2, good, 2)
thread = threading.Thread(target=change); thread.start()
ends = set()
for _ in range(400):
    racing = socket.socket()
    ends.add(attempt(lambda: 'connected' if libc.connect(racing.fileno(), address, 16) == 0 else errno.errorcode[ctypes.get_errno()]))
    racing.close()
over.append(1); thread.join()
found['races'] = sorted(ends - {'connected', 'ECONNREFUSED'})
# More than there may be wait to be connected.
held = []
def flood():
    for _ in range(2000): held.append(socket.socket())
found['flood'] = attempt(flood)
found['held'] = len(held)
found['during'] = echoed(one)
for socket_held in held: socket_held.close()
found['afterwards'] = echoed(tunnel(port))
# Those that are closed without being connected make room.
for _ in range(600): socket.socket().close()
kept = socket.socket()
found['flags'] = (os.get_inheritable(kept.fileno()), not socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK).getblocking())
found['options'] = attempt(lambda: one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1) or one.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1) or 'taken')
print(json.dumps(found))"#;

per_connection!(what_a_program_does_to_its_sockets_opens_nothing_and_hurts_itself_at_most);

fn what_a_program_does_to_its_sockets_opens_nothing_and_hurts_itself_at_most() {
    let daemon = require!(ground());
    let (echo, evil) = (Server::echo(), Server::saying("127.0.0.1:0", WORD));
    allow(&daemon, "plain", &reaching(echo.port));
    let script = format!("{TUNNEL}{TRICKS}");
    let found = python(&daemon, "plain", &script, &[&echo.port.to_string(), &evil.port.to_string()]);
    let expected = json!({
        "descriptors": true,
        "still open": true,
        "a pair": "EISCONN",
        "a file": "EPERM",
        "nothing": "EPERM",
        "again": "EISCONN",
        "undone": "EAFNOSUPPORT",
        "no address": "EINVAL",
        "half an address": "EINVAL",
        "no memory": "EFAULT",
        "a local name": "EAFNOSUPPORT",
        "after all that": "connected",
        "races": [],
        "flood": "EMFILE",
        "during": true,
        "afterwards": true,
        "flags": [false, true],
        "options": "taken",
    });
    for (what, expected) in expected.as_object().unwrap() {
        assert_eq!(&found[what], expected, "{what}: {found:#}");
    }
    assert!(found["held"].as_u64().unwrap() < 1000, "{found}");
    // Only the word that stands for it there.
    assert_eq!(evil.heard(), [WORD], "somebody got through");
    // The sandbox goes on.
    assert_eq!(daemon.shell("plain", "echo here"), "here\n");
}
