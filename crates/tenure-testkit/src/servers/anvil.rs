//! An Ethereum node: anvil.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::flavour::{fetched, not_installed};
use super::process::Process;
use super::{Folder, RealNode, ServerError, http, ports};

/// How long it may take until it answers.
const PATIENCE: Duration = Duration::from_secs(20);
/// How many other ports are tried if another process takes the port first.
const TRIES: usize = 5;

/// When a node makes blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mining {
    /// For every transaction, at once.
    #[default]
    Auto,
    /// At intervals.
    Every(Duration),
    /// Only on `anvil_mine` or `evm_mine`.
    Never,
}

/// The settings of a node.
#[derive(Clone, Debug)]
pub struct AnvilBuild {
    mining: Mining,
    chain: u64,
    accounts: u32,
    more: Vec<String>,
}

impl AnvilBuild {
    /// When it makes blocks. Default: [`Mining::Auto`].
    #[must_use]
    pub fn mining(mut self, mining: Mining) -> AnvilBuild {
        self.mining = mining;
        self
    }

    /// The id of its chain. Default: 31337.
    #[must_use]
    pub fn chain(mut self, id: u64) -> AnvilBuild {
        self.chain = id;
        self
    }

    /// The number of accounts with money at the start. Default: 10. They come from the mnemonic `test test test
    /// test test test test test test test test junk`.
    #[must_use]
    pub fn accounts(mut self, many: u32) -> AnvilBuild {
        self.accounts = many;
        self
    }

    /// A further argument for its command line.
    #[must_use]
    pub fn arg(mut self, word: impl Into<String>) -> AnvilBuild {
        self.more.push(word.into());
        self
    }

    /// Starts it and waits until it answers.
    pub fn start(self) -> Result<Anvil, ServerError> {
        let program = fetched(PROGRAM).ok_or_else(|| not_installed("anvil"))?;
        let mut tries = 0;
        loop {
            tries += 1;
            let (folder, port) = (Folder::new("anvil")?, ports::free()?);
            match self.launch(&program, &folder, port) {
                Ok(process) => return Ok(Anvil { process, folder, port, chain: self.chain }),
                Err(_) if tries < TRIES && log_of(&folder).contains("in use") => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn launch(&self, program: &Path, folder: &Folder, port: u16) -> Result<Process, ServerError> {
        let mut command = Command::new(program);
        // With fewer threads than by default, it can stall while it makes blocks.
        command.args(["--host", "127.0.0.1", "--port"]).arg(port.to_string());
        command.arg("--chain-id").arg(self.chain.to_string());
        command.arg("--accounts").arg(self.accounts.to_string());
        match self.mining {
            Mining::Auto => {}
            Mining::Every(time) => {
                command.arg("--block-time").arg(time.as_secs_f64().to_string());
            }
            Mining::Never => {
                command.arg("--no-mining");
            }
        }
        command.args(&self.more);
        // It keeps a cache below its home folder.
        command.env("HOME", folder.path());
        let log = File::create(folder.path().join(LOG));
        let log = log.map_err(ServerError::during("cannot make a log"))?;
        let mut process = Process::start(&command, &log)?;
        let began = Instant::now();
        loop {
            // First check that it runs: another process may answer on the port.
            let ended = process.ended();
            let answer = call(port, "eth_chainId", &json!([]));
            match answer {
                Ok(chain) if ended.is_none() && number(&chain) == Some(self.chain) => {
                    return Ok(process);
                }
                answer if ended.is_some() || began.elapsed() > PATIENCE => {
                    let (said, log) = (answer.map(|_| "another chain"), log_of(folder));
                    let what = format!("anvil on port {port} did not start: {said:?}; its log:");
                    return Err(ServerError::new(format!("{what}\n{log}")));
                }
                _ => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }
}

const PROGRAM: &str = "anvil-1.7.1/anvil";
pub(super) const LOG: &str = "server.log";

/// A node with its own chain. Dropping it kills it and removes its folder.
#[derive(Debug)]
pub struct Anvil {
    // First, so that the process ends before its folder is removed.
    process: Process,
    folder: Folder,
    port: u16,
    chain: u64,
}

impl Anvil {
    /// The settings of a node; then call [`AnvilBuild::start`].
    #[must_use]
    pub fn build() -> AnvilBuild {
        AnvilBuild { mining: Mining::Auto, chain: 31337, accounts: 10, more: Vec::new() }
    }

    /// Whether it is installed.
    #[must_use]
    pub fn is_installed() -> bool {
        fetched(PROGRAM).is_some()
    }

    /// Its port on the loopback address.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The id of its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Its URL: `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The id of its chain.
    #[must_use]
    pub fn chain(&self) -> u64 {
        self.chain
    }

    /// The last lines of its log.
    #[must_use]
    pub fn log(&self) -> String {
        log_of(&self.folder)
    }

    /// Calls a method on a separate connection, and returns its result, or its error.
    pub fn rpc(&self, method: &str, params: Value) -> Result<Value, ServerError> {
        call(self.port, method, &params)
    }

    /// Makes blocks.
    pub fn mine(&self, blocks: u64) -> Result<(), ServerError> {
        self.rpc("anvil_mine", json!([format!("{blocks:#x}")])).map(drop)
    }

    /// The next nonce of a sender: after the transactions in blocks (`latest`), or also after waiting ones
    /// (`pending`).
    pub fn nonce(&self, sender: &str, at: &str) -> Result<u64, ServerError> {
        let count = self.rpc("eth_getTransactionCount", json!([sender, at]))?;
        number(&count).ok_or_else(|| ServerError::new(format!("{count} is no count")))
    }

    /// Gives an account money.
    pub fn fund(&self, account: &str) -> Result<(), ServerError> {
        self.rpc("anvil_setBalance", json!([account, "0x56bc75e2d63100000"])).map(drop)
    }
}

impl RealNode for Anvil {
    fn port(&self) -> u16 {
        self.port
    }

    fn chain(&self) -> u64 {
        self.chain
    }
}

/// A number in the format of nodes: `"0x1f"`.
pub(super) fn number(value: &Value) -> Option<u64> {
    u64::from_str_radix(value.as_str()?.strip_prefix("0x")?, 16).ok()
}

pub(super) fn call(port: u16, method: &str, params: &Value) -> Result<Value, ServerError> {
    let ask = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let body = http::post(port, "/", &ask.to_string())?;
    let answer: Value = serde_json::from_str(&body)
        .map_err(ServerError::during(format_args!("{method} answered {body:?}")))?;
    match (answer.get("result"), answer.get("error")) {
        (Some(result), None) => Ok(result.clone()),
        (_, Some(error)) => Err(ServerError::new(format!("{method}: {error}"))),
        _ => Err(ServerError::new(format!("{method} answered {body}"))),
    }
}

pub(super) fn log_of(folder: &Folder) -> String {
    let log = std::fs::read_to_string(folder.path().join(LOG)).unwrap_or_default();
    let lines: Vec<_> = log.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
