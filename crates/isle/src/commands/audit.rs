//! `isle audit`: shows or verifies the audit log.

use std::process::ExitCode;

use isle_client::Result;
use serde_json::json;

use super::{Context, fields};
use crate::arguments::AuditArguments;
use crate::output::{Colour, Paint, Table, escaped, shortened, show};

pub(super) async fn audit(context: &Context, arguments: AuditArguments) -> Result<ExitCode> {
    let client = context.client().await?;
    if arguments.verify {
        let answer = client.call("audit_verify", json!({ "since_last": arguments.since_last })).await?;
        let intact = answer["intact"] == json!(true);
        show(context.form, &answer, |answer| {
            let paint = Paint::for_stdout();
            let rows = fields::text(answer, "rows");
            if intact {
                let (tick, checked) = (paint.plain(Colour::Green, "✓"), fields::text(answer, "checked"));
                return match arguments.since_last {
                    false => format!("{tick} audit chain intact: {rows} rows\n"),
                    true => format!("{tick} audit chain intact: {checked} new rows of {rows}\n"),
                };
            }
            let why = escaped(&fields::text(answer, "verdict"));
            format!("{} audit chain broken: {why}\n", paint.plain(Colour::Red, "✗"))
        })?;
        return Ok(if intact { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let answer =
        fields::pages(&client, "audit", json!({ "limit": arguments.limit }), "rows", arguments.limit).await?;
    show(context.form, &answer, |answer| {
        let mut table = Table::new(&["ROW", "TIME", "ACTION", "SANDBOX", "RUN", "ACTOR", "DOOR", "DETAIL"]);
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
