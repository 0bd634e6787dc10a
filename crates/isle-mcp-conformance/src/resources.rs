//! The resources of the suite.

use rmcp::ErrorData;
use rmcp::model::{ReadResourceResult, Resource, ResourceContents, ResourceTemplate};
use serde_json::json;

use crate::content::PNG;

pub(crate) fn list() -> Vec<Resource> {
    vec![
        Resource::new("test://static-text", "Static text").with_mime_type("text/plain"),
        Resource::new("test://static-binary", "Static image").with_mime_type("image/png"),
        Resource::new("test://watched-resource", "Watched text").with_mime_type("text/plain"),
    ]
}

pub(crate) fn templates() -> Vec<ResourceTemplate> {
    vec![ResourceTemplate::new("test://template/{id}/data", "Data by id").with_mime_type("application/json")]
}

pub(crate) fn read(uri: &str) -> Result<ReadResourceResult, ErrorData> {
    let content = match uri {
        "test://static-text" => {
            ResourceContents::text("This is the content of the static text resource.", uri)
                .with_mime_type("text/plain")
        }
        "test://static-binary" => ResourceContents::blob(PNG, uri).with_mime_type("image/png"),
        "test://watched-resource" => {
            ResourceContents::text("Watched content.", uri).with_mime_type("text/plain")
        }
        other => match other.strip_prefix("test://template/").and_then(|rest| rest.strip_suffix("/data")) {
            Some(id) if !id.is_empty() && !id.contains('/') => {
                let data = json!({"id": id, "templateTest": true, "data": format!("Data for ID: {id}")});
                ResourceContents::text(data.to_string(), uri).with_mime_type("application/json")
            }
            _ => {
                return Err(ErrorData::resource_not_found(
                    format!("there is no resource {uri}"),
                    Some(json!({ "uri": uri })),
                ));
            }
        },
    };
    Ok(ReadResourceResult::new(vec![content]))
}
