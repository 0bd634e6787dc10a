//! The registry as a whole.

use isle_core::Code;
use serde_json::Value;

use super::*;
use crate::definition::parse_as;
use crate::{Effect, Method, Toolset};

fn core() -> Vec<Definition> {
    definitions().into_iter().filter(|entry| entry.toolset == Toolset::Core).collect()
}

#[test]
fn the_tools_are_exactly_these_eleven() {
    let names: Vec<_> = core().iter().map(|entry| entry.name).collect();
    assert_eq!(
        names,
        [
            "exec",
            "run_code",
            "read_file",
            "write_files",
            "list_files",
            "logs",
            "wait",
            "kill",
            "status",
            "destroy",
            "history"
        ]
    );
}

#[test]
fn the_list_of_tools_stays_small() {
    let listed: usize = core()
        .iter()
        .map(|entry| {
            let tool = serde_json::json!({
                "name": entry.name,
                "title": entry.title,
                "description": entry.description,
                "inputSchema": entry.tool_input_schema(),
                "outputSchema": entry.tool_output_schema(),
                "annotations": {"readOnlyHint": false, "destructiveHint": false, "idempotentHint": false, "openWorldHint": false},
            });
            tool.to_string().len() + 1
        })
        .sum();
    assert!(listed < 11_000, "tools/list is {listed} bytes");
}

#[test]
fn names_and_routes_are_unique_and_well_formed() {
    let entries = definitions();
    for (index, entry) in entries.iter().enumerate() {
        let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        assert!(entry.name.len() <= 30 && entry.name.chars().all(good), "{}", entry.name);
        for other in &entries[index + 1..] {
            assert_ne!(entry.name, other.name);
            assert_ne!(
                (entry.route.method, entry.route.path),
                (other.route.method, other.route.path),
                "{} and {}",
                entry.name,
                other.name
            );
        }
    }
}

#[test]
fn every_path_parameter_is_an_argument() {
    for entry in definitions() {
        for part in entry.route.path.split('/').filter_map(|part| part.strip_prefix('{')) {
            let name = part.trim_end_matches('}');
            assert!(
                entry.input_schema().get("properties").is_some_and(|fields| fields.get(name).is_some()),
                "{}: {name}",
                entry.name
            );
        }
    }
}

#[test]
fn schemas_are_plain_objects_that_every_client_reads() {
    for entry in definitions() {
        for schema in [entry.input_schema(), entry.output_schema()] {
            assert_eq!(schema.get("type").and_then(|kind| kind.as_str()), Some("object"), "{}", entry.name);
            let text = serde_json::to_string(schema).unwrap();
            for word in ["$ref", "$defs", "\"format\"", "\"oneOf\"", "\"title\""] {
                assert!(!text.contains(word), "{}: {word} in {text}", entry.name);
            }
        }
        assert_eq!(
            entry.input_schema().get("additionalProperties"),
            Some(&Value::Bool(false)),
            "{} takes unknown arguments",
            entry.name
        );
    }
}

#[test]
fn a_refused_value_keeps_its_code_and_next_step() {
    #[derive(Debug, serde::Deserialize)]
    struct Arguments {
        #[expect(dead_code, reason = "only its reading matters")]
        name: isle_core::values::SandboxName,
    }
    let error = parse_as::<Arguments>("x", serde_json::json!({"name": "../x"})).unwrap_err();
    assert_eq!(error.code, Code::InvalidName);
    assert!(!error.next_steps.is_empty());
    let error = parse_as::<Arguments>("x", serde_json::json!({})).unwrap_err();
    assert_eq!(error.code, Code::InvalidArgument);
    assert!(error.message.contains("name"));
}

#[test]
fn what_is_asked_for_by_get_changes_nothing() {
    for entry in definitions() {
        match entry.route.method {
            Method::Get => assert_eq!(entry.effect, Effect::Reads, "{}", entry.name),
            Method::Delete => assert_ne!(entry.effect, Effect::Reads, "{}", entry.name),
            Method::Post => {}
        }
    }
}

#[test]
fn no_tool_hands_a_credential_to_a_model() {
    for entry in definitions().iter().filter(|entry| entry.toolset != Toolset::None) {
        let schema = entry.output_schema().as_value().to_string();
        for name in ["\"secret\":", "\"ticket\":", "\"password\":"] {
            assert!(!schema.contains(name), "{}: {name}", entry.name);
        }
        let fields = entry.output_schema().as_value()["properties"].clone();
        let told = fields["token"]["description"].as_str().unwrap_or_default();
        assert!(!told.contains("hash"), "{} tells a token", entry.name);
    }
    for name in ["create_token", "add_webhook", "port_url"] {
        assert!(
            definitions().iter().any(|entry| entry.name == name && entry.toolset == Toolset::None),
            "{name}"
        );
    }
}
