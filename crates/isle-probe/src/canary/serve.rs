//! The canary process: creates everything, prints where it is, then answers connections with the secret until
//! standard input ends.

use std::io::{self, Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::Path;
use std::process::ExitCode;

use super::objects::{self, Arguments, Shared};

/// Runs until standard input ends.
pub(crate) fn serve(directory: &Path, secret: &str) -> ExitCode {
    match be_canary(directory, secret.to_owned().leak()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("isle-probe: could not set up the canary: {error}");
            ExitCode::FAILURE
        }
    }
}

fn be_canary(directory: &Path, secret: &'static str) -> io::Result<()> {
    let token = secret.rsplit(':').next().unwrap_or_default();
    let mut arguments = Vec::new();
    objects::files(directory, secret, &mut arguments)?;
    objects::identity(secret, &mut arguments)?;
    let _shared = Shared::make(secret, token, &mut arguments)?;
    let _terminal = objects::terminal(&mut arguments);
    let doors = Doors::open(directory, token, &mut arguments)?;
    let mut out = io::stdout().lock();
    for (name, value) in &arguments {
        writeln!(out, "--{name}={value}")?;
    }
    writeln!(out)?;
    out.flush()?;
    drop(out);
    doors.answer(secret)
}

/// All servers.
struct Doors {
    tcp: Vec<TcpListener>,
    unix: Vec<UnixListener>,
    udp: UdpSocket,
    datagrams: Vec<UnixDatagram>,
}

impl Doors {
    fn open(directory: &Path, token: &str, arguments: &mut Arguments) -> io::Result<Self> {
        let mut add =
            |name: &str, value: &dyn std::fmt::Display| arguments.push((name.to_owned(), value.to_string()));
        let four = TcpListener::bind("127.0.0.1:0")?;
        add("tcp", &four.local_addr()?.port());
        let mut tcp = vec![four];
        if let Ok(six) = TcpListener::bind("[::1]:0") {
            add("tcp6", &six.local_addr()?.port());
            tcp.push(six);
        }
        let udp = UdpSocket::bind("127.0.0.1:0")?;
        add("udp", &udp.local_addr()?.port());
        let open_to_all =
            |path: &Path| std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777));
        let (stream, datagram) = (directory.join("canary.sock"), directory.join("datagram.sock"));
        let mut unix = vec![UnixListener::bind(&stream)?];
        let mut datagrams = vec![UnixDatagram::bind(&datagram)?];
        open_to_all(&stream)?;
        open_to_all(&datagram)?;
        add("socket", &stream.display());
        add("datagram", &datagram.display());
        let name = format!("isle-canary-{token}");
        unix.push(UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?);
        let datagram_name = format!("{name}-datagram");
        datagrams.push(UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&datagram_name)?)?);
        add("abstract", &name);
        add("abstract-datagram", &datagram_name);
        Ok(Self { tcp, unix, udp, datagrams })
    }

    fn answer(&self, secret: &str) -> io::Result<()> {
        self.udp.set_nonblocking(true)?;
        loop {
            let mut polled: Vec<libc::pollfd> =
                self.descriptors().map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
            let count = libc::nfds_t::try_from(polled.len()).unwrap_or(0);
            library_call!(poll(polled.as_mut_ptr(), count, -1))?;
            for ready in polled.iter().filter(|one| one.revents != 0).map(|one| one.fd) {
                if ready == 0 && io::stdin().read(&mut [0; 64])? == 0 {
                    return Ok(());
                }
                self.greet(ready, secret);
            }
        }
    }

    fn descriptors(&self) -> impl Iterator<Item = RawFd> + '_ {
        let tcp = self.tcp.iter().map(AsRawFd::as_raw_fd);
        let unix = self.unix.iter().map(AsRawFd::as_raw_fd);
        let datagrams = self.datagrams.iter().map(AsRawFd::as_raw_fd);
        [0, self.udp.as_raw_fd()].into_iter().chain(tcp).chain(unix).chain(datagrams)
    }

    /// Errors of clients that disconnect early are ignored.
    fn greet(&self, ready: RawFd, secret: &str) {
        let word = secret.as_bytes();
        if let Some(Ok((mut peer, _))) =
            self.tcp.iter().find(|one| one.as_raw_fd() == ready).map(TcpListener::accept)
        {
            peer.write_all(word).ok();
        }
        if let Some(Ok((mut peer, _))) =
            self.unix.iter().find(|one| one.as_raw_fd() == ready).map(UnixListener::accept)
        {
            peer.write_all(word).ok();
        }
        let mut piece = [0; 64];
        if self.udp.as_raw_fd() == ready
            && let Ok((_, peer)) = self.udp.recv_from(&mut piece)
        {
            self.udp.send_to(word, peer).ok();
        }
        if let Some(socket) = self.datagrams.iter().find(|one| one.as_raw_fd() == ready) {
            socket.recv(&mut piece).ok();
        }
    }
}
