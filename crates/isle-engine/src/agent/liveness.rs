//! Whether an agent answers. Nothing in a sandbox is trusted to be alive: whoever waits for an agent waits
//! only as long as it answers, and that is asked for only while somebody waits. One ticker looks after all
//! agents, and sleeps when nobody waits for any of them.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Notify, watch};

use isle_core::backend::Link;
use isle_core::{Code, Error};

/// How long an agent may leave a ping unanswered.
pub(crate) const ANSWER: Duration = Duration::from_secs(8);
/// How often the ticker looks.
pub(crate) const TICK: Duration = Duration::from_secs(1);
/// An agent whose runs nobody waits for is asked every so many ticks.
const RARELY: u64 = 5;
/// After so many ticks in which nobody waited, the ticker sleeps.
const QUIET: u32 = 10;

/// The error for a sandbox whose agent does not answer.
pub(crate) fn unresponsive() -> Error {
    let seconds = ANSWER.as_secs();
    Error::new(
        Code::SandboxUnresponsive,
        format!("the agent of the sandbox does not answer (no reply within {seconds} s); what it was asked may still happen"),
    )
    .next("try again: a sandbox whose agent answers again is used as before")
    .next("or destroy it: its workspace stays unless wiped, and the next call makes a fresh one")
}

/// Wakes the ticker; shared by all agents of an engine.
#[derive(Debug, Default)]
pub(crate) struct Attention {
    asleep: AtomicBool,
    wanted: Notify,
}

impl Attention {
    fn call(&self) {
        if self.asleep.load(Ordering::Acquire) {
            self.wanted.notify_one();
        }
    }

    /// Ticks for as long as `look` says that somebody waits, sleeps until somebody does, and so on until
    /// `look` says that there is nothing left to look after.
    pub(crate) async fn tick(&self, mut look: impl FnMut(u64) -> Option<bool>) {
        let (mut number, mut quiet) = (0, 0);
        loop {
            tokio::time::sleep(TICK).await;
            number += 1;
            let Some(waits) = look(number) else { return };
            quiet = if waits { 0 } else { quiet + 1 };
            if quiet >= QUIET {
                self.asleep.store(true, Ordering::Release);
                // Every so often anyway, so that it ends with its engine.
                tokio::time::timeout(Duration::from_secs(20), self.wanted.notified()).await.ok();
                self.asleep.store(false, Ordering::Release);
            }
        }
    }
}

/// What changed about an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// It does not answer.
    Silent,
    /// It answers again.
    Answers,
}

/// What is known of one agent.
#[derive(Debug)]
pub(crate) struct Liveness {
    attention: Arc<Attention>,
    /// Times something came from it.
    heard: AtomicU64,
    /// Calls that wait for it, and runs that are followed.
    calls: AtomicUsize,
    runs: AtomicUsize,
    silent: watch::Sender<bool>,
    wakers: Mutex<HashMap<u64, Waker>>,
    next: AtomicU64,
    asked: Mutex<Asked>,
}

/// What the ticker remembers between two looks.
#[derive(Debug, Default)]
struct Asked {
    heard: u64,
    ping: Option<Instant>,
}

/// What the ticker does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// Nothing.
    Nothing,
    /// Ping it.
    Ping,
    /// Tell of a change.
    Changed(Change),
}

impl Liveness {
    pub(crate) fn new(attention: Arc<Attention>) -> Arc<Self> {
        Arc::new(Self {
            attention,
            heard: AtomicU64::new(0),
            calls: AtomicUsize::new(0),
            runs: AtomicUsize::new(0),
            silent: watch::Sender::new(false),
            wakers: Mutex::default(),
            next: AtomicU64::new(0),
            asked: Mutex::default(),
        })
    }

    pub(crate) fn is_silent(&self) -> bool {
        *self.silent.borrow()
    }

    /// Resolves when it does not answer any more.
    pub(crate) async fn falls_silent(&self) {
        // The sender is part of this.
        self.silent.subscribe().wait_for(|silent| *silent).await.ok();
    }

    /// Whether anybody waits for it.
    pub(crate) fn is_wanted(&self) -> bool {
        self.calls.load(Ordering::Relaxed) > 0 || self.runs.load(Ordering::Relaxed) > 0
    }

    /// One look. `always` when it keeps limits that nobody else keeps.
    pub(crate) fn look(&self, number: u64, always: bool) -> Look {
        let mut asked = crate::lock(&self.asked);
        let heard = self.heard.load(Ordering::Relaxed);
        if heard != asked.heard {
            *asked = Asked { heard, ping: None };
            if self.silent.send_replace(false) {
                return Look::Changed(Change::Answers);
            }
            return Look::Nothing;
        }
        if let Some(since) = asked.ping {
            if since.elapsed() < ANSWER || self.silent.send_replace(true) {
                return Look::Nothing;
            }
            drop(asked);
            for (_, waker) in std::mem::take(&mut *crate::lock(&self.wakers)) {
                waker.wake();
            }
            return Look::Changed(Change::Silent);
        }
        let rarely = (always || self.runs.load(Ordering::Relaxed) > 0) && number.is_multiple_of(RARELY);
        if self.calls.load(Ordering::Relaxed) == 0 && !rarely {
            return Look::Nothing;
        }
        asked.ping = Some(Instant::now());
        Look::Ping
    }
}

