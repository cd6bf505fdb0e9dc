//! `tenure.guard`, called from other languages with their most common clients.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use tenure_testkit::servers::{Folder, Javascript, Python};

use crate::fixtures::*;
use crate::postgres_site::PostgresSite;

const PSYCOPG: &str = r#"
import os, sys, psycopg
with psycopg.connect(os.environ["DATABASE"]) as connection, connection.cursor() as cursor:
    try:
        cursor.execute("SELECT tenure.guard(%s, %s)", ("account:7", int(os.environ["FENCE"])))
        print("guarded", flush=True)
        sys.stdin.readline()
        cursor.execute("UPDATE account SET balance = balance - 10 WHERE id = 7")
        connection.commit()
        print("committed", flush=True)
    except psycopg.Error as error:
        print("refused", error.sqlstate, flush=True)
"#;

const NODE_POSTGRES: &str = r#"
import pg from "pg";
import { once } from "node:events";
const client = new pg.Client(process.env.DATABASE);
await client.connect();
try {
  await client.query("BEGIN");
  await client.query("SELECT tenure.guard($1, $2)", ["account:7", process.env.FENCE]);
  console.log("guarded");
  await once(process.stdin, "data");
  await client.query("UPDATE account SET balance = balance - 10 WHERE id = 7");
  await client.query("COMMIT");
  console.log("committed");
} catch (error) {
  console.log("refused", error.code);
}
await client.end();
process.exit(0);
"#;

struct Program {
    orders: ChildStdin,
    says: BufReader<ChildStdout>,
    child: std::process::Child,
}

impl Program {
    fn start(mut command: Command, site: &PostgresSite, fence: u64) -> Program {
        command.env("DATABASE", site.url()).env("FENCE", fence.to_string());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (orders, says) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Program { orders, says: BufReader::new(says), child }
    }

    fn hears(&mut self) -> String {
        let mut line = String::new();
        self.says.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

async fn guards(command: impl Fn() -> Command) {
    let site = PostgresSite::new();
    site.sql("CREATE TABLE account (id int, balance int); INSERT INTO account VALUES (7, 100)");
    let (one, two) = (site.connect().await, site.connect().await);
    let hold = one.mutex("account:7").ttl(secs(60)).acquire().await.unwrap();
    let fence = hold.fence().get();
    let mut program = Program::start(command(), &site, fence);
    assert_eq!(program.hears(), "guarded");
    hold.release().await.unwrap();
    let next = wait_for(&two, "account:7", secs(30));
    pause(ms(500)).await;
    assert!(!next.is_finished(), "granted while the transaction is open");
    program.orders.write_all(b"go on\n").unwrap();
    assert_eq!(program.hears(), "committed");
    let next = served(next).await;
    assert_eq!(site.number("SELECT balance FROM account"), 90);
    program.child.wait().unwrap();
    let mut late = Program::start(command(), &site, fence);
    assert_eq!(late.hears(), "refused TE001");
    late.child.wait().unwrap();
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_of_psycopg_is_guarded() {
    let folder = Folder::new("psycopg").unwrap();
    let script = folder.path().join("guard.py");
    std::fs::write(&script, PSYCOPG).unwrap();
    guards(|| Python::command(&script).unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_of_node_postgres_is_guarded() {
    let script = Javascript::new(NODE_POSTGRES).unwrap();
    guards(|| script.command()).await;
}
