//! What each operation does: one handler for every definition of `isle-api`, called by name. The domain does not
//! know them.

use std::sync::LazyLock;

use futures::future::BoxFuture;
use isle_api::{Operation, Registry, every_operation, parse};
use serde_json::Value;

use crate::context::CallContext;
use crate::engine::Engine;
use isle_core::{Error, Result};

mod audit;
mod audit_verify;
mod bridge;
mod children;
mod contexts;
mod copy_in;
mod copy_out;
mod create;
mod destroy;
mod edit_file;
mod env;
mod events;
mod exec;
mod extend;
mod git_clone;
mod health;
mod history;
mod inspect;
mod install;
mod jobs;
mod kill;
mod limits;
mod list;
mod list_files;
mod logs;
mod mirror;
mod move_file;
mod namespace_grants;
mod network;
mod pause;
mod port_url;
mod ports;
mod read_file;
mod remove_file;
mod requests;
mod reset;
mod run;
mod run_code;
mod run_commands;
mod runtimes;
mod search_files;
mod secrets;
mod spawn;
mod stat_file;
mod stats;
mod status;
mod sync;
mod tokens;
mod usage;
mod validate;
mod wait;
mod watch_files;
mod webhooks;
mod write_files;

/// What an operation does.
trait Handler: Operation {
    /// Does it.
    fn call(
        engine: Engine,
        context: CallContext,
        input: Self::Input,
    ) -> impl Future<Output = Result<Self::Output>> + Send;
}

type Call = fn(Engine, CallContext, Value) -> BoxFuture<'static, Result<Value>>;

fn call<H: Handler>(engine: Engine, context: CallContext, input: Value) -> BoxFuture<'static, Result<Value>> {
    Box::pin(async move {
        let input = parse::<H>(input)?;
        let output = H::call(engine, context, input).await?;
        serde_json::to_value(output).map_err(Error::internal)
    })
}

/// The definitions, and their handlers in the same order.
struct Operations {
    registry: Registry,
    calls: Vec<Call>,
}

static OPERATIONS: LazyLock<Operations> = LazyLock::new(|| {
    macro_rules! handle {
        ($($module:ident::$operation:ident,)*) => {
            vec![$(call::<isle_api::ops::$module::$operation>,)*]
        };
    }
    Operations { registry: Registry::standard(), calls: every_operation!(handle) }
});

impl Engine {
    /// All operations.
    #[must_use]
    pub fn registry(&self) -> &'static Registry {
        &OPERATIONS.registry
    }

    /// Calls an operation by name.
    pub async fn call(&self, context: CallContext, operation: &str, input: Value) -> Result<Value> {
        let (position, _) = OPERATIONS.registry.find(operation)?;
        self.inner.fleet.await_reconnected(&context, operation, &input).await;
        (OPERATIONS.calls[position])(self.clone(), context, input).await
    }
}
