//! `tenure doctor`: whether the engine is fit for locks.

use std::io::{self, Write};

use tenure::engine::{Order, Profile};
use tenure::{Finding, Mark};

use crate::engine;
use crate::failure::{Exit, NO, OK, Stop};
use crate::output::json::Object;
use crate::output::{Paint, clean_sentence};
use crate::settings::Settings;

/// The width of the names of the checks.
const CHECK: usize = 11;

/// Prints the findings about the engine. With a problem among them, the exit code is 1.
pub(crate) async fn run(
    brief: bool,
    settings: &Settings,
    out: &mut dyn Write,
) -> Result<Exit, Stop> {
    if engine::has_another_address() {
        settings.notes().say("REDIS_URL is set but not read: set TENURE_URL instead");
    }
    let findings = engine::examine(settings).await?;
    let count = Count::new(&findings);
    let address = settings.address.shown();
    if settings.json.value {
        writeln!(out, "{}", object(&address, &findings, &count).end())?;
    } else if brief {
        writeln!(out, "{}", in_a_line(&address, &findings, &count))?;
    } else {
        let paint = Paint::for_stdout(settings.color.value);
        writeln!(out, "{address}")?;
        findings.iter().try_for_each(|finding| show(finding, paint, out))?;
        // Its guarantees only count if there is no problem.
        if count.problems == 0 {
            let tenure = engine::connect_quietly(settings).await?;
            writeln!(out, "can: {}", promises(tenure.profile()))?;
        }
        writeln!(out, "{count}")?;
    }
    Ok(if count.problems == 0 { OK } else { Exit(NO) })
}

/// The number of findings of each kind.
struct Count {
    good: usize,
    warnings: usize,
    problems: usize,
}

impl Count {
    fn new(findings: &[Finding]) -> Count {
        let of = |mark| findings.iter().filter(|finding| finding.mark == mark).count();
        Count { good: of(Mark::Good), warnings: of(Mark::Warning), problems: of(Mark::Problem) }
    }
}

/// `8 ok, 1 warning, 1 problem`.
impl std::fmt::Display for Count {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let plural = |count: usize| if count == 1 { "" } else { "s" };
        let Count { good, warnings, problems } = self;
        write!(f, "{good} ok, {warnings} warning{}", plural(*warnings))?;
        write!(f, ", {problems} problem{}", plural(*problems))
    }
}

fn show(finding: &Finding, paint: Paint, out: &mut dyn Write) -> io::Result<()> {
    let Finding { check, mark, what, why, fix, code, .. } = finding;
    let sign = match mark {
        Mark::Good => "✓".to_owned(),
        Mark::Warning => paint.strong("!"),
        Mark::Problem => paint.bad("✗"),
    };
    let code = code.map(|code| format!("  {code}")).unwrap_or_default();
    writeln!(out, " {sign} {check:CHECK$}  {}{code}", clean_sentence(what))?;
    let indent = CHECK + 5;
    if let Some(why) = why {
        writeln!(out, "{:indent$}{}", "", clean_sentence(why))?;
    }
    if let Some(fix) = fix {
        writeln!(out, "{:indent$}{} {}", "", paint.strong("fix:"), clean_sentence(fix))?;
    }
    Ok(())
}

/// The guarantees of the engine, in words.
fn promises(profile: &Profile) -> String {
    let kinds = match profile.sharing {
        true => "locks, read-write locks, semaphores",
        false => "locks",
    };
    let order = match profile.order {
        Order::Arrival => "first come, first served",
        Order::PerProcess => "in order within a process",
        _ => "in no order",
    };
    let push = if profile.push { "turns by push" } else { "turns by looking" };
    format!("{kinds}; {order}; fences; {push}")
}

/// Everything in one line, the worst first.
fn in_a_line(address: &str, findings: &[Finding], count: &Count) -> String {
    let worst = findings.iter().map(|finding| finding.mark).max().unwrap_or(Mark::Good);
    let said: Vec<_> = findings
        .iter()
        .filter(|finding| finding.mark == worst && worst != Mark::Good)
        .map(|finding| clean_sentence(&finding.to_string()))
        .collect();
    let more = if said.is_empty() { String::new() } else { format!("; {}", said.join("; ")) };
    let word = if worst == Mark::Problem { "problem" } else { "ok" };
    format!("{word}: {count} ({address}){more}")
}

fn object(address: &str, findings: &[Finding], count: &Count) -> Object {
    let Count { good, warnings, problems } = count;
    let each = findings.iter().map(|finding| {
        let Finding { check, mark, what, why, fix, code, .. } = finding;
        let mark = match mark {
            Mark::Good => "good",
            Mark::Warning => "warning",
            Mark::Problem => "problem",
        };
        let object = Object::new().text("check", check).text("mark", mark).text("what", what);
        let object = object.maybe_text("why", why.as_deref()).maybe_text("fix", fix.as_deref());
        object.maybe_text("code", *code)
    });
    Object::versioned()
        .text("engine", address)
        .flag("fit", *problems == 0)
        .number("ok", *good as u64)
        .number("warnings", *warnings as u64)
        .number("problems", *problems as u64)
        .list("findings", each)
}
