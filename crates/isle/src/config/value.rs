//! Values of settings, parsed from text or TOML.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use isle_core::backend::Tier;
use isle_core::values::{ByteSize, Span, Term};
use isle_core::{Code, Error};
use isle_engine::engine::DenyList;
use serde_json::json;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::backend_names;
use super::tables::{self, Fields, Tables};

/// Kind of value of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Tier,
    Backend,
    Size,
    Span,
    /// A span, or `none`.
    Term,
    Number,
    Count,
    Whole,
    Switch,
    Address,
    List,
    /// A list of regular expressions.
    Patterns,
    /// One of these strings.
    Choice(&'static [&'static str]),
    Map,
    /// Tables of settings by name, each with these fields.
    Tables(Fields),
}

/// A parsed value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Text(String),
    Size(ByteSize),
    Span(Span),
    Term(Term),
    Number(f64),
    Count(u32),
    Switch(bool),
    List(Vec<String>),
    Map(BTreeMap<String, String>),
    Tables(Tables),
}

/// A value that cannot be parsed; the message does not yet name its source.
pub(crate) type InvalidValue = Error;

impl Value {
    /// Parses text from a flag or the environment.
    pub(crate) fn from_text(kind: Kind, text: &str) -> Result<Self, InvalidValue> {
        let invalid = |what: &str, next: &str| {
            Error::new(Code::InvalidArgument, format!("invalid {what}: {text:?}")).next(next)
        };
        match kind {
            Kind::Text if text.is_empty() => {
                Err(invalid("value", "pass a non-empty value, or omit the option"))
            }
            Kind::Text => Ok(Self::Text(text.to_owned())),
            Kind::Tier => text.parse::<Tier>().map(|tier| Self::Text(tier.as_str().to_owned())),
            Kind::Backend => backend_names::parse(text).map(|name| Self::Text(name.to_string())),
            Kind::Size => text.parse().map(Self::Size),
            Kind::Span => text.parse().map(Self::Span),
            Kind::Term => text.parse().map(Self::Term),
            Kind::Number => match text.parse::<f64>() {
                Ok(number) if number.is_finite() && number > 0.0 => Ok(Self::Number(number)),
                _ => Err(invalid("number of CPUs", "use a number greater than 0, such as 0.5 or 2")),
            },
            Kind::Count => match text.parse::<u32>() {
                Ok(count) if count > 0 => Ok(Self::Count(count)),
                _ => Err(invalid("count", "use an integer greater than 0, such as 256")),
            },
            Kind::Whole => match text.parse::<u32>() {
                Ok(count) => Ok(Self::Count(count)),
                Err(_) => Err(invalid("count", "use an integer, such as 4")),
            },
            Kind::Switch => match text {
                "true" | "1" | "yes" | "on" => Ok(Self::Switch(true)),
                "false" | "0" | "no" | "off" => Ok(Self::Switch(false)),
                _ => Err(invalid("boolean", "use true or false")),
            },
            Kind::Address => match text.parse::<SocketAddr>() {
                Ok(_) => Ok(Self::Text(text.to_owned())),
                Err(_) => Err(invalid("listen address", "use IP address and port, such as 127.0.0.1:7777")),
            },
            Kind::List => {
                let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
                Ok(Self::List(parts.map(str::to_owned).collect()))
            }
            // A pattern may contain commas, so the separator is a line break.
            Kind::Patterns => {
                let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
                lines.map(pattern).collect::<Result<_, _>>().map(Self::List)
            }
            Kind::Choice(words) if words.contains(&text) => Ok(Self::Text(text.to_owned())),
            Kind::Choice(words) => {
                let known = words.join(", ");
                Err(invalid("value", &format!("use one of {known}")))
            }
            Kind::Map => Err(invalid("table", "set it as a table in a configuration file")),
            Kind::Tables(fields) => {
                let next = "use TOML, such as: name = { key = 1 }";
                let table = DeTable::parse(text).map_err(|_| invalid("table of settings", next))?;
                tables::read(fields, table.get_ref()).map(Self::Tables).map_err(|(_, error)| error)
            }
        }
    }

    /// Parses a value of a file; an error comes with its offset in the file. Sizes and durations may be
    /// integers: bytes and seconds.
    pub(crate) fn from_toml(kind: Kind, value: &Spanned<DeValue<'_>>) -> Result<Self, (usize, InvalidValue)> {
        if let (Kind::Map, DeValue::Table(table)) = (kind, value.get_ref()) {
            return read_map(table).map(Self::Map);
        }
        if let (Kind::Tables(fields), DeValue::Table(table)) = (kind, value.get_ref()) {
            return tables::read(fields, table).map(Self::Tables);
        }
        if let (Kind::Patterns, DeValue::Array(items)) = (kind, value.get_ref()) {
            let patterns = items.iter().map(|item| match item.get_ref() {
                DeValue::String(text) => pattern(text).map_err(|error| (item.span().start, error)),
                _ => Err((
                    item.span().start,
                    Error::new(Code::ConfigInvalid, "list entry is not a string").next("quote every entry"),
                )),
            });
            return patterns.collect::<Result<_, _>>().map(Self::List);
        }
        Self::from_single(kind, value).map_err(|error| (value.span().start, error))
    }

