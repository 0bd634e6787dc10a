//! The OpenAPI document, generated from the registry, so that it always matches the routes.

use isle_core::Code;
use serde_json::{Map, Value, json};

use crate::definition::{Definition, Method, Registry};
use crate::event_kind::EventKind;

/// The whole document.
#[must_use]
pub fn document(registry: &Registry, version: &str) -> Value {
    let mut paths = fixed_paths();
    for entry in registry.definitions() {
        let path = format!("/v1{}", entry.route.path);
        let method = match entry.route.method {
            Method::Get => "get",
            Method::Post => "post",
            Method::Delete => "delete",
        };
        paths.entry(path).or_insert_with(|| json!({}))[method] = operation(entry);
    }
    json!({
        "openapi": "3.1.0",
        "jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
        "info": {
            "title": "Isle",
            "version": version,
            "description": "Sandboxes for AI agents. The Unix socket needs no token; on TCP every request except /healthz needs one.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"}
        },
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}, {"api_key": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "api_key": {"type": "apiKey", "in": "header", "name": "X-API-Key"}
            },
            "schemas": {"Error": error_schema()},
            "responses": {"Error": {
                "description": "The error: code, message, details and next steps.",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
            }}
        }
    })
}

fn error_schema() -> Value {
    let codes: Vec<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
    json!({
        "type": "object",
        "required": ["error"],
        "properties": {"error": {
            "type": "object",
            "required": ["code", "message", "details", "retryable", "next_steps"],
            "properties": {
                "code": {"type": "string", "enum": codes},
                "message": {"type": "string"},
                "details": {"type": "object", "description": "Additional facts, such as the names that exist."},
                "retryable": {"type": "boolean", "description": "Whether the same call may succeed later."},
                "next_steps": {"type": "array", "items": {"type": "string"}}
            }
        }}
    })
}

fn operation(entry: &Definition) -> Value {
    let schema = entry.input_schema().as_value();
    let in_path = path_fields(entry.route.path);
    let mut parameters: Vec<Value> =
        in_path.iter().map(|name| parameter("path", name, schema, true)).collect();
    let mut operation = json!({
        "operationId": entry.name,
        "summary": entry.title,
        "description": entry.description,
        "responses": {
            "200": {"description": "The result.", "content": {"application/json": {
                "schema": entry.output_schema()
            }}},
            "default": {"$ref": "#/components/responses/Error"}
        }
    });
    match entry.route.method {
        Method::Post | Method::Delete => {
            let (schema, required) = body_schema(schema, &in_path);
            // `POST` is declared as JSON even without arguments.
            let required = required || entry.route.method == Method::Post;
            operation["requestBody"] =
                json!({"required": required, "content": {"application/json": {"schema": schema}}});
        }
        Method::Get => {
            let required = required_fields(schema);
            let fields = schema["properties"].as_object().into_iter().flat_map(Map::keys);
            parameters.extend(
                fields
                    .filter(|name| !in_path.contains(&name.as_str()))
                    .map(|name| parameter("query", name, schema, required.contains(&name.as_str()))),
            );
        }
    }
    if !parameters.is_empty() {
        operation["parameters"] = Value::Array(parameters);
    }
    operation
}

/// The fields named in a path such as `/sandboxes/{sandbox}/exec`.
fn path_fields(path: &str) -> Vec<&str> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).collect()
}

