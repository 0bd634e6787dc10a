//! The interface of Isle, once for the server, the clients and whatever is generated from it: operations with
//! their arguments, results, routes and schemas, and the messages of interactive sessions. It links neither the
//! engine nor the store; what an operation does is in `isle-engine`.

pub mod carried;
mod definition;
mod event_kind;
pub mod inputs;
pub mod openapi;
pub mod ops;
mod rich;
mod run_limits;
mod schema;
pub mod session;
pub mod shapes;
pub mod times;
mod toolsets;

pub use definition::{Definition, Effect, Method, Operation, Registry, Route, parse};
pub use event_kind::EventKind;
pub use run_limits::RunLimits;
pub use schema::schema_of;
pub use times::timestamp;
pub use toolsets::{Toolset, Toolsets};
