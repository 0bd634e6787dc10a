//! Messages of MCP clients.

use isle_core::strict_json;

pub(crate) fn run(bytes: &[u8]) {
    match isle_mcp::read_message(bytes) {
        Ok(Some(message)) => {
            // What is executed was unambiguous, and can be written down.
            let text = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
            assert!(strict_json::parse(text.trim_ascii()).is_ok());
            serde_json::to_vec(&message).unwrap();
        }
        Ok(None) => {}
        Err(refused) => {
            let answer = serde_json::to_value(refused.into_message()).unwrap();
            assert!(answer["error"]["code"].as_i64().unwrap() < 0, "{answer}");
            assert!(answer["error"]["data"]["next_steps"][0].is_string(), "{answer}");
        }
    }
}
