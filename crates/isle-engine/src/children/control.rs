//! The daemon's end of a sandbox's control socket: a stream to its agent that carries lines. Who asks is
//! known by the stream, never by what a line says, so a sandbox reaches its own children and nothing else.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use isle_wire::{CONTROL_CONNECTIONS, ControlAnswer, ControlEvent, ControlLine, read_frame, write_message};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::control_protocol::{self, Command, ControlCall, ControlRequest, Exec, Spawn};
use super::shapes::{child_brief, own_family_shape};
use super::{Children, SpawnRequest};
use crate::context::{CallContext, CallerRole, Door};
use crate::run::{OnCancel, Plan, Program, RunKind, RunTarget, directory, text_input};
use crate::sandbox::{ControlSockets, Sandbox, SandboxState};
use isle_api::shapes::{RunResult, RunState};
use isle_core::values::{Address, SandboxName, Span};
use isle_core::{Code, Error, Result};

/// How long a command may run that says nothing about it.
const TIMEOUT: Span = Span::seconds(300);
/// Bytes of output in an answer; all of it has to fit into one line of less than a MiB.
const OUTPUT: usize = 512 * 1024;
/// How long the end of a command may take to be told after its time.
const GRACE: Duration = Duration::from_secs(30);

impl ControlSockets for Children {
    fn listen(self: Arc<Self>, sandbox: &Arc<Sandbox>) {
        if !sandbox.spec.control {
            return;
        }
        let (children, sandbox) = (Arc::downgrade(&self), Arc::downgrade(sandbox));
        tokio::spawn(async move {
            if let Err(error) = relay(children, &sandbox).await
                && let Some(sandbox) = sandbox.upgrade()
            {
                tracing::debug!(sandbox = %sandbox.name, %error, "the control socket is not listened to");
            }
        });
    }
}

impl Children {
    /// Answers one line of a sandbox.
    async fn control(self: &Arc<Self>, parent: &Arc<Sandbox>, context: &CallContext, line: &[u8]) -> Vec<u8> {
        match control_protocol::read(line) {
            Ok(ControlRequest { id, call }) => {
                let outcome = self.control_call(parent, context, call).await;
                control_protocol::answer(&id, outcome)
            }
            Err((id, error)) => control_protocol::answer(&id, Err(error)),
        }
    }

    async fn control_call(
        self: &Arc<Self>,
        parent: &Arc<Sandbox>,
        context: &CallContext,
        call: ControlCall,
    ) -> Result<Value> {
        let current = self.fleet.get(&parent.address()).is_some_and(|known| known.id == parent.id);
        if !current || parent.state() != SandboxState::Running {
            return Err(crate::agent::gone());
        }
        match call {
            ControlCall::Ping => Ok(json!({
                "ok": true,
                "parent": parent.name,
                "version": env!("CARGO_PKG_VERSION"),
            })),
            ControlCall::Spawn(spawn) => {
                let child = self.spawn_from(context, Arc::clone(parent), request(spawn)).await?;
                serde_json::to_value(child_brief(&child)).map_err(Error::internal)
            }
            ControlCall::List => {
                serde_json::to_value(own_family_shape(self, parent)).map_err(Error::internal)
            }
            ControlCall::Exec(exec) => {
                let child = self.own_child(parent, &exec.name)?;
                self.exec_in(context, &child, exec).await
            }
            ControlCall::Run(run) => {
                let spawn =
                    Spawn { image: run.image, cpus: run.cpus, memory: run.memory, ..Spawn::default() };
                let child = self.spawn_from(context, Arc::clone(parent), request(spawn)).await?;
                let exec = Exec {
                    name: child.name.clone(),
                    command: run.command,
                    timeout: run.timeout,
                    workdir: run.workdir,
                    stdin: run.stdin,
                };
                let ran = self.exec_in(context, &child, exec).await;
                if let Some(of) = child.child_of().cloned()
                    && let Err(error) = self.sandboxes.destroy_child(context, of).await
                {
                    tracing::warn!(sandbox = %child.name, %error, "a child could not be ended; its time will end it");
                }
                ran
            }
            ControlCall::Destroy(named) => {
                let child = self.own_child(parent, &named.name)?;
                let of = child.child_of().cloned().ok_or_else(|| no_child(&named.name))?;
                self.sandboxes.destroy_child(context, of).await?;
                Ok(json!({ "name": child.name, "destroyed": true }))
            }
        }
    }

    /// A child of this very incarnation. Everybody else's, and sandboxes that are nobody's child, do not
    /// exist for it.
    fn own_child(&self, parent: &Sandbox, name: &SandboxName) -> Result<Arc<Sandbox>> {
        // What its parent calls it, or its whole name.
        let whole = match name.is_child() {
            true => name.clone(),
            false => name.as_str().parse().and_then(|name| parent.name.child(&name))?,
        };
        self.fleet
            .get(&Address::new(parent.namespace.clone(), whole))
            .filter(|sandbox| sandbox.child_of().is_some_and(|child| child.parent_id == parent.id))
            .ok_or_else(|| no_child(name))
    }

