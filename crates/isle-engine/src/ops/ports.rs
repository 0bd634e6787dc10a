//! Ports of a sandbox on this host: `expose`, `unexpose`, `wait_for_port`.

use super::Handler;
use crate::context::CallContext;
use crate::engine::Engine;
use crate::network::{Forward, PortCount};
use isle_api::inputs::sandbox_or_default;
use isle_api::ops::ports::{
    Expose, ExposeInput, ExposeOutput, PortShape, ProxiedShape, Unexpose, UnexposeInput, UnexposeOutput,
    WaitForPort, WaitInput, WaitOutput,
};
use isle_core::{Code, Error, Result};

pub(super) fn port_shape(forward: &Forward) -> PortShape {
    let PortCount { connections, open, refused, sent, received } = forward.count();
    PortShape {
        port: forward.port,
        host_port: forward.host_port,
        connections,
        open,
        refused,
        sent_bytes: sent,
        received_bytes: received,
    }
}

/// `None` when nobody came.
pub(super) fn proxied_shape(count: PortCount) -> Option<ProxiedShape> {
    let PortCount { connections, open, refused, sent, received } = count;
    (count != PortCount::default()).then_some(ProxiedShape {
        connections,
        open,
        refused,
        sent_bytes: sent,
        received_bytes: received,
    })
}

pub(super) fn check(port: u16) -> Result<()> {
    if port == 0 {
        return Err(Error::new(Code::InvalidArgument, "0 is no port of a sandbox")
            .next("give a port from 1 to 65535"));
    }
    Ok(())
}

impl Handler for Expose {
    async fn call(engine: Engine, context: CallContext, input: ExposeInput) -> Result<ExposeOutput> {
        check(input.port)?;
        context.operator_only("showing ports on this host")?;
        let inner = &engine.inner;
        let sandbox = inner.sandboxes.looked_at(&context, &sandbox_or_default(input.sandbox)).await?;
        let forward = inner.ports.expose(&context, &sandbox, input.port, input.host_port).await?;
        let listening = sandbox.agent()?.dial(input.port).await?.is_some();
        let warning = (!listening).then(|| {
            format!("nothing listens on port {} in the sandbox yet; wait_for_port waits for it", input.port)
        });
        Ok(ExposeOutput {
            sandbox: sandbox.name.clone(),
            port: forward.port,
            host_port: forward.host_port,
            address: format!("127.0.0.1:{}", forward.host_port),
            listening,
            warning,
            ports: inner.ports.forwards_of(&sandbox).iter().map(|one| port_shape(one)).collect(),
        })
    }
}

impl Handler for Unexpose {
    async fn call(engine: Engine, context: CallContext, input: UnexposeInput) -> Result<UnexposeOutput> {
        check(input.port)?;
        context.operator_only("showing a port on this host")?;
        let sandbox = engine.inner.sandboxes.looked_at(&context, &sandbox_or_default(input.sandbox)).await?;
        let host_ports = engine.inner.ports.unexpose(&context, &sandbox, input.port)?;
        Ok(UnexposeOutput { sandbox: sandbox.name.clone(), host_ports })
    }
}

impl Handler for WaitForPort {
    async fn call(engine: Engine, context: CallContext, input: WaitInput) -> Result<WaitOutput> {
        check(input.port)?;
        let sandbox = engine.inner.sandboxes.looked_at(&context, &sandbox_or_default(input.sandbox)).await?;
        let config = &engine.inner.config;
        let within = input.wait.unwrap_or(config.wait).min(config.max_timeout).0;
        let listening = engine.inner.ports.wait_for_port(&context, &sandbox, input.port, within).await?;
        Ok(WaitOutput { sandbox: sandbox.name.clone(), port: input.port, listening })
    }
}
