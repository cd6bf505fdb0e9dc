//! A second Ethereum node, with a different implementation: hardhat.

use std::fs::File;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::anvil::{LOG, call, log_of, number};
use super::libraries::Javascript;
use super::process::Process;
use super::{Folder, ServerError, ports};

/// How long it may take until it answers; it loads many packages first.
const PATIENCE: Duration = Duration::from_secs(60);
/// How many other ports are tried.
const TRIES: usize = 5;
const CHAIN: u64 = 31337;
/// It has the same funded accounts as anvil. It makes a block for every transaction, and refuses a transaction
/// whose nonce is not next.
const CONFIG: &str =
    r#"module.exports = { solidity: "0.8.28", networks: { hardhat: { chainId: 31337 } } };"#;

/// A node that tests can call, of either kind.
pub trait RealNode {
    /// Its port on the loopback address.
    fn port(&self) -> u16;

    /// The id of its chain.
    fn chain(&self) -> u64;

    /// Its URL: `http://127.0.0.1:PORT`.
    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port())
    }

    /// Calls a method on a separate connection, and returns its result, or its error.
    fn rpc(&self, method: &str, params: Value) -> Result<Value, ServerError> {
        call(self.port(), method, &params)
    }

    /// The next nonce of a sender: after the transactions in blocks (`latest`), or also after waiting ones
    /// (`pending`).
    fn nonce(&self, sender: &str, at: &str) -> Result<u64, ServerError> {
        let count = self.rpc("eth_getTransactionCount", json!([sender, at]))?;
        number(&count).ok_or_else(|| ServerError::new(format!("{count} is no count")))
    }
}

/// A node with its own chain. Dropping it kills it and removes its folder.
#[derive(Debug)]
pub struct Hardhat {
    // First, so that the process ends before its folder is removed.
    process: Process,
    folder: Folder,
    port: u16,
}

impl Hardhat {
    /// Starts it and waits until it answers.
    pub fn start() -> Result<Hardhat, ServerError> {
        let mut tries = 0;
        loop {
            tries += 1;
            match Hardhat::try_start() {
                // Another process took the port first.
                Err(error) if tries < TRIES && error.to_string().contains("EADDRINUSE") => {}
                started => return started,
            }
        }
    }

    fn try_start() -> Result<Hardhat, ServerError> {
        let project = Javascript::project("hardhat")?;
        project.write("hardhat.config.js", CONFIG)?;
        let program = project.path().join("node_modules/hardhat/internal/cli/bootstrap.js");
        let port = ports::free()?;
        let mut command = Command::new("node");
        command.arg(program).args(["node", "--hostname", "127.0.0.1", "--port"]);
        command.arg(port.to_string()).current_dir(project.path());
        // It keeps a cache below its home folder, and asks for permission to send statistics.
        command.env("HOME", project.path()).env("HARDHAT_DISABLE_TELEMETRY_PROMPT", "true");
        let log = File::create(project.path().join(LOG));
        let log = log.map_err(ServerError::during("cannot make a log"))?;
        let mut process = Process::start(&command, &log)?;
        let began = Instant::now();
        loop {
            let ended = process.ended();
            let answer = call(port, "eth_chainId", &json!([]));
            match answer {
                Ok(chain) if ended.is_none() && number(&chain) == Some(CHAIN) => {
                    return Ok(Hardhat { process, folder: project, port });
                }
                answer if ended.is_some() || began.elapsed() > PATIENCE => {
                    let log = log_of(&project);
                    let what = format!("hardhat on port {port} did not start: {answer:?}");
                    return Err(ServerError::new(format!("{what}; its log:\n{log}")));
                }
                _ => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// The id of its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The last lines of its log.
    #[must_use]
    pub fn log(&self) -> String {
        log_of(&self.folder)
    }
}

impl RealNode for Hardhat {
    fn port(&self) -> u16 {
        self.port
    }

    fn chain(&self) -> u64 {
        CHAIN
    }
}