    async fn exec_in(
        self: &Arc<Self>,
        context: &CallContext,
        child: &Arc<Sandbox>,
        exec: Exec,
    ) -> Result<Value> {
        let timeout = exec.timeout.unwrap_or(TIMEOUT).min(self.config.max_timeout);
        let program = match exec.command {
            Command::Shell(text) => Program::Shell(text),
            Command::Argv(words) => Program::Argv(words),
        };
        // Not by name: what has this name tomorrow may be somebody else's.
        let place = RunTarget::Incarnation { sandbox: Arc::clone(child) };
        let plan = Plan {
            cwd: directory(exec.workdir.as_deref())?,
            timeout: Some(timeout),
            input: text_input(exec.stdin),
            ..Plan::new(RunKind::Exec, place, program)
        };
        let run = self.runs.start(context, plan).await?;
        run.wait(context, timeout.0 + GRACE, OnCancel::Kill).await?;
        if let Some(error) = run.finish().and_then(|finish| finish.error.clone()) {
            return Err(error);
        }
        let result: RunResult = self.runs.snapshot_of(&run).result(OUTPUT);
        Ok(json!({
            "name": child.name,
            "result": {
                "state": result.state,
                "stdout": result.stdout,
                "stderr": result.stderr,
                "exit_code": result.exit_code,
                "signal": result.signal,
                "timed_out": result.state == RunState::TimedOut,
                "duration_ms": result.duration_ms,
                "truncated": result.stdout_truncated || result.stderr_truncated,
                "run_id": result.run_id,
            },
        }))
    }
}

fn request(spawn: Spawn) -> SpawnRequest {
    SpawnRequest {
        name: spawn.name,
        image: spawn.image.filter(|image| !image.is_empty()),
        tier: None,
        cpus: spawn.cpus.filter(|cpus| *cpus != 0.0),
        memory: spawn.memory,
        ttl: spawn.ttl,
    }
}

fn no_child(name: &SandboxName) -> Error {
    Error::new(Code::SandboxNotFound, format!("there is no child {name}"))
        .next("list shows the children there are")
}

/// One stream, until it ends.
async fn relay(children: Weak<Children>, sandbox: &Weak<Sandbox>) -> Result<()> {
    let (agent, address) = {
        let Some(sandbox) = sandbox.upgrade() else { return Ok(()) };
        (sandbox.agent()?.clone(), sandbox.address())
    };
    let stream = agent.control().await?;
    // Held by nobody here: a sandbox that goes is not kept by its own socket.
    drop(agent);
    let (mut reader, mut writer) = tokio::io::split(stream);
    let (answers, mut due) = mpsc::channel::<ControlAnswer>(CONTROL_CONNECTIONS);
    let writing = tokio::spawn(async move {
        while let Some(answer) = due.recv().await {
            if write_message(&mut writer, &answer).await.is_err() {
                return;
            }
        }
    });
    // Who hangs up no longer wants what was asked for.
    let mut open: HashMap<u32, CancellationToken> = HashMap::new();
    let context = |cancelled: CancellationToken| CallContext {
        cancelled,
        namespace: address.namespace.clone(),
        role: CallerRole::Tenant,
        ..CallContext::new(Door::Guest, format!("sandbox:{}", address.name))
    };
    let ended = loop {
        let event = match read_frame(&mut reader).await {
            Ok(Some(frame)) => frame.decode::<ControlEvent>(),
            Ok(None) => break Ok(()),
            Err(error) => Err(error),
        };
        match event.map_err(crate::agent::broken) {
            Err(error) => break Err(error),
            Ok(ControlEvent::Opened(connection)) => {
                if open.len() >= CONTROL_CONNECTIONS || open.contains_key(&connection) {
                    answers.send(ControlAnswer::Close(connection)).await.ok();
                } else {
                    open.insert(connection, CancellationToken::new());
                }
            }
            Ok(ControlEvent::Closed(connection)) => {
                if let Some(cancelled) = open.remove(&connection) {
                    cancelled.cancel();
                }
            }
            Ok(ControlEvent::Line(ControlLine { connection, line })) => {
                let (Some(children), Some(sandbox)) = (children.upgrade(), sandbox.upgrade()) else {
                    break Ok(());
                };
                let Some(cancelled) = open.get(&connection).cloned() else { continue };
                let (answers, context) = (answers.clone(), context(cancelled));
                // What it changes is done in tasks that a stopping engine waits for; for the answer it does not.
                tokio::spawn(async move {
                    let line = children.control(&sandbox, &context, &line).await;
                    let line = ControlLine { connection, line: line.into() };
                    answers.send(ControlAnswer::Line(line)).await.ok();
                });
            }
        }
    };
    for cancelled in open.into_values() {
        cancelled.cancel();
    }
    drop(answers);
    writing.abort();
    ended
}
