//! Tier `process`, where the gate is a proxy: what is granted is reached by real clients through it, by any
//! of its languages, and nothing else is reached by any call. Every attack is also made without a sandbox,
//! where it has to succeed.

mod asking;
mod calls;
mod ends;
mod granting;
mod peers;
mod reach;
mod secrets;
mod sockets;
mod spellings;

use serde_json::json;

use crate::clients::HTTP;
use crate::harness::{Missing, TestDaemon};
use crate::servers::{Serving, make_process, needs, reaching, start};

/// What listeners of the host say to whoever gets through to them.
const WORD: &str = "a word of the host";

/// Opens a way through the proxy, in Python; descriptors may go beside the question.
pub(crate) const TUNNEL: &str = r"
import array, errno, socket
def tunnel(port, descriptors=()):
    one = socket.create_connection(('127.0.0.1', 3128), 60)
    beside = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', descriptors))] if descriptors else []
    one.sendmsg([b'CONNECT web.test:%d HTTP/1.1\r\n\r\n' % port], beside)
    answer = b''
    while not answer.endswith(b'\r\n\r\n'):
        piece = one.recv(1)
        if not piece: raise OSError(errno.ECONNRESET, 'ended')
        answer += piece
    if b' 200 ' not in answer: raise OSError(errno.EACCES, 'denied')
    return one
";

/// A daemon with a sandbox of that tier, if there can be one.
fn ground() -> Result<TestDaemon, Missing> {
    let daemon = start();
    make_process(&daemon, "plain")?;
    needs(&daemon, "python3")?;
    needs(&daemon, "curl")?;
    Ok(daemon)
}

/// Flags with which curl asks the proxy in another language than it would.
const LANGUAGES: [&str; 3] = ["", "--proxytunnel", "-x socks5h://127.0.0.1:3128"];

fn stdout(daemon: &TestDaemon, command: &str) -> String {
    let run = daemon.exec("plain", json!({ "command": command, "timeout": "120s" }));
    assert_eq!(run["state"], "completed", "{command}: {run}");
    run["stdout"].as_str().unwrap().to_owned()
}

/// A web server with one page, and what it was asked for.
fn pages() -> (tempfile::TempDir, Serving, u16) {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("page"), "the page\n").unwrap();
    let (server, port) = Serving::python(directory.path(), HTTP);
    (directory, server, port)
}
