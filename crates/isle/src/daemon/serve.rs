//! Runs the daemon: one function with all steps in order, from settings to the socket and the shutdown.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use isle_client::{ClientError, Result};
use isle_core::backend::Backend;
use isle_core::{Code, Error};
use isle_engine::Engine;
use isle_linux::Identity;
use isle_server::{ListenOptions, Listeners, ServerConfig, Token};
use isle_setup::privileges;
use isle_store::{LockState, Phase, Store, StoreError};
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

use super::engine_config::{
    engine_config, keyring, list, listen_address, mcp_options, pool_size, ports_config, switch,
};
use super::lock_holder::{WaitLimit, held_message};
use super::log::LogWriter;
use super::log_rotation::rotate_periodically;
use super::own_files::{self, StateGone};
use super::start::Announcement;
use crate::backends;
use crate::config::Settings;
use crate::output::{Form, print_stderr};
use crate::paths::Paths;

/// Time limit of the whole shutdown, requests and engine.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);
/// Part of it for requests in progress.
const REQUEST_DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
const BACKEND_TIMEOUT: Duration = Duration::from_secs(3);
/// How often free memory is returned to the system.
const MEMORY_TRIM_INTERVAL: Duration = Duration::from_secs(60);

/// How the daemon runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServeMode {
    /// In this terminal.
    Foreground,
    /// Detached, with a starting process that waits for an announcement on our standard output.
    Background,
}

/// Runs the daemon until it is stopped.
pub(crate) fn serve(
    mode: ServeMode,
    form: Form,
    prepare: impl FnOnce() -> Result<(Paths, Settings)>,
) -> Result<ExitCode> {
    let result = drop_inherited_state()
        .and_then(|()| prepare())
        .and_then(|(paths, settings)| run(mode, form, &paths, &settings));
    match result {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            if mode == ServeMode::Background {
                announce(&Announcement::Failed(error.clone()));
            }
            Err(error)
        }
    }
}

/// Drops what was inherited from the starting process: open files, umask, unneeded capabilities. Runs before
/// there is a second thread and before anything is opened.
fn drop_inherited_state() -> Result<()> {
    // SAFETY: the program has just started and owns no descriptors but its standard streams.
    unsafe { isle_setup::sys::close_inherited() }.map_err(Error::internal)?;
    // All files are created with explicit modes; the inherited umask must not change them.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    // A core dump could contain a token.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    if rustix::process::geteuid().is_root() {
        privileges::keep_at_most(privileges::DAEMON).map_err(Error::internal)?;
    }
    Ok(())
}

fn run(mode: ServeMode, form: Form, paths: &Paths, settings: &Settings) -> Result<()> {
    if mode == ServeMode::Background {
        // Fails only if this process is already a session leader, which is the goal.
        let _ = rustix::process::setsid();
    }
    start_logging(mode, form, settings)?;
    raise_file_limit();
    paths.prepare()?;
    if mode == ServeMode::Foreground {
        wait_for_start(paths)?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers())
        .enable_all()
        .build()
        .map_err(Error::internal)?;
    let result = runtime.block_on(run_until_shutdown(mode, paths, settings));
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}

/// Waits for a daemon that is starting, so that the error message describes its final state.
fn wait_for_start(paths: &Paths) -> Result<()> {
    let wait_limit = WaitLimit::new();
    loop {
        match LockState::read(&paths.state_dir).map_err(|error| store_error(paths, error))? {
            LockState::HeldBy(holder) if holder.phase == Phase::Starting && wait_limit.is_left() => {
                wait_limit.pause()
            }
            _ => return Ok(()),
        }
    }
}

/// Few worker threads: the daemon only passes messages, and waking another thread for each one costs more
/// than it gains.
fn workers() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| (cores.get() / 4).max(1))
}

