//! A backend with directories of its own, and the wire to the agents of its sandboxes.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use isle_core::backend::{Backend, Containment, Created, Keep, Lifetime, Limits, SandboxSpec, Tier};
use isle_core::values::{ByteSize, SandboxId};
use isle_e2e::skips::{Extent, Missing, record};
use isle_linux::{Identity, NativeBackend, NativeConfig};
use isle_wire::{
    Ended, ExecEvent, ExecRequest, Frame, GuestUser, Mux, OnHangup, PathRequest, Reply, Request, RunLimits,
    Side, SignalRequest, StdinMode, Stream, TerminalSize, WriteHeader, WriteRequest, read_frame, write_frame,
    write_message,
};

/// Longer than anything here takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A daemon's worth of backend.
pub struct House {
    pub directory: PathBuf,
    pub backend: Arc<NativeBackend>,
}

impl House {
    pub async fn new() -> Self {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory =
            std::env::temp_dir().join(format!("isle-process-tier-{}-{number}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let backend = Self::open(&directory).await;
        let offer = backend.offers().into_iter().find(|offer| offer.tier == Tier::Process).unwrap();
        if !offer.available_with_downgrade {
            let missing = Missing::on_host(format!("this host does not offer tier process: {offer:?}"));
            record(&missing, Extent::Whole);
            backend.shutdown(PATIENCE).await;
            fs::remove_dir_all(&directory).unwrap();
            // All of this program is about that tier, so nothing that could run is cut short.
            std::process::exit(0);
        }
        Self { directory, backend }
    }

    async fn open(directory: &Path) -> Arc<NativeBackend> {
        let id = format!("{:032x}", fs::metadata(directory).unwrap().ino());
        isle_e2e::run::note(&format!("isle-{id}"));
        let config = NativeConfig {
            state_dir: directory.join("state"),
            runtime_dir: directory.join("run"),
            identity: Identity {
                id,
                inode: fs::metadata(directory).unwrap().ino(),
                previous: None,
                earlier_runtime_dir: None,
            },
            pool_size: 0,
        };
        NativeBackend::new(config).await.unwrap()
    }

    /// Another daemon in the same directories.
    pub async fn again(&self) -> Arc<NativeBackend> {
        Self::open(&self.directory).await
    }

    /// A file of the host that anybody may read and write.
    pub fn canary(&self) -> PathBuf {
        let path = self.directory.join("canary");
        fs::write(&path, "canary").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        fs::set_permissions(&self.directory, fs::Permissions::from_mode(0o777)).unwrap();
        path
    }

    pub async fn one_shot(&self) -> Guest {
        self.guest(spec(Lifetime::OneShot)).await
    }

    pub async fn named(&self) -> Guest {
        self.guest(spec(Lifetime::Named)).await
    }

    pub async fn guest(&self, spec: SandboxSpec) -> Guest {
        let id = SandboxId::fresh();
        let created = self.backend.create(&id, &spec).await.unwrap();
        Guest::new(id, spec, created)
    }

    /// Destroys what is left and checks that nothing is.
    pub async fn leave(self) {
        self.backend.sweep(&[]).await.unwrap();
        self.backend.shutdown(PATIENCE).await;
        fs::remove_dir_all(&self.directory).unwrap();
    }
}

pub fn spec(lifetime: Lifetime) -> SandboxSpec {
    SandboxSpec {
        backend: None,
        tier: Tier::Process,
        image: "host".into(),
        limits: Limits { disk: ByteSize::mib(16), pids: 64, ..Limits::default() },
        lifetime,
        volume: (lifetime == Lifetime::Named).then(|| "kept".parse().unwrap()),
        allow_downgrade: true,
        control: false,
        fixed_etc: false,
        child: None,
    }
}

/// A sandbox and the connection to it.
pub struct Guest {
    pub id: SandboxId,
    pub spec: SandboxSpec,
    pub containment: Containment,
    mux: Mux,
}

/// What became of a command.
#[derive(Debug)]
pub struct Outcome {
    pub ended: Ended,
    pub stdout: String,
    pub stderr: String,
}

/// A command that runs.
pub struct Running {
    stream: Stream,
    stdout: String,
    stderr: String,
}

impl Guest {
    pub fn new(id: SandboxId, spec: SandboxSpec, created: Created) -> Self {
        let (mux, _incoming, driver) = Mux::new(created.link, Side::Host);
        tokio::spawn(driver);
        Self { id, spec, containment: created.containment, mux }
    }

    pub fn request(argv: &[&str]) -> ExecRequest {
        ExecRequest {
            keep_input: false,
            run: format!("run-{}", NUMBER.fetch_add(1, Ordering::Relaxed)),
            argv: argv.iter().map(|word| word.as_bytes().to_vec().into()).collect(),
            env: ["PATH=/usr/bin:/bin", "HOME=/home/sandbox"]
                .map(|entry| entry.as_bytes().to_vec().into())
                .into(),
            cwd: b"/workspace".to_vec().into(),
            make_cwd: true,
            user: GuestUser::Sandbox,
            stdin: StdinMode::Null,
            terminal: None,
            on_hangup: OnHangup::Kill,
            retain: 65_536,
            limits: RunLimits::default(),
            timeout_ms: None,
            forget: vec![],
        }
    }

    pub async fn start(&self, request: ExecRequest) -> Running {
        let mut stream = self.mux.open().await.unwrap();
        write_message(&mut stream, &Request::Exec(Box::new(request))).await.unwrap();
        Running { stream, stdout: String::new(), stderr: String::new() }
    }

    pub async fn run(&self, request: ExecRequest) -> Outcome {
        self.start(request).await.end().await
    }

    pub async fn shell(&self, text: &str) -> Outcome {
        self.run(Self::request(&["sh", "-c", text])).await
    }

    pub async fn python(&self, text: &str) -> Outcome {
        self.run(Self::request(&["python3", "-c", text])).await
    }

    pub async fn terminal(&self, text: &str) -> Outcome {
        let terminal = Some(TerminalSize { rows: 33, columns: 99 });
        self.run(ExecRequest { terminal, ..Self::request(&["sh", "-c", text]) }).await
    }

    /// Kills a run whole.
    pub async fn kill(&self, run: &str) -> Reply {
        self.ask(&Request::Signal(SignalRequest { run: run.into(), signal: libc::SIGKILL, whole_tree: true }))
            .await
    }

    pub async fn ask(&self, request: &Request) -> Reply {
        let mut stream = self.mux.open().await.unwrap();
        write_message(&mut stream, request).await.unwrap();
        read_frame(&mut stream).await.unwrap().unwrap().decode().unwrap()
    }

    pub async fn write(&self, path: PathRequest, contents: &[u8]) -> Reply {
        let mut stream = self.mux.open().await.unwrap();
        let user = GuestUser::Sandbox;
        write_message(&mut stream, &Request::WriteFiles(WriteRequest { user })).await.unwrap();
        write_message(&mut stream, &WriteHeader { at: path, mode: 0o644, append: false, keep_mode: false })
            .await
            .unwrap();
        for piece in contents.chunks(256 * 1024) {
            write_frame(&mut stream, &Frame::Data(piece.to_vec().into())).await.unwrap();
        }
        write_frame(&mut stream, &Frame::End).await.unwrap();
        read_frame(&mut stream).await.unwrap().unwrap().decode().unwrap()
    }

    pub async fn destroy(self, house: &House, keep: Keep) {
        house.backend.destroy(&self.id, keep).await.unwrap();
    }
}

impl Running {
    /// Reads until the command has printed a whole line; returns it.
    pub async fn line(&mut self) -> String {
        while !self.stdout.contains('\n') {
            assert!(self.next().await.is_none(), "it ended early: {} {}", self.stdout, self.stderr);
        }
        let (line, rest) = self.stdout.split_once('\n').unwrap();
        let (line, rest) = (line.to_owned(), rest.to_owned());
        self.stdout = rest;
        line
    }

    async fn next(&mut self) -> Option<ExecEvent> {
        let frame = tokio::time::timeout(PATIENCE, read_frame(&mut self.stream)).await.expect("in time");
        match frame.unwrap().expect("an end before the end of the stream") {
            Frame::Stdout(bytes) => self.stdout.push_str(&String::from_utf8_lossy(&bytes)),
            Frame::Stderr(bytes) => self.stderr.push_str(&String::from_utf8_lossy(&bytes)),
            message => match message.decode().unwrap() {
                ExecEvent::Started | ExecEvent::Skipped(_) => {}
                event => return Some(event),
            },
        }
        None
    }

    pub async fn event(mut self) -> (ExecEvent, String, String) {
        loop {
            if let Some(event) = self.next().await {
                return (event, self.stdout, self.stderr);
            }
        }
    }

    pub async fn end(self) -> Outcome {
        match self.event().await {
            (ExecEvent::Ended(ended), stdout, stderr) => Outcome { ended: *ended, stdout, stderr },
            (other, _, _) => panic!("{other:?}"),
        }
    }
}

/// Whether a process exists and is no zombie.
pub fn lives(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

pub fn parent(pid: i32) -> i32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(')').unwrap().1.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Names a living process, whatever its number is used for later.
pub struct Process(tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>);

impl Process {
    pub fn open(pid: i32) -> Self {
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        let descriptor = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
        // SAFETY: the OwnedFd keeps its descriptor for the life of the AsyncFd.
        Self(unsafe { tokio::io::unix::AsyncFd::register(descriptor) }.unwrap())
    }

    pub fn kill(&self) {
        rustix::process::pidfd_send_signal(self.0.get_ref(), rustix::process::Signal::KILL).unwrap();
    }

    /// Waits until it has ended.
    pub async fn gone(&self) {
        tokio::time::timeout(PATIENCE, self.0.readable())
            .await
            .expect("it still lives")
            .unwrap()
            .retain_ready();
    }
}

pub fn below_workspace(path: &str) -> PathRequest {
    let beneath = Some(b"/workspace".to_vec().into());
    PathRequest { path: path.as_bytes().to_vec().into(), beneath, user: GuestUser::Sandbox }
}

pub fn absolute(path: &str) -> PathRequest {
    PathRequest { path: path.as_bytes().to_vec().into(), beneath: None, user: GuestUser::Sandbox }
}
