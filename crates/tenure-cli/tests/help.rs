//! Every text of help, as people read it.

use crate::sandbox;

use std::collections::BTreeSet;
use std::path::Path;

use sandbox::{Sandbox, snapshot};

fn commands(sandbox: &Sandbox) -> Vec<String> {
    let help = sandbox.run(&["--help"]);
    let (_, list) = help.worked().split_once("Commands:\n").unwrap();
    let lines = list.lines().take_while(|line| !line.is_empty());
    lines.map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
}

#[test]
fn the_help_of_every_command_is_as_it_was_read_over() {
    let sandbox = Sandbox::new("help");
    snapshot("help", sandbox.run(&["--help"]).worked());
    let commands = commands(&sandbox);
    assert!(commands.len() > 10, "{commands:?}");
    for command in commands {
        let help = sandbox.run(&[&command, "--help"]);
        snapshot(&format!("help-{command}"), help.worked());
        assert_eq!(sandbox.run(&["help", &command]).worked(), help.stdout);
        assert_eq!(sandbox.run(&[&command, "-h"]).worked(), help.stdout);
    }
}

#[test]
fn the_help_says_nothing_about_what_is_set() {
    let plain = Sandbox::new("help-plain");
    let set = Sandbox::new("help-set")
        .with("TENURE_URL", "redis://:hunter2@redis-1:6379")
        .with("TENURE_TTL", "hunter2")
        .with("TENURE_LOG_LEVEL", "hunter2");
    for args in [&["--help"][..], &["run", "--help"], &["help", "ls"], &["--version"]] {
        assert_eq!(set.run(args).worked(), plain.run(args).worked());
    }
}

#[test]
fn every_flag_has_a_variable_except_those_that_must_be_meant() {
    let sandbox = Sandbox::new("help-variables");
    for command in commands(&sandbox) {
        let help = sandbox.run(&[&command, "--help"]);
        let flags = help.worked().lines().filter(|line| line.trim_start().starts_with('-'));
        for line in flags {
            let (_, rest) = line.split_once("--").unwrap();
            let long: String =
                rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
            let variable = format!("[env: TENURE_{}]", long.to_uppercase().replace('-', "_"));
            let meant = match &*command {
                "break" => ["fence", "reason", "end-sessions"].contains(&&*long),
                "forget" => ["fence", "done"].contains(&&*long),
                _ => false,
            };
            // TENURE_KIND is what `run` tells its command.
            let meant = meant || long == "kind";
            assert_eq!(line.contains(&variable), !meant && long != "help", "{command}: {line}");
        }
    }
}

#[test]
fn topics_and_codes_are_explained() {
    let sandbox = Sandbox::new("help-topics");
    let all = sandbox.run(&["explain"]);
    let mut text = all.worked().to_owned();
    for topic in all.worked().lines().map(|line| line.split_whitespace().next().unwrap()) {
        let explained = sandbox.run(&["explain", topic]);
        text.push_str(&format!("\n$ tenure explain {topic}\n{}", explained.worked()));
        assert_eq!(sandbox.run(&["help", topic]).worked(), explained.stdout);
        assert_eq!(sandbox.run(&["explain", &topic.to_lowercase()]).worked(), explained.stdout);
    }
    snapshot("explain", &text);
    // For programs, too.
    let listed = sandbox.run(&["explain", "--json"]).stdout;
    for topic in ["T010", "exit-codes", "fencing"] {
        let explained = sandbox.run(&["explain", "--json", topic]).stdout;
        assert!(explained.lines().all(|line| line.starts_with(r#"{"v":1,"#)), "{explained}");
        assert!(listed.contains(&format!("\"{topic}\"")), "{listed}");
    }
    let busy = sandbox.run(&["explain", "--json", "T010"]).stdout;
    assert!(busy.starts_with(r#"{"v":1,"code":"T010","title":"busy","why":""#), "{busy}");
}

#[test]
fn every_code_that_is_used_is_explained() {
    let sandbox = Sandbox::new("help-codes");
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    let mut codes = BTreeSet::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(path).unwrap();
            let used = text.split(".code(\"").skip(1);
            codes.extend(used.map(|rest| rest.split('"').next().unwrap().to_owned()));
        }
    }
    assert!(codes.len() > 8, "{codes:?}");
    for code in codes {
        sandbox.run(&["explain", &code]).worked();
    }
}

#[test]
fn completions_and_manuals_are_there_for_every_shell_and_command() {
    let sandbox = Sandbox::new("help-man");
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = sandbox.run(&["completions", shell]);
        for part in ["acquire", "break", "on-lost"] {
            assert!(script.worked().contains(part), "{shell} {part}");
        }
    }
    sandbox.run(&["completions", "tcsh"]).failed(64);
    let whole = sandbox.run(&["man"]);
    for part in [".TH tenure 1", "EXIT STATUS", "TENURE_URL", "128+N"] {
        assert!(whole.worked().contains(part), "{part}: {}", whole.stdout);
    }
    for command in commands(&sandbox) {
        let page = sandbox.run(&["man", &command]);
        assert!(page.worked().contains(&format!(".TH tenure-{command} 1")), "{}", page.stdout);
    }
    sandbox.run(&["man", "dmeo"]).failed(64);
}
