//! `isle top`: sandboxes and what they use, live. It only looks: nothing here changes anything.

mod draw;
mod keys;
mod look;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use isle_client::Result;
use isle_engine::values::Span;
use isle_engine::{Code, Error};

use super::Context;
use crate::arguments::TopArguments;
use crate::output::{Form, print, print_json};
use crate::session::{Arrived, Mode, RawTerminal, Signals, Stdin, asks_to_end, window};

use draw::View;
use keys::{Key, Keys};
use look::Looker;

/// Looking more often would show little else than the looking.
const SHORTEST: Duration = Duration::from_millis(200);
/// How long CPU time is measured when there is only one picture.
const MOMENT: Duration = Duration::from_millis(300);

pub(super) async fn top(context: &Context, arguments: TopArguments) -> Result<ExitCode> {
    let interval: Span = arguments.interval.parse()?;
    if interval.0 < SHORTEST {
        return Err(Error::new(Code::InvalidArgument, format!("the interval {interval} is too short"))
            .next("give 200ms or more")
            .into());
    }
    let mut view = View::sorted_by(&arguments.sort)?;
    let mut looker = Looker::new(context.client().await?);
    let live = !arguments.once && context.form == Form::Human && std::io::stdout().is_terminal();
    let raw = if live { RawTerminal::enter()? } else { None };
    let Some(_raw) = raw else {
        looker.look().await?;
        tokio::time::sleep(MOMENT).await;
        let picture = looker.look().await?;
        match context.form {
            Form::Json => print_json(&picture.to_json()),
            Form::Human => print(&view.plain(picture)),
        }
        return Ok(ExitCode::SUCCESS);
    };
    let _screen = Screen::enter();
    let mut signals = Signals::listen(Mode::Terminal)?;
    let mut stdin = Stdin::start()?;
    let mut keys = Keys::default();
    let mut ticks = tokio::time::interval(interval.0);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut picture = looker.look().await?;
    loop {
        tokio::select! {
            biased;
            arrived = signals.next() => match arrived {
                Arrived::Signal(signal) if asks_to_end(signal) => return Ok(ExitCode::SUCCESS),
                Arrived::Signal(_) | Arrived::Window => {}
            },
            typed = Stdin::next(Some(&mut stdin)) => {
                let Some(typed) = typed else { return Ok(ExitCode::SUCCESS) };
                for key in keys.read(&typed) {
                    match key {
                        Key::Leave => return Ok(ExitCode::SUCCESS),
                        key => view.press(key, picture.rows.len()),
                    }
                }
            },
            _ = ticks.tick() => picture = looker.look().await?,
        }
        if let Some(window) = window() {
            print(&view.screen(&picture, window.rows.into(), window.columns.into()));
        }
    }
}

/// The other screen of a terminal, without a cursor; back to the first one when dropped.
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
