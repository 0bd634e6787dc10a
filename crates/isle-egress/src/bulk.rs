//! Bulk data, moved by the kernel from one socket to the other through a pipe, without a copy in this
//! process. A thread of its own does it for as long as much flows: whoever handed the program's socket over
//! may still hold it and make it block, and splice(2) has no word of its own against that. Here it would
//! hold up its own connection only, until that is cut. The number of such threads is bounded; who finds
//! none is copied on.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::pipe::{PipeFlags, SpliceFlags};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit, oneshot};

use crate::account::{Direction, Tally};
use crate::body::{Chunk, Count};
use crate::inside::{self, Inside, SEND};
use crate::relay::{PORTION, Stopped, Way, Ways};

/// Connections that have a thread, in the whole process.
static THREADS: Semaphore = Semaphore::const_new(32);
/// Those of one grant.
pub(crate) const THREADS_OF_ONE: usize = 4;
/// Its calls are few and small.
const STACK: usize = 128 * 1024;
/// Bytes in a pipe, at most; where the kernel has not so much for us, it is less.
const PIPE: usize = 1024 * 1024;
/// Portions of one way before the other has its turn.
const TURNS: usize = 8;
/// After this long without a byte a connection needs no thread.
const QUIET: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// How far it came.
pub(crate) enum Carried {
    /// Both sides have ended.
    All,
    /// What is left is too little to be worth it, or there was no thread. The other side's socket again.
    Some(TcpStream),
}

/// A thread, of those there may be.
struct Seat {
    _all: SemaphorePermit<'static>,
    _own: OwnedSemaphorePermit,
}

impl Seat {
    fn take(tally: &Tally) -> Option<Self> {
        let _own = Arc::clone(&tally.threads).try_acquire_owned().ok()?;
        let _all = THREADS.try_acquire().ok()?;
        Some(Self { _all, _own })
    }
}

/// Carries bulk data between two sides for as long as there is much of it.
pub(crate) async fn carry(
    inside: &mut Inside,
    outside: TcpStream,
    ways: &mut Ways,
    tally: &Arc<Tally>,
) -> Result<Carried, Stopped> {
    // Chunks have to be looked at.
    let plain =
        !matches!(ways.sent.count, Count::Chunk(chunk) if chunk != Chunk::Over) && inside.has_read_all();
    let (Some(seat), true) = (Seat::take(tally), plain) else { return Ok(Carried::Some(outside)) };
    let (give, take) = std::sync::mpsc::sync_channel::<Load>(1);
    let (done, back) = oneshot::channel();
    let work = move || {
        if let Ok(mut load) = take.recv() {
            let ended = load.carry();
            done.send((load, ended)).ok();
        }
    };
    let (Ok(pipes), Ok(_)) = (
        Pipe::new().and_then(|sent| Ok((sent, Pipe::new()?))),
        std::thread::Builder::new().name("isle-bulk".into()).stack_size(STACK).spawn(work),
    ) else {
        return Ok(Carried::Some(outside));
    };
    let taken = |way: &mut Way| {
        let nothing = Way::new(way.direction, way.count, 0);
        std::mem::replace(way, nothing)
    };
    let cut = Arc::new(AtomicBool::new(false));
    let load = Load {
        outside: outside.into_std()?,
        inside: inside.lend(),
        sent: taken(&mut ways.sent),
        received: taken(&mut ways.received),
        pipes,
        tally: Arc::clone(tally),
        cut: Arc::clone(&cut),
        _seat: seat,
    };
    let guard = Guard { inside, cut: Some(cut) };
    give.send(load).map_err(|_| gone())?;
    let (load, ended) = back.await.map_err(|_| gone())?;
    guard.disarm();
    let Load { outside, sent, received, .. } = load;
    *ways = Ways { sent, received };
    match ended? {
        Ended::Both => Ok(Carried::All),
        Ended::Quiet => {
            inside.watch()?;
            Ok(Carried::Some(TcpStream::from_std(outside)?))
        }
    }
}

fn gone() -> Stopped {
    Stopped::Broken(io::ErrorKind::ConnectionAborted.into())
}

/// Cuts the connection when nobody waits for it any more.
struct Guard<'i> {
    inside: &'i Inside,
    cut: Option<Arc<AtomicBool>>,
}

impl Guard<'_> {
    fn disarm(mut self) {
        self.cut = None;
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if let Some(cut) = &self.cut {
            cut.store(true, Ordering::Release);
            self.inside.cut();
        }
    }
}

/// What a thread has.
struct Load {
    outside: std::net::TcpStream,
    inside: Arc<OwnedFd>,
    sent: Way,
    received: Way,
    pipes: (Pipe, Pipe),
    tally: Arc<Tally>,
    cut: Arc<AtomicBool>,
    _seat: Seat,
}

/// Why a thread has ended well.
enum Ended {
    Both,
    Quiet,
}

/// What one way is about to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Go on.
    More,
    /// Wait for bytes.
    Read,
    /// Wait for room.
    Write,
    /// Nothing any more.
    Nothing,
    /// There are bytes that only somebody who copies gets past.
    Odd,
}

