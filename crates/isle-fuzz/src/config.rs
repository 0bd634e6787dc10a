//! Configuration files, especially that of a workspace, which is untrusted.

use std::path::Path;

// The table of keys and its parsers belong to the program, so they are included by path.
#[path = "../../isle/src/config/backend_names.rs"]
mod backend_names;
#[path = "../../isle/src/config/definition.rs"]
#[expect(dead_code, reason = "the program uses the rest")]
mod definition;
#[path = "../../isle/src/config/file.rs"]
#[expect(dead_code, reason = "the program uses the rest")]
mod file;
#[path = "../../isle/src/config/keys.rs"]
mod keys;
#[path = "../../isle/src/config/tables.rs"]
#[expect(dead_code, reason = "the program uses the rest")]
mod tables;
#[path = "../../isle/src/config/value.rs"]
mod value;

use definition::Scope;
use file::Layer;
use value::Value;

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for layer in [Layer::Workspace, Layer::User, Layer::System] {
        match file::parse(layer, Path::new("settings"), text) {
            Ok(found) => {
                for found in found {
                    assert!(found.key.scope == Scope::Run || layer != Layer::Workspace, "{}", found.key.name);
                    assert!(found.line >= 1 && found.line <= text.lines().count().max(1));
                    means_itself(found.key.kind, &found.value);
                }
            }
            Err(error) => {
                assert!(!error.message.is_empty() && !error.next_steps.is_empty(), "{error:?}");
            }
        }
    }
}

/// A value that is shown and read again is the same.
fn means_itself(kind: value::Kind, value: &Value) {
    drop(value.json());
    assert!(value::schema(kind).is_object());
    match value {
        Value::List(_) | Value::Map(_) | Value::Tables(_) => {}
        Value::Text(_)
        | Value::Size(_)
        | Value::Span(_)
        | Value::Term(_)
        | Value::Number(_)
        | Value::Count(_)
        | Value::Switch(_) => {
            assert_eq!(Value::from_text(kind, &value.text()).as_ref().ok(), Some(value));
        }
    }
}
