//! The control socket inside the sandbox. Its lines are relayed to the daemon and the answers back; nothing
//! is interpreted or decided here.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use isle_setup::{CONTROL_DIRECTORY, CONTROL_SOCKET, SANDBOX_ID};
use isle_wire::{
    CONTROL_CONNECTIONS, CONTROL_LINE, ControlAnswer, ControlEvent, ControlLine, Failure, FailureKind,
    FrameError, Reply, Stream, read_frame, write_message,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;

use crate::guest_stream::GuestStream;
use crate::mode::{GuestUsers, Mode, NetworkAccess};
use crate::serve::Shared;

/// Why a request was not sent to the daemon.
pub(crate) const NOT_CONNECTED: &str = "no daemon is connected to the sandbox; retry in a moment";
/// Why there is no answer to a request that was sent.
pub(crate) const DISCONNECTED: &str = "the daemon disconnected; whether the request was executed is unknown";
/// Timeout for the next line of a client.
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);
/// Timeout for a client to read an answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// How often it is checked whether a waiting client is still connected.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Its state.
#[derive(Default)]
pub(crate) struct Control {
    listening: Cell<bool>,
    open: Cell<usize>,
    relay: RefCell<Option<Rc<Relay>>>,
}

/// The stream to the current daemon, and the clients that wait for its answers.
struct Relay {
    events: mpsc::Sender<ControlEvent>,
    waiting: RefCell<HashMap<u32, mpsc::Sender<ControlAnswer>>>,
    next: Cell<u32>,
}

/// Relays lines until the daemon closes the stream.
pub(crate) async fn relay(stream: Stream, agent: Shared) -> Result<(), FrameError> {
    let (mut reader, mut writer) = tokio::io::split(stream);
    if let Err(error) = listen(&agent) {
        let failure = Failure {
            kind: FailureKind::Other,
            errno: error.raw_os_error().unwrap_or(0),
            doing: "create the control socket".into(),
        };
        write_message(&mut writer, &Reply::Failed(failure)).await?;
        writer.shutdown().await.ok();
        return Ok(());
    }
    write_message(&mut writer, &Reply::Done).await?;
    let (events, mut queued) = mpsc::channel(CONTROL_CONNECTIONS);
    let relay = Rc::new(Relay { events, waiting: RefCell::default(), next: Cell::new(0) });
    if let Some(before) = agent.control.relay.replace(Some(relay.clone())) {
        before.hang_up();
    }
    let answers = async {
        while let Some(frame) = read_frame(&mut reader).await? {
            relay.answer(frame.decode()?);
        }
        Ok(())
    };
    let lines = async {
        while let Some(event) = queued.recv().await {
            write_message(&mut writer, &event).await?;
        }
        Ok(())
    };
    let ended = tokio::select! { ended = answers => ended, ended = lines => ended };
    relay.hang_up();
    let mut current = agent.control.relay.borrow_mut();
    if current.as_ref().is_some_and(|current| Rc::ptr_eq(current, &relay)) {
        *current = None;
    }
    ended
}

impl Relay {
    /// Passes an answer to the client that waits for it, unless it has disconnected.
    fn answer(&self, answer: ControlAnswer) {
        let connection = match &answer {
            ControlAnswer::Line(line) => line.connection,
            ControlAnswer::Close(connection) => *connection,
        };
        if let Some(waiting) = self.waiting.borrow().get(&connection) {
            // There is room for one, and one is expected.
            waiting.try_send(answer).ok();
        }
    }

    /// Disconnects all waiting clients.
    fn hang_up(&self) {
        self.waiting.borrow_mut().clear();
    }
}

/// Creates the socket, once.
fn listen(agent: &Shared) -> io::Result<()> {
    if agent.control.listening.get() {
        return Ok(());
    }
    if agent.mode.network == NetworkAccess::SocketPairs {
        // Commands cannot create sockets: they ask for a connection by a denied call, see `connection`.
        agent.control.listening.set(true);
        return Ok(());
    }
    let (directory, socket) =
        (resolved(&agent.mode, CONTROL_DIRECTORY)?, resolved(&agent.mode, CONTROL_SOCKET)?);
    match std::fs::DirBuilder::new().mode(0o755).create(&directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    match std::fs::remove_file(&socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let listener = UnixListener::bind(&socket)?;
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o600))?;
    if agent.mode.users == GuestUsers::Switched {
        chown(&socket, Some(SANDBOX_ID), Some(SANDBOX_ID))?;
    }
    agent.control.listening.set(true);
    tokio::task::spawn_local(accept(listener, agent.clone()));
    Ok(())
}

/// A path of the control directory. Without a root of its own the sandbox has none unless one was given.
fn resolved(mode: &Mode, path: &str) -> io::Result<PathBuf> {
    let real = mode.paths.resolve(path.as_bytes());
    if !mode.paths.is_own_root() && matches!(real, Cow::Borrowed(_)) {
        return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
    }
    Ok(OsString::from_vec(real.into_owned()).into())
}

