//! What code gives back: values in every form, tables, figures, exceptions; over MCP a picture.

use serde_json::{Value, json};

use super::contexts::{both_tiers, code, needs};
use super::mcp::Client;
use crate::harness::{TestDaemon, require};

/// The smallest PNG there is, as Python writes it.
const PNG: &str = "import base64\npixel = base64.b64decode('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==')\n";

#[test]
fn a_value_comes_back_in_every_form_it_has() {
    let daemon = TestDaemon::start();
    for sandbox in both_tiers(&daemon) {
        require!(needs(&daemon, "python3"));
        for context in [Value::Null, json!("c")] {
            let run = |text: &str| {
                code(&daemon, sandbox, json!({"code": text, "context": context, "language": "python"}))
            };
            let rich = run(&format!(
                "{PNG}class Rich:\n    def __repr__(self): return 'rich'\n    def _repr_html_(self): return '<b>'\n    def _repr_markdown_(self): return '**m**'\n    def _repr_latex_(self): return '$x$'\n    def _repr_svg_(self): return '<svg/>'\n    def _repr_png_(self): return pixel\n    def _repr_json_(self): return {{'a': [1, None]}}\nRich()"
            ));
            let result = &rich["results"][0];
            assert_eq!(result["kind"], "value", "{rich}");
            for (form, expected) in [
                ("text", json!("rich")),
                ("html", json!("<b>")),
                ("markdown", json!("**m**")),
                ("latex", json!("$x$")),
                ("svg", json!("<svg/>")),
                ("json", json!({"a": [1, null]})),
            ] {
                assert_eq!(result[form], expected, "{rich}");
            }
            assert!(result["png"].as_str().unwrap().starts_with("iVBOR"), "{rich}");
            let frame = run(
                "class Frame:\n    columns = ['a', 'b']\n    shape = (3, 2)\n    def head(self, n): return self\n    def itertuples(self, index, name): return iter([(1, 'x'), (2, float('nan')), (3, None)])\n    def _repr_html_(self): return '<table>'\nFrame()",
            );
            let table = &frame["results"][0]["table"];
            assert_eq!(table["columns"], json!(["a", "b"]), "{frame}");
            assert_eq!(table["rows"], json!([[1, "x"], [2, null], [3, null]]), "{frame}");
            assert_eq!(table["total_rows"], 3);
            let shown = run("display({'k': 1}); display({'text/markdown': '# t'}, raw=True); None");
            assert_eq!(shown["results"][0]["json"], json!({"k": 1}), "{shown}");
            assert_eq!(shown["results"][1]["markdown"], "# t", "{shown}");
            assert_eq!(shown["results"].as_array().unwrap().len(), 2, "{shown}");
            assert!(run("x = 1").get("results").is_none());
            assert!(run("5;").get("results").is_none(), "a semicolon keeps the value");
        }
    }
}

#[test]
fn an_exception_comes_back_with_name_message_and_frames() {
    let daemon = TestDaemon::start();
    for sandbox in both_tiers(&daemon) {
        require!(needs(&daemon, "python3"));
        for context in [Value::Null, json!("c")] {
            let text = "def inner(n):\n    return 1 / n\ninner(0)";
            let run = code(&daemon, sandbox, json!({"code": text, "context": context, "language": "python"}));
            assert_eq!((&run["state"], &run["exit_code"]), (&json!("failed"), &json!(1)), "{run}");
            assert_eq!(run["error"]["name"], "ZeroDivisionError", "{run}");
            assert_eq!(run["error"]["message"], "division by zero", "{run}");
            let frames = run["error"]["traceback"].as_array().unwrap();
            assert_eq!(frames.len(), 2, "only frames of the code: {run}");
            assert_eq!((&frames[1]["function"], &frames[1]["line"]), (&json!("inner"), &json!(2)), "{run}");
            assert!(run["stderr"].as_str().unwrap().contains("ZeroDivisionError: division by zero"), "{run}");
            let syntax =
                code(&daemon, sandbox, json!({"code": "a = (\n", "context": context, "language": "python"}));
            assert_eq!(syntax["error"]["name"], "SyntaxError", "{syntax}");
        }
    }
}

#[test]
fn what_only_claims_to_be_a_picture_is_not_passed_on() {
    let daemon = TestDaemon::start();
    daemon.shell("box", "true");
    require!(needs(&daemon, "python3"));
    let text = "display({'image/png': 'bm90IGEgcGljdHVyZQ==', 'text/plain': 't'}, raw=True)";
    let run = code(&daemon, "box", json!({"code": text, "language": "python"}));
    assert_eq!(run["results"][0]["text"], "t", "{run}");
    assert!(run["results"][0].get("png").is_none(), "{run}");
}

#[test]
fn a_picture_over_mcp_is_an_image_block() {
    let daemon = TestDaemon::start();
    require!(daemon.needs_program("default", "python3"));
    let (mut client, _) = Client::initialized(&daemon, "2025-11-25");
    let text = format!("{PNG}display({{'image/png': pixel}}, raw=True)\n'after'");
    let result = client.call("run_code", json!({"code": text, "language": "python", "context": "c"}));
    let blocks = result["content"].as_array().unwrap();
    assert_eq!(
        (&blocks[1]["type"], &blocks[1]["mimeType"]),
        (&json!("image"), &json!("image/png")),
        "{result}"
    );
    assert!(blocks[1]["data"].as_str().unwrap().starts_with("iVBOR"), "{result}");
    assert!(!blocks[0]["text"].as_str().unwrap().contains("iVBOR"), "the text does not repeat it: {result}");
    assert!(blocks[0]["text"].as_str().unwrap().contains("=> 'after'"), "{result}");
    assert_eq!(result["structuredContent"]["results"][0]["png"], "image block 1", "{result}");
}

#[test]
fn a_csv_is_plotted_and_the_figure_comes_back_without_show() {
    let daemon = TestDaemon::start();
    daemon.shell("default", "printf 'day,value\\n1,3\\n2,5\\n3,4\\n' > data.csv");
    require!(daemon.needs("default", "python3 -c 'import matplotlib'", "Python with matplotlib"));
    let (mut client, _) = Client::initialized(&daemon, "2025-11-25");
    let load = "import csv\nrows = [(int(r['day']), int(r['value'])) for r in csv.DictReader(open('data.csv'))]\nlen(rows)";
    let loaded = client.call("run_code", json!({"code": load, "context": "nb", "language": "python"}));
    assert_eq!(loaded["structuredContent"]["results"][0]["json"], 3, "{loaded}");
    let plot = "import matplotlib.pyplot as plt\nfig, ax = plt.subplots()\nax.plot(*zip(*rows))\nplt.show()";
    let plotted =
        client.call("run_code", json!({"code": plot, "context": "nb", "timeout": "120s", "wait": "120s"}));
    let image = plotted["content"].as_array().unwrap().iter().find(|block| block["type"] == "image");
    let image = image.unwrap_or_else(|| panic!("no picture: {plotted}"));
    assert!(image["data"].as_str().unwrap().starts_with("iVBOR"), "{plotted}");
    assert_eq!(plotted["structuredContent"]["stderr"], "", "{plotted}");
}
