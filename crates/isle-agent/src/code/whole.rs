//! An interpreter that is one process: kept by a context for call after call, or used once. One task
//! per interpreter reads all it says, gives it to the call going on, and winds both up.

use std::cell::{Cell as Flag, RefCell};
use std::pin::pin;
use std::rc::Rc;

use bytes::Bytes;
use isle_wire::{ContextFate, Exit};

use super::control::Control;
use super::process::{Mode, Started};
use super::{fail, outputs};
use crate::output::Channel;
use crate::run::{Output, drain, finish, keep};
use crate::runs::{Reaped, Run};
use crate::serve::Shared;
use crate::spent::Spent;
use crate::tree;

/// What is kept of output between two calls.
const BETWEEN: usize = 64 * 1024;

/// One interpreter.
pub(super) struct Interpreter {
    pub(super) process: Rc<Run>,
    pub(super) control: Control,
    mode: Mode,
    call: RefCell<Option<Rc<Run>>>,
    between: RefCell<Vec<(Channel, Bytes)>>,
    news: tokio::sync::Notify,
    gone: Flag<bool>,
    /// What it took until the end of the last call. Its start is the first call's.
    charged: Flag<Spent>,
}

impl Interpreter {
    /// Takes an interpreter into keeping.
    pub(super) fn new(agent: &Shared, mode: Mode, started: Started) -> Rc<Self> {
        let Started { process, control, output, stdin: _ } = started;
        let interpreter = Rc::new(Self {
            process,
            control,
            mode,
            call: RefCell::default(),
            between: RefCell::default(),
            news: tokio::sync::Notify::new(),
            gone: Flag::new(false),
            charged: Flag::new(Spent::NOTHING),
        });
        tokio::task::spawn_local(interpreter.clone().keep(agent.clone(), output));
        interpreter
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone.get() || self.process.state.borrow().exit.is_some()
    }

    /// The call going on.
    pub(super) fn call(&self) -> Option<Rc<Run>> {
        self.call.borrow().clone()
    }

    /// From now on everything it says is this call's, what it said since the last one included.
    pub(super) fn begin(&self, run: &Rc<Run>) {
        self.process.state.borrow_mut().on_behalf = Rc::downgrade(run);
        for chunk in self.between.take() {
            keep(run, Some(chunk));
        }
        self.call.replace(Some(run.clone()));
        self.news.notify_one();
    }

    fn hear(&self, chunk: Option<(Channel, Bytes)>) {
        if let Some(run) = self.call() {
            return keep(&run, chunk);
        }
        let Some(chunk) = chunk else { return };
        let mut between = self.between.borrow_mut();
        between.push(chunk);
        let mut held: usize = between.iter().map(|(_, bytes)| bytes.len()).sum();
        while held > BETWEEN && between.len() > 1 {
            held -= between.remove(0).1.len();
        }
    }

    async fn keep(self: Rc<Self>, agent: Shared, mut output: Output) {
        let mut speaking = true;
        while self.process.state.borrow().exit.is_none() {
            let call = self.call();
            let mut process = pin!(self.process.changed.notified());
            process.as_mut().enable();
            if self.process.state.borrow().exit.is_some() {
                break;
            }
            let full = call.as_ref().is_some_and(|run| run.state.borrow().fresh.is_full());
            tokio::select! {
                () = process => {}
                () = self.news.notified() => {}
                () = room(call.as_deref()), if full => {}
                chunk = output.read(), if output.is_open() && !full => self.hear(chunk),
                message = self.control.next(), if speaking => match message {
                    None => speaking = false,
                    Some(message) => self.told(&agent, message.kind, message.payload, &mut output),
                },
            }
        }
        self.wind_up(&agent, &mut output).await;
    }

    fn told(&self, agent: &Shared, kind: u8, payload: Bytes, output: &mut Output) {
        let Some(run) = self.call() else { return };
        let number = || String::from_utf8_lossy(&payload).trim().parse().unwrap_or(0);
        match kind {
            b'R' => run.state.borrow_mut().report = Some(payload),
            b'D' => {
                let spent = match self.mode {
                    Mode::Context | Mode::Server => self.spent_since_the_last_call(),
                    // Not the last of it, or not by itself: then its end is what counts.
                    Mode::Once => match self.last_of_all(agent, &run) {
                        Some(spent) => spent,
                        None => return,
                    },
                };
                // All it printed was written before this word.
                while let Some(chunk) = outputs::read_now(output) {
                    keep(&run, Some(chunk));
                }
                self.over(&run);
                run.state.borrow_mut().exit = Some(Reaped { exit: Exit::Code(number()), spent });
                finish(&run, 0);
            }
            b'E' => {
                self.over(&run);
                let error = std::io::Error::from_raw_os_error(number());
                fail(&run, crate::files::failure(&error, "enter the working directory"));
            }
            _ => {}
        }
    }

    /// Ends an interpreter whose only call is over, and says what it used. `None` when that is not the whole
    /// end: whatever a call started is gone before its end is told.
    fn last_of_all(&self, agent: &Shared, run: &Run) -> Option<Spent> {
        if run.state.borrow().killed.is_some() {
            return None;
        }
        let pid = tree::only_process(agent, &self.process)?;
        let spent = Spent::of_living(pid);
        tree::end_first(&self.process);
        Some(spent)
    }

    /// What a call took in an interpreter that outlives it.
    fn spent_since_the_last_call(&self) -> Spent {
        let Some(pid) = tree::first_process(&self.process) else { return Spent::UNKNOWN };
        let now = Spent::of_living(pid);
        now.since(self.charged.replace(now))
    }

    fn over(&self, run: &Rc<Run>) {
        if self.call().is_some_and(|call| Rc::ptr_eq(&call, run)) {
            self.call.replace(None);
        }
        self.process.state.borrow_mut().on_behalf = std::rc::Weak::new();
    }

    /// The interpreter has ended: everything it left ends, and the call with it.
    async fn wind_up(&self, agent: &Shared, output: &mut Output) {
        self.gone.set(true);
        let leftovers = tree::end_leftovers(agent, &self.process).await;
        // Its last words may still be on their way.
        while let Some(message) = self.control.next_now() {
            if message.kind == b'R'
                && let Some(run) = self.call()
            {
                run.state.borrow_mut().report = Some(message.payload);
            } else {
                self.told(agent, message.kind, message.payload, output);
            }
        }
        let call = self.call();
        if let Some(run) = &call {
            drain(run, output).await;
        }
        let reaped = {
            let mut state = self.process.state.borrow_mut();
            state.on_behalf = std::rc::Weak::new();
            let spent = |reaped: Reaped| reaped.spent.and(state.others).since(self.charged.get());
            state.exit.map(|reaped| Reaped { spent: spent(reaped), ..reaped })
        };
        finish(&self.process, leftovers);
        agent.runs.remove(&self.process.id);
        self.call.replace(None);
        if let Some(run) = call {
            {
                let mut state = run.state.borrow_mut();
                state.exit = reaped;
                state.context = state.context.map(|_| ContextFate::Ended);
            }
            finish(&run, leftovers);
        }
    }
}

/// Resolves when something about a call changed, such as room for more of its output.
async fn room(run: Option<&Run>) {
    match run {
        Some(run) => run.changed.notified().await,
        None => std::future::pending().await,
    }
}
