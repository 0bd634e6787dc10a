//! `isle logs`: the output of a run, all of it, its last lines, or live.

use std::io::{self, Write};
use std::process::ExitCode;

use isle_client::{Client, Result, RunEventKind};
use serde_json::{Value, json};

use super::Context;
use crate::arguments::LogsArguments;
use crate::output::{Form, print, print_json, print_stderr};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

pub(super) async fn logs(context: &Context, arguments: LogsArguments) -> Result<ExitCode> {
    let client = context.client().await?;
    let streams: &[Stream] =
        if arguments.stderr { &[Stream::Stderr] } else { &[Stream::Stdout, Stream::Stderr] };
    if arguments.follow {
        return follow(context, &client, &arguments, streams).await;
    }
    match (arguments.tail, context.form) {
        (None, Form::Human) => {
            for stream in streams {
                whole(&client, &arguments.run, *stream).await?;
            }
        }
        (tail, form) => {
            let stream = if arguments.stderr { "stderr" } else { "both" };
            let input = json!({ "run_id": arguments.run, "stream": stream, "tail": tail.unwrap_or(0) });
            let answer = client.call("logs", input).await?;
            match form {
                Form::Json => print_json(&answer),
                Form::Human => {
                    for stream in streams {
                        show(context, *stream, answer[stream.as_str()]["text"].as_str().unwrap_or_default());
                    }
                }
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the stored output of one stream, page by page.
async fn whole(client: &Client, run: &str, stream: Stream) -> Result<()> {
    let mut offset = 0;
    loop {
        let input = json!({ "run_id": run, "stream": stream.as_str(), "offset": offset });
        let answer = client.call("logs", input).await?;
        let page: &Value = &answer[stream.as_str()];
        if let Some(lost) = page["lost_bytes"].as_u64() {
            missing(lost);
        }
        write(stream, page["text"].as_str().unwrap_or_default());
        let next = page["next_offset"].as_u64().unwrap_or(offset);
        if next <= offset || next >= page["total_bytes"].as_u64().unwrap_or_default() {
            return Ok(());
        }
        offset = next;
    }
}

/// Follows the run until it exits; reconnects after the last event received.
async fn follow(
    context: &Context,
    client: &Client,
    arguments: &LogsArguments,
    streams: &[Stream],
) -> Result<ExitCode> {
    let mut seen = 0;
    loop {
        let mut followed = client.follow(&arguments.run, seen, arguments.tail).await?;
        let before = seen;
        while let Some(event) = followed.next().await? {
            seen = event.id;
            match event.kind {
                RunEventKind::Started => {}
                RunEventKind::Stdout(text) if streams.contains(&Stream::Stdout) => {
                    show(context, Stream::Stdout, &text)
                }
                RunEventKind::Stdout(_) => {}
                RunEventKind::Stderr(text) => show(context, Stream::Stderr, &text),
                RunEventKind::Lost(bytes) => missing(bytes),
                RunEventKind::Ended(result) => {
                    if context.form == Form::Json {
                        print(&format!("{}\n", json!({ "event": "ended", "result": result })));
                    }
                    return Ok(ExitCode::SUCCESS);
                }
            }
        }
        // A stream without events has no more output.
        if seen == before {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

fn show(context: &Context, stream: Stream, text: &str) {
    match context.form {
        Form::Json => print(&format!("{}\n", json!({ "event": stream.as_str(), "data": text }))),
        Form::Human => write(stream, text),
    }
}

fn write(stream: Stream, text: &str) {
    match stream {
        Stream::Stdout => print(text),
        // Fails when the reader closed the pipe.
        Stream::Stderr => drop(io::stderr().lock().write_all(text.as_bytes())),
    }
}

fn missing(bytes: u64) {
    print_stderr(&format!("isle: {bytes} bytes of output were dropped here"));
}
