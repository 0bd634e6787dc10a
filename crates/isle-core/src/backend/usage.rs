//! What a sandbox uses.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a sandbox uses now, from its cgroup where there is one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Usage {
    /// CPU time so far, in milliseconds.
    pub cpu_ms: Option<u64>,
    /// Memory now, in bytes.
    pub memory_bytes: Option<u64>,
    /// Highest memory so far, in bytes.
    pub memory_peak_bytes: Option<u64>,
    /// Bytes read from disks so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io_read_bytes: Option<u64>,
    /// Bytes written to disks so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io_write_bytes: Option<u64>,
    /// Processes and threads now.
    pub pids: Option<u32>,
    /// Writable layer and workspace, in bytes.
    pub disk_bytes: Option<u64>,
    /// Files and directories on the same disk, when nearly all inodes are in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_inodes: Option<u64>,
    /// How many inodes there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_inodes_limit: Option<u64>,
    /// What happened to a sandbox whose disk was full when it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_note: Option<String>,
    /// Processes of this sandbox that the kernel killed for lack of memory.
    pub oom_kills: Option<u64>,
}

/// How often a sandbox was stopped for a disk limit that is only watched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskStops {
    /// Times so far.
    pub count: u64,
    /// Whether it is stopped now.
    pub now: bool,
}
