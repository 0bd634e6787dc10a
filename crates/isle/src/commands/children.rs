//! `isle children`: lists or destroys child sandboxes.

use std::process::ExitCode;

use isle_client::Result;
use serde_json::{Value, json};

use super::call_each::call_each;
use super::{Context, fields};
use crate::arguments::ChildrenArguments;
use crate::output::{Paint, Table, show};

pub(super) async fn children(context: &Context, arguments: ChildrenArguments) -> Result<ExitCode> {
    let client = context.client().await?;
    let parent = json!({ "parent": arguments.parent });
    if arguments.reset_count {
        let answer = client.call("reset_spawn_count", parent).await?;
        return show(context.form, &answer, |answer| {
            format!(
                "{}: reset the spawn count (was {})\n",
                fields::text(answer, "parent"),
                fields::text(answer, "before")
            )
        });
    }
    if arguments.destroy.is_empty() {
        let answer = client.call("children", parent).await?;
        return show(context.form, &answer, table);
    }
    let input = |name: &str| json!({ "child": name });
    call_each(context, &client, "destroy_child", &arguments.destroy, input, "destroyed").await
}

fn table(answer: &Value) -> String {
    let used = |what: &str| {
        let part = &answer[what];
        format!("{} of {}", fields::text(part, "used"), fields::text(part, "limit"))
    };
    let mut table =
        Table::new(&["NAME", "PARENT", "STATE", "IMAGE", "CPUS", "MEMORY", "TTL", "IDLE", "RUNNING"]);
    for child in fields::list(answer, "children") {
        table.row([
            fields::text(child, "name"),
            fields::text(child, "parent"),
            fields::text(child, "state"),
            fields::text(child, "image"),
            fields::text(child, "cpus"),
            fields::text(child, "memory"),
            format!("{}s", fields::text(child, "ttl_seconds")),
            format!("{}s", fields::text(child, "idle_seconds")),
            fields::text(child, "running_runs"),
        ]);
    }
    let budget = if answer["may_spawn"] == true {
        format!(
            "Children: {}, total spawned: {}, CPUs: {}, memory: {}\n",
            used("concurrent"),
            used("total"),
            used("cpus"),
            used("memory")
        )
    } else {
        "No spawn policy applies to this sandbox.\n".to_owned()
    };
    if table.is_empty() { budget } else { table.render(Paint::for_stdout()) + &budget }
}
