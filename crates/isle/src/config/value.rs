//! Values of settings, read once from text or TOML.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use isle_engine::engine::DenyList;
use isle_engine::values::{ByteSize, Span, Term};
use isle_engine::{Code, Error};
use serde_json::json;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::tables::{self, Fields, Tables};

/// What values of a setting look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Tier,
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
    /// One of these words.
    Choice(&'static [&'static str]),
    Map,
    /// Tables of settings by name, each with these fields.
    Tables(Fields),
}

/// A value, already of its kind.
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

/// Reading a value failed; the sentence does not yet say where.
pub(crate) type Refusal = Error;

impl Value {
    /// Reads text, as flags and environment give it.
    pub(crate) fn from_text(kind: Kind, text: &str) -> Result<Self, Refusal> {
        let refuse = |what: &str, next: &str| {
            Error::new(Code::InvalidArgument, format!("{text:?} is not {what}")).next(next)
        };
        match kind {
            Kind::Text if text.is_empty() => Err(refuse("a value", "write something, or leave it away")),
            Kind::Text => Ok(Self::Text(text.to_owned())),
            Kind::Tier => match text {
                "process" | "container" => Ok(Self::Text(text.to_owned())),
                _ => Err(refuse("a tier", "choose process or container")),
            },
            Kind::Size => text.parse().map(Self::Size),
            Kind::Span => text.parse().map(Self::Span),
            Kind::Term => text.parse().map(Self::Term),
            Kind::Number => match text.parse::<f64>() {
                Ok(number) if number.is_finite() && number > 0.0 => Ok(Self::Number(number)),
                _ => Err(refuse("a number of CPUs", "write a number above 0, such as 0.5 or 2")),
            },
            Kind::Count => match text.parse::<u32>() {
                Ok(count) if count > 0 => Ok(Self::Count(count)),
                _ => Err(refuse("a count", "write a whole number above 0, such as 256")),
            },
            Kind::Whole => match text.parse::<u32>() {
                Ok(count) => Ok(Self::Count(count)),
                Err(_) => Err(refuse("a count", "write a whole number, such as 4")),
            },
            Kind::Switch => match text {
                "true" | "1" | "yes" | "on" => Ok(Self::Switch(true)),
                "false" | "0" | "no" | "off" => Ok(Self::Switch(false)),
                _ => Err(refuse("a switch", "write true or false")),
            },
            Kind::Address => match text.parse::<SocketAddr>() {
                Ok(_) => Ok(Self::Text(text.to_owned())),
                Err(_) => Err(refuse(
                    "an address to listen on",
                    "write IP address and port, such as 127.0.0.1:7777",
                )),
            },
            Kind::List => {
                let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
                Ok(Self::List(parts.map(str::to_owned).collect()))
            }
            // A pattern may hold commas; one per line.
            Kind::Patterns => {
                let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
                lines.map(pattern).collect::<Result<_, _>>().map(Self::List)
            }
            Kind::Choice(words) if words.contains(&text) => Ok(Self::Text(text.to_owned())),
            Kind::Choice(words) => {
                let known = words.join(", ");
                Err(refuse(&format!("one of {known}"), &format!("write one of {known}")))
            }
            Kind::Map => Err(refuse("a table", "write it as a table in a file")),
            Kind::Tables(fields) => {
                let next = "write it as TOML, such as: name = { key = 1 }";
                let table = DeTable::parse(text).map_err(|_| refuse("tables of settings", next))?;
                tables::read(fields, table.get_ref()).map(Self::Tables).map_err(|(_, refusal)| refusal)
            }
        }
    }

