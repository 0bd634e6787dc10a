//! `isle audit`: the audit log, and the proof that nobody changed it.

use std::process::ExitCode;

use isle_client::Result;
use serde_json::json;

use super::{Context, fields};
use crate::arguments::AuditArguments;
use crate::output::{Colour, Paint, Table, escaped, shortened, show};

pub(super) async fn audit(context: &Context, arguments: AuditArguments) -> Result<ExitCode> {
    let client = context.client().await?;
    if arguments.verify {
        let answer = client.call("audit_verify", json!({})).await?;
        let intact = answer["intact"] == json!(true);
        show(context.form, &answer, |answer| {
            let paint = Paint::for_stdout();
            let rows = fields::text(answer, "rows");
            if intact {
                return format!(
                    "{} {rows} rows, none edited, removed or moved\n",
                    paint.plain(Colour::Green, "✓")
                );
            }
            let why = escaped(&fields::text(answer, "verdict"));
            format!("{} the chain is broken: {why}\n", paint.plain(Colour::Red, "✗"))
        })?;
        return Ok(if intact { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let answer = client.call("audit", json!({ "limit": arguments.limit })).await?;
    show(context.form, &answer, |answer| {
        let mut table = Table::new(&["ROW", "TIME", "ACTION", "SANDBOX", "RUN", "WHO", "DOOR", "DETAIL"]);
        for row in fields::list(answer, "rows") {
            table.row([
                fields::text(row, "seq"),
                fields::text(row, "time"),
                fields::text(row, "action"),
                fields::text(row, "sandbox"),
                fields::text(row, "run"),
                fields::text(row, "actor"),
                fields::text(row, "door"),
                shortened(&fields::text(row, "detail"), 60),
            ]);
        }
        table.render(Paint::for_stdout())
    })
}
