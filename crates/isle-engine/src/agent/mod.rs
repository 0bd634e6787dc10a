//! The host's side of the protocol with the agent inside a sandbox: one connection, one stream
//! per operation. No policy lives here; what a failure means to a caller is said in `failure`.

mod exec;
mod failure;
mod files;
mod trees;

use std::os::fd::OwnedFd;
use std::time::Duration;

use isle_egress::Inside;
use isle_wire::{
    CODE_GENERATION, ContextAction, ContextEntry, ContextList, ContextRequest, DialRequest, FailureKind,
    Frame, FrameError, GATE_GENERATION, GENERATION, GuestUser, Hello, Inbox, InputRequest, JOBS_GENERATION,
    Kind, Mux, OLDEST_GENERATION, PathRequest, Reply, Request, RunEntry, RunList, RunRef, Side,
    SignalRequest, Stream, TREE_GENERATION, Used, Welcome, WhichRequest, read_frame, write_message,
};

use crate::backend::Link;
use crate::error::{Code, Error, Result};
use crate::values::{ContextName, GuestPath, Place};

pub(crate) use exec::{ExecInput, ExecSignal, forward_input};
pub(crate) use failure::{exec_error, file_error, paused};
pub(crate) use files::{FileToWrite, KeepMode};
pub(crate) use trees::PackedTree;

/// How long an agent may take to say who it is.
const GREETING: Duration = Duration::from_secs(20);

/// A connection to one agent. Cheap to clone; it closes when the last clone is dropped.
#[derive(Debug, Clone)]
pub(crate) struct AgentClient {
    mux: Mux,
    handed: Inbox,
    generation: u32,
}

impl AgentClient {
    /// Greets the agent at the other end of `link`, unless it has introduced itself. `closed` runs
    /// once, when the connection ends.
    pub(crate) async fn connect(
        link: Box<dyn Link>,
        handed: Inbox,
        welcome: Option<Welcome>,
        closed: impl FnOnce() + Send + 'static,
    ) -> Result<(Self, Welcome)> {
        let (mux, _, driver) = Mux::new(link, Side::Host);
        tokio::spawn(async move {
            driver.await;
            closed();
        });
        let mut client = Self { mux, handed, generation: OLDEST_GENERATION };
        let welcome = match welcome {
            Some(welcome) => welcome,
            None => client.greet().await?,
        };
        if welcome.generation < OLDEST_GENERATION || welcome.generation > GENERATION {
            return Err(Error::new(
                Code::VersionMismatch,
                format!(
                    "the sandbox's agent speaks generation {} of the protocol, this daemon {OLDEST_GENERATION} to {GENERATION}",
                    welcome.generation
                ),
            )
            .next("destroy the sandbox (its workspace stays) or run the version of Isle that made it"));
        }
        client.generation = welcome.generation;
        Ok((client, welcome))
    }

    /// Whether it can keep interpreters. An agent never changes, so one of an earlier version cannot.
    pub(crate) fn keeps_interpreters(&self) -> bool {
        self.generation >= CODE_GENERATION
    }

    /// Whether it serves a network and connects to ports of its sandbox.
    pub(crate) fn serves_gate(&self) -> bool {
        self.generation >= GATE_GENERATION
    }

    /// Resolves when the connection has ended.
    pub(crate) async fn closed(&self) {
        self.mux.closed().await;
    }

    /// The socket with this number, which the agent has handed over; `None` when it has not, or when this
    /// process had no room for it.
    pub(crate) fn handed(&self, number: u64, kind: Kind) -> Option<OwnedFd> {
        self.handed.take(number, kind)
    }

    /// Connects to a port of the sandbox; `None` when nothing listens there.
    pub(crate) async fn dial(&self, port: u16) -> Result<Option<Inside>> {
        match self.ask(&Request::Dial(DialRequest { port })).await? {
            Reply::Connected(number) => {
                let socket = self.handed(number, Kind::Tcp).ok_or_else(|| {
                    Error::new(Code::LimitReached, "the daemon has no room for another connection")
                        .next("close some, or raise the number of files the daemon may have open")
                })?;
                Inside::new(socket).map(Some).map_err(Error::internal)
            }
            Reply::Failed(_) => Ok(None),
            other => Err(unexpected(&other)),
        }
    }

