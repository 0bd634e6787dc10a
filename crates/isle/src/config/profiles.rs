//! `[profiles.NAME]`: settings of sandboxes under a name. The fields are settings of the table of keys, so
//! a value is written there as it is anywhere else.

use std::collections::BTreeMap;

use isle_engine::values::SandboxName;
use isle_engine::{Code, Error};
use serde_json::{Map, Value as Json, json};
use toml::de::{DeTable, DeValue};

use super::value::{Kind, Refusal, Value};

/// One profile as a file gives it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ProfileTable {
    /// Where in the file it begins.
    offset: usize,
    /// The file and the line, once they are known.
    pub(crate) place: String,
    pub(crate) fields: BTreeMap<&'static str, Value>,
}

pub(crate) type Profiles = BTreeMap<String, ProfileTable>;

/// What may stand in one.
const FIELDS: &[(&str, Kind)] = &[
    ("tier", Kind::Tier),
    ("image", Kind::Text),
    ("memory", Kind::Size),
    ("cpus", Kind::Number),
    ("pids", Kind::Count),
    ("disk", Kind::Size),
    ("allow_downgrade", Kind::Switch),
    ("ttl", Kind::Term),
    ("idle", Kind::Term),
    ("env", Kind::Map),
    ("allow", Kind::List),
    ("mask_pii", Kind::List),
];

/// Reads all of them; a refusal comes with its place in the text.
pub(super) fn read(table: &DeTable<'_>) -> Result<Profiles, (usize, Refusal)> {
    let mut profiles = Profiles::new();
    for (name, value) in table {
        let offset = name.span().start;
        if let Err(error) = name.get_ref().parse::<SandboxName>() {
            let message = format!("the name of a profile: {}", error.message);
            return Err((offset, Error { message, ..error }));
        }
        let DeValue::Table(fields) = value.get_ref() else {
            let refusal = Error::new(Code::ConfigInvalid, format!("{:?} is not a table", name.get_ref()));
            return Err((offset, refusal.next("write [profiles.NAME] and its settings below")));
        };
        let fields = read_fields(name.get_ref(), fields)?;
        profiles.insert(name.get_ref().to_string(), ProfileTable { offset, place: String::new(), fields });
    }
    Ok(profiles)
}

fn read_fields(
    profile: &str,
    table: &DeTable<'_>,
) -> Result<BTreeMap<&'static str, Value>, (usize, Refusal)> {
    let mut fields = BTreeMap::new();
    for (name, value) in table {
        let Some((known, kind)) = FIELDS.iter().find(|(known, _)| known == name.get_ref()) else {
            let known: Vec<&str> = FIELDS.iter().map(|(known, _)| *known).collect();
            let what = format!("profile {profile:?} has an unknown key {:?}", name.get_ref());
            let next = format!("the keys of a profile are {}", known.join(", "));
            return Err((name.span().start, Error::new(Code::ConfigInvalid, what).next(next)));
        };
        let value = Value::from_toml(*kind, value).map_err(|(offset, error)| {
            let message = format!("{profile}.{known}: {}", error.message);
            (offset, Error { message, ..error })
        })?;
        fields.insert(*known, value);
    }
    Ok(fields)
}

/// Says where each of them stands.
pub(super) fn place(profiles: &mut Profiles, file: &str, line_of: impl Fn(usize) -> usize) {
    for table in profiles.values_mut() {
        table.place = format!("{file}:{}", line_of(table.offset));
    }
}

pub(super) fn json(profiles: &Profiles) -> Json {
    let object = |table: &ProfileTable| -> Json {
        let fields: Map<String, Json> =
            table.fields.iter().map(|(name, value)| ((*name).to_owned(), value.json())).collect();
        Json::Object(fields)
    };
    Json::Object(profiles.iter().map(|(name, table)| (name.clone(), object(table))).collect())
}

pub(super) fn schema() -> Json {
    let properties: Map<String, Json> =
        FIELDS.iter().map(|(name, kind)| ((*name).to_owned(), super::value::schema(*kind))).collect();
    json!({
        "type": "object",
        "additionalProperties": {
            "type": "object",
            "properties": properties,
            "additionalProperties": false,
        },
    })
}
