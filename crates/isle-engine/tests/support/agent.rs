//! The agent of the tests: the protocol is real, the processes are real, the walls are not.

use std::collections::HashMap;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use isle_wire::{
    CodeSource, ContextList, Ended, ExecEvent, ExecRequest, Exit, Failure, FailureKind, FileKind, Frame,
    GENERATION, Mux, OnHangup, PathRequest, Reply, Request, RunEntry, RunList, Side, Stat, StdinMode, Stream,
    Used, Welcome, WriteHeader, read_frame, write_frame, write_message,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::process::Command;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// One "sandbox".
pub struct Place {
    directory: tempfile::TempDir,
    code: tempfile::TempDir,
    runs: Mutex<HashMap<String, Arc<FakeRun>>>,
    dead: CancellationToken,
}

struct FakeRun {
    pid: i32,
    log: Mutex<Vec<Frame>>,
    news: watch::Sender<usize>,
    ended: Mutex<Option<Ended>>,
}

impl FakeRun {
    fn say(&self, frame: Frame) {
        self.log.lock().unwrap().push(frame);
        self.news.send_modify(|count| *count += 1);
    }

    fn signal(&self, signal: i32) {
        let group = format!("-{}", self.pid);
        std::process::Command::new("kill").args([format!("-{signal}").as_str(), "--", &group]).status().ok();
    }
}

impl Place {
    pub fn new(_volume: Option<String>) -> Arc<Self> {
        let directory = tempfile::tempdir().unwrap();
        Arc::new(Self {
            directory,
            code: tempfile::tempdir().unwrap(),
            runs: Mutex::default(),
            dead: CancellationToken::new(),
        })
    }

    pub fn workspace(&self) -> &Path {
        self.directory.path()
    }

    pub fn is_dead(&self) -> bool {
        self.dead.is_cancelled()
    }

    pub fn die(&self) {
        self.dead.cancel();
        for run in self.runs.lock().unwrap().values() {
            if run.ended.lock().unwrap().is_none() {
                run.signal(9);
            }
        }
    }

    pub fn serve(self: &Arc<Self>, link: UnixStream) {
        let (mux, mut incoming, driver) = Mux::new(link, Side::Agent);
        let (place, dead) = (Arc::clone(self), self.dead.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = driver => {}
                () = dead.cancelled() => {}
            }
        });
        tokio::spawn(async move {
            let _mux = mux;
            while let Some(stream) = incoming.accept().await {
                tokio::spawn(Arc::clone(&place).handle(stream));
            }
        });
    }

    async fn handle(self: Arc<Self>, mut stream: Stream) {
        let Ok(Some(frame)) = read_frame(&mut stream).await else { return };
        let request: Request = frame.decode().unwrap();
        let reply = match request {
            Request::Hello(_) => {
                let welcome = Welcome {
                    generation: GENERATION,
                    version: "test".into(),
                    missing: Vec::new(),
                    passes_descriptors: false,
                };
                write_message(&mut stream, &welcome).await.unwrap();
                return linger(stream).await;
            }
            Request::Exec(request) => return self.exec(stream, *request).await,
            Request::Attach(attach) => {
                let run = self.runs.lock().unwrap().get(&attach.run).cloned();
                return match run {
                    Some(run) => follow_into(stream, &run).await,
                    None => drop(stream),
                };
            }
            Request::Runs => {
                let list = self.run_list();
                write_message(&mut stream, &list).await.unwrap();
                return linger(stream).await;
            }
            Request::Signal(signal) => match self.runs.lock().unwrap().get(&signal.run) {
                Some(run) if run.ended.lock().unwrap().is_none() => {
                    run.signal(signal.signal);
                    Reply::Done
                }
                _ => Reply::Failed(failure(FailureKind::NoSuchRun, "signal")),
            },
            Request::Forget(run) => {
                self.runs.lock().unwrap().remove(&run.run);
                Reply::Done
            }
            Request::Which(which) => Reply::Found(which.names.iter().find_map(|name| {
                ["/usr/local/bin", "/usr/bin", "/bin"]
                    .iter()
                    .map(|directory| format!("{directory}/{name}"))
                    .find(|path| Path::new(path).exists())
                    .map(|path| path.into_bytes().into())
            })),
            Request::ReadFile(request) => {
                return self.read(stream, &request.at, request.offset, request.limit).await;
            }
            Request::WriteFiles(_) => self.write(&mut stream).await,
            Request::Stat(at) => match std::fs::metadata(self.path(&at)) {
                Ok(meta) => Reply::Stat(stat(&meta)),
                Err(_) => Reply::Failed(failure(FailureKind::NotFound, "stat")),
            },
            Request::Remove(remove) => match std::fs::remove_file(self.path(&remove.at)) {
                Ok(()) => Reply::Done,
                Err(_) => Reply::Failed(failure(FailureKind::NotFound, "remove")),
            },
            Request::List(_) => Reply::Failed(failure(FailureKind::Other, "list")),
            // Without prestarted interpreters: the code is a file.
            Request::Code(request) => {
                let mut exec = request.exec;
                match request.source {
                    CodeSource::Text(code) => {
                        let file = self.code.path().join(&exec.run);
                        std::fs::write(&file, &code[..]).unwrap();
                        exec.argv.push(file.into_os_string().into_encoded_bytes().into());
                    }
                    CodeSource::File(path) => exec.argv.push(path),
                }
                exec.argv.extend(request.args);
                return self.exec(stream, exec).await;
            }
            Request::Contexts => {
                let list = ContextList { contexts: Vec::new() };
                write_message(&mut stream, &list).await.unwrap();
                return linger(stream).await;
            }
            Request::Usage => Reply::Used(Used::default()),
            Request::Pause(_) => Reply::Stood(0),
            Request::Context(_)
            | Request::Steps(_)
            | Request::Input(_)
            | Request::Edit(_)
            | Request::Move(_)
            | Request::Search(_)
            | Request::Watch(_)
            | Request::Pack(_)
            | Request::Unpack(_)
            | Request::Manifest(_)
            | Request::Prune(_)
            | Request::Control
            | Request::Gate(_)
            | Request::Carry(_)
            | Request::Dial(_) => {
                panic!("the agent of the tests does not know this request")
            }
            Request::Shutdown => return self.die(),
        };
        write_message(&mut stream, &reply).await.ok();
        linger(stream).await;
    }

    fn run_list(&self) -> RunList {
        let runs = self.runs.lock().unwrap();
        let entry = |(id, run): (&String, &Arc<FakeRun>)| RunEntry {
            run: id.clone(),
            ended: run.ended.lock().unwrap().is_some(),
        };
        RunList { runs: runs.iter().map(entry).collect() }
    }

    fn path(&self, at: &PathRequest) -> PathBuf {
        let text = String::from_utf8(at.path.to_vec()).unwrap();
        match &at.beneath {
            Some(_) => self.workspace().join(text),
            None => super::in_place(self, &text),
        }
    }

    async fn read(&self, mut stream: Stream, at: &PathRequest, offset: u64, limit: Option<u64>) {
        let path = self.path(at);
        let Ok(meta) = std::fs::metadata(&path) else {
            let reply = Reply::Failed(failure(FailureKind::NotFound, "open"));
            write_message(&mut stream, &reply).await.unwrap();
            return linger(stream).await;
        };
        if meta.is_dir() {
            let reply = Reply::Failed(failure(FailureKind::IsDirectory, "open"));
            write_message(&mut stream, &reply).await.unwrap();
            return linger(stream).await;
        }
        write_message(&mut stream, &Reply::Stat(stat(&meta))).await.unwrap();
        let bytes = std::fs::read(path).unwrap();
        let from = usize::try_from(offset).unwrap().min(bytes.len());
        let until =
            limit.map_or(bytes.len(), |limit| bytes.len().min(from + usize::try_from(limit).unwrap()));
        for piece in bytes[from..until].chunks(64 * 1024) {
            write_frame(&mut stream, &Frame::Data(Bytes::copy_from_slice(piece))).await.unwrap();
        }
        write_frame(&mut stream, &Frame::End).await.unwrap();
        linger(stream).await;
    }

    async fn write(&self, stream: &mut Stream) -> Reply {
        let mut files: Vec<(WriteHeader, Vec<u8>)> = Vec::new();
        loop {
            match read_frame(stream).await {
                Ok(Some(Frame::Data(bytes))) => files.last_mut().unwrap().1.extend_from_slice(&bytes),
                Ok(Some(Frame::End)) => break,
                Ok(Some(frame)) => files.push((frame.decode().unwrap(), Vec::new())),
                _ => return Reply::Failed(failure(FailureKind::Other, "write")),
            }
        }
        for (header, bytes) in &files {
            let path = self.path(&header.at);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
        Reply::Written(files.iter().map(|(_, bytes)| bytes.len() as u64).collect())
    }

    async fn exec(self: Arc<Self>, mut stream: Stream, request: ExecRequest) {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let mut command = Command::new(text(&request.argv[0]));
        command.args(request.argv[1..].iter().map(|word| text(word)));
        command.env_clear();
        for entry in &request.env {
            let entry = text(entry);
            let (name, value) = entry.split_once('=').unwrap();
            command.env(name, value);
        }
        let cwd = super::in_place(&self, &text(&request.cwd));
        if request.make_cwd {
            std::fs::create_dir_all(&cwd).ok();
        }
        command.current_dir(cwd).process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.stdin(match request.stdin {
            StdinMode::Null => Stdio::null(),
            StdinMode::Stream => Stdio::piped(),
        });
        let began = Instant::now();
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                let kind = match error.kind() {
                    std::io::ErrorKind::NotFound => FailureKind::NotFound,
                    _ => FailureKind::Denied,
                };
                let failed = ExecEvent::Failed(failure(kind, "execute"));
                write_message(&mut stream, &failed).await.ok();
                return linger(stream).await;
            }
        };
        let run = Arc::new(FakeRun {
            pid: i32::try_from(child.id().unwrap()).unwrap(),
            log: Mutex::new(vec![Frame::message(&ExecEvent::Started)]),
            news: watch::Sender::new(1),
            ended: Mutex::new(None),
        });
        self.runs.lock().unwrap().insert(request.run.clone(), Arc::clone(&run));
        // In a real sandbox nothing starts after its end; here a request may still be on its way.
        if self.is_dead() {
            run.signal(9);
        }
        let stdin = child.stdin.take();
        let (mut stdout, mut stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let watched = Arc::clone(&run);
        tokio::spawn(async move {
            let run = watched;
            let mut buffer = [0u8; 64 * 1024];
            let mut other = [0u8; 64 * 1024];
            let (mut out, mut err) = (true, true);
            let deadline = tokio::time::sleep(Duration::from_millis(request.timeout_ms.unwrap_or(1 << 32)));
            tokio::pin!(deadline);
            let (mut timed_out, mut totals) = (false, (0, 0));
            while out || err {
                tokio::select! {
                    count = stdout.read(&mut buffer), if out => match count.unwrap_or(0) {
                        0 => out = false,
                        count => {
                            totals.0 += count as u64;
                            run.say(Frame::Stdout(Bytes::copy_from_slice(&buffer[..count])));
                        }
                    },
                    count = stderr.read(&mut other), if err => match count.unwrap_or(0) {
                        0 => err = false,
                        count => {
                            totals.1 += count as u64;
                            run.say(Frame::Stderr(Bytes::copy_from_slice(&other[..count])));
                        }
                    },
                    () = &mut deadline, if !timed_out => {
                        timed_out = true;
                        run.signal(9);
                    }
                }
            }
            let status = child.wait().await.unwrap();
            let ended = Ended {
                exit: match (status.code(), status.signal()) {
                    (Some(code), _) => Exit::Code(code),
                    (None, signal) => Exit::Signal(signal.unwrap()),
                },
                timed_out,
                wall_us: u64::try_from(began.elapsed().as_micros()).unwrap(),
                cpu_us: 1,
                peak_rss_kib: 1,
                stdout_bytes: totals.0,
                stderr_bytes: totals.1,
                leftovers: 0,
                violations: Vec::new(),
                full: Vec::new(),
                exceeded: None,
                context: None,
                killed_for_memory: 0,
                unrouted: 0,
                transferred: None,
                killed_for_processes: 0,
                most_tasks: Some(1),
            };
            *run.ended.lock().unwrap() = Some(ended.clone());
            run.say(Frame::message(&ExecEvent::Ended(Box::new(ended))));
        });
        let (mut reader, writer) = tokio::io::split(stream);
        let feeding = async {
            let mut stdin = stdin;
            loop {
                match read_frame(&mut reader).await {
                    Ok(Some(Frame::Stdin(bytes))) => {
                        if let Some(stdin) = &mut stdin {
                            stdin.write_all(&bytes).await.ok();
                        }
                    }
                    Ok(Some(Frame::End)) => stdin = None,
                    Ok(Some(_)) => {}
                    // The host has said everything and goes on listening.
                    Ok(None) if request.on_hangup == OnHangup::Continue => std::future::pending().await,
                    Ok(None) | Err(_) => return,
                }
            }
        };
        tokio::select! {
            () = feeding => {}
            () = follow_into(writer, &run) => return,
        }
        if request.on_hangup == OnHangup::Kill && run.ended.lock().unwrap().is_none() {
            run.signal(9);
        }
    }
}

