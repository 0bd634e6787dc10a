//! TLS that the gate opens: secrets in the place of placeholders, requests granted one by one, and
//! everything else of HTTP as it was sent.

#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]

mod echo;
mod hostile;
mod hostile_server;
mod placements;
mod reflections;
mod world;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper_util::rt::{TokioExecutor, TokioIo};
use isle_egress::{ApprovalHook, CertificateAuthority, ConnectionResult, Grant, Reason, StrayPlaceholder};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use world::{Kind, PLACEHOLDER, Secrets, World, connect, connect_tls, gate, get, inside, say, secret};

const BOTH: &[&str] = &["h2", "http/1.1"];
const ONE: &[&str] = &["http/1.1"];

fn secrets(value: &str, host: &str) -> Arc<Secrets> {
    let secrets = Secrets::default();
    secrets.secrets.lock().unwrap().push(secret(value, host));
    Arc::new(secrets)
}

fn grants(port: u16) -> [String; 3] {
    [format!("api.test:{port}/tls"), format!("other.test:{port}/tls"), format!("127.0.0.1:{port}")]
}

fn body(request: http::request::Builder) -> Request<Full<Bytes>> {
    request.body(Full::default()).unwrap()
}

/// The body of an answer in chunks, which say nothing about what is in it.
fn in_one(answer: &str) -> String {
    let (_, mut rest) = answer.split_once("\r\n\r\n").unwrap();
    let mut body = String::new();
    while let Some((length, chunk)) = rest.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap();
        body.push_str(&chunk[..length]);
        rest = chunk[length..].trim_start_matches("\r\n");
        if length == 0 {
            break;
        }
    }
    body
}

#[tokio::test]
async fn a_secret_reaches_its_host_over_http_1_and_changes_at_once() {
    let world = World::new();
    let port = world.server("api.test", ONE, Kind::Tell).await;
    let secrets = secrets("s3cr3t", "api.test");
    let gate = gate(&world, &grants(port), &secrets);
    let fields = format!("Authorization: Bearer {PLACEHOLDER}\r\nX-Case: Kept\r\n");
    let heard = in_one(&get(&gate, "api.test", port, "/a", &fields).await);
    assert!(heard.contains("authorization: Bearer ******\n") && heard.contains("x-case: Kept\n"), "{heard}");
    let seen = world.last();
    assert!(seen.contains("GET /a\n") && seen.contains("authorization: Bearer s3cr3t\n"), "{seen}");
    assert!(!seen.contains(PLACEHOLDER), "{seen}");
    *secrets.secrets.lock().unwrap() = vec![secret("n3w", "api.test")];
    get(&gate, "api.test", port, "/", &fields).await;
    assert!(world.last().contains("authorization: Bearer n3w\n"), "{}", world.last());
    assert_eq!(secrets.strays.lock().unwrap().len(), 0);
    let count = gate.grants().remove(0).2;
    assert!(count.sent > 0 && count.received > 0 && count.open == 0, "{count:?}");
}