/// What a stream is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Somebody waits for an answer, and gets an error when the agent is silent.
    Call,
    /// A run is followed; what happens when the agent is silent is decided by whoever follows.
    Run,
    /// It may be quiet for as long as it likes.
    Idle,
}

/// A stream of an agent.
#[derive(Debug)]
pub(crate) struct AgentStream {
    stream: isle_wire::Stream,
    liveness: Arc<Liveness>,
    purpose: Purpose,
    key: u64,
    counted: bool,
}

impl AgentStream {
    pub(super) fn new(stream: isle_wire::Stream, liveness: &Arc<Liveness>, purpose: Purpose) -> Self {
        let key = liveness.next.fetch_add(1, Ordering::Relaxed);
        Self { stream, liveness: Arc::clone(liveness), purpose, key, counted: false }
    }

    /// From now on nobody waits for what comes on it.
    pub(crate) fn may_be_quiet(&mut self) {
        self.goes_on();
        self.purpose = Purpose::Idle;
    }

    fn counter(&self) -> Option<&AtomicUsize> {
        match self.purpose {
            Purpose::Call => Some(&self.liveness.calls),
            Purpose::Run => Some(&self.liveness.runs),
            Purpose::Idle => None,
        }
    }

    /// It waits.
    fn waits<T>(&mut self, context: &Context<'_>) -> Poll<io::Result<T>> {
        if !self.counted
            && let Some(counter) = self.counter()
        {
            counter.fetch_add(1, Ordering::Relaxed);
            self.counted = true;
            self.liveness.attention.call();
        }
        if self.purpose == Purpose::Call {
            crate::lock(&self.liveness.wakers).insert(self.key, context.waker().clone());
            if self.liveness.is_silent() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
        Poll::Pending
    }

    fn goes_on(&mut self) {
        if std::mem::take(&mut self.counted) {
            if let Some(counter) = self.counter() {
                counter.fetch_sub(1, Ordering::Relaxed);
            }
            if self.purpose == Purpose::Call {
                crate::lock(&self.liveness.wakers).remove(&self.key);
            }
        }
    }

    fn polled<T>(&mut self, context: &Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        match polled {
            Poll::Pending => self.waits(context),
            ready @ Poll::Ready(_) => {
                self.goes_on();
                ready
            }
        }
    }
}

impl Drop for AgentStream {
    fn drop(&mut self) {
        self.goes_on();
    }
}

impl AsyncRead for AgentStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.polled(context, polled)
    }
}

impl AsyncWrite for AgentStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.polled(context, polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        self.polled(context, polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_shutdown(context);
        self.polled(context, polled)
    }
}

/// A link on which is counted that something comes.
pub(super) struct HeardLink {
    pub(super) link: Box<dyn Link>,
    pub(super) liveness: Arc<Liveness>,
}

impl AsyncRead for HeardLink {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.link).poll_read(context, buffer);
        if polled.is_ready() {
            self.liveness.heard.fetch_add(1, Ordering::Relaxed);
        }
        polled
    }
}

impl AsyncWrite for HeardLink {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.link).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.link).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.link).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.link).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.link.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An agent that was asked longer ago than it may take.
    fn asked_long_ago(liveness: &Liveness) {
        crate::lock(&liveness.asked).ping = Instant::now().checked_sub(ANSWER + TICK);
    }

    #[test]
    fn an_agent_nobody_waits_for_is_not_asked() {
        let liveness = Liveness::new(Arc::default());
        assert_eq!(liveness.look(RARELY, false), Look::Nothing);
        liveness.runs.store(1, Ordering::Relaxed);
        assert_eq!(liveness.look(RARELY + 1, false), Look::Nothing, "a run can wait a little");
        assert_eq!(liveness.look(RARELY * 2, false), Look::Ping);
    }

    #[test]
    fn one_that_keeps_limits_is_asked_though_nobody_waits() {
        let liveness = Liveness::new(Arc::default());
        assert_eq!(liveness.look(RARELY, true), Look::Ping);
        assert!(!liveness.is_wanted());
    }

    #[test]
    fn one_that_does_not_answer_is_told_of_once_and_so_is_its_return() {
        let liveness = Liveness::new(Arc::default());
        liveness.calls.store(1, Ordering::Relaxed);
        assert_eq!(liveness.look(1, false), Look::Ping);
        assert_eq!(liveness.look(2, false), Look::Nothing, "it has time to answer");
        asked_long_ago(&liveness);
        assert_eq!(liveness.look(3, false), Look::Changed(Change::Silent));
        assert_eq!(liveness.look(4, false), Look::Nothing);
        assert!(liveness.is_silent());
        liveness.heard.fetch_add(1, Ordering::Relaxed);
        assert_eq!(liveness.look(5, false), Look::Changed(Change::Answers));
        assert!(!liveness.is_silent());
        assert_eq!(liveness.look(6, false), Look::Ping, "somebody still waits");
    }

    #[test]
    fn anything_that_comes_is_an_answer() {
        let liveness = Liveness::new(Arc::default());
        liveness.calls.store(1, Ordering::Relaxed);
        assert_eq!(liveness.look(1, false), Look::Ping);
        liveness.heard.fetch_add(1, Ordering::Relaxed);
        assert_eq!(liveness.look(2, false), Look::Nothing);
        assert!(!liveness.is_silent());
    }

    #[test]
    fn the_error_is_retryable_and_names_what_to_do() {
        let error = unresponsive();
        assert!(error.code.retryable() && error.next_steps.len() == 2, "{error:?}");
    }
}
