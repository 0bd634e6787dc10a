//! Towards the program of a run: its standard input, or its terminal. It belongs to the run and not
//! to the stream that started it, so that a job can be written to by whoever comes later.

use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use isle_wire::{Failure, FailureKind, InputRequest, Reply, TerminalSize};
use tokio::io::unix::AsyncFd;
use tokio::time::Instant as Deadline;

use crate::runs::Run;
use crate::serve::Shared;
use crate::spawn;

/// What a terminal takes for the end of input.
const END_OF_TRANSMISSION: u8 = 4;

/// The way in.
#[derive(Default)]
pub(crate) struct Entrance {
    stdin: RefCell<Option<Rc<AsyncFd<OwnedFd>>>>,
    terminal: RefCell<Option<Rc<AsyncFd<OwnedFd>>>>,
    /// Who writes does so alone: what two send is never mixed.
    turn: tokio::sync::Mutex<()>,
}

impl Entrance {
    /// A pipe, or nothing.
    pub(crate) fn pipe(stdin: Option<AsyncFd<OwnedFd>>) -> Self {
        Self { stdin: RefCell::new(stdin.map(Rc::new)), ..Self::default() }
    }

    /// A terminal.
    pub(crate) fn terminal(master: Rc<AsyncFd<OwnedFd>>) -> Self {
        Self { terminal: RefCell::new(Some(master)), ..Self::default() }
    }

    fn target(&self) -> Option<Rc<AsyncFd<OwnedFd>>> {
        let terminal = self.terminal.borrow().clone();
        terminal.or_else(|| self.stdin.borrow().clone())
    }

    /// Writes everything. A program that has closed its input does not want it.
    pub(crate) async fn write(&self, bytes: &[u8]) {
        let _turn = self.turn.lock().await;
        if let Some(target) = self.target()
            && !write_all(&target, bytes).await
        {
            self.stdin.replace(None);
        }
    }

    /// Ends the input: closes the pipe, or says so to the terminal.
    pub(crate) async fn end(&self) {
        let _turn = self.turn.lock().await;
        self.finish().await;
    }

    async fn finish(&self) {
        self.stdin.replace(None);
        let terminal = self.terminal.borrow().clone();
        if let Some(terminal) = terminal {
            write_all(&terminal, &[END_OF_TRANSMISSION]).await;
        }
    }

    /// Lets go of it.
    pub(crate) fn close(&self) {
        self.stdin.replace(None);
        self.terminal.replace(None);
    }

    /// The window changed.
    pub(crate) fn resize(&self, size: TerminalSize) {
        if let Some(terminal) = &*self.terminal.borrow() {
            spawn::resize(terminal.get_ref(), size).ok();
        }
    }

    /// The process group in the foreground of its terminal.
    pub(crate) fn foreground(&self) -> Option<i32> {
        let terminal = self.terminal.borrow();
        let group = rustix::termios::tcgetpgrp(terminal.as_ref()?.get_ref()).ok()?;
        Some(group.as_raw_nonzero().get())
    }
}

/// Writes everything; `false` when nobody reads any more.
pub(crate) async fn write_all(target: &AsyncFd<OwnedFd>, bytes: &[u8]) -> bool {
    write_counted(target, bytes, &Cell::new(0)).await
}

async fn write_counted(target: &AsyncFd<OwnedFd>, mut bytes: &[u8], taken: &Cell<u64>) -> bool {
    while !bytes.is_empty() {
        let Ok(mut ready) = target.writable().await else { return false };
        match ready.try_io(|inner| rustix::io::write(inner.get_ref(), bytes).map_err(Into::into)) {
            Ok(Ok(count)) => {
                taken.set(taken.get() + count as u64);
                bytes = &bytes[count..];
            }
            Ok(Err(_)) => return false,
            Err(_would_block) => {}
        }
    }
    true
}

/// Serves a request for input.
pub(crate) async fn input(agent: &Shared, request: &InputRequest) -> Reply {
    let failed = |kind, errno, doing: &str| {
        Reply::Failed(Failure { kind, errno, doing: format!("{doing} {}", request.run) })
    };
    let known = agent.runs.get(&request.run).filter(|run| run.state.borrow().ended.is_none());
    let Some(run) = known else { return failed(FailureKind::NoSuchRun, libc::ESRCH, "write to") };
    if let Some(size) = request.resize {
        run.entrance.resize(size);
    }
    if request.bytes.is_empty() && !request.end {
        return Reply::Taken(0);
    }
    let closed = || failed(FailureKind::InputClosed, libc::EPIPE, "write to");
    let taken = Cell::new(0);
    let writing = async {
        let _turn = run.entrance.turn.lock().await;
        let Some(target) = run.entrance.target() else { return false };
        if !write_counted(&target, &request.bytes, &taken).await {
            run.entrance.stdin.replace(None);
            return taken.get() > 0;
        }
        if request.end {
            run.entrance.finish().await;
        }
        true
    };
    let patience = Deadline::now() + Duration::from_millis(request.patience_ms);
    tokio::select! {
        biased;
        written = writing => if written { Reply::Taken(taken.get()) } else { closed() },
        () = over(&run) => failed(FailureKind::NoSuchRun, libc::ESRCH, "write to"),
        () = tokio::time::sleep_until(patience) => Reply::Taken(taken.get()),
    }
}

/// Resolves when a run has ended.
async fn over(run: &Run) {
    loop {
        let mut changed = pin!(run.changed.notified());
        changed.as_mut().enable();
        if run.state.borrow().ended.is_some() {
            return;
        }
        changed.await;
    }
}
