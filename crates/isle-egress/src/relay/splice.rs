//! Bulk data, moved by the kernel from one socket to the other through a pipe with splice(2), without a copy
//! in this process. It runs on a separate thread: a process in the sandbox may still have the socket and make
//! it blocking, and splice(2) has no flag against that for sockets. Then only its own connection blocks,
//! until it is cut. The number of such threads is bounded; without one the data is copied.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{RecvFlags, sockopt};
use rustix::pipe::{PipeFlags, SpliceFlags};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit, oneshot};

use crate::accounting::grant_counters::{Direction, GrantCounters};
use crate::http::body_length::{ChunkState, RemainingBody};
use crate::relay::sandbox_stream::{self, SEND, SandboxStream};
use crate::relay::{HalfStream, HalfStreams, PORTION, RelayError};

/// Threads in the whole process.
static THREADS: Semaphore = Semaphore::const_new(32);
/// Threads of one grant.
pub(crate) const THREADS_OF_ONE: usize = 4;
/// Stack size: calls are few and small.
const STACK: usize = 128 * 1024;
/// Pipe size; the kernel may allow less.
const PIPE: usize = 1024 * 1024;
/// Steps of one direction before the other has its turn.
const TURNS: usize = 8;
/// After this long without a byte the thread ends.
const QUIET: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// How splicing ended.
pub(crate) enum Spliced {
    /// Both sides have ended.
    All,
    /// There is little to move, or there was no thread. Returns the server's socket.
    Some(TcpStream),
}

/// A slot for a thread.
struct ThreadSlot {
    _all: SemaphorePermit<'static>,
    _own: OwnedSemaphorePermit,
}

impl ThreadSlot {
    fn take(counters: &GrantCounters) -> Option<Self> {
        let _own = Arc::clone(&counters.threads).try_acquire_owned().ok()?;
        let _all = THREADS.try_acquire().ok()?;
        Some(Self { _all, _own })
    }
}

/// Splices between two sockets for as long as there is much to move.
pub(crate) async fn splice_bulk(
    inside: &mut SandboxStream,
    outside: TcpStream,
    ways: &mut HalfStreams,
    counters: &Arc<GrantCounters>,
) -> Result<Spliced, RelayError> {
    // Chunks have to be parsed.
    let plain = !matches!(ways.sent.count, RemainingBody::ChunkState(chunk) if chunk != ChunkState::Over)
        && inside.has_read_all();
    let (Some(seat), true) = (ThreadSlot::take(counters), plain) else { return Ok(Spliced::Some(outside)) };
    let Some(socket) = inside.lend() else { return Ok(Spliced::Some(outside)) };
    let (give, take) = std::sync::mpsc::sync_channel::<SpliceTask>(1);
    let (done, back) = oneshot::channel();
    let work = move || {
        if let Ok(mut load) = take.recv() {
            let ended = load.splice_bulk();
            done.send((load, ended)).ok();
        }
    };
    let (Ok(pipes), Ok(_)) = (
        Pipe::new().and_then(|sent| Ok((sent, Pipe::new()?))),
        std::thread::Builder::new().name("isle-splice".into()).stack_size(STACK).spawn(work),
    ) else {
        inside.watch()?;
        return Ok(Spliced::Some(outside));
    };
    let taken = |way: &mut HalfStream| {
        let nothing = HalfStream::new(way.direction, way.count, 0);
        std::mem::replace(way, nothing)
    };
    let cut = Arc::new(AtomicBool::new(false));
    let load = SpliceTask {
        outside: outside.into_std()?,
        inside: socket,
        sent: taken(&mut ways.sent),
        received: taken(&mut ways.received),
        pipes,
        counters: Arc::clone(counters),
        cut: Arc::clone(&cut),
        _seat: seat,
    };
    let guard = CutOnDrop { inside, cut: Some(cut) };
    give.send(load).map_err(|_| aborted())?;
    let (load, ended) = back.await.map_err(|_| aborted())?;
    guard.disarm();
    let SpliceTask { outside, sent, received, .. } = load;
    *ways = HalfStreams { sent, received };
    if let Err(RelayError::Broken(_)) = &ended {
        sockopt::set_socket_linger(&outside, Some(Duration::ZERO)).ok();
    }
    match ended? {
        SpliceEnd::Both => Ok(Spliced::All),
        SpliceEnd::Quiet => {
            inside.watch()?;
            Ok(Spliced::Some(TcpStream::from_std(outside)?))
        }
    }
}

