//! Hostile servers behind a grant: responses that are too large, too many or ambiguous, and floods of frames. Each
//! affects the program that sent the request only.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::BoxFuture;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream as ServerStream;

use super::*;
use crate::hostile::*;

/// How a server answers, and what a program hears.
struct Answer {
    what: &'static str,
    bytes: Vec<u8>,
    /// Sent over and over again behind it.
    endlessly: Vec<u8>,
    expect: Expect,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Expect {
    /// The gate's own answer: the server could not be understood.
    BadGateway,
    /// An answer that does not end well.
    Broken,
    /// The answer, whole.
    Whole,
}

fn answers() -> Vec<Answer> {
    let many: String = (0..20_000).map(|number| format!("X-{number}: y\r\n")).collect();
    let ok = "HTTP/1.1 200 OK\r\n";
    let answer = |what, text: String, endlessly: &str, expect| Answer {
        what,
        bytes: text.into_bytes(),
        endlessly: endlessly.as_bytes().to_vec(),
        expect,
    };
    let early = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
    vec![
        answer("a plain answer", format!("{ok}Content-Length: 2\r\n\r\nhi"), "", Expect::Whole),
        answer(
            "a few interim answers",
            format!("{}{ok}Content-Length: 2\r\n\r\nhi", early.repeat(5)),
            "",
            Expect::Whole,
        ),
        answer("interim answers without end", String::new(), early, Expect::BadGateway),
        answer(
            "100 Continue without end",
            String::new(),
            "HTTP/1.1 100 Continue\r\n\r\n",
            Expect::BadGateway,
        ),
        answer("a head without end", format!("{ok}X: "), "xxxxxxxxxxxxxxxx", Expect::BadGateway),
        answer("too many headers", format!("{ok}{many}\r\n"), "", Expect::BadGateway),
        answer(
            "headers without end",
            ok.to_owned(),
            "X-A: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n",
            Expect::BadGateway,
        ),
        answer(
            "two lengths",
            format!("{ok}Content-Length: 2\r\nContent-Length: 3\r\n\r\nhi!"),
            "",
            Expect::BadGateway,
        ),
        answer("a length that is none", format!("{ok}Content-Length: -1\r\n\r\nhi"), "", Expect::BadGateway),
        answer(
            "a folded header",
            format!("{ok}X: a\r\n Injected: b\r\nContent-Length: 2\r\n\r\nhi"),
            "",
            Expect::BadGateway,
        ),
        answer(
            "a NUL in a header",
            format!("{ok}X: a\0b\r\nContent-Length: 2\r\n\r\nhi"),
            "",
            Expect::BadGateway,
        ),
        answer(
            "a return in a header",
            format!("{ok}X: a\rInjected: b\r\nContent-Length: 2\r\n\r\nhi"),
            "",
            Expect::BadGateway,
        ),
        answer("a space before a colon", format!("{ok}Content-Length : 2\r\n\r\nhi"), "", Expect::BadGateway),
        answer(
            "another protocol unasked",
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n".into(),
            "GET / ",
            Expect::BadGateway,
        ),
        answer("no HTTP", "SSH-2.0-OpenSSH\r\n".into(), "", Expect::BadGateway),
        answer("nothing", String::new(), "", Expect::BadGateway),
        answer("a body that ends early", format!("{ok}Content-Length: 20\r\n\r\nhi"), "", Expect::Broken),
        answer(
            "chunks that end early",
            format!("{ok}Transfer-Encoding: chunked\r\n\r\n5\r\nhi"),
            "",
            Expect::Broken,
        ),
        answer(
            "a chunk without a length",
            format!("{ok}Transfer-Encoding: chunked\r\n\r\nxyz\r\n"),
            "",
            Expect::Broken,
        ),
        answer(
            "a chunk of any length",
            format!("{ok}Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n"),
            "",
            Expect::Broken,
        ),
        answer(
            "trailers without end",
            format!("{ok}Transfer-Encoding: chunked\r\n\r\n0\r\n"),
            "X-A: yyyyyyyyyyyyyyyy\r\n",
            Expect::Broken,
        ),
        answer(
            "a length and chunks",
            format!("{ok}Content-Length: 7\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"),
            "",
            Expect::Whole,
        ),
        answer(
            "chunks and a length",
            format!("{ok}Transfer-Encoding: chunked\r\nContent-Length: 7\r\n\r\n2\r\nhi\r\n0\r\n\r\n"),
            "",
            Expect::Whole,
        ),
    ]
}

async fn answer_so(
    mut stream: ServerStream<TcpStream>,
    bytes: Vec<u8>,
    endlessly: Vec<u8>,
    listened_to: Arc<AtomicUsize>,
) {
    let mut heard = vec![0; 4096];
    if stream.read(&mut heard).await.is_err() {
        return;
    }
    stream.write_all(&bytes).await.ok();
    if !endlessly.is_empty() {
        let portion = endlessly.repeat(64 * 1024 / endlessly.len());
        let mut sent = 0;
        while sent < FLOOD && stream.write_all(&portion).await.is_ok() {
            sent += portion.len();
            listened_to.store(sent, Ordering::Relaxed);
        }
    }
    stream.shutdown().await.ok();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hostile_server_costs_the_program_that_asked_it() {
    let world = World::new();
    let well = world.server("api.test", ONE, Kind::Tell).await;
    for Answer { what, bytes, endlessly, expect } in answers() {
        let (said, again) = (bytes.clone(), endlessly.clone());
        let listened_to = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&listened_to);
        let port = world.raw_server("api.test", ONE, move |stream| {
            let sent = Arc::clone(&counted);
            Box::pin(answer_so(stream, said.clone(), again.clone(), sent)) as BoxFuture<'static, ()>
        });
        let port = port.await;
        let grants = [limited(port), limited(well)].concat();
        let gate = gate(&world, &grants, &Arc::new(Secrets::default()));
        let before = resident();
        let asking = async {
            let mut stream = inside(&gate, "api.test", port, ONE).await;
            let head = format!("GET /v1/a HTTP/1.1\r\nHost: api.test:{port}\r\nConnection: close\r\n\r\n");
            stream.write_all(head.as_bytes()).await.unwrap();
            let mut heard = Vec::new();
            let ended = stream.read_to_end(&mut heard).await.map(drop);
            (String::from_utf8_lossy(&heard).into_owned(), ended)
        };
        let (heard, ended) =
            tokio::time::timeout(HANGS, asking).await.unwrap_or_else(|_| panic!("{what} hangs"));
        serves_others(&gate, well, what).await;
        let grown = resident().saturating_sub(before);
        println!("{what}: {:?} {ended:?}, grew by {} KiB", heard.lines().next(), grown >> 10);
        assert!(grown < GROWTH, "{what}: grew by {grown}");
        let listened_to = listened_to.load(Ordering::Relaxed);
        assert!(listened_to < FLOOD, "{what}: it was listened to, to the end");
        let lower = heard.to_lowercase();
        assert!(!lower.contains("\ninjected:"), "{what}: {heard}");
        match expect {
            Expect::BadGateway => assert!(heard.starts_with("HTTP/1.1 502 "), "{what}: {heard:.300}"),
            Expect::Broken => {
                let whole = ended.is_ok() && heard.ends_with("\r\n0\r\n\r\n");
                assert!(!whole, "{what}: it looks as if that was all: {heard:.300}");
            }
            Expect::Whole => {
                assert!(heard.starts_with("HTTP/1.1 200 ") && heard.contains("hi"), "{what}: {heard}");
                let both = lower.contains("content-length:") && lower.contains("transfer-encoding:");
                assert!(!both, "{what}: {heard}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_floods_with_frames_costs_the_program_that_asked_it() {
    let world = World::new();
    let well = world.server("api.test", BOTH, Kind::Tell).await;
    let interim = [0x08, 3, b'1', b'0', b'3'];
    for (what, piece) in [
        ("settings", frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100])),
        ("pings", frame(PING, 0, 0, &[7; 8])),
        ("windows", frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1])),
        ("continuations", frame(CONTINUATION, 0, 1, &vec![0; 16_000])),
        ("interim answers", frame(HEADERS, END_HEADERS, 1, &interim)),
        ("promises", frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2, 0x82, 0x87, 0x84])),
        ("empty data", frame(0, 0, 1, &[])),
        ("unknown frames", frame(0x5a, 0, 0, &[7; 64])),
    ] {
        let before = resident();
        let opening = match what {
            "continuations" => frame(HEADERS, 0, 1, &[0x88]),
            "empty data" => frame(HEADERS, END_HEADERS, 1, &[0x88]),
            _ => Vec::new(),
        };
        let port = world.raw_server("api.test", &["h2"], move |stream| {
            let (opening, piece) = (opening.clone(), piece.clone());
            Box::pin(async move {
                let bytes = [frame(SETTINGS, 0, 0, &[]), opening].concat();
                let (mut from, mut to) = tokio::io::split(stream);
                let reading = async { tokio::io::copy(&mut from, &mut tokio::io::sink()).await.ok() };
                let sending = async {
                    // After the request: it is on stream 1.
                    tokio::time::sleep(Duration::from_millis(300)).await;
                    to.write_all(&bytes).await.ok();
                    let portion = piece.repeat((64 * 1024 / piece.len()).max(1));
                    let mut sent = 0;
                    while sent < FLOOD && to.write_all(&portion).await.is_ok() {
                        sent += portion.len();
                    }
                    to.shutdown().await.ok();
                };
                tokio::join!(reading, sending);
            }) as BoxFuture<'static, ()>
        });
        let port = port.await;
        let gate = gate(&world, &[limited(port), limited(well)].concat(), &Arc::new(Secrets::default()));
        let stream = inside(&gate, "api.test", port, BOTH).await;
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let asked =
            sender.send_request(body(Request::builder().uri(format!("https://api.test:{port}/v1/a"))));
        let asking = tokio::time::timeout(HANGS, async {
            match asked.await {
                Ok(response) => response.into_body().collect().await.map(|_| "answered").unwrap_or("broken"),
                Err(_) => "broken",
            }
        });
        let (ended, ()) = tokio::join!(asking, serves_others(&gate, well, what));
        let grown = resident().saturating_sub(before);
        println!("{what}: {ended:?}, grew by {} KiB", grown >> 10);
        assert!(ended.is_ok(), "{what}: the program waits for ever");
        assert!(grown < GROWTH, "{what}: grew by {grown}");
    }
}
