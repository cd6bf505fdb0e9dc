//! Installs and checks the programs that building and testing need.
//!
//! A fresh machine should need no manual: whatever can be installed is installed, and for the rest the failure
//! says exactly what to type.

mod libraries;
mod servers;

pub(crate) use libraries::TOOLS;
pub(crate) use servers::folder;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::failure::Failure;
use crate::workspace;

/// A program that the tests need, and its Debian package.
struct Needed {
    program: &'static str,
    package: &'static str,
    reason: &'static str,
}

/// Programs that do not come with the Rust toolchain.
const NEEDED: &[Needed] = &[
    Needed { program: "cc", package: "gcc", reason: "rustc links with it" },
    Needed { program: "redis-server", package: "redis-server", reason: "tests start it" },
    Needed { program: "postgres", package: "postgresql", reason: "tests start it" },
    Needed { program: "pgbouncer", package: "pgbouncer", reason: "tests start it" },
    Needed { program: "nginx", package: "nginx", reason: "tests put it before the lock server" },
    Needed { program: "openssl", package: "openssl", reason: "tests make certificates with it" },
    Needed { program: "setpriv", package: "util-linux", reason: "servers of tests end with it" },
    Needed { program: "python3", package: "python3", reason: "tests run web3.py" },
    Needed { program: "pip3", package: "python3-pip", reason: "it fetches other servers" },
    Needed { program: "node", package: "nodejs", reason: "tests run ethers, viem and hardhat" },
    Needed { program: "npm", package: "npm", reason: "it fetches a node of Ethereum" },
    Needed { program: "chromium", package: "chromium", reason: "tests open the dashboard in it" },
];

/// Parts of the Rust toolchain that a minimal installation leaves out.
const COMPONENTS: &[(&str, &str)] = &[("fmt", "rustfmt"), ("clippy", "clippy")];

/// Checks that everything is installed, and installs what it may.
pub(crate) fn run() -> Result<(), Failure> {
    for (subcommand, component) in COMPONENTS {
        let mut version = workspace::cargo([*subcommand, "--version"]);
        let status = version.stdout(Stdio::null()).stderr(Stdio::null()).status();
        if !status.is_ok_and(|status| status.success()) {
            return Err(Failure::new(format!("`cargo {subcommand}` does not run"))
                .next(format!("rustup component add {component}")));
        }
    }
    let missing: Vec<_> = NEEDED.iter().filter(|needed| find(needed.program).is_none()).collect();
    if !missing.is_empty() {
        install(&missing)?;
    }
    servers::run()?;
    libraries::run()
}

fn install(missing: &[&Needed]) -> Result<(), Failure> {
    let mut packages: Vec<_> = missing.iter().map(|needed| needed.package).collect();
    packages.dedup();
    let packages = packages.join(" ");
    if !may_install() {
        let reasons: Vec<_> =
            missing.iter().map(|n| format!("`{}` is missing: {}", n.program, n.reason)).collect();
        return Err(Failure::new(reasons.join("; ")).next(advice(&packages)));
    }
    println!("      installing {packages}");
    if apt_get("install", &packages).is_err() {
        // A fresh machine has no list of packages yet.
        apt_get("update", "")?;
        apt_get("install", &packages)?;
    }
    match missing.iter().find(|needed| find(needed.program).is_none()) {
        None => Ok(()),
        Some(Needed { program, package, .. }) => {
            Err(Failure::new(format!("`{program}` is missing although {package} is installed")))
        }
    }
}

fn advice(packages: &str) -> String {
    format!(
        "as root on Debian: apt-get install -y --no-install-recommends {packages}; elsewhere, the \
         packages of the same purpose"
    )
}

/// Only root on Debian; all others are told what to type, so that nothing ever asks for a password.
fn may_install() -> bool {
    let root = std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    root && Path::new("/etc/debian_version").exists() && find("apt-get").is_some()
}

fn apt_get(action: &str, packages: &str) -> Result<(), Failure> {
    let mut command = Command::new("apt-get");
    command.arg(action).arg("-y").env("DEBIAN_FRONTEND", "noninteractive");
    if action == "install" {
        command.arg("--no-install-recommends").args(packages.split(' '));
    }
    workspace::run(command.stdout(Stdio::null()))
}

/// Where the shell finds a program, or where Debian keeps those of Postgres: one folder per version.
fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let folders = std::env::split_paths(&path).chain(versions.map(|it| it.path().join("bin")));
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_where_the_shell_finds_them() {
        assert!(find("sh").is_some());
        assert!(find("there-is-no-such-program").is_none());
    }
}
