//! Settings: where they come from, who wins, and how mistakes are told.

use std::process::Command;

use crate::harness::Home;

const USER: &str = "config/isle/config.toml";

fn with_env<'a>(command: &'a mut Command, pairs: &[(&str, &str)]) -> &'a mut Command {
    for (name, value) in pairs {
        command.env(name, value);
    }
    command
}

fn value_of(home: &Home, pairs: &[(&str, &str)], name: &str) -> (String, String) {
    let output = with_env(&mut home.isle(&["config", "--json"]), pairs).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let all: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |field: &str| {
        all[name][field].to_string().trim_matches('"').replace(home.path().to_str().unwrap(), "HOME")
    };
    (text("value"), text("origin"))
}

#[test]
fn every_setting_has_a_default_and_says_so() {
    let home = Home::new();
    insta::with_settings!({filters => vec![(r" +", " ")]}, {
        let mut command = home.isle(&["config"]);
        insta::assert_snapshot!(home.transcript_of(command.env_remove("ISLE_WARM_DEFAULT"), &["config"]));
    });
}

#[test]
fn the_stronger_source_wins() {
    let home = Home::new();
    assert_eq!(value_of(&home, &[], "memory"), ("1G".into(), "default".into()));
    home.write(USER, "memory = \"256M\"\n");
    assert_eq!(
        value_of(&home, &[], "memory"),
        ("256M".into(), "user file HOME/config/isle/config.toml:1".into())
    );
    home.write(".isle.toml", "\n# mine\nmemory = \"512M\"\n");
    assert_eq!(value_of(&home, &[], "memory"), ("512M".into(), "workspace file HOME/.isle.toml:3".into()));
    let env = [("ISLE_MEMORY", "2G")];
    assert_eq!(value_of(&home, &env, "memory"), ("2G".into(), "environment ISLE_MEMORY".into()));
}

#[test]
fn a_workspace_file_is_found_from_below() {
    let home = Home::new();
    home.write(".isle.toml", "pids = 7\n");
    home.write("a/b/c/file", "");
    let mut command = home.isle(&["config", "--json"]);
    let output = command.current_dir(home.path().join("a/b/c")).output().unwrap();
    let all: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(all["pids"]["value"], 7);
}

#[test]
fn environments_of_several_files_are_joined() {
    let home = Home::new();
    home.write(USER, "[env]\nA = \"user\"\nB = \"user\"\n");
    home.write(".isle.toml", "[env]\nB = \"workspace\"\n");
    assert_eq!(value_of(&home, &[], "env").0, r#"{"A":"user","B":"workspace"}"#);
}

#[test]
fn mistakes_are_told_with_file_and_line() {
    let mut all = Vec::new();
    for text in [
        "memry = \"1G\"\n",
        "\nmemory = \"12X\"\n",
        "timeout = \"soon\"\n",
        "pids = \"many\"\n",
        "cpus = -1\n",
        "tier = \"vault\"\n",
        "backend = \"cloud\"\n",
        "memory = \n",
        "[env]\nA = 1\n",
        "memory = \"1G\"\nmemory = \"2G\"\n",
        "state_dir = \"/x\"\n",
        "[sandbox]\nmemory = \"1G\"\n",
    ] {
        let home = Home::new();
        home.write(USER, text);
        all.push(format!("{text}{}", home.transcript(&["config"])));
    }
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn a_workspace_cannot_change_the_daemon_or_weaken_isolation() {
    let mut all = Vec::new();
    for text in [
        "allow_downgrade = true\n",
        "listen = \"0.0.0.0:80\"\n",
        "url = \"http://evil.example:80\"\n",
        "tier = \"process\"\n",
    ] {
        let home = Home::new();
        home.write(".isle.toml", text);
        all.push(format!("{text}{}", home.transcript(&["config"])));
    }
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn a_user_who_chose_the_weaker_tier_may_have_it_in_a_workspace_too() {
    let home = Home::new();
    home.write(USER, "tier = \"process\"\n");
    home.write(".isle.toml", "tier = \"process\"\n");
    assert_eq!(value_of(&home, &[], "tier").0, "process");
}

#[test]
fn secrets_are_never_shown() {
    let home = Home::new();
    home.write(USER, "token = \"this-is-a-very-secret-token-of-mine\"\n");
    for arguments in [&["config"][..], &["config", "--json"]] {
        let seen = home.transcript(arguments);
        assert!(!seen.contains("very-secret"), "{seen}");
        assert!(seen.contains("********"), "{seen}");
    }
}

#[test]
fn bad_values_of_flags_and_environment_are_told_with_their_name() {
    let home = Home::new();
    let from_environment = |name: &str, value: &str| {
        let mut command = home.isle(&["run", "--", "true"]);
        format!("{name}={value}\n{}", home.transcript_of(command.env(name, value), &["run", "--", "true"]))
    };
    let all = [
        home.transcript(&["run", "--memory", "12X", "--", "true"]),
        home.transcript(&["run", "--timeout", "soon", "--", "true"]),
        home.transcript(&["run", "--cpus", "0", "--", "true"]),
        home.transcript(&["run", "--json", "--tier", "vault", "--", "true"]),
        home.transcript(&["run", "--json", "--backend", "cloud", "--", "true"]),
        home.transcript(&["run", "--env", "=x", "--", "true"]),
        home.transcript(&["run", "--cwd", "here", "--", "true"]),
        home.transcript(&["run", "--file", "nowhere", "--", "true"]),
        home.transcript(&["run", "--lang", "cobol", "--", "x"]),
        home.transcript(&["run"]),
        home.transcript(&["exec", "../x", "--", "true"]),
        home.transcript(&["cp", "a", "b"]),
        home.transcript(&["cp", "a:../../etc/passwd", "b"]),
        from_environment("ISLE_MEMORY", "12X"),
        from_environment("ISLE_ALLOW_DOWNGRADE", "perhaps"),
    ];
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn a_file_named_by_a_flag_must_exist() {
    insta::assert_snapshot!(Home::new().transcript(&["--config", "nowhere.toml", "config"]));
}

#[test]
fn the_schema_of_the_files_is_published() {
    let home = Home::new();
    let output = home.isle(&["config", "--schema"]).output().unwrap();
    let schema: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(schema["additionalProperties"], false);
    insta::assert_json_snapshot!(schema);
}

#[test]
fn without_a_daemon_and_without_leave_to_start_one_the_user_is_told() {
    let home = Home::new();
    let all = [home.transcript(&["ls"]), home.transcript(&["run", "--", "true"]), home.transcript(&["stop"])];
    insta::assert_snapshot!(all.join("\n"));
}
