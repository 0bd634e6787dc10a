//! Serving: the state that all connections share, and the dispatch of requests on their streams.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use isle_setup::seccomp::Listener;
use isle_setup::sys::prctl;
use isle_wire::{
    DescriptorSender, Frame, GENERATION, Missing, Mux, Preamble, Reply, Request, RunEntry, RunList, Side,
    Stream, Welcome, read_frame, write_message,
};
use tokio::io::AsyncWriteExt;
use tokio::task::LocalSet;

use crate::code::{self, Interpreters};
use crate::control_socket::{self, Control};
use crate::link::{Connection, Link};
use crate::mode::{GuestUsers, Mode};
use crate::network::{self, Network};
use crate::pause::{self, Pause};
use crate::processes::proc_tree::has_no_children;
use crate::run::{self, KillReason, RunKind, Runs};
use crate::{files, limits_watcher, processes, reap, seccomp_notify, stdin, steps, task_counter, usage};

/// How an agent was started: everything it needs from the outside.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) mode: Mode,
    /// How hosts connect. The agent exits when the last of them has ended.
    pub(crate) links: Vec<Link>,
    /// Where denied system calls are reported, with a seccomp filter that does so.
    pub(crate) notifications: Option<Listener>,
    /// What could not be set up.
    pub(crate) missing: Vec<Missing>,
}

/// What all streams share.
pub(crate) struct Agent {
    pub(crate) mode: Mode,
    pub(crate) runs: Runs,
    pub(crate) code: Interpreters,
    pub(crate) control: Control,
    pub(crate) network: Network,
    pub(crate) pause: Pause,
    missing: Vec<Missing>,
}

pub(crate) type Shared = Rc<Agent>;

impl Agent {
    fn welcome(&self, passes_descriptors: bool) -> Welcome {
        Welcome {
            generation: GENERATION,
            version: env!("CARGO_PKG_VERSION").into(),
            missing: self.missing.clone(),
            passes_descriptors,
        }
    }
}

/// Serves until the last link has ended; with a listener or a device, until the agent is killed.
pub(crate) fn serve(start: Start) {
    let Start { mode, links, notifications, missing } = start;
    // Memory and descriptors of the agent hold what other commands print, and a child shares both until it
    // executes its program: commands must not be able to read them. Where they have the agent's UID,
    // Landlock prevents that.
    if mode.users == GuestUsers::Switched && prctl(libc::PR_SET_DUMPABLE, 0, 0).is_err() {
        return;
    }
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build() else {
        return;
    };
    LocalSet::new().block_on(&runtime, async move {
        let Ok(reaper) = reap::Reaper::new(&mode.processes) else { return };
        let agent: Shared = Rc::new(Agent {
            mode,
            runs: Runs::default(),
            code: Interpreters::default(),
            control: Control::default(),
            network: Network::default(),
            pause: Pause::default(),
            missing,
        });
        tokio::task::spawn_local(reaper.run(agent.clone()));
        if let Some(notifications) = notifications {
            tokio::task::spawn_local(seccomp_notify::answer(notifications, agent.clone()));
        }
        if let Some(limits) = agent.mode.watched_limits {
            tokio::task::spawn_local(limits_watcher::watch(agent.clone(), limits));
        }
        tokio::task::spawn_local(task_counter::count(agent.clone()));
        network::listen_for_queries(agent.clone());
        let links: Vec<_> =
            links.into_iter().map(|link| tokio::task::spawn_local(link.serve(agent.clone()))).collect();
        for link in links {
            link.await.ok();
        }
        kill_runs(&agent).await;
    });
}

/// Serves one connection until it ends.
pub(crate) async fn connection(connection: Connection, agent: Shared) {
    let Connection { mut stream, descriptors } = connection;
    let preamble = Preamble::Ready(agent.welcome(descriptors.is_some()));
    if preamble.write(&mut stream).await.is_err() {
        return;
    }
    let (_mux, mut incoming, driver) = Mux::new(stream, Side::Agent);
    let driver = tokio::task::spawn_local(driver);
    agent.network.host_connected();
    while let Some(stream) = incoming.accept().await {
        let (agent, descriptors) = (agent.clone(), descriptors.clone());
        tokio::task::spawn_local(async move {
            // A broken stream concerns only its operation.
            operation(stream, agent, descriptors).await.ok();
        });
    }
    // Operations may continue without a host, but no program may wait for a socket that was not sent.
    if let Some(descriptors) = descriptors {
        descriptors.close();
    }
    agent.network.host_disconnected();
    driver.await.ok();
}

