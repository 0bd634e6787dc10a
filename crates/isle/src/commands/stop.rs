//! `isle stop`: stops the daemon and waits until it has exited.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;

use isle_client::{Client, Endpoint, Result};
use isle_core::{Code, Error, SocketPath};
use isle_store::{LockHolder, LockState, Phase};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::PidfdFlags;
use serde_json::json;

use super::Context;
use crate::config::Settings;
use crate::daemon::{self, WaitLimit, held_message, unknown_holder};
use crate::output::{escaped, show};
use crate::paths::{DaemonAddress, Paths};

pub(super) async fn stop(context: &Context) -> Result<ExitCode> {
    let stopped = stop_if_running(context).await?;
    let state = context.paths()?.state_dir;
    show(context.form, &json!({ "stopped": stopped }), |_| match stopped {
        Some(pid) => format!("Daemon stopped (pid {pid}); named sandboxes keep running.\n"),
        None => {
            format!("No daemon is running for the state directory {}.\n", escaped(&state.to_string_lossy()))
        }
    })
}

/// Returns the process that was stopped; `None` when no daemon was running. Waits for a daemon that is starting,
/// so that none is running after the command.
pub(super) async fn stop_if_running(context: &Context) -> Result<Option<u32>> {
    let paths = context.paths()?;
    let settings = Settings::for_daemon(context.global.config.as_ref(), &[])?;
    let endpoint = daemon::endpoint(&paths, &settings)?;
    if endpoint.socket().is_none() {
        return request_shutdown(&Client::connect(endpoint).await?).await.map(Some);
    }
    let wait_limit = WaitLimit::new();
    let (mut stopped, mut asked) = (None, None);
    loop {
        match held(&paths)? {
            // The lock file may have been removed or replaced while its holder is running: then its socket
            // responds. If a record remains, its holder has exited.
            LockState::Free
                if stopped.is_none()
                    && (paths.chosen_socket.is_some() || LockHolder::last(&paths.state_dir).is_none()) =>
            {
                return stop_at(&endpoint, &wait_limit).await;
            }
            LockState::Free => return Ok(stopped),
            LockState::HeldBy(holder) if holder.phase == Phase::Running && asked != Some(holder.pid) => {
                let DaemonAddress { socket, instance } = paths.daemon_address();
                paths.check_socket_dir(&socket)?;
                match Client::connect(endpoint.moved(socket, instance)).await {
                    Ok(client) => match request_shutdown(&client).await {
                        Ok(_) => (stopped, asked) = (Some(holder.pid), Some(holder.pid)),
                        // It exited after the connection was made: somebody else stopped or killed it.
                        Err(error) if error.is_absent() && wait_limit.is_left() => wait_limit.pause(),
                        Err(error) => return Err(error),
                    },
                    Err(error) if error.is_absent() && wait_limit.is_left_for_response() => {
                        wait_limit.pause()
                    }
                    // Without a socket, send SIGTERM to the process.
                    Err(error) if error.is_absent() => match holder.terminate() {
                        Ok(()) => (stopped, asked) = (Some(holder.pid), Some(holder.pid)),
                        Err(_) => return Err(held_message(&paths, &holder).into()),
                    },
                    Err(error) => return Err(error),
                }
            }
            LockState::HeldBy(holder) => {
                if holder.phase == Phase::Stopping {
                    stopped = Some(holder.pid);
                }
                if !wait_limit.is_left() {
                    return Err(held_message(&paths, &holder).into());
                }
                wait_limit.pause();
            }
            // The lock holder rewrites its record within a second.
            LockState::Unknown { pid: None } if wait_limit.is_left_for_response() => wait_limit.pause(),
            LockState::Unknown { pid: None } => return Err(unknown_holder(&paths).into()),
            // An earlier version records its pid only.
            LockState::Unknown { pid } if stopped.is_none() => {
                let client = Client::connect(Endpoint::unix(paths.earlier_socket())).await?;
                let version = client.version().await?;
                if Some(version.pid) != pid || Path::new(&version.state_dir) != paths.state_dir {
                    return Err(Error::new(
                        Code::WrongDaemon,
                        "the running daemon serves another state directory",
                    )
                    .next(format!("stop it manually with `kill {}`", version.pid))
                    .into());
                }
                client.shutdown().await?;
                stopped = Some(version.pid);
            }
            LockState::Unknown { .. } if wait_limit.is_left() => wait_limit.pause(),
            LockState::Unknown { pid } => {
                return Err(Error::new(Code::Busy, "the daemon has not exited yet")
                    .detail("pid", pid)
                    .next("wait for it, or check the daemon's log")
                    .into());
            }
        }
    }
}

fn held(paths: &Paths) -> Result<LockState> {
    LockState::read(&paths.state_dir).map_err(|error| daemon::store_error(paths, error).into())
}

/// Stops the daemon at a socket given with `--socket`, if it serves the state directory.
async fn stop_at(endpoint: &Endpoint, wait_limit: &WaitLimit) -> Result<Option<u32>> {
    let process = endpoint.socket().and_then(process_at);
    match Client::connect(endpoint.clone()).await {
        Ok(client) => {
            let pid = request_shutdown(&client).await?;
            // There is no lock to wait for.
            while process.as_ref().is_some_and(is_alive) && wait_limit.is_left() {
                wait_limit.pause();
            }
            Ok(Some(pid))
        }
        Err(error) if error.is_absent() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The process that listens on a socket (SO_PEERCRED).
fn process_at(socket: &Path) -> Option<OwnedFd> {
    let stream = SocketPath::new(socket).and_then(|address| UnixStream::connect(&address)).ok()?;
    let peer = rustix::net::sockopt::socket_peercred(&stream).ok()?;
    rustix::process::pidfd_open(peer.pid, PidfdFlags::empty()).ok()
}

fn is_alive(process: &OwnedFd) -> bool {
    // The descriptor is readable when the process has exited.
    let mut ready = [PollFd::new(process, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut ready, Some(&now)) == Ok(0)
}

/// Requests a shutdown; returns the pid of the daemon.
async fn request_shutdown(client: &Client) -> Result<u32> {
    let pid = client.version().await?.pid;
    client.shutdown().await?;
    Ok(pid)
}