async fn run_until_shutdown(mode: ServeMode, paths: &Paths, settings: &Settings) -> Result<()> {
    let shutdown = CancellationToken::new();
    shut_down_on_signals(shutdown.clone())?;
    let mut config = engine_config(settings)?;
    config.job_files = Some(paths.state_dir.join("jobs"));
    config.vault.key_file.get_or_insert_with(|| paths.state_dir.join("vault.key"));
    let mcp = mcp_options(settings)?;
    let ports = ports_config(settings)?;
    let tcp = listen_address(settings)?;
    let allow_remote = switch(settings, "allow_remote")?;
    let store = Store::open(&paths.state_dir).map_err(|error| store_error(paths, error))?;
    let describe = |error| store_error(paths, error);
    let instance = store.instance();
    let socket = paths.socket_of(&instance.id);
    let instance_dir = paths.create_instance_dir(&instance)?;
    store.set_runtime_dir(&instance_dir).map_err(describe)?;
    config.vault.keyring = keyring(settings, &instance.vault)?;
    delay_start().await;
    let options = ListenOptions { unix: Some(socket.clone()), tcp, allow_remote };
    let identity = Identity {
        id: instance.id.to_string(),
        inode: instance.inode(),
        previous: instance.previous.as_ref().map(ToString::to_string),
        earlier_runtime_dir: instance.adopted.then(|| paths.earlier_instance_dir()),
    };
    let directories = backends::Directories { state: &paths.state_dir, runtime: &instance_dir };
    let backends = backends::open(directories, identity, pool_size(settings)?).await?;
    // From here on there may be secrets in memory, and this process is not forked any more.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(Error::internal)?;
    let engine = Engine::start(config, store.clone(), backends.clone()).await?;
    let mut server = ServerConfig::new(version(), &paths.state_dir);
    server.instance = Some(instance.id.to_string());
    server.drain = REQUEST_DRAIN_TIMEOUT;
    server.allowed_hosts = list(settings, "allowed_hosts")?;
    server.cors_origins = list(settings, "cors_origins")?;
    server.log_http = switch(settings, "log_http")?;
    server.mcp = mcp;
    let bound = async {
        let token = paths.state_dir.join("token");
        if options.tcp.is_some() {
            server.token = Some(Token::load_or_create(&token)?);
        }
        // A token that is not in use now is valid again with the next --listen.
        let known = match &server.token {
            None if token.exists() => Token::load_or_create(&token).ok(),
            known => known.clone(),
        };
        server.ports.clone_from(&ports);
        if let Some(ports) = &mut server.ports {
            ports.token = known;
        }
        Listeners::bind(&options).await
    };
    let listeners = match bound.await {
        Ok(listeners) => listeners,
        Err(error) => {
            // No client knows about this daemon yet: remove everything created so far.
            engine.shutdown(BACKEND_TIMEOUT).await;
            return Err(error.into());
        }
    };
    let tcp = listeners.tcp_address();
    store.announce(Phase::Running, Some(&socket)).map_err(describe)?;
    announce_shutdown(&store, shutdown.clone());
    let files = tokio::spawn(own_files::keep(store.clone(), instance_dir, shutdown.clone()));
    // The engine holds the last reference and releases the state directory when it has shut down.
    drop(store);
    ready(mode, paths, &socket, tcp);
    tokio::spawn(trim_memory_periodically());
    if mode == ServeMode::Background {
        tokio::spawn(rotate_periodically(paths.log()));
    }
    let served = isle_server::serve(engine.clone(), listeners, server, shutdown).await;
    tracing::info!("shutting down");
    if let Ok(Some(StateGone::Deleted)) = files.await {
        // No other daemon can find these sandboxes: their records were in the directory.
        for backend in &backends {
            remove_all(&**backend).await;
        }
    }
    if tokio::time::timeout(SHUTDOWN_TIMEOUT - REQUEST_DRAIN_TIMEOUT, engine.shutdown(BACKEND_TIMEOUT))
        .await
        .is_err()
    {
        tracing::warn!("timed out while stopping the engine; the next start completes the cleanup");
    }
    served.map_err(ClientError::from)
}

/// Removes every sandbox of a backend.
async fn remove_all(backend: &dyn Backend) {
    match tokio::time::timeout(SHUTDOWN_TIMEOUT - REQUEST_DRAIN_TIMEOUT, backend.sweep(&[])).await {
        Ok(Ok(removed)) => {
            tracing::warn!(count = removed.len(), "removed the sandboxes of the deleted state directory")
        }
        Ok(Err(error)) => {
            tracing::error!(%error, "cannot remove the sandboxes of the deleted state directory")
        }
        Err(_) => tracing::error!("timed out while removing the sandboxes of the deleted state directory"),
    }
}

/// Records in the lock file that the daemon is shutting down, so that commands wait for its exit.
fn announce_shutdown(store: &Store, shutdown: CancellationToken) {
    let store = store.clone();
    tokio::spawn(async move {
        shutdown.cancelled().await;
        if let Err(error) = store.announce(Phase::Stopping, None) {
            tracing::warn!(%error, "cannot record the shutdown in the lock file");
        }
    });
}

/// Tests can delay the start of a debug build to observe what happens meanwhile.
async fn delay_start() {
    let delay = if cfg!(debug_assertions) { std::env::var("ISLE_TEST_SLOW_START_MS").ok() } else { None };
    if let Some(delay) = delay.and_then(|text| text.parse().ok()) {
        tokio::time::sleep(Duration::from_millis(delay)).await;
    }
}

/// Start-up and busy periods allocate more memory than is needed afterwards.
async fn trim_memory_periodically() {
    tokio::time::sleep(Duration::from_secs(1)).await;
    loop {
        isle_setup::sys::give_back_memory();
        tokio::time::sleep(MEMORY_TRIM_INTERVAL).await;
    }
}

/// The version this daemon reports. Tests can set another one in debug builds.
fn version() -> String {
    let claimed = if cfg!(debug_assertions) { std::env::var("ISLE_CLAIMED_VERSION").ok() } else { None };
    claimed.unwrap_or_else(|| env!("CARGO_PKG_VERSION").to_owned())
}