fn required_fields(schema: &Value) -> Vec<&str> {
    schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

fn parameter(place: &str, name: &str, schema: &Value, required: bool) -> Value {
    let mut field = without_null(&schema["properties"][name]);
    let description = field.as_object_mut().and_then(|field| field.remove("description"));
    let mut parameter = json!({"name": name, "in": place, "required": required});
    if let Some(description) = description {
        parameter["description"] = description;
    }
    // Objects have no standard form in a query; they are sent as JSON text.
    if field["type"] == "object" {
        parameter["content"] = json!({"application/json": {"schema": field}});
    } else {
        parameter["schema"] = field;
    }
    parameter
}

/// A nullable field is omitted from a query instead.
fn without_null(field: &Value) -> Value {
    let mut field = field.clone();
    if let Some(kinds) = field["type"].as_array() {
        let kinds: Vec<Value> = kinds.iter().filter(|kind| *kind != "null").cloned().collect();
        field["type"] = match <[Value; 1]>::try_from(kinds) {
            Ok([kind]) => kind,
            Err(kinds) => Value::Array(kinds),
        };
    }
    if let Some(fields) = field.as_object_mut()
        && fields.get("default").is_some_and(Value::is_null)
    {
        fields.remove("default");
    }
    if field.is_null() { json!({"type": "string"}) } else { field }
}

/// The input schema without the fields of the path, and whether any of it is required.
fn body_schema(schema: &Value, in_path: &[&str]) -> (Value, bool) {
    let mut schema = schema.clone();
    if let Some(fields) = schema["properties"].as_object_mut() {
        fields.retain(|name, _| !in_path.contains(&name.as_str()));
    }
    let required: Vec<Value> = required_fields(&schema)
        .into_iter()
        .filter(|name| !in_path.contains(name))
        .map(Value::from)
        .collect();
    let is_required = !required.is_empty();
    if let Some(object) = schema.as_object_mut() {
        object.remove("required");
        if is_required {
            object.insert("required".into(), Value::Array(required));
        }
    }
    (schema, is_required)
}

/// Routes that are not operations.
fn fixed_paths() -> Map<String, Value> {
    let error = json!({"$ref": "#/components/responses/Error"});
    let status =
        json!({"type": "object", "required": ["status"], "properties": {"status": {"type": "string"}}});
    let answer = |description: &str, schema: Value| json!({"description": description, "content": {"application/json": {"schema": schema}}});
    let events = json!({"description": "Events `started`, `stdout`, `stderr`, `lost` and, last, `ended`; data is JSON, ids count up.",
        "content": {"text/event-stream": {"schema": {"type": "object", "description": "One event.",
            "required": ["id", "event", "data"], "properties": {"id": {"type": "string"}, "data": {"type": "string"},
                "event": {"type": "string", "enum": ["started", "stdout", "stderr", "lost", "ended"]}}}}}});
    let sandbox = json!({"name": "sandbox", "in": "path", "required": true, "schema": {"type": "string"}});
    let file = |mode: bool| {
        let mut parameters = vec![
            sandbox.clone(),
            json!({"name": "path", "in": "query", "required": true, "schema": {"type": "string"},
                "description": "Path in the sandbox: relative to /workspace, or absolute."}),
            json!({"name": "user", "in": "query", "required": false, "schema": {"type": "string", "enum": ["sandbox", "root"]}}),
        ];
        if mode {
            parameters.push(
                json!({"name": "mode", "in": "query", "required": false, "description": "Octal; default 644.",
                "schema": {"type": "string", "pattern": "^0?[0-7]{1,3}$"}}),
            );
        }
        Value::Array(parameters)
    };
    let packed = || {
        let mut parameters = file(false);
        if let Some(parameters) = parameters.as_array_mut() {
            parameters.push(json!({"name": "git_dirs", "in": "query", "required": false,
                "description": "`copy` includes git directories with hooks and configuration; for trusted sandboxes only.",
                "schema": {"type": "string", "enum": ["skip", "copy"]}}));
        }
        parameters
    };
    let binary = json!({"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}});
    let tar = json!({"application/x-tar": {"schema": {"type": "string", "format": "binary"}}});
    let archive = json!({"application/x-tar": {"schema": {"type": "string", "format": "binary"}},
        "application/octet-stream": {"schema": {"type": "string", "format": "binary"}}});
    let carried = json!({"type": "object", "required": ["path", "files", "directories", "bytes", "skipped", "skipped_count"],
        "properties": {"path": {"type": "string"}, "files": {"type": "integer"}, "directories": {"type": "integer"},
            "bytes": {"type": "integer"}, "skipped_count": {"type": "integer"},
            "skipped": {"type": "array", "items": {"type": "object"}}}});
    let paths = json!({
        "/healthz": {"get": {"operationId": "healthz", "summary": "Liveness check", "security": [],
            "responses": {"200": answer("Alive.", status.clone()), "default": error}}},
        "/readyz": {"get": {"operationId": "readyz", "summary": "Readiness check",
            "responses": {"200": answer("Ready.", status.clone()), "default": error}}},
        "/metrics": {"get": {"operationId": "metrics", "summary": "Metrics for Prometheus",
            "description": "Operator only. Prometheus text format, or the JSON of the operation `stats` if the client accepts only JSON.",
            "responses": {"200": {"description": "All metrics.", "content": {
                "text/plain": {"schema": {"type": "string"}}, "application/json": {"schema": {"type": "object"}}}},
                "default": error}}},
        "/openapi.json": {"get": {"operationId": "openapi", "summary": "This document",
            "responses": {"200": answer("OpenAPI 3.1.", json!({"type": "object"})), "default": error}}},
        "/v1/version": {"get": {"operationId": "version", "summary": "Version of the daemon",
            "responses": {"200": answer("Version; for the operator also pid, start time and state directory.", json!({
                "type": "object", "required": ["version", "api"],
                "properties": {"version": {"type": "string"}, "pid": {"type": "integer"}, "started_at": {"type": "string"},
                    "state_dir": {"type": "string"}, "api": {"type": "integer"}}})), "default": error}}},
        "/v1/shutdown": {"post": {"operationId": "shutdown", "summary": "Stop the daemon",
            "description": "Unix socket only. Named sandboxes keep running.",
            "requestBody": {"required": true, "content": {"application/json": {"schema": {"type": "object"}}}},
            "responses": {"202": answer("Shutting down.", status), "default": error}}},
        "/v1/sandboxes/{sandbox}/files/content": {
            "get": {"operationId": "read_file_content", "summary": "Read a whole file", "parameters": file(false),
                "responses": {"200": {"description": "Contents of the file.", "content": binary}, "default": error}},
            "put": {"operationId": "write_file_content", "summary": "Write a whole file",
                "description": "The file appears in the sandbox only when it is complete.", "parameters": file(true),
                "requestBody": {"required": true, "content": binary},
                "responses": {"200": answer("Path and size of the file.", json!({"type": "object", "required": ["path", "size"],
                    "properties": {"path": {"type": "string"}, "size": {"type": "integer"}}})), "default": error}}},
        "/v1/sandboxes/{sandbox}/files/tree": {
            "get": {"operationId": "pack_tree", "summary": "Download a directory as a tar archive", "parameters": packed(),
                "description": "Links, git directories and set-uid bits are skipped; comments in the archive list what was skipped.",
                "responses": {"200": {"description": "The archive.", "content": tar}, "default": error}},
            "post": {"operationId": "pack_listed", "summary": "Download some files of a directory as a tar archive",
                "description": "The body is a list of paths relative to `path`, each terminated by a NUL byte.", "parameters": packed(),
                "requestBody": {"required": true, "content": binary},
                "responses": {"200": {"description": "The archive.", "content": tar}, "default": error}},
            "put": {"operationId": "unpack_tree", "summary": "Unpack a tar archive",
                "description": "Files are moved into place only after the whole archive was received and checked. Paths and links that leave the directory, hard links and devices are rejected.",
                "parameters": file(false), "requestBody": {"required": true, "content": archive},
                "responses": {"200": answer("What was unpacked.", carried), "default": error}}},
        "/v1/sandboxes/{sandbox}/files/manifest": {"get": {"operationId": "tree_manifest",
            "summary": "List a directory with hashes", "parameters": file(false),
            "responses": {"200": {"description": "One JSON object per line: path (or path_base64), kind, mode, size, sha256.",
                "content": {"application/x-ndjson": {"schema": {"type": "string"}}}}, "default": error}}},
        "/v1/sandboxes/{sandbox}/files/prune": {"post": {"operationId": "prune_files",
            "summary": "Remove files and empty directories",
            "description": "The body is a list of paths relative to `path`, each terminated by a NUL byte.", "parameters": file(false),
            "requestBody": {"required": true, "content": binary},
            "responses": {"200": answer("Number of removed files.", json!({"type": "object", "required": ["removed"],
                "properties": {"removed": {"type": "integer"}}})), "default": error}}},
        "/v1/sandboxes/{sandbox}/files/watch/events": {"get": {"operationId": "watch_files_events",
            "summary": "Watch files for changes",
            "description": "First `watching`, then `file` events with kind, path, from and directory, `overflow` when events were dropped, `ended` when the directory or the sandbox was removed.",
            "parameters": [
                sandbox.clone(),
                {"name": "path", "in": "query", "required": false, "schema": {"type": "string"},
                    "description": "Directory or file, default /workspace."},
                {"name": "recursive", "in": "query", "required": false, "schema": {"type": "boolean"}},
                {"name": "user", "in": "query", "required": false, "schema": {"type": "string", "enum": ["sandbox", "root"]}}],
            "responses": {"200": {"description": "The events.", "content": {"text/event-stream": {"schema": {"type": "object",
                "required": ["event", "data"], "properties": {"data": {"type": "string"},
                    "event": {"type": "string", "enum": ["watching", "file", "overflow", "ended"]}}}}}}, "default": error}}},
        "/v1/sandboxes/{sandbox}/exec/stream": {"post": {"operationId": "exec_stream",
            "summary": "Run a command and follow it",
            "description": "Takes the arguments of `exec` except `wait`. The run continues when the client disconnects; resume with /v1/runs/{run_id}/events.",
            "parameters": [sandbox],
            "requestBody": {"required": true, "content": {"application/json": {"schema": {"type": "object"}}}},
            "responses": {"200": events, "default": error}}},
        "/v1/runs/{run_id}/events": {"get": {"operationId": "follow_run", "summary": "Follow a run",
            "parameters": [
                {"name": "run_id", "in": "path", "required": true, "schema": {"type": "string"}},
                {"name": "after", "in": "query", "required": false, "schema": {"type": "integer", "minimum": 0},
                    "description": "Id of the last event received; same as the header Last-Event-ID."},
                {"name": "tail", "in": "query", "required": false, "schema": {"type": "integer", "minimum": 0},
                    "description": "Start with the last lines of each stream; `after` takes precedence."}],
            "responses": {"200": events, "204": {"description": "The run has exited and there are no more events."}, "default": error}}},
        "/v1/events": {"get": {"operationId": "follow_events", "summary": "Follow events",
            "description": "Events are named after their kind; data is the object the operation `events` returns. `lost` contains the number of dropped events.",
            "parameters": [
                {"name": "after", "in": "query", "required": false, "schema": {"type": "integer", "minimum": 0},
                    "description": "Id of the last event received; same as the header Last-Event-ID. Default: new events only."},
                {"name": "kind", "in": "query", "required": false,
                    "schema": {"type": "array", "items": {"type": "string", "enum": EventKind::ALL.as_slice()}}},
                {"name": "sandbox", "in": "query", "required": false, "schema": {"type": "string"}},
                {"name": "run_id", "in": "query", "required": false, "schema": {"type": "string"}},
                {"name": "all", "in": "query", "required": false, "schema": {"type": "boolean"},
                    "description": "Events of all namespaces; operator only."}],
            "responses": {"200": {"description": "The events.", "content": {"text/event-stream": {"schema": {"type": "object",
                "required": ["id", "event", "data"], "properties": {"id": {"type": "string"}, "data": {"type": "string"},
                    "event": {"type": "string"}}}}}}, "default": error}}},
        "/v1/session": {"get": {"operationId": "session", "summary": "Start a command, or attach to a run, over a WebSocket",
            "responses": {"101": {"description": "The WebSocket."}, "default": error}}}
    });
    match paths {
        Value::Object(paths) => paths,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nullable_field_is_an_optional_parameter_of_its_plain_type() {
        let field = json!({"type": ["integer", "null"], "default": null, "description": "d"});
        assert_eq!(without_null(&field), json!({"type": "integer", "description": "d"}));
    }

    #[test]
    fn fields_of_the_path_are_not_asked_for_again_in_the_body() {
        let schema = json!({"type": "object", "required": ["a", "b"], "properties": {"a": {}, "b": {}}});
        let (body, required) = body_schema(&schema, &["a"]);
        assert_eq!(body, json!({"type": "object", "required": ["b"], "properties": {"b": {}}}));
        assert!(required);
        assert!(!body_schema(&schema, &["a", "b"]).1);
    }

    #[test]
    fn every_route_answers_errors_in_the_same_shape_and_has_its_own_id() {
        let document = document(&Registry::standard(), "1");
        let mut seen = Vec::new();
        for (path, methods) in document["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                assert_eq!(
                    operation["responses"]["default"]["$ref"], "#/components/responses/Error",
                    "{method} {path}"
                );
                let id = operation["operationId"].as_str().unwrap().to_owned();
                assert!(!seen.contains(&id), "{id} twice");
                seen.push(id);
            }
        }
    }
}
