//! Tests which of the init's inherited state reaches the command.

use std::fs;
use std::path::Path;

use nix::libc;

use super::peer::{Init, PLACES, Place, SHELL_ABOVE, below, bit, first_process, is_not_for_tini, start};
use crate::support::running::as_pid_1;
use crate::support::signal_states::{State, inherit, shown};
use crate::support::{poll_until, status_field};

const STATE: State = State {
    name: "ignored TTOU, SEGV, INT, blocked TTIN, ILL, TERM",
    blocked: 1 << (libc::SIGTTIN - 1) | 1 << (libc::SIGILL - 1) | 1 << (libc::SIGTERM - 1),
    ignored: &[libc::SIGTTOU, libc::SIGSEGV, libc::SIGINT],
    pending: None,
};

#[test]
fn signals_that_were_ignored_or_blocked_stay_so() {
    const CAT: [&str; 2] = ["cat", "/proc/self/status"];
    for place in PLACES {
        let mut direct = match place {
            Place::Pid1 => first_process(CAT[0], &CAT[1..]),
            _ => below(SHELL_ABOVE, &CAT.map(Into::into)),
        };
        inherit(&mut direct, &STATE);
        let mut through = Init::plain().command(place, &CAT);
        inherit(&mut through, &STATE);
        let direct = as_pid_1(direct).end().expect_code(0);
        let through = start(place, through).end().expect_code(0);
        assert_eq!(shown(&through.stdout), shown(&direct.stdout), "{place:?}");
        let mask = |field| u64::from_str_radix(status_field(&through.stdout, field).unwrap(), 16).unwrap();
        assert_eq!(mask("SigBlk"), STATE.blocked, "{place:?}");
        let ignored = STATE.ignored.iter().fold(0, |mask, signal| mask | bit(*signal));
        assert_eq!(mask("SigIgn"), ignored, "{place:?}");
    }
}

#[test]
fn the_command_keeps_the_working_folder_and_the_init_leaves_it() {
    if is_not_for_tini("it stays in the working folder") {
        return;
    }
    for place in PLACES {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Init::plain().command(place, &["sh", "-c", "echo ready; exec sleep 1000"]);
        command.current_dir(folder.path());
        let mut started = start(place, command);
        started.is_ready();
        let cwd = |pid: i32| fs::read_link(format!("/proc/{pid}/cwd")).unwrap();
        assert_eq!(cwd(started.command()), folder.path(), "{place:?}");
        poll_until("the init is in /", || (cwd(started.init()) == Path::new("/")).then_some(()));
    }
}
