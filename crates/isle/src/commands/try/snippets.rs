//! Configuration snippets for MCP clients.

use serde_json::{Value, json};

use super::stage::Stage;
use crate::output::Colour;

/// Prints how to add Isle to each client, with the path of this program.
pub(super) fn show(stage: &mut Stage) {
    let program = program();
    stage.put("\n  Add Isle to your agent:\n");
    for (client, place, text) in snippets(&program) {
        let name = stage.paint().bold(Colour::Cyan, client);
        let place = stage.paint().plain(Colour::Grey, &place);
        let body: String = text.lines().map(|line| format!("     {line}\n")).collect();
        stage.put(&format!("\n  {name}  {place}\n{body}"));
    }
    stage.put("\n");
}

/// `isle` if it is found in PATH, else the path of this program.
fn program() -> String {
    let Ok(path) = std::env::current_exe() else { return "isle".into() };
    let found = std::env::var_os("PATH").is_some_and(|directories| {
        std::env::split_paths(&directories)
            .map(|directory| directory.join("isle"))
            .find(|candidate| candidate.is_file())
            .and_then(|candidate| candidate.canonicalize().ok())
            .is_some_and(|candidate| candidate == path)
    });
    if found { "isle".into() } else { path.display().to_string() }
}

fn snippets(program: &str) -> Vec<(&'static str, String, String)> {
    let pretty = |value: Value| format!("{value:#}");
    let servers = |more: Value| {
        let mut entry = json!({ "command": program, "args": ["mcp"] });
        if let (Value::Object(entry), Value::Object(more)) = (&mut entry, more) {
            entry.extend(more);
        }
        entry
    };
    let shell_word = if program.contains(' ') { format!("'{program}'") } else { program.to_owned() };
    vec![
        ("Claude Code", "in a shell".into(), format!("claude mcp add isle -- {shell_word} mcp")),
        (
            "Claude Desktop",
            "claude_desktop_config.json".into(),
            pretty(json!({ "mcpServers": { "isle": servers(json!({})) } })),
        ),
        (
            "Cursor",
            "~/.cursor/mcp.json".into(),
            pretty(json!({ "mcpServers": { "isle": servers(json!({})) } })),
        ),
        (
            "VS Code",
            ".vscode/mcp.json".into(),
            pretty(json!({ "servers": { "isle": servers(json!({ "type": "stdio" })) } })),
        ),
        (
            "Codex",
            "~/.codex/config.toml".into(),
            format!(
                "[mcp_servers.isle]\ncommand = {}\nargs = [\"mcp\"]\ntool_timeout_sec = 600",
                json!(program)
            ),
        ),
        (
            "OpenCode",
            "opencode.json".into(),
            pretty(json!({ "mcp": { "isle": {
                "type": "local", "command": [program, "mcp"], "enabled": true,
            } } })),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_snippet_names_the_program_and_its_json_is_json() {
        for (client, place, text) in snippets("/opt/isle bin/isle") {
            assert!(text.contains("/opt/isle bin/isle"), "{client}");
            if place.ends_with(".json") {
                assert!(serde_json::from_str::<Value>(&text).is_ok(), "{client}");
            }
        }
    }
}
