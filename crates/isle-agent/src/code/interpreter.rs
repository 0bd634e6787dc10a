//! An interpreter that is one process: used by a context for one call after another, or for one call. One
//! task per interpreter reads its output, passes it to the current call, and finishes both.

use std::cell::{Cell as Flag, RefCell};
use std::pin::pin;
use std::rc::Rc;

use bytes::Bytes;
use isle_wire::{ContextFate, Exit};

use super::channel::InterpreterChannel;
use super::fail;
use super::read_now::read_now;
use super::start::{Mode, Started};
use crate::output::Channel;
use crate::processes;
use crate::resource_usage::ResourceUsage;
use crate::run::{Output, Reaped, Run, drain, finish, keep};
use crate::serve::Shared;

/// How much output is kept between two calls.
const MAX_BETWEEN: usize = 64 * 1024;

/// One interpreter.
pub(super) struct Interpreter {
    pub(super) process: Rc<Run>,
    pub(super) control: InterpreterChannel,
    mode: Mode,
    call: RefCell<Option<Rc<Run>>>,
    between: RefCell<Vec<(Channel, Bytes)>>,
    news: tokio::sync::Notify,
    gone: Flag<bool>,
    /// Its usage until the end of the last call. The first call is charged for the start.
    charged: Flag<ResourceUsage>,
}

impl Interpreter {
    /// Starts the task of a started interpreter.
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
            charged: Flag::new(ResourceUsage::ZERO),
        });
        tokio::task::spawn_local(interpreter.clone().run(agent.clone(), output));
        interpreter
    }

    pub(super) fn has_exited(&self) -> bool {
        self.gone.get() || self.process.state.borrow().exit.is_some()
    }

    /// The current call.
    pub(super) fn call(&self) -> Option<Rc<Run>> {
        self.call.borrow().clone()
    }

    /// Starts a call: all output belongs to it from now on, including what was written since the last one.
    pub(super) fn begin(&self, run: &Rc<Run>) {
        self.process.state.borrow_mut().on_behalf_of = Rc::downgrade(run);
        for chunk in self.between.take() {
            keep(run, Some(chunk));
        }
        self.call.replace(Some(run.clone()));
        self.news.notify_one();
    }

    fn keep_output(&self, chunk: Option<(Channel, Bytes)>) {
        if let Some(run) = self.call() {
            return keep(&run, chunk);
        }
        let Some(chunk) = chunk else { return };
        let mut between = self.between.borrow_mut();
        between.push(chunk);
        let mut held: usize = between.iter().map(|(_, bytes)| bytes.len()).sum();
        while held > MAX_BETWEEN && between.len() > 1 {
            held -= between.remove(0).1.len();
        }
    }

    async fn run(self: Rc<Self>, agent: Shared, mut output: Output) {
        let mut open = true;
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
                () = changed(call.as_deref()), if full => {}
                chunk = output.read(), if output.is_open() && !full => self.keep_output(chunk),
                message = self.control.next(), if open => match message {
                    None => open = false,
                    Some(message) => self.handle(&agent, message.kind, message.payload, &mut output),
                },
            }
        }
        self.finish(&agent, &mut output).await;
    }

    fn handle(&self, agent: &Shared, kind: u8, payload: Bytes, output: &mut Output) {
        let Some(run) = self.call() else { return };
        let number = || String::from_utf8_lossy(&payload).trim().parse().unwrap_or(0);
        match kind {
            b'R' => run.state.borrow_mut().report = Some(payload),
            b'D' => {
                let usage = match self.mode {
                    Mode::Context | Mode::Server => self.usage_since_the_last_call(),
                    // With other processes left, or when it is being killed, its exit is what counts.
                    Mode::Once => match self.kill_if_alone(agent, &run) {
                        Some(usage) => usage,
                        None => return,
                    },
                };
                // All output was written before this message.
                while let Some(chunk) = read_now(output) {
                    keep(&run, Some(chunk));
                }
                self.call_finished(&run);
                run.state.borrow_mut().exit = Some(Reaped { exit: Exit::Code(number()), usage });
                finish(agent, &run, 0);
            }
            b'E' => {
                self.call_finished(&run);
                let error = std::io::Error::from_raw_os_error(number());
                fail(agent, &run, crate::files::failure(&error, "enter the working directory"));
            }
            _ => {}
        }
    }

    /// Kills an interpreter whose only call has finished, and returns its usage. `None` when it has other
    /// processes: they must be killed before the call is reported as finished.
    fn kill_if_alone(&self, agent: &Shared, run: &Run) -> Option<ResourceUsage> {
        if run.state.borrow().killed.is_some() {
            return None;
        }
        let pid = processes::only_process(agent, &self.process)?;
        let usage = ResourceUsage::of_running(pid);
        processes::kill_first_process(&self.process);
        Some(usage)
    }

    /// The usage of a call in an interpreter that stays.
    fn usage_since_the_last_call(&self) -> ResourceUsage {
        let Some(pid) = processes::first_process(&self.process) else { return ResourceUsage::UNKNOWN };
        let now = ResourceUsage::of_running(pid);
        now.since(self.charged.replace(now))
    }

    fn call_finished(&self, run: &Rc<Run>) {
        if self.call().is_some_and(|call| Rc::ptr_eq(&call, run)) {
            self.call.replace(None);
        }
        self.process.state.borrow_mut().on_behalf_of = std::rc::Weak::new();
    }

    /// The interpreter has exited: kills what is left of it and finishes the call.
    async fn finish(&self, agent: &Shared, output: &mut Output) {
        self.gone.set(true);
        let leftovers = processes::kill_leftovers(agent, &self.process).await;
        // Its last messages may not have been read yet.
        while let Some(message) = self.control.next_now() {
            if message.kind == b'R'
                && let Some(run) = self.call()
            {
                run.state.borrow_mut().report = Some(message.payload);
            } else {
                self.handle(agent, message.kind, message.payload, output);
            }
        }
        let call = self.call();
        if let Some(run) = &call {
            drain(run, output).await;
        }
        let reaped = {
            let mut state = self.process.state.borrow_mut();
            state.on_behalf_of = std::rc::Weak::new();
            let usage = |reaped: Reaped| reaped.usage.and(state.others).since(self.charged.get());
            state.exit.map(|reaped| Reaped { usage: usage(reaped), ..reaped })
        };
        finish(agent, &self.process, leftovers);
        agent.runs.remove(&self.process.id);
        self.call.replace(None);
        if let Some(run) = call {
            {
                let mut state = run.state.borrow_mut();
                state.exit = reaped;
                state.context = state.context.map(|_| ContextFate::Ended);
            }
            finish(agent, &run, leftovers);
        }
    }
}

/// Resolves when the state of a call has changed, such as space for more of its output.
async fn changed(run: Option<&Run>) {
    match run {
        Some(run) => run.changed.notified().await,
        None => std::future::pending().await,
    }
}
