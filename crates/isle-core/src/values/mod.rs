//! Values that are parsed once, at the edge, and cannot be wrong afterwards.

mod duration;
mod ids;
mod name;
mod namespace;
mod path;
pub mod reading;
mod secret;
mod size;
mod variable;

pub use duration::{Span, Term};
pub use ids::{AskId, RunId, SandboxId, TokenId, WebhookId};
pub use name::{ChildName, ContextName, JobName, RunOrJob, SandboxName};
pub use namespace::{Address, Namespace};
pub use path::{GuestPath, HostPath, Place, WORKSPACE};
pub use secret::{SHORTEST_EXPOSED, SHORTEST_REFLECTED, SecretName, SecretText};
pub use size::ByteSize;
pub use variable::{VariableName, steers_loader};

/// Implements `Serialize`, `Deserialize`, `Display`-based text forms and a string schema for a
/// value that has `FromStr` and `Display`.
#[macro_export]
macro_rules! text_value {
    ($type:ty, $name:expr, $description:literal) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
                $crate::values::reading::text(deserializer)
            }
        }
        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                $name.into()
            }
            fn inline_schema() -> bool {
                true
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "description": $description })
            }
        }
    };
}
pub use text_value;

#[cfg(test)]
mod tests;
