//! A world of its own: a certificate authority, servers that speak TLS on loopback, and a gate before
//! them through which clients connect as programs of a sandbox do.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use isle_egress::{
    Gate, Grant, Host, Name, Outcome, Pattern, Placements, Reflection, Resolver, ResponseMasking,
    SandboxStream, SecretFinder, SecretSource, SecretSubstitution, SecretUse, StrayPlaceholder, Table,
    Target, TrustedCas,
};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, pem::PemObject};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::client::TlsStream;
use tokio_rustls::server::TlsStream as ServerStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use zeroize::Zeroizing;

use crate::echo::reflect;

pub const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

static WORLDS: AtomicUsize = AtomicUsize::new(0);

/// An authority that the gate is told to believe.
pub struct World {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    /// The requests its servers saw.
    seen: Seen,
}

pub type Seen = Arc<Mutex<Vec<String>>>;

/// How a server behaves.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Answers with the request it saw; reads bodies to their end.
    Tell,
    /// Changes to a protocol that echoes.
    Upgrade,
    /// As `Tell`, and closes after each answer.
    Closing,
    /// Answers with trailers.
    Trailers,
    /// Sends back the credential it is sent, in the way that the path names.
    Reflect,
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

impl World {
    pub fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        // Two of one name would be taken for each other.
        let number = WORLDS.fetch_add(1, Ordering::Relaxed);
        params.distinguished_name.push(DnType::CommonName, format!("World {number}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap().der().clone();
        Self { issuer: Issuer::new(params, key), certificate, seen: Seen::default() }
    }

    /// The request that a server saw last.
    pub fn last(&self) -> String {
        self.seen.lock().unwrap().last().cloned().unwrap_or_default()
    }

    pub fn trusted_cas(&self) -> Arc<TrustedCas> {
        let mut trusted_cas = TrustedCas::default();
        trusted_cas.add_pem(pem(&self.certificate).as_bytes()).unwrap();
        Arc::new(trusted_cas)
    }

    /// A server for a name, which speaks what is listed.
    pub async fn server(&self, name: &str, spoken: &[&str], kind: Kind) -> u16 {
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        self.serve(params, spoken, kind).await
    }

    /// One whose certificate has expired.
    pub async fn old_server(&self, name: &str, spoken: &[&str]) -> u16 {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(2002, 1, 1);
        self.serve(params, spoken, Kind::Tell).await
    }

    /// A server for a name that does as it likes with each connection.
    pub async fn raw_server(
        &self,
        name: &str,
        spoken: &[&str],
        converse: impl Fn(ServerStream<TcpStream>) -> BoxFuture<'static, ()> + Send + Sync + 'static,
    ) -> u16 {
        let acceptor = self.acceptor(CertificateParams::new(vec![name.to_owned()]).unwrap(), spoken);
        let listener = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                if let Ok(stream) = acceptor.accept(stream).await {
                    tokio::spawn(converse(stream));
                }
            }
        });
        port
    }

    fn acceptor(&self, params: CertificateParams, spoken: &[&str]) -> TlsAcceptor {
        let key = KeyPair::generate().unwrap();
        let leaf = params.signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![leaf.der().clone()], key)
            .unwrap();
        config.alpn_protocols = spoken.iter().map(|one| one.as_bytes().to_vec()).collect();
        TlsAcceptor::from(Arc::new(config))
    }

    async fn serve(&self, params: CertificateParams, spoken: &[&str], kind: Kind) -> u16 {
        let acceptor = self.acceptor(params, spoken);
        let listener = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (seen, kept) = (Arc::clone(&self.seen), Arc::new(Mutex::new(String::new())));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                let (seen, kept) = (Arc::clone(&seen), Arc::clone(&kept));
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    if kind == Kind::Reflect {
                        let service = service_fn(move |request| reflect(request, Arc::clone(&kept)));
                        let mut http = auto::Builder::new(TokioExecutor::new());
                        http.http1().keep_alive(true);
                        http.serve_connection_with_upgrades(TokioIo::new(stream), service).await.ok();
                        return;
                    }
                    if kind == Kind::Closing {
                        let service = service_fn(move |request| tell(request, kind, Arc::clone(&seen)));
                        let mut http = hyper::server::conn::http1::Builder::new();
                        http.keep_alive(false).serve_connection(TokioIo::new(stream), service).await.ok();
                        return;
                    }
                    let service = service_fn(move |request| tell(request, kind, Arc::clone(&seen)));
                    auto::Builder::new(TokioExecutor::new())
                        .serve_connection_with_upgrades(TokioIo::new(stream), service)
                        .await
                        .ok();
                });
            }
        });
        port
    }
}