impl Load {
    fn carry(&mut self) -> Result<Ended, Stopped> {
        let mut in_vain = 0;
        loop {
            if self.cut.load(Ordering::Acquire) {
                return Err(gone());
            }
            let before = self.progress();
            let (inside, outside) = (self.inside.as_fd(), self.outside.as_fd());
            let sent = step(&mut self.sent, &mut self.pipes.0, inside, outside, &self.tally)?;
            let received = step(&mut self.received, &mut self.pipes.1, outside, inside, &self.tally)?;
            if (sent, received) == (Next::Nothing, Next::Nothing) {
                return Ok(Ended::Both);
            }
            in_vain = if self.progress() == before { in_vain + 1 } else { 0 };
            // Before a byte out of band there seems to be nothing to read, although it is told that there is.
            let odd = sent == Next::Odd || received == Next::Odd || in_vain > 3;
            // What a pipe holds becomes this process's memory at the end, and is to be no more than elsewhere.
            let heavy = self.pipes.0.held.max(self.pipes.1.held) > PORTION;
            if odd && !heavy {
                break;
            }
            if sent == Next::More || received == Next::More {
                continue;
            }
            let mut waiting: Vec<PollFd<'_>> = [(sent, inside, outside), (received, outside, inside)]
                .iter()
                .filter_map(|(next, from, to)| match next {
                    Next::Read if !odd => Some(PollFd::from_borrowed_fd(*from, PollFlags::IN)),
                    Next::Write => Some(PollFd::from_borrowed_fd(*to, PollFlags::OUT)),
                    Next::Read | Next::More | Next::Nothing | Next::Odd => None,
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
        Ok(Ended::Quiet)
    }

    /// What changes with every byte that moves.
    fn progress(&self) -> [(usize, u64, usize); 2] {
        [(&self.sent, &self.pipes.0), (&self.received, &self.pipes.1)]
            .map(|(way, pipe)| (way.start, way.moved, pipe.held))
    }
}

/// Moves what one way has without waiting.
fn step(
    way: &mut Way,
    pipe: &mut Pipe,
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    tally: &Tally,
) -> Result<Next, Stopped> {
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
            return Err(Stopped::Exhausted);
        } else {
            match pipe.fill(from, way) {
                // A byte out of band may be before the end.
                Ok(0) if !has_ended(from) => return Ok(Next::Odd),
                Ok(0) => {
                    match way.direction {
                        Direction::Sent => rustix::net::shutdown(to, rustix::net::Shutdown::Write)
                            .map_err(io::Error::from)?,
                        Direction::Received => inside::end(to)?,
                    }
                    way.over = true;
                }
                Ok(count) if way.may_go() => {
                    way.went(count);
                    // What is in the pipe behind that goes nowhere.
                    pipe.held = way.claim(tally, count);
                }
                // Thrown away.
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(Next::Read),
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
    }
    Ok(Next::More)
}

/// Whether nothing is left to be read.
fn has_ended(from: BorrowedFd<'_>) -> bool {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    !matches!(rustix::net::recv(from, &mut [0], flags), Ok((1.., _)))
}

fn splice(from: BorrowedFd<'_>, to: BorrowedFd<'_>, most: usize) -> rustix::io::Result<usize> {
    rustix::pipe::splice(from, None, to, None, most, SpliceFlags::MOVE | SpliceFlags::NONBLOCK)
}

impl Way {
    /// Whether what comes now goes anywhere.
    fn may_go(&self) -> bool {
        match self.count {
            Count::Anything => true,
            Count::Left(left) => left > 0,
            Count::Chunk(_) => false,
        }
    }

    fn went(&mut self, count: usize) {
        if let Count::Left(left) = &mut self.count {
            *left = left.saturating_sub(count as u64);
        }
    }
}

/// Between two sockets.
struct Pipe {
    reader: OwnedFd,
    writer: OwnedFd,
    /// Bytes in it.
    held: usize,
}

impl Pipe {
    fn new() -> io::Result<Self> {
        let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // What a user may have in pipes is bounded; the usual size does it, too.
        rustix::pipe::fcntl_setpipe_size(&writer, PIPE).ok();
        Ok(Self { reader, writer, held: 0 })
    }

    /// Takes a portion from a socket, or throws it away where nothing may go.
    fn fill(&self, from: BorrowedFd<'_>, way: &Way) -> rustix::io::Result<usize> {
        if !way.may_go() {
            return rustix::net::recv(from, &mut [0; 4096], RecvFlags::DONTWAIT).map(|(count, _)| count);
        }
        let most = match way.count {
            Count::Left(left) => PIPE.min(usize::try_from(left).unwrap_or(usize::MAX)),
            Count::Anything | Count::Chunk(_) => PIPE,
        };
        splice(from, self.writer.as_fd(), most)
    }

    /// Puts what is in it where the next step of its way looks for it.
    fn empty_into(&mut self, way: &mut Way) -> io::Result<()> {
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
