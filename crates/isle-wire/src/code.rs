//! Running code in interpreters.

use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

use crate::exec::ExecRequest;
use crate::message::GuestUser;

/// A language whose interpreter can be prestarted and keep state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum CodeLanguage {
    /// Python 3.
    #[n(0)]
    Python,
    /// Node.js.
    #[n(1)]
    Node,
    /// Bash.
    #[n(2)]
    Shell,
}

/// Runs code.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct CodeRequest {
    /// As for a command: `argv` is the interpreter alone, `env` and `cwd` are those it starts with.
    #[n(0)]
    pub exec: ExecRequest,
    /// In which language.
    #[n(1)]
    pub language: CodeLanguage,
    /// The code, or the file that holds it.
    #[n(2)]
    pub source: CodeSource,
    /// Arguments of the code.
    #[n(3)]
    pub args: Vec<ByteVec>,
    /// The context it runs in, created when it does not exist; without one no state is kept.
    #[n(4)]
    pub context: Option<String>,
    /// Variables the caller gave; an existing context takes them over.
    #[n(5)]
    pub given_env: Vec<ByteVec>,
    /// The caller gave `exec.cwd`: an existing context changes to it.
    #[n(6)]
    pub given_cwd: bool,
    /// Whether interpreters may be prestarted for calls without a context.
    #[n(7)]
    pub keep_warm: bool,
}

/// Where code is.
#[derive(Debug, Clone, Encode, Decode)]
pub enum CodeSource {
    /// Here.
    #[n(0)]
    Text(#[n(0)] ByteVec),
    /// In a file of the sandbox.
    #[n(1)]
    File(#[n(0)] ByteVec),
}

/// What happened to a context during a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum ContextFate {
    /// This call created it.
    #[n(0)]
    New,
    /// It existed before and still does.
    #[n(1)]
    Kept,
    /// Its interpreter exited; the next call recreates it.
    #[n(2)]
    Ended,
}

/// The contexts an agent has.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct ContextList {
    /// In the order of their names.
    #[n(0)]
    pub contexts: Vec<ContextEntry>,
}

/// One context.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct ContextEntry {
    /// Its name.
    #[n(0)]
    pub name: String,
    /// Its language.
    #[n(1)]
    pub language: CodeLanguage,
    /// As whom it runs.
    #[n(2)]
    pub user: GuestUser,
    /// The run that is active in it.
    #[n(3)]
    pub run: Option<String>,
    /// Whether its interpreter is alive; the next call starts one otherwise.
    #[n(4)]
    pub alive: bool,
    /// Calls so far.
    #[n(5)]
    pub calls: u64,
    /// Milliseconds since it was made.
    #[n(6)]
    pub age_ms: u64,
}

/// Interrupts, restarts or removes a context.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct ContextRequest {
    /// Which.
    #[n(0)]
    pub name: String,
    /// What.
    #[n(1)]
    pub action: ContextAction,
}

/// What can be done to a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum ContextAction {
    /// Interrupt what runs in it.
    #[n(0)]
    Interrupt,
    /// Kill its interpreter; the next call starts without state.
    #[n(1)]
    Restart,
    /// Remove it.
    #[n(2)]
    Remove,
}
