//! The host's side of the protocol with the agent inside a sandbox: one connection, one stream
//! per operation. No policy lives here; what a failure means to a caller is said in `failure`.

mod connections;
mod exec;
mod failure;
mod files;
mod liveness;
mod trees;

use std::sync::Arc;
use std::time::Duration;

use isle_wire::{
    ContextAction, ContextEntry, ContextList, ContextRequest, DescriptorReceiver, FailureKind, Frame,
    FrameError, GENERATION, GuestUser, Hello, InputRequest, Mux, PathRequest, Reply, Request, RunEntry,
    RunList, RunRef, Side, SignalRequest, Used, Welcome, WhichRequest, read_frame, write_message,
};

use isle_core::backend::Link;
use isle_core::values::{ContextName, GuestPath, Place};
use isle_core::{Code, Error, Result};
use liveness::HeardLink;

pub(crate) use exec::{ExecInput, ExecSignal, forward_input};
pub(crate) use failure::{exec_error, file_error, paused};
pub(crate) use files::{FileToWrite, KeepMode};
pub(crate) use liveness::{AgentStream, Attention, Change, Liveness, Look, Purpose, unresponsive};
pub(crate) use trees::PackedTree;

/// How long an agent may take to say who it is.
const GREETING: Duration = Duration::from_secs(20);

/// A connection to one agent. Cheap to clone; it closes when the last clone is dropped.
#[derive(Debug, Clone)]
pub(crate) struct AgentClient {
    mux: Mux,
    /// Where sockets arrive that the agent passes; without it connections are carried.
    passed: Option<DescriptorReceiver>,
    liveness: Arc<Liveness>,
}

impl AgentClient {
    /// Greets the agent at the other end of `link`, unless it has introduced itself. `closed` runs
    /// once, when the connection ends.
    pub(crate) async fn connect(
        link: Box<dyn Link>,
        passed: Option<DescriptorReceiver>,
        welcome: Option<Welcome>,
        attention: &Arc<Attention>,
        closed: impl FnOnce() + Send + 'static,
    ) -> Result<(Self, Welcome)> {
        let liveness = Liveness::new(Arc::clone(attention));
        let link = HeardLink { link, liveness: Arc::clone(&liveness) };
        let (mux, _, driver) = Mux::new(link, Side::Host);
        tokio::spawn(async move {
            driver.await;
            closed();
        });
        let client = Self { mux, passed, liveness };
        let welcome = match welcome {
            Some(welcome) => welcome,
            None => client.greet().await?,
        };
        if welcome.generation != GENERATION {
            return Err(Error::new(
                Code::VersionMismatch,
                format!(
                    "the agent of the sandbox speaks generation {} of the protocol, this daemon generation {GENERATION}",
                    welcome.generation
                ),
            )
            .next("destroy the sandbox (its workspace stays) or run the version of Isle that made it"));
        }
        Ok((client, welcome))
    }

    /// Resolves when the connection has ended.
    pub(crate) async fn closed(&self) {
        self.mux.closed().await;
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
        match self.ask(&Request::Pause(on)).await? {
            Reply::Stood(count) => Ok(count),
            Reply::Failed(failure) => Err(file_error(&failure, "the sandbox")),
            other => Err(unexpected(&other)),
        }
    }

    /// What all processes of the sandbox use.
    pub(crate) async fn usage(&self) -> Result<Used> {
        match self.ask(&Request::Usage).await? {
            Reply::Used(used) => Ok(used),
            other => Err(unexpected(&other)),
        }
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
    pub(crate) async fn open(&self, purpose: Purpose) -> Result<AgentStream> {
        if purpose != Purpose::Idle && self.liveness.is_silent() {
            return Err(unresponsive());
        }
        let opened = tokio::select! {
            biased;
            opened = self.mux.open() => opened.map_err(|_| gone())?,
            () = self.liveness.falls_silent(), if purpose != Purpose::Idle => return Err(unresponsive()),
        };
        Ok(AgentStream::new(opened, &self.liveness, purpose))
    }

    async fn request(&self, request: &Request) -> Result<AgentStream> {
        let mut stream = self.open(Purpose::Call).await?;
        write_message(&mut stream, request).await.map_err(broken)?;
        Ok(stream)
    }

    /// Whether it answers.
    pub(crate) fn liveness(&self) -> &Arc<Liveness> {
        &self.liveness
    }

    /// Asks it to say anything; that it did is seen where its bytes arrive.
    pub(crate) async fn ping(&self) {
        if let Ok(mut stream) = self.open(Purpose::Idle).await
            && write_message(&mut stream, &Request::Hello(Hello { generation: GENERATION })).await.is_ok()
        {
            read_frame(&mut stream).await.ok();
        }
    }

    async fn ask(&self, request: &Request) -> Result<Reply> {
        let mut stream = self.request(request).await?;
        answer(&mut stream).await
    }

    /// Follows a run from the start of what the agent retained.
    pub(crate) async fn attach(&self, run: &str) -> Result<AgentStream> {
        let mut stream = self.open(Purpose::Run).await?;
        let request = Request::Attach(isle_wire::AttachRequest { run: run.to_owned() });
        write_message(&mut stream, &request).await.map_err(broken)?;
        Ok(stream)
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
        let mut stream = self.request(&Request::Contexts).await?;
        Ok(answer::<ContextList>(&mut stream).await?.contexts)
    }

    /// Does something to a context.
    pub(crate) async fn act_on_context(&self, name: &ContextName, action: ContextAction) -> Result<()> {
        let missing = || {
            Error::new(Code::ContextNotFound, format!("there is no context {name} in the sandbox"))
                .next("`list_contexts` shows those there are; run_code with `context` makes one")
        };
        let request = ContextRequest { name: name.to_string(), action };
        match self.ask(&Request::Context(request)).await? {
            Reply::Done => Ok(()),
            Reply::Failed(failure) if failure.kind == FailureKind::NoSuchRun => Err(missing()),
            Reply::Failed(failure) => Err(file_error(&failure, "the context")),
            other => Err(unexpected(&other)),
        }
    }

    /// Has the sandbox make its control socket; what is said there comes over the stream.
    pub(crate) async fn control(&self) -> Result<AgentStream> {
        let mut stream = self.open(Purpose::Idle).await?;
        write_message(&mut stream, &Request::Control).await.map_err(broken)?;
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
        Place::Workspace => Some(isle_core::values::WORKSPACE.as_bytes().to_vec().into()),
        Place::Root => None,
    };
    PathRequest { path: path.as_str().as_bytes().to_vec().into(), beneath, user }
}

async fn answer<T>(stream: &mut AgentStream) -> Result<T>
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
        FrameError::Io(error) if error.kind() == std::io::ErrorKind::TimedOut => unresponsive(),
        FrameError::Io(_) | FrameError::Ended => gone(),
        FrameError::TooLong(size) => too_long(size),
        FrameError::TooLarge(_)
        | FrameError::UnknownKind(_)
        | FrameError::Malformed(_)
        | FrameError::Unexpected(_) => Error::internal(format!("the agent broke the protocol: {error}")),
    }
}

/// What a caller gave does not fit into one message to the agent.
pub(crate) fn too_long(size: usize) -> Error {
    let limit = isle_wire::MAX_FRAME;
    Error::new(Code::TooLarge, format!("the call comes to {size} bytes; the limit is {limit}"))
        .next("shorten the arguments and variables: write long text to a file with write_files, or give it as stdin")
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
