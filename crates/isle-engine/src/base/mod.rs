//! What every service stands on and no service owns: the settings in force, and the tasks in the background
//! with the tokens that end them. Nothing here knows of sandboxes or runs.
//!
//! The services are built in this order, and each knows only those before it:
//!
//! 1. base: [`Settings`], [`Tasks`]; `journal` (records and audit), `events` (the bus), `metrics` (counters)
//! 2. tables without behaviour: the fleet of sandboxes, the runs in progress, spawn counts, port tokens
//! 3. `variables`, `admission` (queue, tenants, tuning), the notifier that words and masks events
//! 4. secrets, `network`, `sandbox` (create, replace, pause, expire, destroy), `run` (start, follow, kill)
//! 5. `files` (syncs, watches, copies), `children`, `install`, `validate`, `webhooks`
//! 6. `engine`: builds all of them, recovers what an earlier daemon left, shuts down
//!
//! Where a lower service has to call a higher one, it has a narrow trait for that, which the higher one
//! implements and which is set once while the engine is built: see `sandbox::ControlSockets`.

mod settings;
mod tasks;

pub(crate) use settings::Settings;
pub(crate) use tasks::Tasks;
