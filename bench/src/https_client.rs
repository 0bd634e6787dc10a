//! The HTTPS client of the TLS interception benchmark: this program itself, started in a sandbox or with a
//! proxy. A client in an interpreted language would measure itself.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::process::ExitCode;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// The first word of its command line.
pub(crate) const WORD: &str = "ask-for-pages";

/// The options of the client.
#[derive(Debug, Clone)]
pub(crate) struct ClientOptions {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Port of a proxy on loopback; 0 for none.
    pub(crate) proxy: u16,
    /// A file with the CA to trust.
    pub(crate) authority: String,
    /// Open at the same time, each with one request at a time.
    pub(crate) connections: usize,
    pub(crate) milliseconds: u64,
}

impl ClientOptions {
    /// As command line arguments.
    pub(crate) fn words(&self) -> Vec<String> {
        let Self { host, port, proxy, authority, connections, milliseconds } = self;
        vec![
            WORD.to_owned(),
            host.clone(),
            port.to_string(),
            proxy.to_string(),
            authority.clone(),
            connections.to_string(),
            milliseconds.to_string(),
        ]
    }

    fn parse(words: &[String]) -> Option<Self> {
        let [host, port, proxy, authority, connections, milliseconds] = words else { return None };
        Some(Self {
            host: host.clone(),
            port: port.parse().ok()?,
            proxy: proxy.parse().ok()?,
            authority: authority.clone(),
            connections: connections.parse().ok()?,
            milliseconds: milliseconds.parse().ok()?,
        })
    }
}

/// Sends requests, and prints the number of responses per second.
pub(crate) fn main(words: &[String]) -> ExitCode {
    let asked = match ClientOptions::parse(words) {
        Some(options) => ask(&options),
        None => Err(io::Error::other("this is for isle-bench itself")),
    };
    match asked {
        Ok(rate) => {
            println!("{rate}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn ask(options: &ClientOptions) -> io::Result<f64> {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_file(&options.authority).map_err(io::Error::other)?;
    roots.add(authority).map_err(io::Error::other)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let config = Arc::new(config);
    let ready = Barrier::new(options.connections);
    let rates: Vec<io::Result<f64>> = thread::scope(|scope| {
        let clients: Vec<_> = (0..options.connections)
            .map(|_| scope.spawn(|| ask_again_and_again(options, Arc::clone(&config), &ready)))
            .collect();
        clients
            .into_iter()
            .map(|one| one.join().unwrap_or_else(|_| Err(io::Error::other("a thread ended"))))
            .collect()
    });
    rates.into_iter().sum()
}

/// Over one connection; returns its responses per second.
fn ask_again_and_again(
    options: &ClientOptions,
    config: Arc<ClientConfig>,
    ready: &Barrier,
) -> io::Result<f64> {
    let connected = Asker::connect(options, config).and_then(|mut asker| asker.page().map(|()| asker));
    // Failed ones have to come here, too, or the others would wait for them.
    ready.wait();
    let mut asker = connected?;
    let (begin, mut pages) = (Instant::now(), 0_u32);
    while begin.elapsed() < Duration::from_millis(options.milliseconds) {
        asker.page()?;
        pages += 1;
    }
    Ok(f64::from(pages) / begin.elapsed().as_secs_f64())
}

struct Asker {
    stream: StreamOwned<ClientConnection, TcpStream>,
    request: Vec<u8>,
    heard: Vec<u8>,
}

impl Asker {
    fn connect(options: &ClientOptions, config: Arc<ClientConfig>) -> io::Result<Self> {
        let ClientOptions { host, port, proxy, .. } = options;
        let stream = if *proxy == 0 {
            TcpStream::connect((host.as_str(), *port))?
        } else {
            let mut stream = TcpStream::connect(("127.0.0.1", *proxy))?;
            write!(stream, "CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n")?;
            let (mut heard, mut byte) = (Vec::new(), [0]);
            while !heard.ends_with(b"\r\n\r\n") {
                stream.read_exact(&mut byte)?;
                heard.extend_from_slice(&byte);
            }
            if !heard.starts_with(b"HTTP/1.1 200 ") {
                return Err(io::Error::other(String::from_utf8_lossy(&heard).into_owned()));
            }
            stream
        };
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let name = ServerName::try_from(host.clone()).map_err(io::Error::other)?;
        let connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
        let request = format!("GET /page HTTP/1.1\r\nHost: {host}:{port}\r\nAccept: */*\r\n\r\n");
        Ok(Self {
            stream: StreamOwned::new(connection, stream),
            request: request.into_bytes(),
            heard: Vec::new(),
        })
    }

    /// One page, whole.
    fn page(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.request)?;
        self.heard.clear();
        let mut piece = [0; 4096];
        loop {
            match self.stream.read(&mut piece)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => self.heard.extend_from_slice(&piece[..count]),
            }
            let Some(head) = self.heard.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
            let text = String::from_utf8_lossy(&self.heard[..head]).to_ascii_lowercase();
            if !text.starts_with("http/1.1 200 ") {
                return Err(io::Error::other(String::from_utf8_lossy(&self.heard).into_owned()));
            }
            let length = text.lines().find_map(|line| line.strip_prefix("content-length:"));
            let length: usize = length.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
            if self.heard.len() >= head + 4 + length {
                return Ok(());
            }
        }
    }
}
