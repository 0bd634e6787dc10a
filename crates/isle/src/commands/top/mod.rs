//! `isle top`: sandboxes and their resource usage, live and read-only.

mod draw;
mod keys;
mod sample;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use isle_client::Result;
use isle_core::values::Span;
use isle_core::{Code, Error};

use super::Context;
use crate::arguments::TopArguments;
use crate::output::{Form, print, print_json};
use crate::session::{Mode, RawTerminal, Received, Signals, Stdin, is_termination, window};

use draw::View;
use keys::{Key, Keys};
use sample::Sampler;

/// With a shorter interval, most of the measured load would be caused by `isle top`.
const MIN_INTERVAL: Duration = Duration::from_millis(200);
/// How long CPU time is measured for a single snapshot.
const SAMPLE_TIME: Duration = Duration::from_millis(300);

pub(super) async fn top(context: &Context, arguments: TopArguments) -> Result<ExitCode> {
    let interval: Span = arguments.interval.parse()?;
    if interval.0 < MIN_INTERVAL {
        return Err(Error::new(Code::InvalidArgument, format!("interval too short: {interval}"))
            .next("use 200ms or more")
            .into());
    }
    let mut view = View::sorted_by(&arguments.sort)?;
    let mut sampler = Sampler::new(context.client().await?);
    let live = !arguments.once && context.form == Form::Human && std::io::stdout().is_terminal();
    let raw = if live { RawTerminal::enter()? } else { None };
    let Some(_raw) = raw else {
        sampler.sample().await?;
        tokio::time::sleep(SAMPLE_TIME).await;
        let snapshot = sampler.sample().await?;
        match context.form {
            Form::Json => print_json(&snapshot.to_json()),
            Form::Human => print(&view.plain(snapshot)),
        }
        return Ok(ExitCode::SUCCESS);
    };
    let _screen = Screen::enter();
    let mut signals = Signals::listen(Mode::Terminal)?;
    let mut stdin = Stdin::start()?;
    let mut keys = Keys::default();
    let mut ticks = tokio::time::interval(interval.0);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut snapshot = sampler.sample().await?;
    loop {
        tokio::select! {
            biased;
            received = signals.next() => match received {
                Received::Signal(signal) if is_termination(signal) => return Ok(ExitCode::SUCCESS),
                Received::Signal(_) | Received::Window => {}
            },
            typed = Stdin::next(Some(&mut stdin)) => {
                let Some(typed) = typed else { return Ok(ExitCode::SUCCESS) };
                for key in keys.read(&typed) {
                    match key {
                        Key::Quit => return Ok(ExitCode::SUCCESS),
                        key => view.press(key, snapshot.rows.len()),
                    }
                }
            },
            _ = ticks.tick() => snapshot = sampler.sample().await?,
        }
        if let Some(window) = window() {
            print(&view.screen(&snapshot, window.rows.into(), window.columns.into()));
        }
    }
}

/// The alternate screen of the terminal, without a cursor; restored when dropped.
struct Screen;

impl Screen {
    fn enter() -> Self {
        print("\u{1b}[?1049h\u{1b}[?25l\u{1b}[2J");
        Self
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        print("\u{1b}[?25h\u{1b}[?1049l");
    }
}
