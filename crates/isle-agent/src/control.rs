//! The control socket inside the sandbox. Its lines go to the daemon and the daemon's answers come back;
//! nothing is understood or decided here, so nothing in the sandbox can be talked into anything.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::rc::Rc;
use std::time::Duration;

use isle_linux::setup::{CONTROL_DIRECTORY, CONTROL_SOCKET, SANDBOX_ID};
use isle_wire::{
    CONTROL_CONNECTIONS, CONTROL_LINE, ControlAnswer, ControlEvent, ControlLine, Failure, FailureKind,
    FrameError, Reply, Stream, read_frame, write_message,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;

use crate::place;
use crate::serve::Shared;

/// How long a connection may say nothing.
const SILENCE: Duration = Duration::from_secs(300);
/// How long somebody may take to read an answer.
const READING: Duration = Duration::from_secs(30);
/// How often it is looked whether somebody who waits is still there.
const LOOK: Duration = Duration::from_millis(500);

/// What there is of it.
#[derive(Default)]
pub(crate) struct Control {
    listening: Cell<bool>,
    open: Cell<usize>,
    relay: RefCell<Option<Rc<Relay>>>,
}

/// The way to the daemon that listens now, and who waits for its answers.
struct Relay {
    events: mpsc::Sender<ControlEvent>,
    waiting: RefCell<HashMap<u32, mpsc::Sender<ControlAnswer>>>,
    next: Cell<u32>,
}

/// Carries lines for as long as the daemon keeps the stream.
pub(crate) async fn relay(stream: Stream, agent: Shared) -> Result<(), FrameError> {
    let (mut reader, mut writer) = tokio::io::split(stream);
    if let Err(error) = listen(&agent) {
        let failure = Failure {
            kind: FailureKind::Other,
            errno: error.raw_os_error().unwrap_or(0),
            doing: "make the control socket".into(),
        };
        write_message(&mut writer, &Reply::Failed(failure)).await?;
        writer.shutdown().await.ok();
        return Ok(());
    }
    write_message(&mut writer, &Reply::Done).await?;
    let (events, mut told) = mpsc::channel(CONTROL_CONNECTIONS);
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
        while let Some(event) = told.recv().await {
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
    /// Hands an answer to whoever waits for it; who left meanwhile gets none.
    fn answer(&self, answer: ControlAnswer) {
        let connection = match &answer {
            ControlAnswer::Line(line) => line.connection,
            ControlAnswer::Close(connection) => *connection,
        };
        if let Some(waiting) = self.waiting.borrow().get(&connection) {
            // There is room for one, and one is all that is due.
            waiting.try_send(answer).ok();
        }
    }

    /// Nobody gets an answer any more.
    fn hang_up(&self) {
        self.waiting.borrow_mut().clear();
    }
}

/// Makes the socket, once.
fn listen(agent: &Shared) -> io::Result<()> {
    if agent.control.listening.get() {
        return Ok(());
    }
    if place::private().is_some() {
        // Among the host's processes there is no place that is the sandbox's alone, and no command has
        // sockets: connections are asked for by a call that is refused, see `connection`.
        agent.control.listening.set(true);
        return Ok(());
    }
    match std::fs::DirBuilder::new().mode(0o755).create(CONTROL_DIRECTORY) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    match std::fs::remove_file(CONTROL_SOCKET) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let listener = UnixListener::bind(CONTROL_SOCKET)?;
    std::fs::set_permissions(CONTROL_SOCKET, std::fs::Permissions::from_mode(0o600))?;
    chown(CONTROL_SOCKET, Some(SANDBOX_ID), Some(SANDBOX_ID))?;
    agent.control.listening.set(true);
    tokio::task::spawn_local(accept(listener, agent.clone()));
    Ok(())
}

async fn accept(listener: UnixListener, agent: Shared) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // No descriptor is free; that is not for ever.
            tokio::time::sleep(LOOK).await;
            continue;
        };
        admit(stream, &agent).await;
    }
}

/// Serves a connection, unless there are too many.
async fn admit(stream: UnixStream, agent: &Shared) {
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

/// A connection for a command that has no sockets; `None` where that is not how they are had, or where
/// there is nothing to connect to.
pub(crate) async fn connection(agent: &Shared) -> Option<OwnedFd> {
    if place::private().is_none() || !agent.control.listening.get() {
        return None;
    }
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().ok()?;
    ours.set_nonblocking(true).ok()?;
    admit(UnixStream::from_std(ours).ok()?, agent).await;
    Some(theirs.into())
}

/// One connection, to its end.
async fn serve(stream: UnixStream, agent: &Shared) {
    let Some(relay) = agent.control.relay.borrow().clone() else {
        refuse(stream, "INTERNAL_ERROR", "the daemon is away; try again in a moment").await;
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
    stream: UnixStream,
    relay: &Relay,
    connection: u32,
    answered: &mut mpsc::Receiver<ControlAnswer>,
) {
    let mut stream = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        // One byte more than a line may have, and its end: so a longer one is seen to be longer.
        let most = u64::try_from(CONTROL_LINE + 1).unwrap_or(u64::MAX);
        let mut limited = (&mut stream).take(most);
        let read = tokio::time::timeout(SILENCE, limited.read_until(b'\n', &mut line)).await;
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
                () = tokio::time::sleep(LOOK) => {
                    if has_hung_up(stream.get_ref()) {
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
                refuse(stream.into_inner(), "INTERNAL_ERROR", "the daemon went away; ask what became of it")
                    .await;
                return;
            }
        }
    }
}

/// Whether both ways are closed. Who only says nothing more still waits for an answer.
fn has_hung_up(stream: &UnixStream) -> bool {
    let mut look = [PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut look, Some(&at_once)).is_ok() && look[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
}

async fn send(stream: &mut UnixStream, line: &[u8]) -> bool {
    matches!(tokio::time::timeout(READING, stream.write_all(line)).await, Ok(Ok(())))
}

/// Says why not, and hangs up. The words are ours, so they need no quoting.
async fn refuse(mut stream: UnixStream, code: &str, message: &str) {
    let line = format!("{{\"id\":null,\"error\":{{\"code\":\"{code}\",\"message\":\"{message}\"}}}}\n");
    send(&mut stream, line.as_bytes()).await;
}