    /// Whether it keeps the input of runs and runs several commands as one.
    pub(crate) fn keeps_jobs(&self) -> bool {
        self.generation >= JOBS_GENERATION
    }

    /// Sends input to a run that keeps it, or a new window; returns how many bytes were taken.
    pub(crate) async fn input(&self, request: InputRequest) -> Result<u64> {
        match self.ask(&Request::Input(request)).await? {
            Reply::Taken(count) => Ok(count),
            Reply::Failed(failure) => Err(file_error(&failure, "the run")),
            other => Err(unexpected(&other)),
        }
    }

    /// Stops everything in the sandbox, or lets it go on; returns how many processes that concerned.
    pub(crate) async fn pause(&self, on: bool) -> Result<u64> {
        self.needs_trees()?;
        match self.ask(&Request::Pause(on)).await? {
            Reply::Stood(count) => Ok(count),
            Reply::Failed(failure) => Err(file_error(&failure, "the sandbox")),
            other => Err(unexpected(&other)),
        }
    }

    /// What all processes of the sandbox use.
    pub(crate) async fn usage(&self) -> Result<Used> {
        self.needs_trees()?;
        match self.ask(&Request::Usage).await? {
            Reply::Used(used) => Ok(used),
            other => Err(unexpected(&other)),
        }
    }

    /// Whether it knows how to stand still.
    pub(crate) fn can_pause(&self) -> bool {
        self.generation >= TREE_GENERATION
    }

    /// Refuses what only agents since generation 3 can do.
    fn needs_trees(&self) -> Result<()> {
        if self.generation >= TREE_GENERATION {
            return Ok(());
        }
        Err(Error::new(
            Code::VersionMismatch,
            "the sandbox was made by a version of Isle that cannot do this",
        )
        .next("destroy the sandbox (its workspace stays) and call again"))
    }

    async fn greet(&self) -> Result<Welcome> {
        let greeting = async {
            let mut stream = self.request(&Request::Hello(Hello { generation: GENERATION })).await?;
            answer::<Welcome>(&mut stream).await
        };
        tokio::time::timeout(GREETING, greeting)
            .await
            .map_err(|_| Error::internal("the agent of the sandbox did not answer"))?
    }

