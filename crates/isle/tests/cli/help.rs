//! What the command line says about itself. The whole of it is in one snapshot, to be read as a whole;
//! after a change `INSTA_UPDATE=always cargo test -p isle --test cli` writes it again.

use crate::harness::Home;

/// Flags that every command has are shown with the first.
const GLOBAL_OPTIONS: &str = "\nGlobal options:\n";

/// The commands that a help text lists, `help` itself left out.
fn listed(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let named = lines.take_while(|line| !line.is_empty()).filter(|line| !line.starts_with("   "));
    named
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

/// The help of a command and of everything below it.
fn collect(home: &Home, command: &[String], all: &mut Vec<String>) {
    let ask = |flag: &str| {
        let arguments: Vec<&str> = command.iter().map(String::as_str).chain([flag]).collect();
        home.transcript(&arguments)
    };
    let (long, short) = (ask("--help"), ask("-h"));
    let differs = short.lines().skip(1).ne(long.lines().skip(1));
    let inner = listed(&long);
    all.push(long);
    all.extend(differs.then_some(short));
    for name in inner {
        collect(home, &[command, &[name]].concat(), all);
    }
}

#[test]
fn the_help_of_every_command_and_subcommand() {
    let mut all = Vec::new();
    collect(&Home::new(), &[], &mut all);
    assert!(all.len() > 80, "too few commands were found: {}", all.len());
    let general = &all[0][all[0].find(GLOBAL_OPTIONS).unwrap() + GLOBAL_OPTIONS.len()..];
    let options: String = general.split_inclusive('\n').take_while(|line| line.starts_with("  ")).collect();
    let general = format!("{GLOBAL_OPTIONS}{options}");
    for text in &mut all[1..] {
        *text = text.replace(&general, "\nGlobal options: as above\n");
    }
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn there_are_completions_for_every_shell() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = home.isle(&["completions", shell]).output().unwrap();
        assert!(output.status.success());
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(script.contains("allow-downgrade"), "{shell}");
    }
}

#[test]
fn flags_that_do_not_exist_are_refused() {
    let home = Home::new();
    let all = [
        home.transcript(&["run", "--memroy", "1G", "--", "true"]),
        home.transcript(&["frobnicate"]),
        home.transcript(&["kill"]),
        home.transcript(&["rm", "--all", "name"]),
    ];
    insta::assert_snapshot!(all.join("\n"));
}
