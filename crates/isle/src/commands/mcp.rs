//! `isle mcp`: a plain byte pipe between standard input and output and the daemon, where the MCP
//! session lives.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use isle_client::{Pipe, Result, open_pipe};
use isle_engine::Error;
use isle_engine::ops::Toolsets;

use super::Context;
use crate::arguments::McpArguments;
use crate::config::Settings;
use crate::daemon;
use crate::output::say;

/// How long the daemon may stay silent after our input ended.
const LAST_WORDS: Duration = Duration::from_secs(2);

enum Happened {
    InputEnded,
    OutputMoved,
    OutputEnded,
}

pub(super) fn mcp(context: &Context, arguments: &McpArguments) -> Result<ExitCode> {
    let toolsets = arguments.toolsets.as_deref().map(str::parse::<Toolsets>).transpose()?;
    let settings = Settings::for_daemon(context.global.config.as_ref(), &[])?;
    let places = context.places()?;
    let endpoint = daemon::endpoint(&places, &settings)?;
    let user_file = context.global.config.as_ref();
    let Pipe { stream: pipe, first, mismatch } =
        daemon::ensure_running(&places, &endpoint, user_file, |endpoint| {
            open_pipe(endpoint, toolsets.as_ref())
        })?;
    if let Some(error) = mismatch {
        say(&format!("isle: {}; {}", error.message, error.next_steps.join("; ")));
    }
    let (happened, happenings) = mpsc::channel();
    let upwards = pipe.try_clone().map_err(Error::internal)?;
    let input_ended = happened.clone();
    spawn("to-daemon", move || {
        copy_input(upwards);
        drop(input_ended.send(Happened::InputEnded));
    })?;
    spawn("from-daemon", move || {
        copy_output(pipe, &first, || drop(happened.send(Happened::OutputMoved)));
        drop(happened.send(Happened::OutputEnded));
    })?;
    wait_for_end(&happenings);
    Ok(ExitCode::SUCCESS)
}

/// Ends when the daemon's side has ended, or was silent for a while after ours did.
fn wait_for_end(happenings: &mpsc::Receiver<Happened>) {
    let mut input_open = true;
    loop {
        let next = if input_open {
            happenings.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            happenings.recv_timeout(LAST_WORDS)
        };
        match next {
            Ok(Happened::InputEnded) => input_open = false,
            Ok(Happened::OutputMoved) => {}
            Ok(Happened::OutputEnded) | Err(_) => return,
        }
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
    std::thread::Builder::new()
        .name(name.into())
        .spawn(work)
        .map(drop)
        .map_err(|error| Error::internal(error).into())
}

fn copy_input(mut pipe: UnixStream) {
    // A connection that is gone is noticed by the other direction, which ends everything.
    drop(copy(&mut io::stdin().lock(), &mut pipe, || {}));
    drop(pipe.shutdown(Shutdown::Write));
}

fn copy_output(mut pipe: UnixStream, first: &[u8], moved: impl Fn()) {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(first).and_then(|()| stdout.flush());
    if written.is_ok() {
        // The end of either side ends the command; which of them it was makes no difference.
        drop(copy(&mut pipe, &mut stdout, moved));
    }
}

/// Passes on whatever is there at once; nothing waits for a full buffer.
fn copy(from: &mut impl Read, to: &mut impl Write, moved: impl Fn()) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => {
                to.write_all(&buffer[..count])?;
                to.flush()?;
                moved();
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
