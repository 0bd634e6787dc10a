//! Who may use the daemon, and how much of it: the queue in front of the pipeline, deny patterns, tenants with
//! their tokens, and limits that change at run time.

pub(crate) mod deny;
pub(crate) mod queue;
pub(crate) mod tenants;
pub(crate) mod tuning;
