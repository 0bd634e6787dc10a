//! Being the daemon: one function that reads like a list, from settings to a socket and down again.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use isle_client::{ClientError, Result};
use isle_engine::backend::Backend;
use isle_engine::{Code, Engine, Error};
use isle_linux::setup::privileges;
use isle_linux::{NativeBackend, NativeConfig};
use isle_server::{ListenOptions, Listeners, ServerConfig, Token};
use isle_store::{Store, StoreError};
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

use super::engine_config::{engine_config, keyring, list, listen_address, mcp_options, pool_size, switch};
use super::log::LogWriter;
use super::start::Announcement;
use crate::config::Settings;
use crate::output::{Form, say};
use crate::places::Places;

/// All of going down, requests and engine together.
const DRAIN: Duration = Duration::from_secs(10);
/// What requests under way may use of it.
const REQUESTS: Duration = Duration::from_secs(5);
const BACKENDS: Duration = Duration::from_secs(3);
/// How often memory that is free is given back to the system.
const GIVE_BACK: Duration = Duration::from_secs(60);

/// Where the daemon runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ground {
    /// In this terminal.
    Fore,
    /// Behind it, with a starter that waits for word on our standard output.
    Back,
}

/// Runs the daemon until it is told to end.
pub(crate) fn serve(
    ground: Ground,
    form: Form,
    prepare: impl FnOnce() -> Result<(Places, Settings)>,
) -> Result<ExitCode> {
    let ended = settle()
        .and_then(|()| prepare())
        .and_then(|(places, settings)| run(ground, form, &places, &settings));
    match ended {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            if ground == Ground::Back {
                announce(&Announcement::Failed(error.clone()));
            }
            Err(error)
        }
    }
}

/// Leaves behind what the starter happened to have: open files, its umask, capabilities that no part of
/// the daemon needs. Before there is a second thread, and before anything is opened.
fn settle() -> Result<()> {
    // SAFETY: the program has just begun and owns nothing but its standard streams.
    unsafe { isle_linux::sys::close_inherited() }.map_err(Error::internal)?;
    // Modes are given wherever something is made; a starter's umask would take from them, or not.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    // A core could hold a token.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    if rustix::process::geteuid().is_root() {
        privileges::keep_at_most(privileges::DAEMON).map_err(Error::internal)?;
    }
    Ok(())
}

fn run(ground: Ground, form: Form, places: &Places, settings: &Settings) -> Result<()> {
    if ground == Ground::Back {
        // Fails only when we lead a session already, which is what is wanted.
        let _ = rustix::process::setsid();
    }
    start_logging(ground, form, settings)?;
    raise_file_limit();
    places.prepare()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers())
        .enable_all()
        .build()
        .map_err(Error::internal)?;
    let ended = runtime.block_on(live(ground, places, settings));
    runtime.shutdown_timeout(Duration::from_secs(1));
    ended
}

/// Few: the daemon passes messages, the work is done in sandboxes, and waking another thread for
/// every message costs more than it gains.
fn workers() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| (cores.get() / 4).max(1))
}

async fn live(ground: Ground, places: &Places, settings: &Settings) -> Result<()> {
    let shutdown = CancellationToken::new();
    end_on_signals(shutdown.clone())?;
    let mut config = engine_config(settings)?;
    config.job_files = Some(places.state_dir.join("jobs"));
    config.vault.key_file.get_or_insert_with(|| places.state_dir.join("vault.key"));
    config.vault.keyring = keyring(settings, &places.state_dir)?;
    let mcp = mcp_options(settings)?;
    let options = ListenOptions {
        unix: Some(places.socket.clone()),
        tcp: listen_address(settings)?,
        allow_remote: switch(settings, "allow_remote")?,
    };
    let store = Store::open(&places.state_dir).map_err(|error| store_error(places, error))?;
    let backend: Arc<dyn Backend> = NativeBackend::new(NativeConfig {
        state_dir: places.state_dir.clone(),
        runtime_dir: places.instance_dir.clone(),
        pool_size: pool_size(settings)?,
    })
    .await?;
    // From here on there may be secrets in memory, and no child is made of this process itself.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(Error::internal)?;
    let engine = Engine::start(config, store, vec![backend]).await?;
    let mut server = ServerConfig::new(version(), &places.state_dir);
    server.drain = REQUESTS;
    server.allowed_hosts = list(settings, "allowed_hosts")?;
    server.cors_origins = list(settings, "cors_origins")?;
    server.log_http = switch(settings, "log_http")?;
    server.mcp = mcp;
    let bound = async {
        if options.tcp.is_some() {
            server.token = Some(Token::load_or_create(&places.state_dir.join("token"))?);
        }
        Listeners::bind(&options).await
    };
    let listeners = match bound.await {
        Ok(listeners) => listeners,
        Err(error) => {
            // Nobody was told that we live, so nothing that was made meanwhile may stay.
            engine.shutdown(BACKENDS).await;
            return Err(error.into());
        }
    };
    let tcp = listeners.tcp_address();
    ready(ground, places, tcp);
    tokio::spawn(give_back_memory());
    let served = isle_server::serve(engine.clone(), listeners, server, shutdown).await;
    tracing::info!("going down");
    if tokio::time::timeout(DRAIN - REQUESTS, engine.shutdown(BACKENDS)).await.is_err() {
        tracing::warn!("the engine did not let go in time; the next start finishes its work");
    }
    served.map_err(ClientError::from)
}

