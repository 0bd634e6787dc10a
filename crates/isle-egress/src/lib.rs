//! The gate: which names and addresses a sandbox may reach, how a name becomes an address, and the
//! dialing itself. It knows no sandbox and no door: the engine gives each sandbox a [`Gate`] and hands
//! it every connection the sandbox opens. What was not granted is denied.

mod account;
mod address;
mod ask;
mod authority;
mod body;
mod bulk;
mod denial;
mod dial;
mod first;
mod front;
mod gate;
mod grant;
mod host;
mod http;
mod inside;
mod meter;
mod open;
mod outside;
mod pace;
mod peer;
mod policy;
mod post;
mod relay;
mod requests;
mod resolve;
mod roots;
mod stores;
pub mod swap;
mod tls;
mod totals;

pub use crate::http::{Head, HeadError, HeadResult, check_head};
pub use account::{Count, Entry, Fate, Net};
pub use address::{Class, classify};
pub use ask::{Answered, Asker};
pub use authority::{Authority, AuthorityError};
pub use body::Body;
pub use denial::{Denial, Reason};
pub use front::understood;
pub use gate::{Gate, Outcome};
pub use grant::{AddressRange, Grant, GrantError, GrantId, Limits, Pattern, Protocol};
pub use host::{Host, HostError, Name, Target};
pub use inside::Inside;
pub use policy::Policy;
pub use post::{PostError, Poster, Url, UrlError};
pub use requests::{Requests, RequestsError};
pub use resolve::{Resolver, Table};
pub use roots::{Roots, RootsError};
pub use stores::{java_store, java_store_with};
pub use swap::{Stray, Swap, Swaps};
pub use tls::{Hello, HelloError, server_name};
pub use totals::{DIAL_TIMES, DialTimes, Passed, Totals, Traffic};