    fn from_single(kind: Kind, value: &Spanned<DeValue<'_>>) -> Result<Self, InvalidValue> {
        let invalid = |expected: &str, next: &str| {
            let found = value.get_ref().type_str();
            Err(Error::new(Code::ConfigInvalid, format!("expected {expected}, found a TOML {found}"))
                .next(next))
        };
        match (kind, value.get_ref()) {
            (
                Kind::Text
                | Kind::Tier
                | Kind::Backend
                | Kind::Size
                | Kind::Span
                | Kind::Term
                | Kind::Address
                | Kind::Choice(_),
                DeValue::String(text),
            ) => Self::from_text(kind, text),
            (
                Kind::Size | Kind::Span | Kind::Term | Kind::Number | Kind::Count | Kind::Whole,
                DeValue::Integer(number),
            ) => Self::from_text(kind, number.as_str()),
            (Kind::Number, DeValue::Float(number)) => Self::from_text(kind, number.as_str()),
            (Kind::Switch, DeValue::Boolean(on)) => Ok(Self::Switch(*on)),
            (Kind::List, DeValue::Array(items)) => items
                .iter()
                .map(|item| match item.get_ref() {
                    DeValue::String(text) => Ok(text.to_string()),
                    _ => Err(Error::new(Code::ConfigInvalid, "list entry is not a string")
                        .next("quote every entry")),
                })
                .collect::<Result<_, _>>()
                .map(Self::List),
            (Kind::Text | Kind::Tier | Kind::Backend | Kind::Address | Kind::Choice(_), _) => {
                invalid("a string", "quote the value")
            }
            (Kind::Size, _) => invalid("a size", "use a quoted size, such as \"512M\""),
            (Kind::Span, _) => invalid("a duration", "use a quoted duration, such as \"30s\""),
            (Kind::Term, _) => invalid("a duration", "use a quoted duration, such as \"8h\", or \"none\""),
            (Kind::Number | Kind::Count | Kind::Whole, _) => invalid("a number", "remove the quotes"),
            (Kind::Switch, _) => invalid("true or false", "remove the quotes"),
            (Kind::Patterns, _) => invalid("a list", "use a list of single-quoted strings: ['one', 'two']"),
            (Kind::List, _) => invalid("a list", "use a list of strings: [\"one\", \"two\"]"),
            (Kind::Map, _) => invalid("a table", "use a table of NAME = \"value\" lines below [env]"),
            (Kind::Tables(_), _) => invalid("a table", "use one table [key.NAME] per entry"),
        }
    }

    /// As text.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Size(size) => size.to_string(),
            Self::Span(span) => span.to_string(),
            Self::Term(term) => term.to_string(),
            Self::Number(number) => number.to_string(),
            Self::Count(count) => count.to_string(),
            Self::Switch(on) => on.to_string(),
            Self::List(items) => items.join(","),
            Self::Tables(tables) => tables::text(tables),
            Self::Map(map) => {
                map.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
            }
        }
    }

    /// As JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        match self {
            Self::Text(text) => json!(text),
            Self::Size(size) => json!(size),
            Self::Span(span) => json!(span),
            Self::Term(term) => json!(term),
            Self::Number(number) => json!(number),
            Self::Count(count) => json!(count),
            Self::Switch(on) => json!(on),
            Self::List(items) => json!(items),
            Self::Map(map) => json!(map),
            Self::Tables(tables) => tables::json(tables),
        }
    }
}

fn read_map(table: &DeTable<'_>) -> Result<BTreeMap<String, String>, (usize, InvalidValue)> {
    let mut map = BTreeMap::new();
    for (name, value) in table {
        let DeValue::String(text) = value.get_ref() else {
            let error =
                Error::new(Code::ConfigInvalid, format!("value of {:?} is not a string", name.get_ref()));
            return Err((name.span().start, error.next("quote every value")));
        };
        check_variable(name.get_ref()).map_err(|error| (name.span().start, error))?;
        map.insert(name.get_ref().to_string(), text.to_string());
    }
    Ok(map)
}

fn pattern(text: &str) -> Result<String, InvalidValue> {
    DenyList::check(text).map(|()| text.to_owned())
}

/// JSON schema of a kind of value.
pub(crate) fn schema(kind: Kind) -> serde_json::Value {
    match kind {
        Kind::Text => json!({ "type": "string", "minLength": 1 }),
        Kind::Tier => json!({ "type": "string", "enum": Tier::ALL }),
        Kind::Backend => json!({ "type": "string", "enum": backend_names::ALL }),
        Kind::Size => json!({
            "type": ["string", "integer"], "minimum": 0, "pattern": "^\\s*[0-9]+\\s*([KkMmGgTt]?([Ii]?[Bb])?)\\s*$",
        }),
        Kind::Span => {
            json!({ "type": ["string", "integer"], "minimum": 0, "pattern": "^\\s*[0-9]+(ms|s|m|h|d)?\\s*$" })
        }
        Kind::Term => {
            json!({ "type": ["string", "integer"], "minimum": 0, "pattern": "^\\s*([0-9]+(ms|s|m|h|d)?|none)\\s*$" })
        }
        Kind::Number => json!({ "type": "number", "exclusiveMinimum": 0 }),
        Kind::Count => json!({ "type": "integer", "minimum": 1, "maximum": u32::MAX }),
        Kind::Whole => json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX }),
        Kind::Switch => json!({ "type": "boolean" }),
        Kind::Address => json!({ "type": "string" }),
        Kind::Choice(words) => json!({ "type": "string", "enum": words }),
        Kind::List => json!({ "type": "array", "items": { "type": "string" } }),
        Kind::Patterns => json!({ "type": "array", "items": { "type": "string", "format": "regex" } }),
        Kind::Map => json!({ "type": "object", "additionalProperties": { "type": "string" } }),
        Kind::Tables(fields) => tables::schema_of(fields),
    }
}

/// Rejects invalid names of environment variables.
pub(crate) fn check_variable(name: &str) -> Result<(), InvalidValue> {
    if !name.is_empty() && !name.contains(['=', '\0']) {
        return Ok(());
    }
    Err(Error::new(Code::InvalidArgument, format!("invalid environment variable name: {name:?}"))
        .next("use a non-empty name without `=`, such as LANG"))
}