pub fn pem(certificate: &CertificateDer<'_>) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(certificate);
    format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
}

/// What a server says.
pub type Said = StreamBody<BoxStream<'static, Result<Frame<Bytes>, Infallible>>>;

pub fn said(frames: Vec<Frame<Bytes>>) -> Said {
    StreamBody::new(futures::stream::iter(frames.into_iter().map(Ok)).boxed())
}

async fn tell(
    mut request: Request<Incoming>,
    kind: Kind,
    seen: Seen,
) -> Result<Response<Said>, hyper::Error> {
    if kind == Kind::Trailers {
        let trailers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), "0".parse().unwrap())]);
        let frames = vec![Frame::data(Bytes::from_static(b"said")), Frame::trailers(trailers)];
        return Ok(Response::builder().header("trailer", "grpc-status").body(said(frames)).unwrap());
    }
    if kind == Kind::Upgrade {
        let upgrading = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let Ok(upgraded) = upgrading.await else { return };
            let mut stream = TokioIo::new(upgraded);
            let mut buffer = vec![0; 4096];
            while let Ok(count @ 1..) = stream.read(&mut buffer).await {
                stream.write_all(&buffer[..count]).await.ok();
            }
        });
        let response = Response::builder().status(101).header("connection", "upgrade");
        return Ok(response.header("upgrade", "websocket").body(said(Vec::new())).unwrap());
    }
    let (parts, body) = request.into_parts();
    let mut text = format!("{:?} {} {}\n", parts.version, parts.method, parts.uri);
    for (name, value) in &parts.headers {
        text.push_str(&format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes())));
    }
    let body = body.collect().await?;
    let trailers = body.trailers().cloned();
    let bytes = body.to_bytes();
    let beginning = String::from_utf8_lossy(&bytes[..bytes.len().min(80)]).into_owned();
    text.push_str(&format!("body: {} {beginning}\n", bytes.len()));
    if let Some(trailers) = trailers {
        text.push_str(&format!("trailers: {trailers:?}\n"));
    }
    seen.lock().unwrap().push(text.clone());
    Ok(Response::new(said(vec![Frame::data(Bytes::from(text))])))
}

/// The swaps of a test, which can be changed, and what it hears of them.
#[derive(Debug, Default)]
pub struct Secrets {
    pub secrets: Mutex<Vec<SecretSubstitution>>,
    pub strays: Mutex<Vec<StrayPlaceholder>>,
    pub used: Mutex<Vec<SecretUse>>,
    pub reflections: Mutex<Vec<Reflection>>,
}

impl SecretSource for Secrets {
    fn current(&self) -> Arc<[SecretSubstitution]> {
        self.secrets.lock().unwrap().clone().into()
    }

    fn masking(&self, host: &Host) -> ResponseMasking {
        let secrets = self.current();
        if !secrets.iter().any(|swap| swap.is_for(host)) {
            return ResponseMasking::NotNeeded;
        }
        let values = secrets.iter().map(|swap| ("KEY", swap.value.as_str()));
        SecretFinder::new(values)
            .unwrap()
            .map_or(ResponseMasking::TooShort, |finder| ResponseMasking::Mask(Arc::new(finder)))
    }

    fn masks_any(&self) -> bool {
        !self.secrets.lock().unwrap().is_empty()
    }

