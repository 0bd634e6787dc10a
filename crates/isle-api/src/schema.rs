//! How the JSON schemas of arguments and results are made, in full and as MCP tools show them.

use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform};
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

/// The schema of a type in the dialect every client reads: draft 2020-12, everything inline, no
/// `format` (clients warn about `uint64` and its like), no title.
#[must_use]
pub fn schema_of<T: JsonSchema>() -> Schema {
    plain::<T>(SchemaSettings::draft2020_12())
}

/// The schema of a result: what is always there is required.
#[must_use]
pub fn output_schema_of<T: JsonSchema>() -> Schema {
    plain::<T>(SchemaSettings::draft2020_12().for_serialize())
}

fn plain<T: JsonSchema>(mut settings: SchemaSettings) -> Schema {
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    tidy(settings.into_generator().into_root_schema_for::<T>())
}

// What follows is not generic on purpose: there are two schemas for each of some eighty operations.

fn tidy(mut schema: Schema) -> Schema {
    RecursiveTransform(|schema: &mut Schema| {
        schema.remove("format");
        schema.remove("title");
        if schema.get("default").is_some_and(Value::is_null) {
            schema.remove("default");
        }
        one_word_of(schema);
    })
    .transform(&mut schema);
    schema
}

/// The schema of arguments. A field that may be left out may also be null; saying so costs words.
#[must_use]
pub fn input_schema_of<T: JsonSchema>() -> Schema {
    without_null(schema_of::<T>())
}

fn without_null(mut schema: Schema) -> Schema {
    RecursiveTransform(|schema: &mut Schema| {
        if let Some(Value::Array(kinds)) = schema.get_mut("type") {
            kinds.retain(|kind| kind != "null");
            if let [kind] = kinds.as_slice() {
                let kind = kind.clone();
                schema.insert("type".into(), kind);
            }
        }
        if let Some(Value::Array(words)) = schema.get_mut("enum") {
            words.retain(|word| !word.is_null());
        }
        without_null_branch(schema);
    })
    .transform(&mut schema);
    schema
}

/// The schema of a tool's arguments: the list of tools is in every conversation of a model, so it
/// says what a model needs and leaves the ranges to the error messages. An argument without words of
/// its own is as in another tool, which shows its form.
#[must_use]
pub fn tool_input_schema(schema: &Schema) -> Schema {
    let mut schema = schema.clone();
    RecursiveTransform(|schema: &mut Schema| {
        schema.remove("minimum");
        schema.remove("default");
        if schema.get("description").and_then(Value::as_str).is_some_and(|words| words.starts_with("E.g. ")) {
            schema.remove("description");
        }
    })
    .transform(&mut schema);
    if let Some(Value::Object(arguments)) = schema.get_mut("properties") {
        for argument in arguments.values_mut() {
            if argument.get("properties").is_some() {
                match argument.get("description") {
                    Some(_) => drop(argument.as_object_mut().map(|own| own.remove("additionalProperties"))),
                    None => *argument = json!({ "type": "object" }),
                }
            }
        }
    }
    schema
}

/// The schema of a tool's result: names and types of the fields that are always there. What comes
/// only sometimes, and what is inside a field, is named by the result itself.
#[must_use]
pub fn tool_output_schema(schema: &Schema) -> Schema {
    let mut fields = Map::new();
    let always = |name: &str| match schema.get("required") {
        Some(Value::Array(names)) => names.iter().any(|one| one == name),
        _ => false,
    };
    if let Some(Value::Object(properties)) = schema.get("properties") {
        for (name, property) in properties.iter().filter(|(name, _)| always(name)) {
            let shown = property.get("type").map_or_else(|| json!({}), |kind| json!({ "type": kind }));
            fields.insert(name.clone(), shown);
        }
    }
    schemars::json_schema!({ "type": "object", "properties": fields })
}

/// `anyOf [X, null]` is `X`.
fn without_null_branch(schema: &mut Schema) {
    let Some(Value::Array(branches)) = schema.get("anyOf") else { return };
    let others: Vec<Value> =
        branches.iter().filter(|branch| branch.get("type") != Some(&Value::from("null"))).cloned().collect();
    if let [Value::Object(only)] = others.as_slice() {
        schema.remove("anyOf");
        for (key, value) in only {
            if schema.get(key).is_none() {
                schema.insert(key.clone(), value.clone());
            }
        }
    }
}

/// A choice of documented words is a plain `enum`: clients show it, and it is a third as long.
fn one_word_of(schema: &mut Schema) {
    let Some(Value::Array(choices)) = schema.get("oneOf") else { return };
    let words: Option<Vec<Value>> = choices.iter().map(|choice| choice.get("const").cloned()).collect();
    if let Some(words) = words {
        schema.remove("oneOf");
        schema.insert("type".into(), "string".into());
        schema.insert("enum".into(), Value::Array(words));
    }
}
