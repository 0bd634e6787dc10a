//! `isle stop`: ends the daemon and waits until it is gone.

use std::os::fd::OwnedFd;
use std::process::ExitCode;

use isle_client::{Client, Result};
use isle_engine::{Code, Error};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::json;

use super::Context;
use crate::config::Settings;
use crate::daemon;
use crate::output::show;

/// The daemon drains within 10 s; what takes longer hangs.
const LONGEST: Timespec = Timespec { tv_sec: 20, tv_nsec: 0 };

pub(super) async fn stop(context: &Context) -> Result<ExitCode> {
    let stopped = stop_if_running(context).await?;
    show(context.form, &json!({ "stopped": stopped }), |_| match stopped {
        Some(pid) => format!("The daemon (pid {pid}) has ended; named sandboxes live on.\n"),
        None => "No daemon runs.\n".to_owned(),
    })
}

/// Gives the process that was ended; `None` when there was none.
pub(super) async fn stop_if_running(context: &Context) -> Result<Option<u32>> {
    let places = context.places()?;
    let settings = Settings::for_daemon(context.global.config.as_ref(), &[])?;
    let client = match Client::connect(daemon::endpoint(&places, &settings)?).await {
        Ok(client) => client,
        Err(error) if error.is_absent() => return Ok(None),
        Err(error) => return Err(error),
    };
    let pid = client.version().await?.pid;
    // Opened before the daemon is asked, so that the number cannot be somebody else's by then.
    let process =
        i32::try_from(pid).ok().and_then(Pid::from_raw).map(|pid| pidfd_open(pid, PidfdFlags::empty()));
    client.shutdown().await?;
    drop(client);
    if let Some(Ok(process)) = process {
        // In a thread, so that our side of the connection is let go meanwhile.
        let gone =
            tokio::task::spawn_blocking(move || wait_for_end(&process)).await.map_err(Error::internal)?;
        if !gone {
            return Err(Error::new(Code::Busy, format!("the daemon (pid {pid}) has not ended yet"))
                .next(format!("wait a little, or `kill -9 {pid}`: sandboxes survive that too"))
                .into());
        }
    }
    Ok(Some(pid))
}

/// Whether the process ended in time.
fn wait_for_end(process: &OwnedFd) -> bool {
    let mut asked = [PollFd::new(process, PollFlags::IN)];
    poll(&mut asked, Some(&LONGEST)).is_ok_and(|ready| ready == 1)
}