async fn follow_into<W: tokio::io::AsyncWrite + Unpin>(mut writer: W, run: &FakeRun) {
    let mut news = run.news.subscribe();
    let mut sent = 0;
    loop {
        let fresh: Vec<Frame> = run.log.lock().unwrap()[sent..].to_vec();
        for frame in &fresh {
            if write_frame(&mut writer, frame).await.is_err() {
                return;
            }
        }
        sent += fresh.len();
        let over = run.ended.lock().unwrap().is_some() && run.log.lock().unwrap().len() == sent;
        let last =
            fresh.last().is_some_and(|frame| matches!(frame.decode::<ExecEvent>(), Ok(ExecEvent::Ended(_))));
        if over && last {
            break;
        }
        if news.changed().await.is_err() {
            break;
        }
    }
    std::future::pending::<()>().await;
}

/// A stream dropped too early would reset what was just written; the host closes it.
async fn linger(mut stream: Stream) {
    while let Ok(Some(_)) = read_frame(&mut stream).await {}
}

fn failure(kind: FailureKind, doing: &str) -> Failure {
    Failure { kind, errno: 0, doing: doing.into() }
}

fn stat(meta: &std::fs::Metadata) -> Stat {
    Stat {
        kind: if meta.is_dir() { FileKind::Directory } else { FileKind::File },
        size: meta.len(),
        mode: 0o644,
        modified: 0,
        uid: 1000,
        gid: 1000,
        allocated: None,
    }
}
