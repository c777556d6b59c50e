//! Leaving behind what was decided, for whoever enters the container later.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::apply::{nccl_conf, propagate, state};
use crate::cli::EnvFormat;
use crate::config::Config;
use crate::facts::settings::Environment;
use crate::facts::{Facts, Reader, document, home};
use crate::plan::Plan;
use crate::report::environment;
use crate::report::log::Log;
use crate::report::plan::{Document, Memlock, headline};
use crate::state::find::find;
use crate::state::identity::{Identity, started};
use crate::state::run::Run;
use crate::state::{NCCL_CONF, Place, Propagate, block};

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

/// Writes the state folder and, in a container, `/etc/nccl.conf`. What cannot be is said,
/// where somebody could miss it; the command starts all the same.
pub fn keep(config: &Config, decided: Decided, log: &Log) {
    let filled: Vec<(&str, &str)> = decided.plan.filled().collect();
    let identity = Identity::own();
    let writes_conf = config.write_nccl_conf.unwrap_or(decided.by_init || identity.is_container());
    if config.state_dir == Place::Nowhere && !writes_conf && config.propagate == Propagate::default() {
        return;
    }
    // A command that is started in a container by hand ends before the container does.
    if !decided.by_init && find(&config.state_dir, |_| true).is_ok_and(|found| found.run.by_init) {
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
    if writes_conf {
        let state = folder.map(|folder| folder.join(NCCL_CONF));
        let lines = text(&given, EnvFormat::NcclConf);
        if let Err(why) = nccl_conf::write(Path::new("/"), &lines, state.as_deref()) {
            log.note(&advice(&why, state.as_deref()));
        }
    }
    // The one that sshd takes.
    let root = Path::new("/");
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
