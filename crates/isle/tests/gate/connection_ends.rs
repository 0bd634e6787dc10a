//! FIN and RST reach the other side as what they were, in both directions, whether sockets are passed or carried.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::harness::{per_connection, require};
use crate::servers::{allow, needs, python, start};

/// What the server saw of a connection: how many bytes, and how it ended.
type Seen = (usize, Result<(), ErrorKind>);

fn reset(stream: TcpStream) {
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
    drop(stream);
}

/// The first byte says what is tried.
fn serve(mut stream: TcpStream, seen: &mpsc::Sender<Seen>) {
    let mut first = [0];
    stream.read_exact(&mut first).unwrap();
    if first == *b"r" {
        return reset(stream);
    }
    if first == *b"c" {
        // Only then is there a connection that can be reset: one that says nothing yet may not have been made.
        stream.write_all(b"?").unwrap();
    }
    let mut rest = Vec::new();
    let ended = stream.read_to_end(&mut rest).map(drop).map_err(|error| error.kind());
    if ended.is_ok() {
        stream.write_all(format!("{} bytes", rest.len()).as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
    }
    seen.send((rest.len(), ended)).unwrap();
}

const PROGRAM: &str = r#"
import json, socket, struct, sys
def connection(first):
    stream = socket.create_connection(('web.test', int(sys.argv[1])), 60)
    stream.sendall(first)
    return stream
def heard(stream):
    parts = []
    try:
        while part := stream.recv(65536): parts.append(part)
        return [b''.join(parts).decode(), 'fin']
    except ConnectionResetError:
        return [b''.join(parts).decode(), 'rst']
half = connection(b'h' + bytes(300000))
half.shutdown(socket.SHUT_WR)
told = [heard(half), heard(connection(b'r'))]
cut = connection(b'c')
cut.recv(1)
cut.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
cut.close()
print(json.dumps(told))
"#;

per_connection!(fin_and_rst_reach_the_other_side);

fn fin_and_rst_reach_the_other_side() {
    let daemon = start();
    require!(needs(&daemon, "python3"));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (tell, seen) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming().take(3) {
            let (stream, tell) = (stream.unwrap(), tell.clone());
            thread::spawn(move || serve(stream, &tell));
        }
    });
    allow(&daemon, "box", &[format!("web.test:{port}"), format!("127.0.0.1:{port}")]);
    let told = python(&daemon, "box", PROGRAM, &[&port.to_string()]);
    assert_eq!(told, serde_json::json!([["300000 bytes", "fin"], ["", "rst"]]));
    let patience = Duration::from_secs(60);
    assert_eq!(seen.recv_timeout(patience).unwrap(), (300_000, Ok(())));
    let (_, cut) = seen.recv_timeout(patience).unwrap();
    assert_eq!(cut, Err(ErrorKind::ConnectionReset));
}
