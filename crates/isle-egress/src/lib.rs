//! The gate: which names and addresses a sandbox may reach, how a name is resolved, and how connections
//! are dialed and relayed. It knows neither sandboxes nor the API: the engine gives each sandbox a [`Gate`]
//! and passes it every connection the sandbox opens. What is not granted is denied.

mod accounting;
mod dial;
mod gate;
mod http;
mod masking;
mod policy;
mod proxy;
mod relay;
pub mod secret_substitution;
mod tls;
mod tls_intercept;

pub use accounting::connection_log::{ConnectionEntry, ConnectionLog, ConnectionResult};
pub use accounting::grant_counters::TrafficCount;
pub use accounting::traffic_totals::{DIAL_TIMES, DialTimes, Traffic, TrafficSummary, TrafficTotals};
pub use dial::resolver::{Resolver, Table};
pub use dial::webhook_post::{WebhookClient, WebhookError, WebhookUrl, WebhookUrlError};
pub use gate::{Gate, Outcome};
pub use masking::mask_stream::{MaskStream, masked};
pub use masking::secret_finder::{SecretFinder, SecretFinderError, SecretMatch};
pub use masking::websocket::MaskFrames;
pub use policy::Policy;
pub use policy::address_class::{AddressClass, classify};
pub use policy::cloud_metadata::Metadata;
pub use policy::denial::{Denial, Reason};
pub use policy::grant::{AddressRange, Grant, GrantError, GrantId, Limits, Pattern, Protocol, RunKey};
pub use policy::host::{Host, HostError, Name, Target};
pub use policy::network_request::{ApprovalHook, ApprovalWait};
pub use policy::request_rules::{RequestRules, RequestRulesError};
pub use proxy::parse_proxy_request;
pub use relay::sandbox_stream::{CarriedBytes, SandboxStream};
pub use secret_substitution::placement::{API_KEY_HEADERS, Placement, PlacementError, Placements};
pub use secret_substitution::{
    ReflectedIn, Reflection, ResponseMasking, SecretSource, SecretSubstitution, SecretUse, StrayPlaceholder,
};
pub use tls::ca_stores::{java_store, java_store_with};
pub use tls::certificate_authority::{CertificateAuthority, CertificateAuthorityError};
pub use tls::client_hello::{ClientHello, ClientHelloError, server_name};
pub use tls::trusted_cas::{TrustedCas, TrustedCasError};

pub use crate::http::body_length::RequestBody;
pub use crate::http::request_guard::{RequestGuard, RequestSeen};
pub use crate::http::request_head::{Head, HeadError, HeadResult, check_head};
pub use crate::http::strict_head::HeadDefect;
