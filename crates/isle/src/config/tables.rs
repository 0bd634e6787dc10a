//! Tables of settings by name, such as `[profiles.NAME]`. Their fields are of the kinds every setting has,
//! so a value is written there as it is anywhere else.

use std::collections::BTreeMap;

use isle_engine::{Code, Error};
use serde_json::{Map, Value as Json, json};
use toml::de::{DeTable, DeValue};

use super::value::{Kind, Refusal, Value, schema};

/// The fields of a table, by name.
pub(crate) type Fields = &'static [(&'static str, Kind)];
/// Tables by name.
pub(crate) type Tables = BTreeMap<String, Table>;

/// One table.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Table {
    /// Where in the text it begins.
    offset: usize,
    /// The file and the line, once they are known.
    pub(crate) place: String,
    pub(crate) fields: BTreeMap<&'static str, Value>,
}

impl Table {
    /// What is wrong with it, with its place.
    pub(crate) fn refused(&self, what: &str, error: Error) -> Error {
        let place = if self.place.is_empty() { String::new() } else { format!("{}: ", self.place) };
        let message = format!("{place}{what}: {}", error.message);
        Error { code: Code::ConfigInvalid, message, ..error }
    }
}

/// Reads all of them; a refusal comes with its place in the text.
pub(super) fn read(fields: Fields, tables: &DeTable<'_>) -> Result<Tables, (usize, Refusal)> {
    let mut read = Tables::new();
    for (name, value) in tables {
        let offset = name.span().start;
        let DeValue::Table(table) = value.get_ref() else {
            let refusal = Error::new(Code::ConfigInvalid, format!("{:?} is not a table", name.get_ref()));
            return Err((offset, refusal.next("write it as [key.NAME] with lines of settings")));
        };
        let fields = read_fields(fields, name.get_ref(), table)?;
        read.insert(name.get_ref().to_string(), Table { offset, place: String::new(), fields });
    }
    Ok(read)
}

fn read_fields(
    fields: Fields,
    name: &str,
    table: &DeTable<'_>,
) -> Result<BTreeMap<&'static str, Value>, (usize, Refusal)> {
    let mut read = BTreeMap::new();
    for (field, value) in table {
        let Some((known, kind)) = fields.iter().find(|(known, _)| known == field.get_ref()) else {
            let known: Vec<&str> = fields.iter().map(|(known, _)| *known).collect();
            let what = format!("{name:?} has an unknown key {:?}", field.get_ref());
            let next = format!("the keys of this table are {}", known.join(", "));
            return Err((field.span().start, Error::new(Code::ConfigInvalid, what).next(next)));
        };
        let value = Value::from_toml(*kind, value).map_err(|(offset, error)| {
            let message = format!("{name}.{known}: {}", error.message);
            (offset, Error { message, ..error })
        })?;
        read.insert(*known, value);
    }
    Ok(read)
}

/// Says where each of them stands.
pub(super) fn place(tables: &mut Tables, file: &str, line_of: impl Fn(usize) -> usize) {
    for table in tables.values_mut() {
        table.place = format!("{file}:{}", line_of(table.offset));
    }
}

/// As one line each, for people.
pub(super) fn text(tables: &Tables) -> String {
    let line = |(name, table): (&String, &Table)| {
        let fields: Vec<String> =
            table.fields.iter().map(|(field, value)| format!("{field}={}", value.text())).collect();
        format!("{name}: {}", fields.join(" "))
    };
    tables.iter().map(line).collect::<Vec<_>>().join("; ")
}

pub(super) fn json(tables: &Tables) -> Json {
    let object = |table: &Table| -> Json {
        let fields: Map<String, Json> =
            table.fields.iter().map(|(name, value)| ((*name).to_owned(), value.json())).collect();
        Json::Object(fields)
    };
    Json::Object(tables.iter().map(|(name, table)| (name.clone(), object(table))).collect())
}

pub(super) fn schema_of(fields: Fields) -> Json {
    let properties: Map<String, Json> =
        fields.iter().map(|(name, kind)| ((*name).to_owned(), schema(*kind))).collect();
    json!({
        "type": "object",
        "additionalProperties": {
            "type": "object", "properties": properties, "additionalProperties": false,
        },
    })
}
