//! `port_url`: the address of a port of a sandbox, with a ticket to it.

use super::Handler;
use super::ports::check;
use crate::context::CallContext;
use crate::engine::Engine;
use crate::network::Minted;
use isle_api::inputs::sandbox_or_default;
use isle_api::ops::port_url::{Input, Output, PortUrl};
use isle_api::times::timestamp;
use isle_core::{Code, Error, Result};

/// What a ticket lives when the call says nothing, and at most.
const LIFETIME: std::time::Duration = std::time::Duration::from_secs(3600);

const LONGEST: std::time::Duration = std::time::Duration::from_secs(24 * 3600);

impl Handler for PortUrl {
    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<Output> {
        check(input.port)?;
        let lifetime = input.lifetime.map_or(LIFETIME, |lifetime| lifetime.0);
        if lifetime.is_zero() || lifetime > LONGEST {
            return Err(Error::new(Code::InvalidArgument, "`lifetime` is out of range")
                .next("give a duration of more than 0s and at most 1d"));
        }
        let inner = &engine.inner;
        let sandbox = inner.sandboxes.looked_at(&context, &sandbox_or_default(input.sandbox)).await?;
        let listening =
            inner.ports.wait_for_port(&context, &sandbox, input.port, std::time::Duration::ZERO).await?;
        let place = inner.ports.ports_address().await?;
        let Minted { ticket, label, expires_at_ms } =
            inner.ports.mint_token(&context, &sandbox, input.port, lifetime)?;
        let base_url = format!("http://{}-{label}.{}:{}/", input.port, place.domain, place.address.port());
        Ok(Output {
            sandbox: sandbox.name.clone(),
            port: input.port,
            url: format!("{base_url}?isle_ticket={ticket}"),
            base_url,
            address: place.address.to_string(),
            ticket,
            header: "Isle-Ticket",
            expires_at: timestamp(expires_at_ms),
            listening,
        })
    }
}
