//! The names of backends that settings can have.

use isle_core::backend::BackendName;
use isle_core::{Code, Error};

/// Every backend, in the order in which they are asked for a tier.
pub(crate) const ALL: &[BackendName] = &[BackendName::of("native")];

/// Reads the name of a backend of this program.
pub(crate) fn parse(text: &str) -> isle_core::Result<BackendName> {
    ALL.iter().find(|name| name.as_str() == text).cloned().ok_or_else(|| {
        let names: Vec<&str> = ALL.iter().map(BackendName::as_str).collect();
        Error::new(Code::InvalidArgument, format!("unknown backend {text:?}"))
            .detail("backends", names.clone())
            .next(format!(
                "use one of {}, or leave it out for the first that offers the tier",
                names.join(", ")
            ))
    })
}
