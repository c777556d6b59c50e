//! Leaving behind what was decided, for whoever enters the container later.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::apply::amend::InPlace;
use crate::apply::{nccl_conf, propagate, state};
use crate::cli::EnvFormat;
use crate::config::Config;
use crate::facts::settings::Environment;
use crate::facts::{Facts, Reader, document, home};
use crate::plan::Plan;
use crate::report::environment;
use crate::report::log::Log;
use crate::report::plan::{Document, Memlock, headline};
use crate::report::style::visible;
use crate::state::find::find;
use crate::state::identity::{Identity, started};
use crate::state::run::Run;
use crate::state::{NCCL_CONF, block};

/// What is to be kept.
pub struct Decided<'a> {
    pub facts: Facts,
    pub plan: &'a Plan,
    pub memlock: Option<&'a Memlock>,
    /// Whether the self-test passed, where one was made.
    pub verdict: Option<bool>,
    /// Whether PID 1 is our own init.
    pub by_init: bool,
}

/// Writes the state folder, in a container `/etc/nccl.conf`, and wherever else the variables are
/// wanted (`propagate`). What cannot be is said,
/// where somebody could miss it; the command starts all the same.
pub fn keep(config: &Config, decided: Decided, log: &Log) {
    let filled: Vec<(&str, &str)> = decided.plan.filled().collect();
    let identity = Identity::own();
    let writes_conf = config.write_nccl_conf.unwrap_or(decided.by_init || identity.is_container());
    // A command that is started in a container by hand ends before the container does.
    if !decided.by_init && find(&config.state_dir, |_| true).is_ok_and(|found| stands(&found.run)) {
        return;
    }
    let folder = match state::write(&config.state_dir, || files(identity, &decided, &filled)) {
        Ok(folder) => folder,
        Err(why) if filled.is_empty() => {
            tracing::debug!(why, "no state is kept");
            None
        }
        Err(why) => {
            log.note(&format!(
                "what was decided cannot be left for processes that enter the container later, which then decide anew: {why}."
            ));
            None
        }
    };
    // A process that enters has not inherited these, either.
    let given: Vec<(&str, &str)> = filled.into_iter().chain(decided.plan.inherited()).collect();
    let root = Path::new("/");
    let lines = text(&given, EnvFormat::NcclConf);
    if writes_conf {
        let state = folder.map(|folder| folder.join(NCCL_CONF));
        let in_place =
            if config.write_nccl_conf == Some(true) { InPlace::Yes } else { InPlace::UnlessMounted };
        if let Err(why) = nccl_conf::write(root, &lines, state.as_deref(), in_place)
            && !is_read_anyway(&decided.facts, state.as_deref())
        {
            log.note(&advice(&why, state.as_deref()));
        }
    }
    if let Some(old) = nccl_conf::left_behind(root, &lines) {
        log.warn(&format!(
            "/etc/nccl.conf has lines of an earlier start, which NCCL reads where the environment says nothing else: {}. Take the block of rdma-init out of the image's file, or let rdma-init write it.",
            visible(&old)
        ));
    }
    // The one that sshd takes.
    let home = config
        .propagate
        .ssh
        .then(|| home::read(&Reader::new(root), &Environment::default()).database)
        .flatten();
    let target = propagate::Target { root, home: home.as_deref().map(Path::new) };
    for problem in propagate::write(target, config.propagate, &given) {
        log.warn(&format!("{problem}."));
    }
}

/// Whether what a start has left is to stay: of the container's own, or for a command that
/// is not this process, and still runs.
fn stands(run: &Run) -> bool {
    run.by_init || run.pid != nix::unistd::getpid().as_raw() && run.is_running()
}

/// Whether the image has the advice in it already.
fn is_read_anyway(facts: &Facts, state: Option<&Path>) -> bool {
    let named = facts.settings.get("NCCL_CONF_FILE").map(|setting| Path::new(&setting.value));
    named.is_some() && named == state
}

fn advice(why: &str, state: Option<&Path>) -> String {
    let next_best = match state {
        Some(state) => {
            let state = state.display();
            format!(
                "In the image, ENV NCCL_CONF_FILE={state} (NCCL 2.23 and later), or ln -s {state} /etc/nccl.conf, reaches them; or start them with rdma-init exec."
            )
        }
        None => "Start them with rdma-init exec.".to_owned(),
    };
    format!(
        "the variables cannot be put into /etc/nccl.conf for processes that enter the container later: {why}. {next_best}"
    )
}

fn files(identity: Identity, decided: &Decided, filled: &[(&str, &str)]) -> state::Files {
    let pid = nix::unistd::getpid().as_raw();
    let run = Run {
        identity,
        by_init: decided.by_init,
        since: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
        pid,
        pid_started: started(pid),
        headline: headline(decided.plan),
        self_test: decided.verdict.map(|passed| if passed { "passed" } else { "failed" }.to_owned()),
        ..Run::of(decided.plan)
    };
    state::Files {
        env_sh: text(filled, EnvFormat::Sh).into_bytes(),
        // Marked, as the next start may be told to read it.
        nccl_conf: block::with("", &text(filled, EnvFormat::NcclConf), |_| Vec::new()).into_bytes(),
        plan: json(&Document::new(decided.plan, decided.memlock).of_run(&run)),
        facts: json(&document::Document::new(&decided.facts)),
    }
}

/// What the format cannot hold is left out, as for `rdma-init env`.
fn text(filled: &[(&str, &str)], format: EnvFormat) -> String {
    let mut text = Vec::new();
    let _ = environment::write(&mut text, filled, format);
    String::from_utf8_lossy(&text).into_owned()
}

fn json(document: &impl Serialize) -> Vec<u8> {
    let mut text = Vec::new();
    // Into memory, which takes anything.
    let _ = crate::json::write(&mut text, document);
    text
}
