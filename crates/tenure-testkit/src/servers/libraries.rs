//! Libraries of other languages that talk to nodes; `cargo xtask test` installs them.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use super::flavour::{folder, not_installed};
use super::{Folder, ServerError};

/// Node.js scripts, with ethers, viem and hardhat.
#[derive(Debug)]
pub struct Javascript {
    project: Folder,
}

impl Javascript {
    /// A script that can be started any number of times.
    pub fn new(script: &str) -> Result<Javascript, ServerError> {
        let project = Javascript::project("javascript")?;
        project.write("script.mjs", script)?;
        Ok(Javascript { project })
    }

    /// Starts it with the script; it is killed when this process ends.
    #[must_use]
    pub fn command(&self) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "node"]).arg(self.project.path().join("script.mjs"));
        command.current_dir(self.project.path());
        command
    }

    /// A folder from which all packages can be imported.
    pub(crate) fn project(purpose: &str) -> Result<Folder, ServerError> {
        let packages = folder().join("javascript/node_modules");
        if !packages.is_dir() {
            return Err(not_installed("what the scripts of Node.js import"));
        }
        let project = Folder::new(purpose)?;
        let link = symlink(&packages, project.path().join("node_modules"));
        link.map_err(ServerError::during("cannot link the packages"))?;
        Ok(project)
    }
}

/// Python scripts, with web3.
#[derive(Debug)]
pub struct Python;

impl Python {
    /// Starts a script; it is killed when this process ends.
    pub fn command(script: &Path) -> Result<Command, ServerError> {
        let packages = folder().join("python");
        if !packages.is_dir() {
            return Err(not_installed("what the scripts of Python import"));
        }
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "python3"]).arg(script);
        command.env("PYTHONPATH", packages);
        Ok(command)
    }
}
