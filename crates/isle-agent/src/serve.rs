//! The agent's life: answer the daemon that made the sandbox, then any later one, on every stream
//! they open. When a sandbox has no listener its daemon's end is its own.

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use isle_linux::request::Preamble;
use isle_linux::setup::seccomp::Listener;
use isle_linux::sys::prctl;
use isle_wire::{
    Frame, GENERATION, Missing, Mux, Outbox, QuietSocket, Reply, Request, RunEntry, RunList, Side, Stream,
    Welcome, read_frame, write_message,
};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixListener;
use tokio::task::LocalSet;

use crate::code::{self, Interpreters};
use crate::control::{self, Control};
use crate::family::has_no_children;
use crate::network::{self, Network};
use crate::pause::{self, Pause};
use crate::ration::{self, Ration};
use crate::runs::{RunKind, Runs};
use crate::{census, entrance, files, place, reap, refusals, run, steps, tree};

/// What all streams share.
pub(crate) struct Agent {
    pub(crate) runs: Runs,
    pub(crate) code: Interpreters,
    pub(crate) control: Control,
    pub(crate) network: Network,
    pub(crate) pause: Pause,
    missing: Vec<(String, String)>,
}

pub(crate) type Shared = Rc<Agent>;

/// Serves until the daemon of a one-shot leaves, or for ever.
pub(crate) fn serve_forever(
    link: OwnedFd,
    listener: Option<OwnedFd>,
    notifications: Option<Listener>,
    preamble: Preamble,
    ration: Option<Ration>,
) {
    // Its memory and its descriptors are nobody's business: they hold what other commands print, and a child
    // shares both until it has become a command. Among the host's processes Landlock sees to that.
    if place::private().is_none() && prctl(libc::PR_SET_DUMPABLE, 0, 0).is_err() {
        return;
    }
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build() else {
        return;
    };
    LocalSet::new().block_on(&runtime, async move {
        let Ok(reaper) = reap::Reaper::new() else { return };
        let agent: Shared = Rc::new(Agent {
            runs: Runs::default(),
            code: Interpreters::default(),
            control: Control::default(),
            network: Network::default(),
            pause: Pause::default(),
            missing: preamble.missing.clone(),
        });
        tokio::task::spawn_local(reaper.run(agent.clone()));
        if let Some(notifications) = notifications {
            tokio::task::spawn_local(refusals::answer(notifications, agent.clone()));
        }
        if let Some(ration) = ration {
            tokio::task::spawn_local(ration::keep(agent.clone(), ration));
        }
        tokio::task::spawn_local(census::keep(agent.clone()));
        network::listen_for_questions(agent.clone());
        if write_preamble(&link, &preamble).is_err() && listener.is_none() {
            return;
        }
        let first = connection(link, agent.clone());
        match listener {
            None => {
                first.await;
                end_runs(&agent).await;
            }
            Some(listener) => {
                tokio::task::spawn_local(first);
                accept(listener, agent, preamble).await;
            }
        }
    });
}

/// Takes the connections of later daemons.
async fn accept(listener: OwnedFd, agent: Shared, preamble: Preamble) {
    let listener = std::os::unix::net::UnixListener::from(listener);
    let Ok(listener) = listener.set_nonblocking(true).and_then(|()| UnixListener::from_std(listener)) else {
        return;
    };
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let Ok(stream) = stream.into_std() else { continue };
        if write_preamble(&stream, &preamble).is_ok() {
            tokio::task::spawn_local(connection(stream.into(), agent.clone()));
        }
    }
}

/// Writes the preamble; it is small and the peer waits for it, so a full socket is an error.
pub(crate) fn write_preamble(link: &impl std::os::fd::AsFd, preamble: &Preamble) -> std::io::Result<()> {
    let body = minicbor::to_vec(preamble).unwrap_or_default();
    let mut packet = u32::try_from(body.len()).unwrap_or(0).to_be_bytes().to_vec();
    packet.extend(body);
    let written = rustix::io::write(link, &packet)?;
    if written == packet.len() { Ok(()) } else { Err(std::io::ErrorKind::WriteZero.into()) }
}

async fn connection(link: OwnedFd, agent: Shared) {
    let outbox = Outbox::default();
    let Ok(stream) = QuietSocket::handing(link.into(), outbox.clone()) else { return };
    let (_mux, mut incoming, driver) = Mux::new(stream, Side::Agent);
    tokio::task::spawn_local(driver);
    agent.network.host_came();
    while let Some(stream) = incoming.accept().await {
        let (agent, outbox) = (agent.clone(), outbox.clone());
        tokio::task::spawn_local(async move {
            // A broken stream concerns only the one who opened it.
            operation(stream, agent, outbox).await.ok();
        });
    }
    // Operations may go on without a host; whoever waits for one of these sockets must not.
    outbox.close();
    agent.network.host_left();
}

