//! JSON that means one thing. An object that names a key twice is read differently by different
//! programs; whoever checks a request must see the same values as whoever executes it, so such an
//! object is refused. Nesting is bounded by the parser (128 levels).

use std::fmt;

use isle_engine::{Code, Error, Result};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Reads a JSON text, refusing repeated keys.
pub(crate) fn parse(bytes: &[u8]) -> Result<Value> {
    match serde_json::from_slice::<Strict>(bytes) {
        Ok(Strict(value)) => Ok(value),
        Err(error) => Err(Error::new(Code::InvalidArgument, format!("the JSON cannot be read: {error}"))
            .next("send one JSON value in UTF-8, with every key of an object only once")),
    }
}

struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Self)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> std::result::Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> std::result::Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> std::result::Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> std::result::Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E>(self, value: f64) -> std::result::Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> std::result::Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_string<E>(self, value: String) -> std::result::Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> std::result::Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Strict(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> std::result::Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if map.contains_key(&key) {
                return Err(A::Error::custom(format!("the key {key:?} stands there twice")));
            }
            let Strict(value) = entries.next_value()?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::parse;

    #[test]
    fn ordinary_json_is_read_as_it_is() {
        let text = r#"{"a": [1, -2, 3.5, true, null, "x\u00e4"], "b": {"a": 18446744073709551615}}"#;
        let expected = json!({"a": [1, -2, 3.5, true, null, "xä"], "b": {"a": u64::MAX}});
        assert_eq!(parse(text.as_bytes()).unwrap(), expected);
    }

    #[test]
    fn a_key_that_stands_twice_is_refused_at_any_depth() {
        assert!(parse(br#"{"command": "true", "command": "rm"}"#).is_err());
        assert!(parse(br#"[{"a": {"b": 1, "\u0062": 2}}]"#).is_err());
    }

    #[test]
    fn nesting_that_could_exhaust_the_stack_is_refused() {
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        assert!(parse(deep.as_bytes()).is_err());
    }

    #[test]
    fn bytes_that_are_not_utf8_and_trailing_text_are_refused() {
        assert!(parse(b"{\"a\": \"\xff\"}").is_err());
        assert!(parse(b"{} {}").is_err());
        assert!(parse(b"").is_err());
    }
}
