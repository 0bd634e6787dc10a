//! Bodies of HTTP requests: strict JSON, then the arguments of every operation.

use isle_api::Registry;
use isle_core::{Code, strict_json};

pub(crate) fn run(registry: &Registry, bytes: &[u8]) {
    let Ok(value) = strict_json::parse(bytes) else { return };
    assert_eq!(serde_json::from_slice::<serde_json::Value>(bytes).unwrap(), value, "others read the same");
    for entry in registry.definitions() {
        if let Err(error) = entry.check(value.clone()) {
            assert_ne!(error.code, Code::Internal, "{}: {error}", entry.name);
            assert!(!error.next_steps.is_empty(), "{}: {error}", entry.name);
            assert!(error.message.len() < 5000, "{}: {} bytes of sentence", entry.name, error.message.len());
        }
    }
}
