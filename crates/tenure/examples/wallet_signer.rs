//! Several signers and two wallets: the transactions of a wallet must be numbered without gaps and without
//! duplicates.
//!
//! ```console
//! $ cargo run -p tenure --example wallet_signer
//! ```
//!
//! Start it in several terminals at once: they all sign for the same wallets. If a signer finds a wallet busy,
//! it does its other jobs first, and waits in line when there are none. `TENURE_URL` selects another engine
//! than a file; the argument, another folder for the simulated chain.
#![allow(clippy::print_stdout, reason = "it shows what happens")]

use std::collections::VecDeque;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tenure::{Hold, Tenure};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const SIGNERS: usize = 3;
const WALLETS: [&str; 2] = ["0xab", "0xcd"];

/// The transactions of a wallet in the order in which they were mined; each line begins with its nonce.
struct Chain(PathBuf);

impl Chain {
    fn of(folder: &Path, wallet: &str) -> Chain {
        Chain(folder.join(format!("tenure-chain-{wallet}.txt")))
    }

    /// The number of transactions, which is the next nonce.
    fn count(&self) -> Result<usize, Failure> {
        // A wallet that was never used has no file yet.
        let lines = fs::read_to_string(&self.0).unwrap_or_default();
        for (nonce, line) in lines.lines().enumerate() {
            if !line.starts_with(&format!("{nonce} ")) {
                return Err(format!("nonce {nonce} is missing or was used twice: {line:?}").into());
            }
        }
        Ok(lines.lines().count())
    }

    /// The part for one signer at a time: another signer between the read and the write would make it wrong.
    async fn send(&self, hold: &Hold, signer: &str) -> Result<usize, Failure> {
        let nonce = self.count()?;
        tokio::time::sleep(Duration::from_millis(5)).await;
        let mut file = OpenOptions::new().create(true).append(true).open(&self.0)?;
        file.write_all(format!("{nonce} by {signer}, fence {}\n", hold.fence()).as_bytes())?;
        Ok(nonce)
    }
}

async fn sign(tenure: Tenure, folder: PathBuf, signer: String) -> Result<usize, Failure> {
    let mut jobs: VecDeque<_> = (0..10).map(|job| WALLETS[job % 2]).collect();
    let (mut signed, mut put_off) = (0, 0);
    while let Some(wallet) = jobs.pop_front() {
        let lock = tenure.mutex(format!("wallet:{wallet}")).ttl(Duration::from_secs(5));
        let hold = match lock.clone().try_acquire().await? {
            Some(hold) => hold,
            None if put_off < jobs.len() => {
                jobs.push_back(wallet);
                put_off += 1;
                continue;
            }
            None => lock.wait(Duration::from_secs(30)).acquire().await?,
        };
        let nonce = Chain::of(&folder, wallet).send(&hold, &signer).await?;
        // The result says whether the lock was held to the end. Released before the next job starts.
        let released = hold.release().await?;
        println!(
            "{signer} sent nonce {nonce} of {wallet} ({released:?}); put off {put_off} before"
        );
        (signed, put_off) = (signed + 1, 0);
    }
    Ok(signed)
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let file = format!("file:{}", std::env::temp_dir().join("tenure-example/locks.db").display());
    let tenure = Tenure::connect(&std::env::var("TENURE_URL").unwrap_or(file)).await?;
    let folder = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let signers: Vec<_> = (0..SIGNERS)
        .map(|number| format!("signer {}-{number}", std::process::id()))
        .map(|signer| tokio::spawn(sign(tenure.clone(), folder.clone(), signer)))
        .collect();
    let mut signed = 0;
    for signer in signers {
        signed += signer.await??;
    }
    for wallet in WALLETS {
        let count = Chain::of(&folder, wallet).count()?;
        println!("{wallet}: {count} transactions in order");
    }
    println!("{signed} of them sent here");
    tenure.close().await;
    Ok(())
}
