//! Setting up a sandbox: from a cloned process to the first process of a sandbox (namespaces, root file
//! system, seccomp, Landlock, privileges, network), and the messages that ask for it ([`request`]). The
//! agent links this crate, so it also runs inside a guest. Most of it runs in the fork server or in its
//! children, which have one thread and no runtime yet. The order of the set-up is one function that reads
//! like a list: [`container::enter`].

pub mod container;
pub mod landlock;
pub mod mounts;
pub mod network;
pub mod privileges;
pub mod process;
pub mod request;
mod root;
pub mod seccomp;
pub mod staging_root;
pub mod sys;
pub mod template;
pub mod threads;
pub mod tree;
mod writable_layer;

/// uid and gid of the sandbox user, inside.
pub const SANDBOX_ID: u32 = 1000;

/// Home of the sandbox user.
pub const SANDBOX_HOME: &str = "/home/sandbox";

/// Where the volume's workspace is shown.
pub const SANDBOX_WORKSPACE: &str = "/workspace";

/// Where a sandbox that may spawn finds what it needs for that; also the last part of its search path.
pub const CONTROL_DIRECTORY: &str = "/run/isle";
/// Its control socket, made by the agent.
pub const CONTROL_SOCKET: &str = "/run/isle/ctl.sock";
/// The client of that socket.
pub const CONTROL_PROGRAM: &str = "/run/isle/isle-ctl";
/// Where there is no root to put that socket in, and no socket to connect with: `connect` of this number,
/// which is not a descriptor, fails for every caller except those permitted to connect, which get a
/// connected socket.
pub const CONTROL_CALL: i32 = 0x6973_6c65;
