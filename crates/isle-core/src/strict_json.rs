//! JSON that means one thing and costs little. An object that names a key twice is read differently
//! by different programs; the code that checks a request must see the same values as the code that executes
//! it, so such an object is rejected. Nesting is bounded by the parser (128 levels), and so is the number
//! of values: a text of many tiny ones takes many times its own size in memory.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::error::{Code, Error, Result};

/// Most values of one text, containers and what is in them together.
pub const MAX_VALUES: usize = 100_000;

/// Reads a JSON text, refusing repeated keys.
pub fn parse(bytes: &[u8]) -> Result<Value> {
    let left = Cell::new(MAX_VALUES);
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let read = Strict(&left).deserialize(&mut deserializer);
    read.and_then(|value| deserializer.end().map(|()| value)).map_err(|error| {
        Error::new(Code::InvalidArgument, format!("the JSON cannot be read: {error}"))
            .next("send one JSON value in UTF-8, with every key of an object only once")
    })
}

/// Reads one value, counting it.
#[derive(Clone, Copy)]
struct Strict<'a>(&'a Cell<usize>);

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> std::result::Result<Value, D::Error> {
        let Some(left) = self.0.get().checked_sub(1) else {
            return Err(D::Error::custom(format!("it has more than {MAX_VALUES} values")));
        };
        self.0.set(left);
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
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
        while let Some(item) = items.next_element_seed(self)? {
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
            let value = entries.next_value_seed(self)?;
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

    #[test]
    fn many_tiny_values_are_refused_before_they_fill_the_memory() {
        let many = |count: usize| format!("[{}0]", "0,".repeat(count - 1));
        assert!(parse(many(super::MAX_VALUES - 1).as_bytes()).is_ok());
        assert!(parse(many(super::MAX_VALUES).as_bytes()).is_err());
        let nested = format!("[{}[]]", "[],".repeat(super::MAX_VALUES));
        assert!(parse(nested.as_bytes()).is_err());
    }
}
