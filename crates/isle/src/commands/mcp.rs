//! `isle mcp`: copies bytes between standard input and output and the daemon, which runs the MCP session.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use isle_api::Toolsets;
use isle_client::{Pipe, Result, open_pipe};
use isle_core::Error;

use super::Context;
use crate::arguments::McpArguments;
use crate::config::Settings;
use crate::daemon;
use crate::output::print_stderr;

/// How long to wait for further output after standard input was closed.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(2);

enum CopyEvent {
    InputEnded,
    OutputCopied,
    OutputEnded,
}

pub(super) fn mcp(context: &Context, arguments: &McpArguments) -> Result<ExitCode> {
    let toolsets = arguments.toolsets.as_deref().map(str::parse::<Toolsets>).transpose()?;
    let settings = Settings::for_daemon(context.global.config.as_ref(), &[])?;
    let paths = context.paths()?;
    let endpoint = daemon::endpoint(&paths, &settings)?;
    let user_file = context.global.config.as_ref();
    let Pipe { stream: pipe, first, mismatch } =
        daemon::ensure_running(&paths, &endpoint, user_file, |endpoint| {
            open_pipe(endpoint, toolsets.as_ref())
        })?;
    if let Some(error) = mismatch {
        print_stderr(&format!("isle: {}; {}", error.message, error.next_steps.join("; ")));
    }
    let (sender, events) = mpsc::channel();
    let upwards = pipe.try_clone().map_err(Error::internal)?;
    let input_ended = sender.clone();
    spawn("to-daemon", move || {
        copy_input(upwards);
        drop(input_ended.send(CopyEvent::InputEnded));
    })?;
    spawn("from-daemon", move || {
        copy_output(pipe, &first, || drop(sender.send(CopyEvent::OutputCopied)));
        drop(sender.send(CopyEvent::OutputEnded));
    })?;
    wait_for_end(&events);
    Ok(ExitCode::SUCCESS)
}

/// Returns when the daemon closed its side, or sent nothing for a while after standard input was closed.
fn wait_for_end(events: &mpsc::Receiver<CopyEvent>) {
    let mut input_open = true;
    loop {
        let next = if input_open {
            events.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            events.recv_timeout(OUTPUT_TIMEOUT)
        };
        match next {
            Ok(CopyEvent::InputEnded) => input_open = false,
            Ok(CopyEvent::OutputCopied) => {}
            Ok(CopyEvent::OutputEnded) | Err(_) => return,
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
    // A lost connection is detected by the other direction, which ends the command.
    drop(copy(&mut io::stdin().lock(), &mut pipe, || {}));
    drop(pipe.shutdown(Shutdown::Write));
}

fn copy_output(mut pipe: UnixStream, first: &[u8], moved: impl Fn()) {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(first).and_then(|()| stdout.flush());
    if written.is_ok() {
        // The end of either side ends the command.
        drop(copy(&mut pipe, &mut stdout, moved));
    }
}

/// Copies and flushes after every read.
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
