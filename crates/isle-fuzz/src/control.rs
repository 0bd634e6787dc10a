//! Lines of the control socket, written by programs in a sandbox.

use isle_engine::control_protocol::{self, LONGEST};
use serde_json::Value;

pub(crate) fn run(bytes: &[u8]) {
    match control_protocol::read(bytes) {
        Ok(line) => {
            assert!(bytes.len() <= LONGEST);
            let text = control_protocol::answer(&line.id, Ok(Value::Null));
            assert!(!text.contains(&b'\n'), "an answer is one line");
        }
        Err((id, error)) => {
            assert!(!error.next_steps.is_empty(), "{error}");
            assert_eq!(control_protocol::code(&error), "INVALID_REQUEST", "{error}");
            let text = control_protocol::answer(&id, Err(error));
            assert!(!text.contains(&b'\n') && text.len() < 16 * 1024, "{} bytes of refusal", text.len());
            assert!(serde_json::from_slice::<Value>(&text).is_ok());
        }
    }
}