async fn operation(mut stream: Stream, agent: Shared, outbox: Outbox) -> Result<(), isle_wire::FrameError> {
    let Some(first) = read_frame(&mut stream).await? else { return Ok(()) };
    match first.decode::<Request>()? {
        Request::Hello(_) => {
            let missing = agent
                .missing
                .iter()
                .map(|(key, reason)| Missing { key: key.clone(), reason: reason.clone() })
                .collect();
            let welcome =
                Welcome { generation: GENERATION, version: env!("CARGO_PKG_VERSION").into(), missing };
            write_message(&mut stream, &welcome).await?;
        }
        Request::Exec(request) => return run::exec(stream, agent, *request).await,
        Request::Attach(request) => return run::attach(stream, agent, &request.run).await,
        Request::Signal(request) => write_message(&mut stream, &run::signal(&agent, &request).await).await?,
        Request::Runs => {
            let runs = agent.runs.list().into_iter().map(|(run, ended)| RunEntry { run, ended }).collect();
            write_message(&mut stream, &RunList { runs }).await?;
        }
        Request::Forget(request) => {
            agent.runs.forget(&request.run);
            write_message(&mut stream, &Reply::Done).await?;
        }
        Request::ReadFile(request) => files::read::read(&mut stream, &request).await?,
        Request::WriteFiles(request) => files::write::write(&mut stream, &request).await?,
        Request::Stat(request) => write_message(&mut stream, &files::stat(&request)).await?,
        Request::List(request) => {
            let reply = match &request.glob {
                Some(glob) => files::find::find(&request, glob).await,
                None => files::list::list(&request),
            };
            write_message(&mut stream, &reply).await?;
        }
        Request::Edit(request) => write_message(&mut stream, &files::edit::edit(&request)).await?,
        Request::Move(request) => write_message(&mut stream, &files::relocate::relocate(&request)).await?,
        Request::Search(request) => {
            write_message(&mut stream, &files::search::search(&request).await).await?;
        }
        Request::Watch(request) => files::watch::watch(&mut stream, &request).await?,
        Request::Pack(request) => files::trees::pack(&mut stream, &request).await?,
        Request::Unpack(request) => files::trees::unpack(&mut stream, &request).await?,
        Request::Manifest(request) => files::trees::manifest(&mut stream, &request).await?,
        Request::Prune(request) => files::trees::prune(&mut stream, &request).await?,
        Request::Remove(request) => write_message(&mut stream, &files::remove::remove(&request)).await?,
        Request::Which(request) => write_message(&mut stream, &files::which(&request.names)).await?,
        Request::Code(request) => return code::run(stream, agent, *request).await,
        Request::Contexts => write_message(&mut stream, &code::list(&agent)).await?,
        Request::Context(request) => write_message(&mut stream, &code::act(&agent, &request).await).await?,
        Request::Steps(request) => return steps::run(stream, agent, *request).await,
        Request::Input(request) => {
            write_message(&mut stream, &entrance::input(&agent, &request).await).await?
        }
        Request::Control => return control::relay(stream, agent).await,
        Request::Pause(on) => {
            let count = pause::set(&agent, on).await;
            write_message(&mut stream, &Reply::Stood(count)).await?;
        }
        Request::Usage => write_message(&mut stream, &Reply::Used(ration::usage::now())).await?,
        Request::Gate => return network::gate(stream, agent, outbox).await,
        Request::Dial(request) => {
            write_message(&mut stream, &network::dial(&request, &outbox).await).await?;
        }
        Request::Shutdown => leave(agent).await,
    }
    // Everything was sent; a clean end lets the host tell it from a broken one.
    stream.shutdown().await.ok();
    Ok(())
}

/// Ends what does not end with the agent by itself: runs among the host's processes.
async fn end_runs(agent: &Shared) {
    if place::private().is_none() {
        return;
    }
    // Those without a name outside first: the calls in them end with them.
    let left = || {
        let mut living = agent.runs.living();
        living.retain(|run| run.state.borrow().exit.is_none());
        living.into_iter().max_by_key(|run| run.kind != RunKind::Asked)
    };
    while let Some(run) = left() {
        run.state.borrow_mut().killed.get_or_insert(false);
        tree::end(agent, &run).await;
        // Who winds up what has ended needs a turn too.
        tokio::task::yield_now().await;
    }
    while !has_no_children() {
        tree::end_strangers(agent);
        // Killed processes need a moment to go; the reaper runs meanwhile.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Ends the sandbox.
pub(crate) async fn leave(agent: Shared) {
    end_runs(&agent).await;
    // SAFETY: ends the agent; as the first process of a pid namespace, everything in it ends too.
    unsafe { libc::_exit(0) }
}

/// A cell that is only ever touched between awaits.
pub(crate) type Cell<T> = RefCell<T>;

/// Frames an output chunk.
pub(crate) fn output_frame(channel: crate::output::Channel, bytes: bytes::Bytes) -> Frame {
    match channel {
        crate::output::Channel::Stdout => Frame::Stdout(bytes),
        crate::output::Channel::Stderr => Frame::Stderr(bytes),
    }
}
