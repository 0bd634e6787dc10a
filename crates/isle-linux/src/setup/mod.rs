//! From a cloned process to the first process of a sandbox. Everything here runs in the fork
//! server or in its children, which have one thread and no runtime yet.

pub mod berth;
pub mod container;
pub mod landlock;
mod layer;
pub mod network;
pub mod privileges;
pub mod process;
mod root;
pub mod seccomp;
pub mod template;

/// uid and gid of the sandbox user, inside.
pub const SANDBOX_ID: u32 = 1000;

/// Home of the sandbox user.
pub const SANDBOX_HOME: &str = "/home/sandbox";

/// Where a sandbox that may spawn finds what it needs for that; also the last part of its search path.
pub const CONTROL_DIRECTORY: &str = "/run/isle";
/// Its control socket, made by the agent.
pub const CONTROL_SOCKET: &str = "/run/isle/ctl.sock";
/// The client of that socket.
pub const CONTROL_PROGRAM: &str = "/run/isle/isle-ctl";
/// Where there is no root to put that socket in, and no socket to connect with: `connect` of this number,
/// which is no descriptor, is refused to everybody but whoever may have a connection to it, and answered
/// with one.
pub const CONTROL_CALL: i32 = 0x6973_6c65;