/// Announces that the socket accepts connections: to the starting process, or on the terminal.
fn ready(mode: ServeMode, paths: &Paths, socket: &Path, tcp: Option<std::net::SocketAddr>) {
    tracing::info!(socket = %socket.display(), tcp = tcp.map(tracing::field::display), "ready");
    match mode {
        ServeMode::Background => {
            announce(&Announcement::Ready);
            close_announcement_pipe();
        }
        ServeMode::Foreground => {
            print_stderr(&format!("isle {} listening on {}", env!("CARGO_PKG_VERSION"), socket.display()));
            if let Some(address) = tcp {
                let token = paths.state_dir.join("token");
                print_stderr(&format!("  and on http://{address} (token: {})", token.display()));
            }
        }
    }
}

fn announce(announcement: &Announcement) {
    let Ok(line) = serde_json::to_string(announcement) else { return };
    let mut stdout = std::io::stdout().lock();
    // The starting process may have exited already.
    drop(writeln!(stdout, "{line}").and_then(|()| stdout.flush()));
}

/// Closes the pipe to the starting process, which reads until end of file.
fn close_announcement_pipe() {
    if let Ok(null) = std::fs::OpenOptions::new().write(true).open("/dev/null") {
        // On failure the starting process waits until this process exits.
        let _ = rustix::stdio::dup2_stdout(&null);
    }
}

fn shut_down_on_signals(shutdown: CancellationToken) -> Result<()> {
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

fn start_logging(mode: ServeMode, form: Form, settings: &Settings) -> Result<()> {
    let mut filter = settings.text("log").unwrap_or_else(|| "info".into());
    // At debug level these libraries log whole MCP messages or intercepted TLS traffic, which may contain tokens:
    // they must be enabled by name.
    for library in ["rmcp", "h2", "hyper", "rustls"] {
        if !filter.contains(library) {
            filter.push_str(&format!(",{library}=warn"));
        }
    }
    let filter = EnvFilter::try_new(&filter).map_err(|error| {
        Error::new(Code::ConfigInvalid, format!("`log`: invalid filter {filter:?}: {error}"))
            .next("use a level such as info, or module=level pairs")
    })?;
    let colours = mode == ServeMode::Foreground && std::io::stderr().is_terminal();
    // JSON for programs, plain text for a terminal.
    let form = match (mode, form) {
        (ServeMode::Foreground, Form::Human) => Form::Human,
        (ServeMode::Background, _) | (_, Form::Json) => Form::Json,
    };
    let writer = LogWriter::new(form);
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).with_ansi(colours);
    let started = match form {
        Form::Human => log.try_init(),
        Form::Json => log.json().try_init(),
    };
    started.map_err(|error| Error::internal(error).into())
}

/// Every sandbox needs a few descriptors. A limit that cannot be raised is kept.
fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Converts an error of the store to an error message about the state directory.
pub(crate) fn store_error(paths: &Paths, error: StoreError) -> Error {
    let state_dir = paths.state_dir.display();
    match error {
        StoreError::TooNew { found, known } => Error::new(
            Code::StateTooNew,
            format!(
                "{state_dir} was written by a newer version (schema {found}, this program supports {known})"
            ),
        )
        .next("use the newer version, or another directory with --state-dir"),
        StoreError::Locked { pid } => {
            let held = LockState::read(&paths.state_dir).ok();
            if let Some(LockState::HeldBy(holder)) = &held
                && holder.phase != Phase::Running
            {
                return held_message(paths, holder);
            }
            let holder = pid.map_or_else(String::new, |pid| format!(", pid {pid}"));
            Error::new(Code::AlreadyExists, format!("a daemon is already running for {state_dir}{holder}"))
                .detail("pid", pid)
                .detail("held", true)
                .next("use the running daemon, or stop it with `isle stop`")
                .next("for a second daemon, use another --state-dir")
        }
        StoreError::Full => Error::new(Code::NoSpace, format!("no space left on the disk of {state_dir}"))
            .next("free some space and start the daemon again"),
        StoreError::Broken { reason } => {
            Error::new(Code::DiskBroken, format!("I/O error on the disk of {state_dir}: {reason}"))
                .next("check the disk (see the kernel log) and start the daemon again; nothing was changed")
        }
        StoreError::Corrupt { path, reason } => {
            let path = path.display();
            Error::new(Code::StateDamaged, format!("{path} cannot be used: {reason}; nothing was changed"))
                .next(format!("restore {path} from a backup"))
                .next(
                    "or run `isle repair`: it moves the file aside, adopts running sandboxes and keeps all workspaces; \
                     history and audit rows remain in the old file",
                )
        }
        StoreError::Identity { path, reason } => {
            let path = path.display();
            Error::new(Code::StateDamaged, format!("{path} cannot be used: {reason}; nothing was changed"))
                .next(format!("restore {path} from a backup"))
                .next(format!(
                    "or reboot, so that no sandbox of the old identity is running, and remove {path}: the next start creates a new identity"
                ))
                .next("without a reboot, sandboxes running under the old identity can be neither used nor removed")
        }
        StoreError::UnsafeDirectory { path, reason } => {
            let path = path.display();
            Error::new(Code::Forbidden, format!("{path} cannot be the state directory: {reason}")).next(
                format!("use another directory with --state-dir, or run `chmod 700 {path}` if you own it"),
            )
        }
        other => Error::internal(other),
    }
}