async fn accept(listener: UnixListener, agent: Shared) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // No descriptor is free; retried later.
            tokio::time::sleep(CHECK_INTERVAL).await;
            continue;
        };
        admit(GuestStream::new(stream), &agent).await;
    }
}

/// Serves a connection, unless there are too many.
async fn admit(stream: GuestStream, agent: &Shared) {
    let control = &agent.control;
    if control.open.get() >= CONTROL_CONNECTIONS {
        refuse(stream, "LIMIT_REACHED", "too many connections to the control socket").await;
        return;
    }
    control.open.set(control.open.get() + 1);
    let agent = agent.clone();
    tokio::task::spawn_local(async move {
        serve(stream, &agent).await;
        agent.control.open.set(agent.control.open.get() - 1);
    });
}

/// A connection for a command that cannot create sockets; `None` in other modes, or when there is no control
/// socket.
pub(crate) async fn connection(agent: &Shared) -> Option<OwnedFd> {
    if agent.mode.network != NetworkAccess::SocketPairs || !agent.control.listening.get() {
        return None;
    }
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().ok()?;
    ours.set_nonblocking(true).ok()?;
    admit(GuestStream::new(UnixStream::from_std(ours).ok()?), agent).await;
    Some(theirs.into())
}

/// Serves one connection until it ends.
async fn serve(stream: GuestStream, agent: &Shared) {
    let Some(relay) = agent.control.relay.borrow().clone() else {
        refuse(stream, "DAEMON_UNAVAILABLE", NOT_CONNECTED).await;
        return;
    };
    let connection = relay.next.get();
    relay.next.set(connection.wrapping_add(1));
    let (answers, mut answered) = mpsc::channel(1);
    relay.waiting.borrow_mut().insert(connection, answers);
    if relay.events.send(ControlEvent::Opened(connection)).await.is_ok() {
        converse(stream, &relay, connection, &mut answered).await;
    }
    relay.waiting.borrow_mut().remove(&connection);
    relay.events.send(ControlEvent::Closed(connection)).await.ok();
}

async fn converse(
    stream: GuestStream,
    relay: &Relay,
    connection: u32,
    answered: &mut mpsc::Receiver<ControlAnswer>,
) {
    let mut stream = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        // One more than the maximum, so that a longer line is detected.
        let most = u64::try_from(CONTROL_LINE + 1).unwrap_or(u64::MAX);
        let mut limited = (&mut stream).take(most);
        let read = tokio::time::timeout(IDLE_TIMEOUT, limited.read_until(b'\n', &mut line)).await;
        if !matches!(read, Ok(Ok(count)) if count > 0) {
            return;
        }
        match line.pop() {
            Some(b'\n') => {}
            Some(last) if line.len() < CONTROL_LINE => line.push(last),
            Some(_) | None => {
                refuse(stream.into_inner(), "INVALID_REQUEST", "a line has more than 65536 bytes").await;
                return;
            }
        }
        let event = ControlEvent::Line(ControlLine { connection, line: line.into() });
        if relay.events.send(event).await.is_err() {
            return;
        }
        let answer = loop {
            tokio::select! {
                answer = answered.recv() => break answer,
                () = tokio::time::sleep(CHECK_INTERVAL) => {
                    if is_disconnected(stream.get_ref()) {
                        return;
                    }
                }
            }
        };
        match answer {
            Some(ControlAnswer::Line(ControlLine { line, .. })) => {
                let mut line: Vec<u8> = line.into();
                line.push(b'\n');
                if !send(stream.get_mut(), &line).await {
                    return;
                }
            }
            Some(ControlAnswer::Close(_)) => return,
            None => {
                refuse(stream.into_inner(), "DAEMON_UNAVAILABLE", DISCONNECTED).await;
                return;
            }
        }
    }
}

/// Whether both directions are closed. A client that only closed its writing side still waits for an answer.
fn is_disconnected(stream: &GuestStream) -> bool {
    let Some(descriptor) = stream.descriptor() else { return true };
    let mut look = [PollFd::from_borrowed_fd(descriptor, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut look, Some(&at_once)).is_ok() && look[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
}

async fn send(stream: &mut GuestStream, line: &[u8]) -> bool {
    matches!(tokio::time::timeout(WRITE_TIMEOUT, stream.write_all(line)).await, Ok(Ok(())))
}

/// Sends an error and disconnects. The texts are constants that need no escaping.
async fn refuse(mut stream: GuestStream, code: &str, message: &str) {
    let line = format!("{{\"id\":null,\"error\":{{\"code\":\"{code}\",\"message\":\"{message}\"}}}}\n");
    send(&mut stream, line.as_bytes()).await;
}
