//! Arguments in a path or query: decoded strictly, then parsed as the type in the operation's schema.

use isle_core::{Code, Error, Result, strict_json};
use serde_json::{Map, Value};

/// Decodes a query into its pairs, in order.
pub(crate) fn pairs(query: &str) -> Result<Vec<(String, String)>> {
    query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decode(name)?, decode(value)?))
        })
        .collect()
}

/// Percent-decodes; `+` is a space. Invalid UTF-8 is rejected.
pub(crate) fn decode(text: &str) -> Result<String> {
    let invalid = || {
        Error::new(Code::InvalidArgument, format!("invalid percent-encoded UTF-8 in the query: {text:?}"))
            .next("encode every byte outside A-Z a-z 0-9 - . _ ~ as %XX")
    };
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        match first {
            b'+' => bytes.push(b' '),
            b'%' => {
                let digits =
                    tail.get(..2).and_then(|pair| std::str::from_utf8(pair).ok()).ok_or_else(invalid)?;
                if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                    return Err(invalid());
                }
                bytes.push(u8::from_str_radix(digits, 16).map_err(|_| invalid())?);
                rest = &tail[2..];
            }
            byte => bytes.push(*byte),
        }
    }
    String::from_utf8(bytes).map_err(|_| invalid())
}

/// Collects arguments from path, query and body. Duplicate fields must have the same value, so that two parsers
/// of one request cannot disagree.
#[derive(Debug, Default)]
pub(crate) struct Arguments(Map<String, Value>);

impl Arguments {
    /// Starts from a JSON body.
    pub(crate) fn from_body(fields: Map<String, Value>) -> Self {
        Self(fields)
    }

    /// Adds fields given as text. Repeated names form a list if the schema has one.
    pub(crate) fn add_texts(&mut self, schema: &Value, texts: &[(String, String)]) -> Result<()> {
        let mut done: Vec<&str> = Vec::new();
        for (name, _) in texts {
            if done.contains(&name.as_str()) {
                continue;
            }
            done.push(name);
            let values: Vec<&str> =
                texts.iter().filter(|(other, _)| other == name).map(|(_, value)| value.as_str()).collect();
            let value = read(name, &schema["properties"][name], &values)?;
            self.add(name, value)?;
        }
        Ok(())
    }

    fn add(&mut self, name: &str, value: Value) -> Result<()> {
        match self.0.get(name) {
            Some(earlier) if *earlier != value => Err(contradiction(name)),
            _ => {
                self.0.insert(name.to_owned(), value);
                Ok(())
            }
        }
    }

    /// The arguments as a JSON object.
    pub(crate) fn into_value(self) -> Value {
        Value::Object(self.0)
    }
}

fn contradiction(name: &str) -> Error {
    Error::new(Code::InvalidArgument, format!("duplicate argument `{name}` with different values"))
        .next(format!("pass `{name}` once"))
}

/// Parses text as the type of a field.
fn read(name: &str, schema: &Value, values: &[&str]) -> Result<Value> {
    let kinds = kinds(schema);
    if kinds.contains(&"array") {
        if let [text] = values
            && text.starts_with('[')
        {
            return strict_json::parse(text.as_bytes());
        }
        return values.iter().map(|text| read_one(name, &schema["items"], text)).collect();
    }
    let first = values.first().copied().unwrap_or_default();
    if values.iter().any(|value| *value != first) {
        return Err(contradiction(name));
    }
    read_one(name, schema, first)
}

fn read_one(name: &str, schema: &Value, text: &str) -> Result<Value> {
    let kinds = kinds(schema);
    let invalid = |kind: &str| {
        Error::new(Code::InvalidArgument, format!("invalid `{name}`: {text:?} is not {kind}"))
            .next(format!("pass {kind}"))
    };
    if kinds.contains(&"string") || kinds.is_empty() {
        return Ok(Value::from(text));
    }
    if kinds.contains(&"boolean") {
        return match text {
            "true" => Ok(Value::Bool(true)),
            "false" => Ok(Value::Bool(false)),
            _ => Err(invalid("true or false")),
        };
    }
    if kinds.contains(&"integer") {
        let signed = text.parse::<i64>().map(Value::from);
        return signed.or_else(|_| text.parse::<u64>().map(Value::from)).map_err(|_| invalid("an integer"));
    }
    if kinds.contains(&"number") {
        let number = text.parse::<f64>().ok().and_then(serde_json::Number::from_f64);
        return number.map(Value::Number).ok_or_else(|| invalid("a number"));
    }
    strict_json::parse(text.as_bytes())
}

/// The types of a schema except null.
fn kinds(schema: &Value) -> Vec<&str> {
    let listed: Vec<&str> = match &schema["type"] {
        Value::String(kind) => vec![kind.as_str()],
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => ["anyOf", "oneOf"]
            .iter()
            .filter_map(|key| schema[key].as_array())
            .flatten()
            .flat_map(kinds)
            .collect(),
    };
    listed.into_iter().filter(|kind| *kind != "null").collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> Value {
        json!({"type": "object", "properties": {
            "count": {"type": ["integer", "null"]}, "deep": {"type": "boolean"}, "ratio": {"type": "number"},
            "name": {"type": "string"}, "list": {"type": "array", "items": {"type": "integer"}},
            "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "map": {"type": "object"}
        }})
    }

    fn read_query(query: &str) -> Result<Value> {
        let mut arguments = Arguments::default();
        arguments.add_texts(&schema(), &pairs(query)?)?;
        Ok(arguments.into_value())
    }

    #[test]
    fn text_is_read_as_the_type_of_its_field() {
        let query = "count=3&deep=true&ratio=0.5&name=3&maybe=4&map=%7B%22a%22:1%7D&unknown=x+y%20%C3%A4";
        assert_eq!(
            read_query(query).unwrap(),
            json!({"count": 3, "deep": true, "ratio": 0.5, "name": "3", "maybe": 4, "map": {"a": 1}, "unknown": "x y ä"})
        );
    }

    #[test]
    fn a_list_is_repeated_or_written_as_json() {
        assert_eq!(read_query("list=1&list=2").unwrap(), json!({"list": [1, 2]}));
        assert_eq!(read_query("list=%5B1,2%5D").unwrap(), json!({"list": [1, 2]}));
        assert_eq!(read_query("list=7").unwrap(), json!({"list": [7]}));
    }

    #[test]
    fn text_that_is_not_of_its_type_is_refused_by_name() {
        for query in ["count=x", "count=1.5", "deep=yes", "ratio=NaN", "map=%7B%22a%22:1,%22a%22:2%7D"] {
            assert!(read_query(query).is_err(), "{query}");
        }
        assert!(read_query("count=x").unwrap_err().message.contains("count"));
    }

    #[test]
    fn a_field_given_twice_must_agree() {
        assert_eq!(read_query("name=a&name=a").unwrap(), json!({"name": "a"}));
        assert!(read_query("name=a&name=b").is_err());
        let mut arguments = Arguments::from_body(json!({"name": "a"}).as_object().unwrap().clone());
        assert!(arguments.add_texts(&schema(), &[("name".into(), "b".into())]).is_err());
    }

    #[test]
    fn encodings_that_are_not_utf8_are_refused_not_repaired() {
        for query in ["name=%FF", "name=%C3%28", "name=%", "name=%1", "name=%+1"] {
            assert!(pairs(query).is_err(), "{query}");
        }
    }
}
