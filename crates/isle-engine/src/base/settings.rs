//! The settings in force.
//!
//! Owns two versions of them: as the daemon was started with, which never changes, and as they are now, with
//! the defaults and ceilings that the operator changed at run time. Whoever needs a default or a ceiling for
//! something new asks for [`Settings::current`] once and keeps the answer for the whole call, so that no call
//! sees half of a change. What cannot change at run time is read from [`Settings::started_with`].
//!
//! Only `admission::tuning` changes them, one change at a time: [`Settings::change`] holds the lock from
//! reading the old values until the new ones are in force.

use std::sync::{Arc, RwLock};

use crate::engine::EngineConfig;
use isle_core::Result;

/// See the module.
#[derive(Debug)]
pub(crate) struct Settings {
    started_with: Arc<EngineConfig>,
    current: RwLock<Arc<EngineConfig>>,
}

impl Settings {
    pub(crate) fn new(config: EngineConfig) -> Self {
        let started_with = Arc::new(config);
        Self { current: RwLock::new(Arc::clone(&started_with)), started_with }
    }

    /// As the daemon was started.
    pub(crate) fn started_with(&self) -> &Arc<EngineConfig> {
        &self.started_with
    }

    /// As they are now.
    pub(crate) fn current(&self) -> Arc<EngineConfig> {
        Arc::clone(&crate::read(&self.current))
    }

    /// Replaces them by what `change` makes of them; when it fails, nothing changes.
    pub(crate) fn change<T>(
        &self,
        change: impl FnOnce(&EngineConfig) -> Result<(EngineConfig, T)>,
    ) -> Result<T> {
        let mut current = crate::write(&self.current);
        let (config, answer) = change(&current)?;
        *current = Arc::new(config);
        Ok(answer)
    }
}
