//! How long code takes without a context and in one, beside the interpreter started plainly on the
//! host. At an interactive pace: what is kept ready is refilled between calls.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Bench, SANDBOX};
use crate::arms::{Arm, Pace, interleave};
use crate::daemon::Daemon;
use crate::error::{Error, Result};
use crate::http::{Connection, contains, json_request};
use crate::report::{Report, Row, Target};
use crate::spawn::Prepared;

const SECTION: &str = "code";
/// What is kept ready for the next call is ready again after this.
const PAUSE: Duration = Duration::from_millis(150);

/// A language as it is measured.
struct Language {
    name: &'static str,
    programs: &'static [&'static str],
    flag: &'static str,
    code: &'static str,
}

const LANGUAGES: [Language; 2] = [
    Language {
        name: "python",
        programs: &["/usr/local/bin/python3", "/usr/bin/python3"],
        flag: "-c",
        code: "print(1)",
    },
    Language {
        name: "node",
        programs: &["/usr/local/bin/node", "/usr/bin/node"],
        flag: "-e",
        code: "console.log(1)",
    },
];

impl Bench {
    pub(super) fn code(&self, report: &mut Report) -> Result<()> {
        let daemon = self.daemon()?;
        for language in LANGUAGES {
            // The one a sandbox finds: the first of its search path.
            let Some(program) = language.programs.iter().find(|path| Path::new(path).exists()) else {
                report.skip(language.name, "it is not installed where a sandbox finds it");
                continue;
            };
            let bare = Prepared::new(&[*program, language.flag, language.code])?;
            let mut alone = CodeCall::new(&daemon, &language, None)?;
            let mut context = CodeCall::new(&daemon, &language, Some("bench"))?;
            let names = [
                format!("{program} {} on the host", language.flag),
                format!("isle, {} without a context", language.name),
                format!("isle, {} in a context", language.name),
            ];
            let arms = vec![
                Arm::new(names[0].clone(), Pace::Whole, || bare.time()),
                Arm::new(names[1].clone(), Pace::Whole, || alone.time()),
                Arm::new(names[2].clone(), Pace::Whole, || context.time()),
            ];
            let measured = interleave(arms, self.choose(10, 60, 150))?;
            let base = measured.first().map_or(f64::NAN, |(_, samples)| samples.median());
            for ((name, samples), most) in measured.iter().zip([None, Some(0.35), Some(0.2)]) {
                let row = Row::new(SECTION, name, "ms", samples);
                report.add(match most {
                    Some(most) => row.against(&names[0], base).target(Target::AtMost(most)),
                    None => row,
                });
            }
        }
        daemon.stop()
    }
}

/// A call of `run_code`, over a kept connection.
struct CodeCall {
    connection: Connection,
    request: Vec<u8>,
}

impl CodeCall {
    fn new(daemon: &Daemon, language: &Language, context: Option<&str>) -> Result<Self> {
        let context = context.map_or(Value::Null, |name| json!(format!("{name}-{}", language.name)));
        let body = json!({ "code": language.code, "language": language.name, "context": context });
        let request = json_request("POST", &format!("/v1/sandboxes/{SANDBOX}/code"), &body);
        Ok(Self { connection: daemon.connect()?, request })
    }

    fn time(&mut self) -> Result<Duration> {
        thread::sleep(PAUSE);
        let begin = Instant::now();
        let answer = self.connection.exchange(&self.request)?;
        let took = begin.elapsed();
        if contains(&answer.body, r#""stdout":"1\n""#) {
            Ok(took)
        } else {
            Err(Error::answer("running code", &answer.body))
        }
    }
}