async fn operation(
    mut stream: Stream,
    agent: Shared,
    descriptors: Option<DescriptorSender>,
) -> Result<(), isle_wire::FrameError> {
    let Some(first) = read_frame(&mut stream).await? else { return Ok(()) };
    let mode = &agent.mode;
    match first.decode::<Request>()? {
        Request::Hello(_) => {
            write_message(&mut stream, &agent.welcome(descriptors.is_some())).await?;
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
        Request::ReadFile(request) => files::read::read(&mut stream, mode, &request).await?,
        Request::WriteFiles(request) => files::write::write(&mut stream, mode, &request).await?,
        Request::Stat(request) => write_message(&mut stream, &files::stat(mode, &request)).await?,
        Request::List(request) => {
            let reply = match &request.glob {
                Some(glob) => files::find::find(mode, &request, glob).await,
                None => files::list::list(mode, &request),
            };
            write_message(&mut stream, &reply).await?;
        }
        Request::Edit(request) => write_message(&mut stream, &files::edit::edit(mode, &request)).await?,
        Request::Move(request) => write_message(&mut stream, &files::rename::rename(mode, &request)).await?,
        Request::Search(request) => {
            write_message(&mut stream, &files::search::search(mode, &request).await).await?;
        }
        Request::Watch(request) => files::watch::watch(&mut stream, mode, &request).await?,
        Request::Pack(request) => files::trees::pack(&mut stream, mode, &request).await?,
        Request::Unpack(request) => files::trees::unpack(&mut stream, mode, &request).await?,
        Request::Manifest(request) => files::trees::manifest(&mut stream, mode, &request).await?,
        Request::Prune(request) => files::trees::prune(&mut stream, mode, &request).await?,
        Request::Remove(request) => {
            write_message(&mut stream, &files::remove::remove(mode, &request).await).await?;
        }
        Request::Which(request) => write_message(&mut stream, &files::which(&request.names)).await?,
        Request::Code(request) => return code::run(stream, agent, *request).await,
        Request::Contexts => write_message(&mut stream, &code::list(&agent)).await?,
        Request::Context(request) => write_message(&mut stream, &code::act(&agent, &request).await).await?,
        Request::Steps(request) => return steps::run(stream, agent, *request).await,
        Request::Input(request) => write_message(&mut stream, &stdin::input(&agent, &request).await).await?,
        Request::Control => return control_socket::relay(stream, agent).await,
        Request::Pause(on) => {
            let count = pause::set(&agent, on).await;
            write_message(&mut stream, &Reply::Stood(count)).await?;
        }
        Request::Usage => write_message(&mut stream, &Reply::Used(usage::now(mode))).await?,
        Request::Gate(connections) => return network::gate(stream, agent, connections, descriptors).await,
        Request::Carry(request) => return network::carry(stream, agent, &request).await,
        Request::Dial(request) => return network::dial(stream, mode, &request, descriptors).await,
        Request::Shutdown => exit(agent).await,
    }
    // A clean end after everything was sent, so that the host can tell it from a broken stream.
    stream.shutdown().await.ok();
    Ok(())
}

/// Kills runs that would survive the agent: where it is not PID 1 of a PID namespace.
async fn kill_runs(agent: &Shared) {
    if agent.mode.processes.owns_all_processes() {
        return;
    }
    // Interpreters and steps first: the calls in them exit with them.
    let left = || {
        let mut active = agent.runs.active();
        active.retain(|run| run.state.borrow().exit.is_none());
        active.into_iter().max_by_key(|run| run.kind != RunKind::Requested)
    };
    while let Some(run) = left() {
        run.state.borrow_mut().killed.get_or_insert(KillReason::Requested);
        processes::kill_all(agent, &run).await;
        // The task that finishes the run has to be polled too.
        tokio::task::yield_now().await;
    }
    while !has_no_children() {
        processes::kill_orphans(agent);
        // Killed processes take a moment to exit; the reaper runs meanwhile.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Stops the sandbox.
pub(crate) async fn exit(agent: Shared) {
    kill_runs(&agent).await;
    // SAFETY: exits the agent; as PID 1 of a PID namespace it takes every process with it.
    unsafe { libc::_exit(0) }
}

/// A cell that is never borrowed across an await.
pub(crate) type Cell<T> = RefCell<T>;

/// The frame of an output chunk.
pub(crate) fn output_frame(channel: crate::output::Channel, bytes: bytes::Bytes) -> Frame {
    match channel {
        crate::output::Channel::Stdout => Frame::Stdout(bytes),
        crate::output::Channel::Stderr => Frame::Stderr(bytes),
    }
}
