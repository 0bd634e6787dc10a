//! Standard input of a run: a pipe, or its terminal. It belongs to the run and not to the stream that
//! started it, so that clients that attach later can write to a background job.

use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use isle_wire::{Failure, FailureKind, InputRequest, Reply, TerminalSize};
use tokio::io::unix::AsyncFd;
use tokio::time::Instant as Deadline;

use crate::run::Run;
use crate::serve::Shared;
use crate::spawn;

/// What a terminal interprets as end of input.
const END_OF_TRANSMISSION: u8 = 4;

/// See the module.
#[derive(Default)]
pub(crate) struct Stdin {
    pipe: RefCell<Option<Rc<AsyncFd<OwnedFd>>>>,
    terminal: RefCell<Option<Rc<AsyncFd<OwnedFd>>>>,
    /// Serialises writers, so that their input is not interleaved.
    turn: tokio::sync::Mutex<()>,
}

impl Stdin {
    /// A pipe, or nothing.
    pub(crate) fn pipe(stdin: Option<AsyncFd<OwnedFd>>) -> Self {
        Self { pipe: RefCell::new(stdin.map(Rc::new)), ..Self::default() }
    }

    /// A terminal.
    pub(crate) fn terminal(master: Rc<AsyncFd<OwnedFd>>) -> Self {
        Self { terminal: RefCell::new(Some(master)), ..Self::default() }
    }

    fn target(&self) -> Option<Rc<AsyncFd<OwnedFd>>> {
        let terminal = self.terminal.borrow().clone();
        terminal.or_else(|| self.pipe.borrow().clone())
    }

    /// Writes everything. What a program does not read after closing its input is dropped.
    pub(crate) async fn write(&self, bytes: &[u8]) {
        let _turn = self.turn.lock().await;
        if let Some(target) = self.target()
            && !write_all(&target, bytes).await
        {
            self.pipe.replace(None);
        }
    }

    /// Closes the pipe, or sends the end-of-input character to the terminal.
    pub(crate) async fn end(&self) {
        let _turn = self.turn.lock().await;
        self.finish().await;
    }

    async fn finish(&self) {
        self.pipe.replace(None);
        let terminal = self.terminal.borrow().clone();
        if let Some(terminal) = terminal {
            write_all(&terminal, &[END_OF_TRANSMISSION]).await;
        }
    }

    /// Closes both.
    pub(crate) fn close(&self) {
        self.pipe.replace(None);
        self.terminal.replace(None);
    }

    /// Resizes the terminal.
    pub(crate) fn resize(&self, size: TerminalSize) {
        if let Some(terminal) = &*self.terminal.borrow() {
            spawn::resize(terminal.get_ref(), size).ok();
        }
    }

    /// The foreground process group of the terminal.
    pub(crate) fn foreground(&self) -> Option<i32> {
        let terminal = self.terminal.borrow();
        let group = rustix::termios::tcgetpgrp(terminal.as_ref()?.get_ref()).ok()?;
        Some(group.as_raw_nonzero().get())
    }
}

/// Writes everything; `false` when the other end is closed.
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

/// Handles an input request.
pub(crate) async fn input(agent: &Shared, request: &InputRequest) -> Reply {
    let failed = |kind, errno, doing: &str| {
        Reply::Failed(Failure { kind, errno, doing: format!("{doing} {}", request.run) })
    };
    let known = agent.runs.get(&request.run).filter(|run| run.state.borrow().ended.is_none());
    let Some(run) = known else { return failed(FailureKind::NoSuchRun, libc::ESRCH, "write to") };
    if let Some(size) = request.resize {
        run.stdin.resize(size);
    }
    if request.bytes.is_empty() && !request.end {
        return Reply::Taken(0);
    }
    let closed = || failed(FailureKind::InputClosed, libc::EPIPE, "write to");
    let taken = Cell::new(0);
    let writing = async {
        let _turn = run.stdin.turn.lock().await;
        let Some(target) = run.stdin.target() else { return false };
        if !write_counted(&target, &request.bytes, &taken).await {
            run.stdin.pipe.replace(None);
            return taken.get() > 0;
        }
        if request.end {
            run.stdin.finish().await;
        }
        true
    };
    let deadline = Deadline::now() + Duration::from_millis(request.patience_ms);
    tokio::select! {
        biased;
        written = writing => if written { Reply::Taken(taken.get()) } else { closed() },
        () = finished(&run) => failed(FailureKind::NoSuchRun, libc::ESRCH, "write to"),
        () = tokio::time::sleep_until(deadline) => Reply::Taken(taken.get()),
    }
}

/// Resolves when a run has a result.
async fn finished(run: &Run) {
    loop {
        let mut changed = pin!(run.changed.notified());
        changed.as_mut().enable();
        if run.state.borrow().ended.is_some() {
            return;
        }
        changed.await;
    }
}
