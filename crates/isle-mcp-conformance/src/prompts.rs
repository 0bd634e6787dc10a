//! The prompts of the suite.

use rmcp::ErrorData;
use rmcp::model::{
    GetPromptRequestParams, GetPromptResponse, GetPromptResult, Prompt, PromptArgument, PromptMessage, Role,
};
use serde_json::{Value, json};

use crate::content::{PNG, lost};
use crate::input_required::{Retry, prompt_context};

pub(crate) fn list() -> Vec<Prompt> {
    let argument =
        |name: &str| PromptArgument::new(name).with_description("For the test.").with_required(true);
    vec![
        Prompt::new("test_simple_prompt", Some("A prompt without arguments."), None),
        Prompt::new(
            "test_prompt_with_arguments",
            Some("A prompt with two arguments."),
            Some(vec![argument("arg1"), argument("arg2")]),
        ),
        Prompt::new(
            "test_prompt_with_embedded_resource",
            Some("A prompt with a resource."),
            Some(vec![argument("resourceUri")]),
        ),
        Prompt::new("test_prompt_with_image", Some("A prompt with an image."), None),
        Prompt::new("test_input_required_result_prompt", Some("A prompt that asks first."), None),
    ]
}

pub(crate) fn get(request: &GetPromptRequestParams) -> Result<GetPromptResponse, ErrorData> {
    let argument = |name: &str| {
        let value = request.arguments.as_ref().and_then(|arguments| arguments.get(name));
        value
            .map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
            .ok_or_else(|| ErrorData::invalid_params(format!("`{name}` is missing"), None))
    };
    let messages = match request.name.as_ref() {
        "test_simple_prompt" => vec![text("This is a simple prompt for testing.")],
        "test_prompt_with_arguments" => {
            let (first, second) = (argument("arg1")?, argument("arg2")?);
            vec![text(&format!("Prompt with arguments: arg1='{first}', arg2='{second}'"))]
        }
        "test_prompt_with_embedded_resource" => {
            let uri = argument("resourceUri")?;
            let content = json!({"type": "resource", "resource": {
                "uri": uri, "mimeType": "text/plain", "text": "Embedded resource content for testing."}});
            vec![message(content)?, text("Please process the embedded resource above.")]
        }
        "test_prompt_with_image" => {
            let content = json!({"type": "image", "data": PNG, "mimeType": "image/png"});
            vec![message(content)?, text("Please analyze the image above.")]
        }
        "test_input_required_result_prompt" => {
            let retry = Retry {
                responses: request.input_responses.as_ref(),
                state: request.request_state.as_deref(),
            };
            match prompt_context(&retry)? {
                Ok(context) => vec![text(&format!("Use this context: {context}"))],
                Err(question) => return Ok(question.into()),
            }
        }
        unknown => return Err(ErrorData::invalid_params(format!("there is no prompt {unknown:?}"), None)),
    };
    Ok(GetPromptResult::new(messages).into())
}

fn text(text: &str) -> PromptMessage {
    PromptMessage::new_text(Role::User, text)
}

fn message(content: Value) -> Result<PromptMessage, ErrorData> {
    serde_json::from_value(json!({"role": "user", "content": content})).map_err(lost)
}