fn aborted() -> RelayError {
    RelayError::Broken(io::ErrorKind::ConnectionAborted.into())
}

/// Cuts the connection when the caller is cancelled.
struct CutOnDrop<'i> {
    inside: &'i SandboxStream,
    cut: Option<Arc<AtomicBool>>,
}

impl CutOnDrop<'_> {
    fn disarm(mut self) {
        self.cut = None;
    }
}

impl Drop for CutOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(cut) = &self.cut {
            cut.store(true, Ordering::Release);
            self.inside.cut();
        }
    }
}

/// The work of one thread.
struct SpliceTask {
    outside: std::net::TcpStream,
    inside: Arc<OwnedFd>,
    sent: HalfStream,
    received: HalfStream,
    pipes: (Pipe, Pipe),
    counters: Arc<GrantCounters>,
    cut: Arc<AtomicBool>,
    _seat: ThreadSlot,
}

/// Why a thread ended without an error.
enum SpliceEnd {
    Both,
    Quiet,
}

/// What one direction does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Continue.
    More,
    /// Wait for bytes.
    Read,
    /// Wait until the socket is writable.
    Write,
    /// Nothing: it has ended.
    Nothing,
    /// There are out-of-band bytes, which splice(2) does not pass.
    OutOfBand,
}

impl SpliceTask {
    fn splice_bulk(&mut self) -> Result<SpliceEnd, RelayError> {
        let mut idle_rounds = 0;
        loop {
            if self.cut.load(Ordering::Acquire) {
                return Err(aborted());
            }
            let before = self.progress();
            let (inside, outside) = (self.inside.as_fd(), self.outside.as_fd());
            let sent = step(&mut self.sent, &mut self.pipes.0, inside, outside, &self.counters)?;
            let received = step(&mut self.received, &mut self.pipes.1, outside, inside, &self.counters)?;
            if (sent, received) == (Next::Nothing, Next::Nothing) {
                return Ok(SpliceEnd::Both);
            }
            idle_rounds = if self.progress() == before { idle_rounds + 1 } else { 0 };
            // Before an out-of-band byte there is nothing to read, although poll(2) reports that there is.
            let out_of_band = sent == Next::OutOfBand || received == Next::OutOfBand || idle_rounds > 3;
            // The contents of a pipe are copied to memory at the end, and must not exceed the usual buffer.
            let heavy = self.pipes.0.held.max(self.pipes.1.held) > PORTION;
            if out_of_band && !heavy {
                break;
            }
            if sent == Next::More || received == Next::More {
                continue;
            }
            let mut waiting: Vec<PollFd<'_>> = [(sent, inside, outside), (received, outside, inside)]
                .iter()
                .filter_map(|(next, from, to)| match next {
                    Next::Read if !out_of_band => Some(PollFd::from_borrowed_fd(*from, PollFlags::IN)),
                    Next::Write => Some(PollFd::from_borrowed_fd(*to, PollFlags::OUT)),
                    Next::Read | Next::More | Next::Nothing | Next::OutOfBand => None,
                })
                .collect();
            match rustix::event::poll(&mut waiting, Some(&QUIET)) {
                Ok(0) if !heavy => break,
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
        self.pipes.0.empty_into(&mut self.sent)?;
        self.pipes.1.empty_into(&mut self.received)?;
        Ok(SpliceEnd::Quiet)
    }

    /// Values that change with every byte that is moved.
    fn progress(&self) -> [(usize, u64, usize); 2] {
        [(&self.sent, &self.pipes.0), (&self.received, &self.pipes.1)]
            .map(|(way, pipe)| (way.start, way.moved, pipe.held))
    }
}

/// Moves what is available in one direction, without waiting.
fn step(
    way: &mut HalfStream,
    pipe: &mut Pipe,
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    counters: &GrantCounters,
) -> Result<Next, RelayError> {
    for _ in 0..TURNS {
        if way.start < way.end {
            match rustix::net::send(to, &way.buffer[way.start..way.end], SEND) {
                Ok(count) => way.start += count,
                Err(Errno::AGAIN) => return Ok(Next::Write),
                Err(Errno::INTR) => {}
                Err(error) => return Err(io::Error::from(error).into()),
            }
        } else if pipe.held > 0 {
            match splice(pipe.reader.as_fd(), to, pipe.held) {
                Ok(count) => pipe.held -= count,
                Err(Errno::AGAIN) => return Ok(Next::Write),
                Err(Errno::INTR) => {}
                Err(error) => return Err(io::Error::from(error).into()),
            }
        } else if way.over {
            return Ok(Next::Nothing);
        } else if way.exhausted {
            return Err(RelayError::Exhausted);
        } else {
            match pipe.fill(from, way) {
                // An out-of-band byte may precede the end.
                Ok(0) if !has_ended(from) => return Ok(Next::OutOfBand),
                Ok(0) => {
                    match way.direction {
                        Direction::Sent => rustix::net::shutdown(to, rustix::net::Shutdown::Write)
                            .map_err(io::Error::from)?,
                        Direction::Received => sandbox_stream::end(to)?,
                    }
                    way.over = true;
                }
                Ok(count) if way.may_go() => {
                    way.went(count);
                    // The rest of the pipe is discarded.
                    pipe.held = way.claim(counters, count);
                }
                // Discarded.
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(Next::Read),
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
    }
    Ok(Next::More)
}

/// Whether nothing is left to read.
fn has_ended(from: BorrowedFd<'_>) -> bool {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    !matches!(rustix::net::recv(from, &mut [0], flags), Ok((1.., _)))
}

fn splice(from: BorrowedFd<'_>, to: BorrowedFd<'_>, most: usize) -> rustix::io::Result<usize> {
    rustix::pipe::splice(from, None, to, None, most, SpliceFlags::MOVE | SpliceFlags::NONBLOCK)
}

impl HalfStream {
    /// Whether the next bytes are passed on.
    fn may_go(&self) -> bool {
        match self.count {
            RemainingBody::Anything => true,
            RemainingBody::Left(left) => left > 0,
            RemainingBody::ChunkState(_) => false,
        }
    }

    fn went(&mut self, count: usize) {
        if let RemainingBody::Left(left) = &mut self.count {
            *left = left.saturating_sub(count as u64);
        }
    }
}

/// A pipe between two sockets.
struct Pipe {
    reader: OwnedFd,
    writer: OwnedFd,
    /// Bytes in it.
    held: usize,
}

impl Pipe {
    fn new() -> io::Result<Self> {
        let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // The pipe memory of a user is limited; the default size works, too.
        rustix::pipe::fcntl_setpipe_size(&writer, PIPE).ok();
        Ok(Self { reader, writer, held: 0 })
    }

    /// Reads from a socket, or discards the bytes if they are not passed on.
    fn fill(&self, from: BorrowedFd<'_>, way: &HalfStream) -> rustix::io::Result<usize> {
        if !way.may_go() {
            return rustix::net::recv(from, &mut [0; 4096], RecvFlags::DONTWAIT).map(|(count, _)| count);
        }
        let most = match way.count {
            RemainingBody::Left(left) => PIPE.min(usize::try_from(left).unwrap_or(usize::MAX)),
            RemainingBody::Anything | RemainingBody::ChunkState(_) => PIPE,
        };
        splice(from, self.writer.as_fd(), most)
    }

    /// Moves the contents of the pipe into the buffer of its direction.
    fn empty_into(&mut self, way: &mut HalfStream) -> io::Result<()> {
        if self.held > 0 {
            let mut bytes = vec![0; self.held];
            let mut read = 0;
            while read < bytes.len() {
                match rustix::io::read(&self.reader, &mut bytes[read..])? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    count => read += count,
                }
            }
            (way.start, way.end) = (0, bytes.len());
            way.buffer = bytes;
            self.held = 0;
        }
        Ok(())
    }
}
