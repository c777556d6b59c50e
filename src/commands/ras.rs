//! Implements `rdma-init status --ras`: adds what NCCL's RAS reports about the job's ranks.

use std::io::Write;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::facts::environment::Environment;
use crate::libraries::nccl::ras::{ENABLE, Ras, ras};
use crate::pipeline::read;
use crate::report::ras::Report;
use crate::state::run::Run;
use crate::text::{shortened, visible};
use crate::watch::ras::answer::Answer;
use crate::watch::ras::client::{DEADLINE, Failure, MAY_BE_FOREIGN, ask};
use crate::watch::ras::judge::{Verdict, judge};
use crate::watch::ras::names::Names;
use crate::watch::ras::own::is_foreign;
use crate::watch::ras::words;

/// Asks RAS. If some ranks lag behind others, asks again after `pause`, because a brief lag is normal.
/// `progress` gets the sentence about the first answer.
pub(super) fn report(
    run: Option<&Run>,
    environment: &Environment,
    pause: Duration,
    progress: impl FnOnce(&str) -> std::io::Result<()>,
) -> std::io::Result<Report> {
    let here = read::settings(environment);
    // The command was started with these variables; a process that enters may lack some of them.
    let of_command = |name: &str| run?.given().find(|(known, _)| *known == name).map(|(_, value)| value);
    let get = |name: &str| of_command(name).or_else(|| Some(here.get(name)?.value.as_str()));
    let address = match ras(get, None) {
        Ras::At(address) => address,
        Ras::Off(value) => {
            let value = visible(&shortened(value));
            return Ok(Report::without_answer(format!(
                "NCCL's RAS is off: {ENABLE}={value}. Remove it, and start the job again."
            )));
        }
        // This cannot happen here: the command does not search for NCCL, so it passes no version above.
        Ras::TooOld(version) => {
            return Ok(Report::without_answer(format!("NCCL {version} has no RAS.")));
        }
    };
    let at = visible(&shortened(address));
    let failed = |failure: &Failure| {
        Report::without_answer(format!("cannot query NCCL's RAS at {at}: {failure}.{}", hint(failure)))
    };
    let asked = Instant::now();
    let first = match ask(address, asked + DEADLINE) {
        Ok(answer) => answer,
        Err(failure) => return Ok(failed(&failure)),
    };
    let names = Names::of_this_host();
    // Only a person can tell: a container beside the job's, such as that of kubectl debug, has none of its processes.
    let line = |answer: &Answer, verdict: &Verdict, apart: Option<Duration>| {
        let line = words::line(answer, verdict, apart, &names);
        if is_foreign(answer, &names) { format!("{line} At {at}, {MAY_BE_FOREIGN}.") } else { line }
    };
    let verdict = judge(None, &first);
    let first_line = line(&first, &verdict, None);
    if !verdict.needs_second_look() || pause.is_zero() {
        return Ok(Report::of(first_line, &verdict, &names));
    }
    progress(&first_line)?;
    sleep((asked + pause).saturating_duration_since(Instant::now()));
    let asked_again = Instant::now();
    Ok(match ask(address, asked_again + DEADLINE) {
        Ok(second) => {
            let verdict = judge(Some(&first), &second);
            let second_line = line(&second, &verdict, Some(asked_again - asked));
            Report::of(second_line, &verdict, &names)
        }
        Err(failure) => failed(&failure),
    })
}

/// Returns the fix for a failure, or an explanation.
fn hint(failure: &Failure) -> &'static str {
    match failure {
        Failure::Refused => {
            " It answers once a process of this node has a communicator, in NCCL 2.24 and later, at the address that NCCL_RAS_ADDR names."
        }
        Failure::Address(_) => " Set NCCL_RAS_ADDR to HOST:PORT or [IPV6]:PORT.",
        _ => "",
    }
}

/// Prints what the first answer showed.
pub(super) fn progress(out: &mut impl Write, line: &str, pause: Duration) -> std::io::Result<()> {
    writeln!(out, "{line}")?;
    writeln!(out, "asking again in {}", humantime::format_duration(pause))?;
    // A person is waiting for this line.
    out.flush()
}
