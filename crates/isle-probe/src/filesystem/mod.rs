//! Attacks on files: the host's own, the kernel's pseudo file systems, devices, and mounts.

mod host_changes;
mod host_files;
mod mounts;
mod pseudo;

pub(crate) use host_changes::ATTACKS as HOST_CHANGES;
pub(crate) use host_files::ATTACKS as HOST_FILES;
pub(crate) use mounts::ATTACKS as MOUNTS;
pub(crate) use pseudo::ATTACKS as PSEUDO;
