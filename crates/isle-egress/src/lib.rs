//! The gate: which names and addresses a sandbox may reach, how a name becomes an address, and the
//! dialing itself. It knows no sandbox and no door: the engine gives each sandbox a [`Gate`] and hands
//! it every connection the sandbox opens. What was not granted is denied.

mod account;
mod address;
mod denial;
mod dial;
mod gate;
mod grant;
mod host;
mod http;
mod pace;
mod policy;
mod relay;
mod resolve;
mod tls;

pub use account::{Count, Entry, Fate, Net};
pub use address::{Class, classify};
pub use denial::{Denial, Reason};
pub use gate::{Gate, Outcome};
pub use grant::{AddressRange, Grant, GrantError, GrantId, Limits, Pattern, Protocol};
pub use host::{Host, HostError, Name, Target};
pub use http::{Head, HeadError, HeadResult, check_head};
pub use policy::Policy;
pub use resolve::{Resolver, Table};
pub use tls::{Hello, HelloError, server_name};
