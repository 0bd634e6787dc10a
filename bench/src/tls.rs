//! A TLS server on loopback with its own CA that answers every request with the same page, on persistent
//! connections.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// How long a page is.
const PAGE: usize = 1024;

/// A server that answers until the benchmark ends.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) port: u16,
    /// Its CA certificate, in PEM.
    pub(crate) authority: String,
}

impl Server {
    /// One that has these names.
    pub(crate) fn start(names: &[&str]) -> io::Result<Self> {
        let (config, authority) = config(names).map_err(io::Error::other)?;
        let config = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let config = Arc::clone(&config);
                // Errors are reported by the client.
                thread::spawn(move || answer(stream, config));
            }
        });
        Ok(Self { port, authority })
    }
}

fn config(names: &[&str]) -> Result<(ServerConfig, String), Box<dyn std::error::Error + Send + Sync>> {
    let own_key = KeyPair::generate()?;
    let mut own = CertificateParams::new(Vec::new())?;
    // Another subject than the server's: equal subjects would count as self-signed.
    own.distinguished_name.push(DnType::CommonName, "Authority of isle-bench");
    own.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = own.self_signed(&own_key)?;
    let issuer = Issuer::new(own, own_key);
    let key = KeyPair::generate()?;
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let certificate = CertificateParams::new(names)?.signed_by(&key, &issuer)?;
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)?;
    let lines: Vec<String> = STANDARD
        .encode(authority.der())
        .as_bytes()
        .chunks(64)
        .map(|line| String::from_utf8_lossy(line).into_owned())
        .collect();
    let pem = format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"));
    Ok((config, pem))
}

fn answer(stream: TcpStream, config: Arc<ServerConfig>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let connection = ServerConnection::new(config).map_err(io::Error::other)?;
    let mut stream = StreamOwned::new(connection, stream);
    let mut page = format!("HTTP/1.1 200 OK\r\nContent-Length: {PAGE}\r\n\r\n").into_bytes();
    page.resize(page.len() + PAGE, b'.');
    let (mut heard, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut piece)? {
            0 => return Ok(()),
            count => heard.extend_from_slice(&piece[..count]),
        }
        while let Some(end) = heard.windows(4).position(|window| window == b"\r\n\r\n") {
            heard.drain(..end + 4);
            stream.write_all(&page)?;
        }
    }
}