#[tokio::test]
async fn a_secret_reaches_its_host_over_http_2_in_many_requests_at_once() {
    let world = World::new();
    let port = world.server("api.test", BOTH, Kind::Tell).await;
    let secrets = secrets("s3cr3t", "api.test");
    let gate = gate(&world, &grants(port), &secrets);
    let stream = inside(&gate, "api.test", port, BOTH).await;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let mut tasks = Vec::new();
    for number in 0..20 {
        let mut sender = sender.clone();
        tasks.push(tokio::spawn(async move {
            let uri = format!("https://api.test:{port}/{number}");
            let request = body(Request::builder().uri(uri).header("x-key", PLACEHOLDER));
            let response = sender.send_request(request).await.unwrap();
            let text = response.into_body().collect().await.unwrap().to_bytes();
            let text = String::from_utf8_lossy(&text).into_owned();
            assert!(text.starts_with(&format!("HTTP/2.0 GET https://api.test:{port}/{number}\n")), "{text}");
            assert!(text.contains("x-key: ******\n"), "{text}");
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert!(world.last().contains("x-key: s3cr3t\n"), "{}", world.last());
    // Another name on the same connection is refused, whatever else the server answers for.
    let mut sender = sender;
    for (authority, field) in [("other.test", None), ("api.test", Some("other.test"))] {
        let mut request = Request::builder().uri(format!("https://{authority}:{port}/"));
        if let Some(field) = field {
            request = request.header("host", format!("{field}:{port}"));
        }
        let response = sender.send_request(body(request)).await.unwrap();
        assert_eq!(response.status(), 403, "{authority} {field:?}");
        assert_eq!(response.headers()["x-isle-denied"], "wrong_host_header");
    }
}

#[tokio::test]
async fn only_hosts_of_secrets_are_opened() {
    let world = World::new();
    let port = world.server("other.test", ONE, Kind::Tell).await;
    let secrets = secrets("s3cr3t", "api.test");
    let gate = gate(&world, &grants(port), &secrets);
    // The program sees the server's own certificate, which the gate's authority did not sign.
    let trusted = gate.authority().unwrap().pem();
    let error = connect_tls(&gate, "other.test", port, &trusted, ONE).await.unwrap_err();
    assert!(error.to_string().contains("UnknownIssuer"), "{error}");
    assert!(gate.opens_tls());
    secrets.secrets.lock().unwrap().clear();
    assert!(!gate.opens_tls());
}

#[tokio::test]
async fn a_placeholder_on_its_way_to_another_host_is_told_of_and_stays_one() {
    let world = World::new();
    let port = world.server("other.test", ONE, Kind::Tell).await;
    let secrets = secrets("s3cr3t", "api.test");
    let mut all = grants(port).to_vec();
    all[1] = format!("https://other.test:{port}/* GET");
    let gate = gate(&world, &all, &secrets);
    let heard = get(&gate, "other.test", port, "/", &format!("X-Key: {PLACEHOLDER}\r\n")).await;
    assert!(heard.contains(&format!("x-key: {PLACEHOLDER}\n")) && !heard.contains("s3cr3t"), "{heard}");
    let told = StrayPlaceholder {
        placeholder: PLACEHOLDER.into(),
        target: format!("other.test:{port}"),
        unencrypted: false,
    };
    assert_eq!(*secrets.strays.lock().unwrap(), [told]);
}

#[tokio::test]
async fn a_secret_does_not_go_unencrypted() {
    let world = World::new();
    let secrets = secrets("s3cr3t", "api.test");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let gate = gate(&world, &[format!("api.test:{port}/http"), format!("127.0.0.1:{port}")], &secrets);
    let (mut program, _served) = connect(&gate, "api.test", port);
    let head = format!("GET / HTTP/1.1\r\nHost: api.test:{port}\r\nX-Key: {PLACEHOLDER}\r\n\r\n");
    program.write_all(head.as_bytes()).await.unwrap();
    let (mut server, _) = listener.accept().await.unwrap();
    let mut heard = vec![0; 4096];
    let count = server.read(&mut heard).await.unwrap();
    let heard = String::from_utf8_lossy(&heard[..count]).into_owned();
    assert!(heard.contains(PLACEHOLDER) && !heard.contains("s3cr3t"), "{heard}");
    let strays = secrets.strays.lock().unwrap().clone();
    assert!(strays.len() == 1 && strays[0].unencrypted, "{strays:?}");
}

#[tokio::test]
async fn requests_are_granted_by_method_and_path() {
    let world = World::new();
    let port = world.server("api.test", BOTH, Kind::Tell).await;
    let secrets = Arc::new(Secrets::default());
    let all = [format!("https://api.test:{port}/v1/* GET"), format!("127.0.0.1:{port}")];
    let gate = gate(&world, &all, &secrets);
    assert!(gate.opens_tls());
    let heard = get(&gate, "api.test", port, "/v1/a?x=1", "").await;
    assert!(heard.starts_with("HTTP/1.1 200 ") && heard.contains("GET /v1/a?x=1\n"), "{heard}");
    for (path, reason) in [
        ("/v2/a", Reason::RequestNotGranted),
        ("/v1/../admin", Reason::AmbiguousPath),
        ("/v1/%2e%2e/admin", Reason::AmbiguousPath),
        ("/v1//a", Reason::AmbiguousPath),
        ("/", Reason::RequestNotGranted),
    ] {
        let heard = get(&gate, "api.test", port, path, "").await;
        assert!(heard.starts_with("HTTP/1.1 403 "), "{path}: {heard}");
        assert!(heard.contains(&format!("reason: {}\n", reason.as_str())), "{path}: {heard}");
    }
    let post = format!(
        "POST /v1/a HTTP/1.1\r\nHost: api.test:{port}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    );
    let heard = say(&gate, "api.test", port, &post).await;
    assert!(
        heard.contains(&format!("remedy: ask for a grant of `https://api.test:{port}/v1/a POST`")),
        "{heard}"
    );
    gate.request_denied().await;
    assert_eq!(gate.denials_after(0).len(), 6);
    // What is added or taken back holds at once.
    let added = gate.grant(Grant::parse(&format!("https://api.test:{port}/v1/a POST")).unwrap());
    assert!(say(&gate, "api.test", port, &post).await.starts_with("HTTP/1.1 200 "));
    gate.revoke(added);
    assert!(say(&gate, "api.test", port, &post).await.starts_with("HTTP/1.1 403 "));
}

#[tokio::test]
async fn a_denied_request_waits_for_an_answer_and_is_decided_anew() {
    let world = World::new();
    let port = world.server("api.test", BOTH, Kind::Tell).await;
    let all = [format!("https://api.test:{port}/v1/* GET"), format!("127.0.0.1:{port}")];
    let gate = gate(&world, &all, &Arc::new(Secrets::default()));
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let (answering, noted) = (Arc::downgrade(&gate), Arc::clone(&asked));
    gate.set_approval_hook(ApprovalHook::new(move |denial| {
        let wanted = denial.wanted.clone()?;
        noted.lock().unwrap().push(wanted.clone());
        let answering = answering.clone();
        Some(Box::pin(async move {
            tokio::task::yield_now().await;
            let mut once = Grant::parse(&wanted).unwrap();
            once.limits.requests = Some(1);
            // What is about the other path is answered with a no.
            if let Some(gate) = answering.upgrade().filter(|_| wanted.contains("/v2/yes")) {
                gate.grant(once);
            }
        }))
    }));
    for (path, status) in
        [("/v1/a", 200), ("/v2/yes", 200), ("/v2/yes", 200), ("/v2/no", 403), ("/v2/../x", 403)]
    {
        let heard = get(&gate, "api.test", port, path, "").await;
        assert!(heard.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {heard}");
    }
    let wanted = |path: &str| format!("https://api.test:{port}/v2/{path} GET");
    assert_eq!(*asked.lock().unwrap(), [wanted("yes"), wanted("yes"), wanted("no")]);
    assert_eq!(gate.grants().len(), 2, "each was used up");
    let granted = |text: &str| gate.is_already_granted(&Grant::parse(text).unwrap());
    assert!(granted(&format!("https://api.test:{port}/v1/b GET")) && !granted(&wanted("yes")));
}

#[tokio::test]
async fn plain_requests_are_granted_by_method_and_path_too() {
    let world = World::new();
    let secrets = Arc::new(Secrets::default());
    let gate = gate(&world, &["http://api.test:8080/v1/* GET".into(), "127.0.0.1:8080".into()], &secrets);
    let (mut program, served) = connect(&gate, "api.test", 8080);
    let words = b"DELETE /v1/a HTTP/1.1\r\nHost: api.test:8080\r\n\r\n";
    program.write_all(words).await.unwrap();
    program.shutdown().await.unwrap();
    let mut heard = String::new();
    program.read_to_string(&mut heard).await.unwrap();
    assert!(heard.starts_with("HTTP/1.1 403 ") && heard.contains("request_not_granted"), "{heard}");
    served.await.unwrap();
}

#[tokio::test]
async fn every_request_names_the_granted_host() {
    let world = World::new();
    let port = world.server("api.test", ONE, Kind::Tell).await;
    let gate = gate(&world, &grants(port), &secrets("s3cr3t", "api.test"));
    for head in [
        "GET / HTTP/1.1\r\nHost: other.test\r\n",
        "GET / HTTP/1.1\r\nHost: api.test\r\nHost: api.test\r\n",
        "GET / HTTP/1.1\r\n",
        "GET https://other.test/ HTTP/1.1\r\nHost: api.test\r\n",
        "GET / HTTP/1.1\r\nHost: api.test:1\r\n",
        "CONNECT api.test:443 HTTP/1.1\r\nHost: api.test\r\n",
    ] {
        let heard = say(&gate, "api.test", port, &format!("{head}Connection: close\r\n\r\n")).await;
        assert!(heard.starts_with("HTTP/1.1 403 ") && heard.contains("wrong_host_header"), "{head}: {heard}");
    }
}

#[tokio::test]
async fn a_certificate_that_is_wrong_stays_wrong() {
    let world = World::new();
    // For another name, by an authority nobody knows, and too old.
    let misnamed = world.server("other.test", BOTH, Kind::Tell).await;
    let unknown = World::new().server("api.test", BOTH, Kind::Tell).await;
    let old = world.old_server("api.test", BOTH).await;
    for (port, problem) in
        [(misnamed, "it is for another name"), (unknown, "unknown issuer"), (old, "it has expired")]
    {
        let gate = gate(&world, &grants(port), &secrets("s3cr3t", "api.test"));
        let heard = get(&gate, "api.test", port, "/", "").await;
        assert!(heard.starts_with("HTTP/1.1 502 "), "{heard}");
        assert!(heard.contains("the certificate of api.test") && heard.contains(problem), "{heard}");
        let stream = inside(&gate, "api.test", port, BOTH).await;
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let request = body(Request::builder().uri(format!("https://api.test:{port}/")));
        let response = sender.send_request(request).await.unwrap();
        assert_eq!(response.status(), 502);
        assert!(matches!(gate.log().entries[0].result, ConnectionResult::Failed(_)));
    }
}

#[tokio::test]
async fn a_connection_can_become_a_websocket() {
    let world = World::new();
    let port = world.server("api.test", ONE, Kind::Upgrade).await;
    // A server that gives back what it hears: here frames as only servers send them.
    let early = [&[0x81, 5][..], b"early"].concat();
    let large = [&[0x82, 127][..], &200_000u64.to_be_bytes(), &[7; 200_000]].concat();
    for host in ["api.test", "elsewhere.test"] {
        let all = [format!("https://api.test:{port}/chat GET"), format!("127.0.0.1:{port}")];
        let gate = gate(&world, &all, &secrets("s3cr3t", host));
        let mut stream = inside(&gate, "api.test", port, ONE).await;
        let head = format!(
            "GET /chat HTTP/1.1\r\nHost: api.test:{port}\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n"
        );
        stream.write_all(&[head.as_bytes(), &early].concat()).await.unwrap();
        let mut heard = Vec::new();
        while !heard.ends_with(&early) {
            let mut byte = [0];
            stream.read_exact(&mut byte).await.unwrap();
            heard.push(byte[0]);
        }
        assert!(heard.starts_with(b"HTTP/1.1 101 "), "{heard:?}");
        let (mut from, mut to) = tokio::io::split(stream);
        let sent = large.clone();
        let sending = tokio::spawn(async move {
            to.write_all(&sent).await.unwrap();
            to.flush().await.unwrap();
            to
        });
        let mut back = vec![0; large.len()];
        from.read_exact(&mut back).await.unwrap();
        assert_eq!(back, large, "{host}");
        drop(sending.await.unwrap());
    }
}

#[tokio::test]
async fn large_uploads_stream_and_trailers_stay() {
    const PIECES: usize = 200;
    let world = World::new();
    let port = world.server("api.test", BOTH, Kind::Tell).await;
    let gate = gate(&world, &grants(port), &secrets("s3cr3t", "api.test"));
    let stream = inside(&gate, "api.test", port, BOTH).await;
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    // A placeholder in a body is left alone.
    let piece = Bytes::from(format!("{PLACEHOLDER}{}", "x".repeat(64 * 1024)));
    let length = PIECES * piece.len();
    let (pieces, receiver) = tokio::sync::mpsc::channel::<Frame<Bytes>>(1);
    let frames = futures::stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|frame| (Ok::<_, std::convert::Infallible>(frame), receiver))
    });
    let request = Request::builder().method("POST").uri(format!("https://api.test:{port}/up"));
    let request = request.body(StreamBody::new(Box::pin(frames))).unwrap();
    tokio::spawn(async move {
        for _ in 0..PIECES {
            pieces.send(Frame::data(piece.clone())).await.ok();
        }
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", "42".parse().unwrap());
        pieces.send(Frame::trailers(trailers)).await.ok();
    });
    let response = sender.send_request(request).await.unwrap();
    let text = response.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(text.contains(&format!("body: {length} isle-secret-key-")), "{text}");
    assert!(text.contains("trailers: {\"x-sum\": \"42\"}"), "{text}");
}

#[tokio::test]
async fn trailers_of_an_answer_stay() {
    let world = World::new();
    let port = world.server("api.test", BOTH, Kind::Trailers).await;
    let gate = gate(&world, &grants(port), &secrets("s3cr3t", "api.test"));
    let stream = inside(&gate, "api.test", port, BOTH).await;
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = body(Request::builder().uri(format!("https://api.test:{port}/")));
    let response = sender.send_request(request).await.unwrap().into_body().collect().await.unwrap();
    assert_eq!(response.trailers().unwrap()["grpc-status"], "0");
    // Over HTTP/1 they are sent to those who want them.
    let heard = get(&gate, "api.test", port, "/", "TE: trailers\r\n").await;
    assert!(heard.ends_with("0\r\ngrpc-status: 0\r\n\r\n"), "{heard}");
}

#[tokio::test]
async fn chunks_and_expectations_pass_over_http_1() {
    let world = World::new();
    let port = world.server("api.test", ONE, Kind::Tell).await;
    let gate = gate(&world, &grants(port), &secrets("s3cr3t", "api.test"));
    let mut stream = inside(&gate, "api.test", port, ONE).await;
    let head = format!(
        "POST /up HTTP/1.1\r\nHost: api.test:{port}\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut heard = vec![0; 25];
    stream.read_exact(&mut heard).await.unwrap();
    assert_eq!(heard, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n").await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    assert!(text.contains("body: 11 hello world"), "{text}");
}

#[tokio::test]
async fn a_server_that_closes_after_each_answer_is_dialed_again() {
    let world = World::new();
    let port = world.server("api.test", ONE, Kind::Closing).await;
    let gate = gate(&world, &grants(port), &secrets("s3cr3t", "api.test"));
    let stream = inside(&gate, "api.test", port, ONE).await;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    // The first answer says that the connection ends, so a program opens another: here through the gate.
    let request = body(Request::builder().uri("/").header("host", format!("api.test:{port}")));
    let response = sender.send_request(request).await.unwrap();
    assert_eq!(response.status(), 200);
    for _ in 0..3 {
        assert!(get(&gate, "api.test", port, "/", "").await.starts_with("HTTP/1.1 200 "));
    }
}

#[tokio::test]
async fn taking_the_grant_back_cuts_what_was_opened() {
    let world = World::new();
    let port = world.server("api.test", ONE, Kind::Upgrade).await;
    let gate = gate(&world, &[format!("127.0.0.1:{port}")], &secrets("s3cr3t", "api.test"));
    let id = gate.grant(Grant::parse(&format!("api.test:{port}/tls")).unwrap());
    let mut stream = inside(&gate, "api.test", port, ONE).await;
    let head = format!(
        "GET / HTTP/1.1\r\nHost: api.test:{port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut byte = [0];
    stream.read_exact(&mut byte).await.unwrap();
    assert!(gate.revoke(id));
    let rest = tokio::time::timeout(Duration::from_secs(30), async {
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.ok();
    });
    rest.await.expect("it is cut");
}

#[tokio::test]
async fn bytes_of_opened_connections_are_limited_as_well() {
    let world = World::new();
    let port = world.server("api.test", ONE, Kind::Tell).await;
    let gate = gate(&world, &[format!("127.0.0.1:{port}")], &secrets("s3cr3t", "api.test"));
    let mut grant = Grant::parse(&format!("api.test:{port}/tls")).unwrap();
    grant.limits.total_bytes = Some(20_000);
    gate.grant(grant);
    let (head, body) = (
        format!("POST / HTTP/1.1\r\nHost: api.test:{port}\r\nContent-Length: 500000\r\n\r\n"),
        "x".repeat(500_000),
    );
    let mut stream = inside(&gate, "api.test", port, ONE).await;
    stream.write_all(head.as_bytes()).await.ok();
    stream.write_all(body.as_bytes()).await.ok();
    let mut heard = Vec::new();
    stream.read_to_end(&mut heard).await.ok();
    assert!(!heard.starts_with(b"HTTP/1.1 200"), "{heard:?}");
    let denials = gate.denials_after(0);
    assert_eq!(denials.first().map(|denial| denial.reason), Some(Reason::Exhausted), "{denials:?}");
}

#[tokio::test]
async fn an_authority_is_taken_up_again_and_shows_no_key() {
    let first = CertificateAuthority::generate().unwrap();
    let stored = first.to_stored();
    let again = CertificateAuthority::restore(&stored).unwrap();
    assert_eq!((first.pem(), first.to_stored()), (again.pem(), again.to_stored()));
    assert!(!format!("{first:?}").contains(stored.split(' ').next().unwrap()));
    assert_ne!(first.pem(), CertificateAuthority::generate().unwrap().pem());
    for wrong in ["", "a b c", "a b", &stored[10..]] {
        assert!(CertificateAuthority::restore(wrong).is_err(), "{wrong}");
    }
    // A program that believed the first believes what the second signs.
    let world = World::new();
    let port = world.server("api.test", ONE, Kind::Tell).await;
    let trusted = first.pem();
    let table = [(isle_egress::Name::parse("api.test").unwrap(), vec![world::LOOPBACK])];
    let resolver = Arc::new(isle_egress::Resolver::new(isle_egress::Table::from(table)));
    let gate = isle_egress::Gate::new(resolver)
        .with_trusted_cas(world.trusted_cas())
        .with_certificate_authority(Arc::new(again));
    gate.grant(Grant::parse(&format!("https://api.test:{port}/a")).unwrap());
    gate.grant(Grant::parse(&format!("127.0.0.1:{port}")).unwrap());
    connect_tls(&Arc::new(gate), "api.test", port, &trusted, ONE).await.unwrap();
}
