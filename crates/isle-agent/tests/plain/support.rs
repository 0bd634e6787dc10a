//! A host for the tests: starts the real agent as a plain child process and speaks the protocol with it.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use isle_wire::{
    BeforePreamble, Ended, ExecEvent, ExecRequest, FdStream, Frame, GuestUser, Mux, OnHangup, PathRequest,
    Preamble, ReadRequest, Reply, Request, RunLimits, Side, SignalRequest, StdinMode, Stream, Welcome,
    WriteHeader, WriteRequest, read_frame, write_frame, write_message,
};
use tempfile::TempDir;

/// Long enough for a busy machine.
const TIMEOUT: Duration = Duration::from_secs(30);

/// An agent, killed when the test is over.
pub struct Agent {
    pub child: Child,
    pub directory: TempDir,
}

impl Agent {
    /// Starts an agent with these links, its workspace in a directory of its own.
    pub fn start(links: &[&str], configure: impl FnOnce(&mut Command)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self::start_in(directory, links, configure)
    }

    pub fn start_in(directory: TempDir, links: &[&str], configure: impl FnOnce(&mut Command)) -> Self {
        let workspace = directory.path().join("workspace");
        fs::create_dir(&workspace).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_isle-agent"));
        command.arg("plain").arg("--workspace").arg(&workspace).stdin(Stdio::null());
        for link in links {
            command.args(["--link", link]);
        }
        configure(&mut command);
        Self { child: command.spawn().unwrap(), directory }
    }

    pub fn workspace(&self) -> std::path::PathBuf {
        self.directory.path().join("workspace")
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    /// Waits until it has exited.
    pub fn exited(&mut self) -> std::process::ExitStatus {
        let mut status = None;
        until("the agent exits", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Waits until a condition holds.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}: not within {TIMEOUT:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Lets a child inherit a descriptor.
pub fn inherit(descriptor: &OwnedFd) -> i32 {
    rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::empty()).unwrap();
    descriptor.as_raw_fd()
}

/// Processes with this argument, by `/proc`.
pub fn processes_with(argument: &str) -> Vec<i32> {
    let pids = fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|&byte| byte == 0).any(|word| word == argument.as_bytes())
    })
    .collect()
}

/// A connection to an agent.
pub struct Host {
    pub mux: Mux,
    pub welcome: Welcome,
}

/// How a command exited, and what it printed.
pub struct Outcome {
    pub stdout: String,
    pub ended: Ended,
}

impl Host {
    pub async fn connect(mut stream: FdStream, before: BeforePreamble) -> io::Result<Self> {
        let preamble = tokio::time::timeout(TIMEOUT, Preamble::read(&mut stream, before)).await??;
        let Preamble::Ready(welcome) = preamble else { panic!("{preamble:?}") };
        let (mux, _, driver) = Mux::new(stream, Side::Host);
        tokio::spawn(driver);
        Ok(Self { mux, welcome })
    }

    /// Connects to a listening agent, as soon as it listens.
    pub async fn connect_to(path: &Path) -> Self {
        let deadline = Instant::now() + TIMEOUT;
        let socket = loop {
            match UnixStream::connect(path) {
                Ok(socket) => break socket,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        let stream = FdStream::socket_receiving(socket).unwrap();
        Self::connect(stream, BeforePreamble::Nothing).await.unwrap()
    }

    pub async fn request(&self, request: &Request) -> Stream {
        let mut stream = self.mux.open().await.unwrap();
        write_message(&mut stream, request).await.unwrap();
        stream
    }

    pub async fn reply(&self, request: &Request) -> Reply {
        let mut stream = self.request(request).await;
        next(&mut stream).await.decode().unwrap()
    }

    /// Starts a command.
    pub async fn start(&self, run: &str, argv: &[&str], on_hangup: OnHangup) -> Stream {
        let bytes = |text: &&str| text.as_bytes().to_vec().into();
        let request = ExecRequest {
            run: run.into(),
            argv: argv.iter().map(bytes).collect(),
            env: vec![b"PATH=/usr/bin:/bin".to_vec().into()],
            cwd: b"/workspace".to_vec().into(),
            make_cwd: false,
            user: GuestUser::Sandbox,
            stdin: StdinMode::Null,
            terminal: None,
            on_hangup,
            retain: 4096,
            limits: RunLimits::default(),
            timeout_ms: None,
            forget: Vec::new(),
            keep_input: false,
        };
        self.request(&Request::Exec(Box::new(request))).await
    }

    /// Runs a shell command to its end.
    pub async fn run(&self, run: &str, script: &str) -> Outcome {
        let stream = self.start(run, &["sh", "-c", script], OnHangup::Kill).await;
        finish(stream, String::new()).await
    }

    pub async fn signal(&self, run: &str, signal: i32, whole_tree: bool) {
        let request = Request::Signal(SignalRequest { run: run.into(), signal, whole_tree });
        assert!(matches!(self.reply(&request).await, Reply::Done));
    }

    pub async fn write(&self, path: &str, contents: &[u8]) {
        let mut stream = self.request(&Request::WriteFiles(WriteRequest { user: GuestUser::Sandbox })).await;
        let header = WriteHeader { at: at(path), mode: 0o644, append: false, keep_mode: false };
        write_message(&mut stream, &header).await.unwrap();
        for piece in contents.chunks(100_000) {
            write_frame(&mut stream, &Frame::Data(piece.to_vec().into())).await.unwrap();
        }
        write_frame(&mut stream, &Frame::End).await.unwrap();
        let reply: Reply = next(&mut stream).await.decode().unwrap();
        assert!(matches!(&reply, Reply::Written(sizes) if sizes[..] == [contents.len() as u64]), "{reply:?}");
    }

    pub async fn read(&self, path: &str) -> Vec<u8> {
        let request = ReadRequest { at: at(path), offset: 0, limit: None };
        let mut stream = self.request(&Request::ReadFile(request)).await;
        let reply: Reply = next(&mut stream).await.decode().unwrap();
        assert!(matches!(reply, Reply::Stat(_)), "{reply:?}");
        let mut contents = Vec::new();
        while let Frame::Data(bytes) = next(&mut stream).await {
            contents.extend_from_slice(&bytes);
        }
        contents
    }
}

fn at(path: &str) -> PathRequest {
    PathRequest {
        path: path.as_bytes().to_vec().into(),
        beneath: Some(b"/workspace".to_vec().into()),
        user: GuestUser::Sandbox,
    }
}

pub async fn next(stream: &mut Stream) -> Frame {
    tokio::time::timeout(TIMEOUT, read_frame(stream)).await.unwrap().unwrap().unwrap()
}

/// Reads output until it contains `text`.
pub async fn read_until(stream: &mut Stream, text: &str) -> String {
    let mut stdout = String::new();
    while !stdout.contains(text) {
        match next(stream).await {
            Frame::Stdout(bytes) => stdout.push_str(std::str::from_utf8(&bytes).unwrap()),
            other => panic!("{other:?} after {stdout:?}"),
        }
    }
    stdout
}

/// Reads a command's stream to its end.
pub async fn finish(mut stream: Stream, mut stdout: String) -> Outcome {
    loop {
        match next(&mut stream).await {
            Frame::Stdout(bytes) => stdout.push_str(std::str::from_utf8(&bytes).unwrap()),
            Frame::Stderr(bytes) => panic!("{}", String::from_utf8_lossy(&bytes)),
            message => match message.decode::<ExecEvent>().unwrap() {
                ExecEvent::Ended(ended) => return Outcome { stdout, ended: *ended },
                other => panic!("{other:?}"),
            },
        }
    }
}