    /// Whether the connection has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.mux.is_closed()
    }

    /// Opens a stream. Nothing is sent before the first write, so a failure here means the agent
    /// has seen nothing.
    pub(crate) async fn open(&self) -> Result<Stream> {
        self.mux.open().await.map_err(|_| gone())
    }

    async fn request(&self, request: &Request) -> Result<Stream> {
        let mut stream = self.open().await?;
        write_message(&mut stream, request).await.map_err(broken)?;
        Ok(stream)
    }

    async fn ask(&self, request: &Request) -> Result<Reply> {
        let mut stream = self.request(request).await?;
        answer(&mut stream).await
    }

    /// Follows a run from the start of what the agent retained.
    pub(crate) async fn attach(&self, run: &str) -> Result<Stream> {
        self.request(&Request::Attach(isle_wire::AttachRequest { run: run.to_owned() })).await
    }

    /// Signals a run.
    pub(crate) async fn signal(&self, run: &str, signal: i32, whole_tree: bool) -> Result<Reply> {
        self.ask(&Request::Signal(SignalRequest { run: run.to_owned(), signal, whole_tree })).await
    }

    /// The runs the agent knows.
    pub(crate) async fn runs(&self) -> Result<Vec<RunEntry>> {
        let mut stream = self.request(&Request::Runs).await?;
        Ok(answer::<RunList>(&mut stream).await?.runs)
    }

    /// Lets the agent drop the output of a run whose end is recorded.
    pub(crate) async fn forget(&self, run: &str) -> Result<()> {
        self.ask(&Request::Forget(RunRef { run: run.to_owned() })).await.map(drop)
    }

    /// The contexts in the sandbox.
    pub(crate) async fn contexts(&self) -> Result<Vec<ContextEntry>> {
        if !self.keeps_interpreters() {
            return Ok(Vec::new());
        }
        let mut stream = self.request(&Request::Contexts).await?;
        Ok(answer::<ContextList>(&mut stream).await?.contexts)
    }

    /// Does something to a context.
    pub(crate) async fn act_on_context(&self, name: &ContextName, action: ContextAction) -> Result<()> {
        let missing = || {
            Error::new(Code::ContextNotFound, format!("there is no context {name} in the sandbox"))
                .next("`list_contexts` shows those there are; run_code with `context` makes one")
        };
        if !self.keeps_interpreters() {
            return Err(missing());
        }
        let request = ContextRequest { name: name.to_string(), action };
        match self.ask(&Request::Context(request)).await? {
            Reply::Done => Ok(()),
            Reply::Failed(failure) if failure.kind == FailureKind::NoSuchRun => Err(missing()),
            Reply::Failed(failure) => Err(file_error(&failure, "the context")),
            other => Err(unexpected(&other)),
        }
    }

    /// Has the sandbox make its control socket; what is said there comes over the stream.
    pub(crate) async fn control(&self) -> Result<Stream> {
        let mut stream = self.request(&Request::Control).await?;
        match answer(&mut stream).await? {
            Reply::Done => Ok(stream),
            Reply::Failed(failure) => Err(file_error(&failure, "the control socket")),
            other => Err(unexpected(&other)),
        }
    }

    /// The first of `names` that exists on the standard path.
    pub(crate) async fn which(&self, names: &[&str]) -> Result<Option<Vec<u8>>> {
        let names = names.iter().map(|&name| name.to_owned()).collect();
        match self.ask(&Request::Which(WhichRequest { names })).await? {
            Reply::Found(path) => Ok(path.map(Into::into)),
            Reply::Failed(failure) => Err(file_error(&failure, "the search path")),
            other => Err(unexpected(&other)),
        }
    }
}

/// Where a guest path points, in the agent's words: relative ones may not leave the workspace.
pub(crate) fn path_request(path: &GuestPath, user: GuestUser) -> PathRequest {
    let beneath = match path.place() {
        Place::Workspace => Some(crate::values::WORKSPACE.as_bytes().to_vec().into()),
        Place::Root => None,
    };
    PathRequest { path: path.as_str().as_bytes().to_vec().into(), beneath, user }
}

async fn answer<T>(stream: &mut Stream) -> Result<T>
where
    T: for<'b> minicbor::Decode<'b, ()>,
{
    let frame = read_frame(stream).await.map_err(broken)?.ok_or_else(gone)?;
    frame.decode().map_err(broken)
}

/// The agent answered something that does not belong to the question.
fn unexpected(reply: &Reply) -> Error {
    Error::internal(format!("the agent gave an answer that does not fit: {reply:?}"))
}

/// The connection is gone.
pub(crate) fn gone() -> Error {
    Error::new(Code::SandboxFailed, "the sandbox died during the call")
        .next("call again: the sandbox is built anew with the same workspace; nothing is run twice")
}

/// A stream broke or carried nonsense.
pub(crate) fn broken(error: FrameError) -> Error {
    match error {
        FrameError::Io(_) | FrameError::Ended => gone(),
        FrameError::TooLarge(_)
        | FrameError::UnknownKind(_)
        | FrameError::Malformed(_)
        | FrameError::Unexpected(_) => Error::internal(format!("the agent broke the protocol: {error}")),
    }
}

/// Names a frame in an error, without its contents.
fn frame_name(frame: &Frame) -> &'static str {
    match frame {
        Frame::Message(_) => "a message",
        Frame::Stdin(_) => "input",
        Frame::Stdout(_) | Frame::Stderr(_) => "output",
        Frame::Data(_) => "file contents",
        Frame::End => "an end",
    }
}
