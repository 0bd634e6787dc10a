//! How bytes become arguments, and what comes back when they cannot.

use crate::support::Server;
use isle_api::Method;
use serde_json::{Value, json};

#[tokio::test]
async fn a_body_that_could_mean_two_things_is_refused() {
    let server = Server::start().await;
    for body in [
        r#"{"command": "true", "command": "false"}"#,
        r#"{"command": "true", "env": {"A": "1", "A": "2"}}"#,
        r#"{"command": "true""#,
        r#"["command"]"#,
        r#""command""#,
        "nonsense",
    ] {
        let answer = server.post("/v1/sandboxes/a/exec", body).await;
        assert_eq!((answer.status, answer.code().as_str()), (400, "INVALID_ARGUMENT"), "{body}");
        assert!(!answer.json()["error"]["next_steps"].as_array().unwrap().is_empty(), "{body}");
    }
    let answer = server
        .unix("POST /v1/sandboxes/a/exec", &["Content-Type: application/json"], b"{\"command\": \"\xff\"}")
        .await;
    assert_eq!(answer.status, 400);
    let deep = format!("{{\"command\": {}1{}}}", "[".repeat(300), "]".repeat(300));
    assert_eq!(server.post("/v1/sandboxes/a/exec", &deep).await.status, 400);
}

#[tokio::test]
async fn a_field_in_path_and_body_must_agree() {
    let server = Server::start().await;
    let answer = server.post("/v1/sandboxes/a/exec", r#"{"command": "true", "sandbox": "b"}"#).await;
    assert_eq!(answer.status, 400);
    assert!(answer.json()["error"]["message"].as_str().unwrap().contains("sandbox"));
    // Agreeing is fine: the call goes on and fails later, for want of a backend.
    let answer = server.post("/v1/sandboxes/a/exec", r#"{"command": "true", "sandbox": "a"}"#).await;
    assert_eq!(answer.code(), "BACKEND_UNAVAILABLE");
}

#[tokio::test]
async fn json_has_to_be_declared_and_has_a_largest_size() {
    let server = Server::start().await;
    let body = br#"{"command": "true"}"#;
    for declared in [&[][..], &["Content-Type: text/plain"], &["Content-Type: application/jsonx"]] {
        assert_eq!(
            server.unix("POST /v1/sandboxes/a/exec", declared, body).await.status,
            415,
            "{declared:?}"
        );
    }
    let utf8 = ["Content-Type: application/json; charset=utf-8"];
    assert_eq!(server.unix("POST /v1/sandboxes/a/exec", &utf8, body).await.code(), "BACKEND_UNAVAILABLE");
    let large = format!(r#"{{"command": "{}"}}"#, "x".repeat(9 * 1024 * 1024));
    let answer = server.post("/v1/sandboxes/a/exec", &large).await;
    assert_eq!((answer.status, answer.code().as_str()), (413, "TOO_LARGE"));
}

#[tokio::test]
async fn unknown_fields_names_and_values_are_named_in_the_refusal() {
    let server = Server::start().await;
    let answer = server.post("/v1/sandboxes/a/exec", r#"{"command": "true", "colour": 1}"#).await;
    assert_eq!(answer.status, 400);
    assert!(answer.json()["error"]["message"].as_str().unwrap().contains("colour"));
    for path in ["/v1/sandboxes/..%2Fx/exec", "/v1/sandboxes/%00/exec", "/v1/sandboxes/%ff/exec"] {
        assert_eq!(server.post(path, r#"{"command": "true"}"#).await.status, 400, "{path}");
    }
    assert_eq!(server.unix("GET /v1/runs?limit=many", &[], b"").await.status, 400);
    assert_eq!(server.unix("GET /v1/runs?limit=%ff", &[], b"").await.status, 400);
    assert_eq!(server.unix("GET /v1/runs?limit=3", &[], b"").await.status, 200);
    assert_eq!(server.unix("GET /v1/runs?limit=3&limit=4", &[], b"").await.status, 400);
}

#[tokio::test]
async fn unknown_routes_and_methods_are_told_apart() {
    let server = Server::start().await;
    let answer = server.unix("GET /v2/nothing", &[], b"").await;
    assert_eq!((answer.status, answer.code().as_str()), (404, "OPERATION_NOT_FOUND"));
    let answer = server.unix("PATCH /v1/sandboxes", &[], b"").await;
    assert_eq!((answer.status, answer.code().as_str()), (405, "INVALID_ARGUMENT"));
    assert!(answer.header("allow").unwrap().contains("GET"));
}

#[tokio::test]
async fn unknown_runs_and_files_are_not_found() {
    let server = Server::start().await;
    let run = "run_00000000000000000000000000";
    assert_eq!(server.unix(&format!("GET /v1/runs/{run}/events"), &[], b"").await.code(), "RUN_NOT_FOUND");
    assert_eq!(server.unix("GET /v1/runs/run_x/events", &[], b"").await.status, 400);
    assert_eq!(server.unix(&format!("GET /v1/runs/{run}/events?after=-1"), &[], b"").await.status, 400);
    let read = |query: &str| format!("GET /v1/sandboxes/nobody/files/content{query}");
    assert_eq!(server.unix(&read("?path=a"), &[], b"").await.code(), "SANDBOX_NOT_FOUND");
    for query in [
        "",
        "?path=",
        "?path=../a",
        "?path=a&path=b",
        "?path=a&colour=b",
        "?path=a&user=admin",
        "?path=a&mode=644",
    ] {
        assert_eq!(server.unix(&read(query), &[], b"").await.status, 400, "{query}");
    }
    let streamed = server.post("/v1/sandboxes/a/exec/stream", r#"{"command": "true", "wait": "1s"}"#).await;
    assert_eq!(streamed.status, 400);
}

#[tokio::test]
async fn the_openapi_document_has_every_operation_and_resolves() {
    let server = Server::start().await;
    let document = server.unix("GET /openapi.json", &[], b"").await.json();
    assert_eq!(document["openapi"], "3.1.0");
    for entry in server.engine.registry().definitions() {
        let method = match entry.route.method {
            Method::Get => "get",
            Method::Post => "post",
            Method::Delete => "delete",
        };
        let operation = &document["paths"][format!("/v1{}", entry.route.path)][method];
        assert_eq!(operation["operationId"], entry.name);
        let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
        for part in entry.route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')) {
            let declared = parameters.iter().find(|parameter| parameter["name"] == part).unwrap();
            assert_eq!(
                (&declared["in"], &declared["required"]),
                (&json!("path"), &json!(true)),
                "{}",
                entry.name
            );
            assert!(
                operation["requestBody"]["content"]["application/json"]["schema"]["properties"]
                    .get(part)
                    .is_none()
            );
        }
        for parameter in &parameters {
            assert!(parameter.get("schema").is_some() != parameter.get("content").is_some(), "{parameter}");
        }
    }
    every_reference(&document, &mut |reference| {
        assert!(document.pointer(reference.trim_start_matches('#')).is_some(), "{reference}");
    });
}

fn every_reference(value: &Value, check: &mut impl FnMut(&str)) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::String(reference)) = fields.get("$ref") {
                check(reference);
            }
            fields.values().for_each(|field| every_reference(field, check));
        }
        Value::Array(items) => items.iter().for_each(|item| every_reference(item, check)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