    fn placeholder_strayed(&self, stray: &StrayPlaceholder) {
        self.strays.lock().unwrap().push(stray.clone());
    }

    fn secret_used(&self, used: &SecretUse, _: &Target) {
        self.used.lock().unwrap().push(used.clone());
    }

    fn secret_reflected(&self, reflection: &Reflection) {
        self.reflections.lock().unwrap().push(reflection.clone());
    }
}

pub const PLACEHOLDER: &str = "isle-secret-key-00112233445566778899aabbccddeeff";

pub fn secret(value: &str, host: &str) -> SecretSubstitution {
    SecretSubstitution {
        placeholder: PLACEHOLDER.into(),
        value: Zeroizing::new(value.into()),
        hosts: vec![Pattern::parse(host).unwrap()],
        places: Placements::default(),
    }
}

/// The same, placed elsewhere.
pub fn placed(value: &str, host: &str, places: &[&str]) -> SecretSubstitution {
    SecretSubstitution { places: Placements::parse(places).unwrap(), ..secret(value, host) }
}

pub fn gate(world: &World, grants: &[String], secrets: &Arc<Secrets>) -> Arc<Gate> {
    let table = ["api.test", "other.test"].map(|name| (Name::parse(name).unwrap(), vec![LOOPBACK]));
    let secrets: Arc<dyn SecretSource> = Arc::clone(secrets) as _;
    let gate = Gate::new(Arc::new(Resolver::new(Table::from(table)))).with_trusted_cas(world.trusted_cas());
    let gate = gate.with_secrets(secrets);
    for text in grants {
        gate.grant(Grant::parse(text).unwrap());
    }
    Arc::new(gate)
}

/// A program's connection to a name, before any word.
pub fn connect(gate: &Arc<Gate>, host: &str, port: u16) -> (TcpStream, JoinHandle<Outcome>) {
    let listener = std::net::TcpListener::bind((LOOPBACK, 0)).unwrap();
    let near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    near.set_nonblocking(true).unwrap();
    let near = TcpStream::from_std(near).unwrap();
    let mut far = SandboxStream::new(far.into()).unwrap();
    let (gate, host) = (Arc::clone(gate), host.to_owned());
    (near, tokio::spawn(async move { gate.serve(&host, port, &mut far).await }))
}

/// A program's TLS connection that believes what is in `trusted` only.
pub async fn connect_tls(
    gate: &Arc<Gate>,
    host: &str,
    port: u16,
    trusted: &str,
    spoken: &[&str],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(trusted.as_bytes()) {
        store.add(certificate.unwrap()).unwrap();
    }
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(store)
        .with_no_client_auth();
    config.alpn_protocols = spoken.iter().map(|one| one.as_bytes().to_vec()).collect();
    let name = ServerName::try_from(host.to_owned()).unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, connect(gate, host, port).0).await
}

/// A connection that believes the gate's authority.
pub async fn inside(gate: &Arc<Gate>, host: &str, port: u16, spoken: &[&str]) -> TlsStream<TcpStream> {
    let trusted = gate.authority().unwrap().pem();
    match connect_tls(gate, host, port, &trusted, spoken).await {
        Ok(stream) => stream,
        Err(error) => panic!("{error}; {:?}", gate.log().entries),
    }
}

/// Says words over HTTP/1 and hears everything until the end.
pub async fn say(gate: &Arc<Gate>, host: &str, port: u16, words: &str) -> String {
    let mut stream = inside(gate, host, port, &["http/1.1"]).await;
    stream.write_all(words.as_bytes()).await.unwrap();
    let mut heard = Vec::new();
    stream.read_to_end(&mut heard).await.ok();
    String::from_utf8_lossy(&heard).into_owned()
}

/// A GET over HTTP/1 with fields.
pub async fn get(gate: &Arc<Gate>, host: &str, port: u16, path: &str, fields: &str) -> String {
    let head = format!("GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n{fields}\r\n");
    say(gate, host, port, &head).await
}
