//! Named tables of settings, such as `[profiles.NAME]`. Their fields have the same kinds of values as
//! settings and are parsed the same way.

use std::collections::BTreeMap;

use isle_core::{Code, Error};
use serde_json::{Map, Value as Json, json};
use toml::de::{DeTable, DeValue};

use super::value::{InvalidValue, Kind, Value, schema};

/// The fields of a table, by name.
pub(crate) type Fields = &'static [(&'static str, Kind)];
/// Tables by name.
pub(crate) type Tables = BTreeMap<String, Table>;

/// One table.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Table {
    /// Byte offset of the table in the file.
    offset: usize,
    /// File and line; empty until they are known.
    pub(crate) location: String,
    pub(crate) fields: BTreeMap<&'static str, Value>,
}

impl Table {
    /// The error with the location of the table.
    pub(crate) fn invalid(&self, what: &str, error: Error) -> Error {
        let location = if self.location.is_empty() { String::new() } else { format!("{}: ", self.location) };
        let message = format!("{location}{what}: {}", error.message);
        Error { code: Code::ConfigInvalid, message, ..error }
    }
}

/// Reads all tables; an error comes with its offset in the file.
pub(super) fn read(fields: Fields, tables: &DeTable<'_>) -> Result<Tables, (usize, InvalidValue)> {
    let mut read = Tables::new();
    for (name, value) in tables {
        let offset = name.span().start;
        let DeValue::Table(table) = value.get_ref() else {
            let error = Error::new(Code::ConfigInvalid, format!("{:?} is not a table", name.get_ref()));
            return Err((offset, error.next("write it as [key.NAME] followed by its settings")));
        };
        let fields = read_fields(fields, name.get_ref(), table)?;
        read.insert(name.get_ref().to_string(), Table { offset, location: String::new(), fields });
    }
    Ok(read)
}

fn read_fields(
    fields: Fields,
    name: &str,
    table: &DeTable<'_>,
) -> Result<BTreeMap<&'static str, Value>, (usize, InvalidValue)> {
    let mut read = BTreeMap::new();
    for (field, value) in table {
        let Some((known, kind)) = fields.iter().find(|(known, _)| known == field.get_ref()) else {
            let known: Vec<&str> = fields.iter().map(|(known, _)| *known).collect();
            let what = format!("{name:?} has an unknown key {:?}", field.get_ref());
            let next = format!("valid keys: {}", known.join(", "));
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

/// Sets the location of each table.
pub(super) fn set_locations(tables: &mut Tables, file: &str, line_of: impl Fn(usize) -> usize) {
    for table in tables.values_mut() {
        table.location = format!("{file}:{}", line_of(table.offset));
    }
}

/// One line per table.
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
