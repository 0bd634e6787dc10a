//! Starting an interpreter: the program, its driver, and its hidden run.

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Instant;

use isle_wire::{CodeLanguage, ExecRequest, Failure, FailureKind, OnHangup};
use minicbor::bytes::ByteVec;
use tokio::io::unix::AsyncFd;

use super::channel::{InterpreterChannel, driver, pair};
use crate::async_fd::register;
use crate::run::{Output, Run, RunKind, RunState, registered};
use crate::serve::{Cell, Shared};
use crate::spawn::{ProgramIo, spawn_with};
use crate::stdin::Stdin;

const PYTHON: &str = concat!(
    include_str!("drivers/python/wire.py"),
    include_str!("drivers/python/results.py"),
    include_str!("drivers/python/session.py"),
    include_str!("drivers/python/serve.py"),
);
const NODE: &str = include_str!("drivers/node.js");
const SHELL: &str = include_str!("drivers/shell.sh");

// The driver is sent over the socket: command lines stay short, and no file is needed.
const PYTHON_START: &str = "import os\nn=int.from_bytes(os.read(3,4),'big')\nb=b''\nwhile len(b)<n:b+=os.read(3,n-len(b))\nexec(compile(b,'<isle>','exec'),{'__name__':'isle'})";
const NODE_START: &str = "{const f=require('fs');const r=(n)=>{const b=Buffer.alloc(n);for(let a=0;a<n;)a+=f.readSync(3,b,a,n-a);return b};const n=r(4).readUInt32BE(0);require('vm').runInThisContext(r(n).toString(),{filename:'isle:interpreter'})(require,(s)=>import(s))}";

/// What an interpreter is started for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// One call after another.
    Context,
    /// One call.
    Once,
    /// Forking a child for each call.
    Server,
}

impl Mode {
    fn as_str(self) -> &'static str {
        match self {
            Self::Context => "context",
            Self::Once => "once",
            Self::Server => "server",
        }
    }
}

/// A started interpreter.
pub(super) struct Started {
    pub(super) process: Rc<Run>,
    pub(super) control: InterpreterChannel,
    pub(super) output: Output,
    pub(super) stdin: Option<AsyncFd<OwnedFd>>,
}

/// Starts an interpreter; its program is the only argument of `exec`.
pub(super) async fn start(
    agent: &Shared,
    language: CodeLanguage,
    mode: Mode,
    exec: &ExecRequest,
) -> Result<Started, Failure> {
    let unable = |error: std::io::Error| crate::files::failure(&error, "start the interpreter");
    let (control, theirs) = pair().map_err(unable)?;
    let interpreter = exec.argv.first().cloned().unwrap_or_else(|| Vec::new().into());
    let words = |words: &[&str]| -> Vec<ByteVec> {
        let rest = words.iter().map(|word| word.as_bytes().to_vec().into());
        [interpreter.clone()].into_iter().chain(rest).collect()
    };
    let (argv, source) = match language {
        CodeLanguage::Python => (words(&["-c", PYTHON_START, mode.as_str()]), Some(PYTHON)),
        CodeLanguage::Node => (words(&["-e", NODE_START, mode.as_str()]), Some(NODE)),
        CodeLanguage::Shell => (words(&["-c", SHELL, "shell"]), None),
    };
    let spawned = spawn_with(&agent.mode, &ExecRequest { argv, ..exec.clone() }, Some(&theirs)).await?;
    drop(theirs);
    let ProgramIo::Pipes { stdin, stdout, stderr } = spawned.io else {
        return Err(Failure {
            kind: FailureKind::Other,
            errno: 0,
            doing: "give an interpreter a terminal".into(),
        });
    };
    let process = Rc::new(Run {
        id: agent.code.fresh_name(),
        pid: spawned.pid,
        processes: spawned.processes,
        started: Instant::now(),
        on_hangup: OnHangup::Continue,
        limits: agent.mode.run_limits(exec.limits),
        kind: RunKind::Interpreter,
        stdin: Stdin::default(),
        keep_input: false,
        state: Cell::new(RunState::new(0)),
        changed: tokio::sync::Notify::new(),
    });
    agent.runs.insert(process.clone());
    registered(agent, &process, spawned.starting);
    let output = Output::Pipes {
        stdout: Some(register(stdout).map_err(unable)?),
        stderr: Some(register(stderr).map_err(unable)?),
    };
    let stdin = stdin.map(register).transpose().map_err(unable)?;
    if let Some(source) = source {
        // It fits into the socket buffer, so this does not wait; the task of the interpreter notices when
        // it has exited.
        control.send(&driver(source)).await;
    }
    Ok(Started { process, control, output, stdin })
}