/// What was built for the start, and what a busy time needed, took more than is kept of it.
async fn give_back_memory() {
    tokio::time::sleep(Duration::from_secs(1)).await;
    loop {
        isle_linux::sys::give_back_memory();
        tokio::time::sleep(GIVE_BACK).await;
    }
}

/// The version this daemon says it is. A build for tests may claim to be another, so that what follows
/// from that can be seen.
fn version() -> String {
    let claimed = if cfg!(debug_assertions) { std::env::var("ISLE_CLAIMED_VERSION").ok() } else { None };
    claimed.unwrap_or_else(|| env!("CARGO_PKG_VERSION").to_owned())
}

/// Says that the socket answers: to the starter, or to the person.
fn ready(ground: Ground, places: &Places, tcp: Option<std::net::SocketAddr>) {
    tracing::info!(socket = %places.socket.display(), tcp = tcp.map(tracing::field::display), "ready");
    match ground {
        Ground::Back => {
            announce(&Announcement::Ready);
            leave_starter();
        }
        Ground::Fore => {
            say(&format!("isle {} listens on {}", env!("CARGO_PKG_VERSION"), places.socket.display()));
            if let Some(address) = tcp {
                let token = places.state_dir.join("token");
                say(&format!("  and on http://{address}, with the token in {}", token.display()));
            }
        }
    }
}

fn announce(announcement: &Announcement) {
    let Ok(word) = serde_json::to_string(announcement) else { return };
    let mut stdout = std::io::stdout().lock();
    // A starter that is gone no longer waits for the word.
    drop(writeln!(stdout, "{word}").and_then(|()| stdout.flush()));
}

/// Closes the pipe to the starter, who reads until its end.
fn leave_starter() {
    if let Ok(null) = std::fs::OpenOptions::new().write(true).open("/dev/null") {
        // If it fails the starter waits until we end; nothing else can be done about it here.
        let _ = rustix::stdio::dup2_stdout(&null);
    }
}

fn end_on_signals(shutdown: CancellationToken) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate()).map_err(Error::internal)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::internal)?;
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        shutdown.cancel();
    });
    Ok(())
}

fn start_logging(ground: Ground, form: Form, settings: &Settings) -> Result<()> {
    let mut filter = settings.text("log").unwrap_or_else(|| "info".into());
    // Libraries that carry what others say may write it when they are talkative: whole messages of MCP, or
    // what went through the opened gate, and that may hold a token. Who wants that has to name it.
    for library in ["rmcp", "h2", "hyper", "rustls"] {
        if !filter.contains(library) {
            filter.push_str(&format!(",{library}=warn"));
        }
    }
    let filter = EnvFilter::try_new(&filter).map_err(|error| {
        Error::new(Code::ConfigInvalid, format!("`log` is {filter:?}, which is no filter: {error}"))
            .next("write a level such as info, or module=level pairs")
    })?;
    let colours = ground == Ground::Fore && std::io::stderr().is_terminal();
    // Structured where a program reads it, plain where a person does.
    let form = match (ground, form) {
        (Ground::Fore, Form::Human) => Form::Human,
        (Ground::Back, _) | (_, Form::Json) => Form::Json,
    };
    let writer = LogWriter::new(form);
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).with_ansi(colours);
    let started = match form {
        Form::Human => log.try_init(),
        Form::Json => log.json().try_init(),
    };
    started.map_err(|error| Error::internal(error).into())
}

/// Every sandbox costs a few descriptors. What cannot be raised stays as it is.
fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}

/// What is wrong with a state directory, in words for people.
pub(crate) fn store_error(places: &Places, error: StoreError) -> Error {
    let state_dir = places.state_dir.display();
    match error {
        StoreError::TooNew { found, known } => Error::new(
            Code::StateTooNew,
            format!(
                "{state_dir} was written by a newer version (schema {found}, this program knows {known})"
            ),
        )
        .next("use the newer program, or another directory with --state-dir"),
        StoreError::Locked { pid } => {
            let holder = pid.map_or_else(String::new, |pid| format!(", pid {pid}"));
            Error::new(Code::AlreadyExists, format!("a daemon already runs for {state_dir}{holder}"))
                .detail("pid", pid)
                .next("use it as it is, or end it with `isle stop`")
                .next("for a second daemon choose another --state-dir")
        }
        StoreError::Full => Error::new(Code::NoSpace, format!("the disk of {state_dir} is full"))
            .next("free some space there and start again"),
        StoreError::Broken { reason } => {
            Error::new(Code::DiskBroken, format!("the disk of {state_dir} gives errors: {reason}")).next(
                "see to the disk (the host's kernel log tells more) and start again; nothing was changed",
            )
        }
        StoreError::Corrupt { path, reason } => {
            let path = path.display();
            Error::new(Code::StateDamaged, format!("{path} cannot be used: {reason}; nothing was touched"))
                .next(format!("put a backup of {path} in its place"))
                .next(
                    "or run `isle repair`: it sets the file aside, takes over the sandboxes that live, and keeps \
                     all workspaces; history and audit rows stay in the file that was set aside",
                )
        }
        other => Error::internal(other),
    }
}