    /// Reads a value of a file; a refusal comes with its place in the text. Numbers may stand for
    /// sizes (bytes) and spans (seconds).
    pub(crate) fn from_toml(kind: Kind, value: &Spanned<DeValue<'_>>) -> Result<Self, (usize, Refusal)> {
        if let (Kind::Map, DeValue::Table(table)) = (kind, value.get_ref()) {
            return read_map(table).map(Self::Map);
        }
        if let (Kind::Tables(fields), DeValue::Table(table)) = (kind, value.get_ref()) {
            return tables::read(fields, table).map(Self::Tables);
        }
        if let (Kind::Patterns, DeValue::Array(items)) = (kind, value.get_ref()) {
            let patterns = items.iter().map(|item| match item.get_ref() {
                DeValue::String(text) => pattern(text).map_err(|refusal| (item.span().start, refusal)),
                _ => Err((
                    item.span().start,
                    Error::new(Code::ConfigInvalid, "an entry of the list is not a string")
                        .next("put every entry in quotes"),
                )),
            });
            return patterns.collect::<Result<_, _>>().map(Self::List);
        }
        Self::from_single(kind, value).map_err(|refusal| (value.span().start, refusal))
    }

    fn from_single(kind: Kind, value: &Spanned<DeValue<'_>>) -> Result<Self, Refusal> {
        let refuse = |expected: &str, next: &str| {
            let found = value.get_ref().type_str();
            Err(Error::new(Code::ConfigInvalid, format!("here {expected} is due, not a TOML {found}"))
                .next(next))
        };
        match (kind, value.get_ref()) {
            (
                Kind::Text
                | Kind::Tier
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
                    _ => Err(Error::new(Code::ConfigInvalid, "an entry of the list is not a string")
                        .next("put every entry in quotes")),
                })
                .collect::<Result<_, _>>()
                .map(Self::List),
            (Kind::Text | Kind::Tier | Kind::Address | Kind::Choice(_), _) => {
                refuse("a string", "put it in quotes")
            }
            (Kind::Size, _) => refuse("a size", "write it in quotes, such as \"512M\""),
            (Kind::Span, _) => refuse("a duration", "write it in quotes, such as \"30s\""),
            (Kind::Term, _) => refuse("a duration", "write it in quotes, such as \"8h\" or \"none\""),
            (Kind::Number | Kind::Count | Kind::Whole, _) => refuse("a number", "write it without quotes"),
            (Kind::Switch, _) => refuse("true or false", "write it without quotes"),
            (Kind::Patterns, _) => refuse("a list", "write it as ['one', 'two'], in single quotes"),
            (Kind::List, _) => refuse("a list", "write it as [\"one\", \"two\"]"),
            (Kind::Map, _) => refuse("a table", "write it as [env] with NAME = \"value\" lines"),
            (Kind::Tables(_), _) => refuse("a table", "write each as [key.NAME] with lines of settings"),
        }
    }

    /// As text, for people and for the daemon.
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

fn read_map(table: &DeTable<'_>) -> Result<BTreeMap<String, String>, (usize, Refusal)> {
    let mut map = BTreeMap::new();
    for (name, value) in table {
        let DeValue::String(text) = value.get_ref() else {
            let refusal =
                Error::new(Code::ConfigInvalid, format!("the value of {:?} is not a string", name.get_ref()));
            return Err((name.span().start, refusal.next("put every value in quotes")));
        };
        check_variable(name.get_ref()).map_err(|refusal| (name.span().start, refusal))?;
        map.insert(name.get_ref().to_string(), text.to_string());
    }
    Ok(map)
}

fn pattern(text: &str) -> Result<String, Refusal> {
    DenyList::check(text).map(|()| text.to_owned())
}

/// The JSON schema of values of a kind.
pub(crate) fn schema(kind: Kind) -> serde_json::Value {
    match kind {
        Kind::Text => json!({ "type": "string", "minLength": 1 }),
        Kind::Tier => json!({ "type": "string", "enum": ["process", "container"] }),
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

/// Refuses names no environment can hold.
pub(crate) fn check_variable(name: &str) -> Result<(), Refusal> {
    if !name.is_empty() && !name.contains(['=', '\0']) {
        return Ok(());
    }
    Err(Error::new(Code::InvalidArgument, format!("{name:?} is not the name of an environment variable"))
        .next("use a name without `=`, such as LANG"))
}
