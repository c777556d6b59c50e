//! How a supervisor tells a process beside the command how the command ended: by a signal with a value, so that neither
//! of them needs a pipe.

use nix::errno::Errno;
use nix::libc;
use nix::unistd::{Pid, getppid};

use super::fork::Ended;
use super::signals::{self, Received};

const SIGNAL: i32 = libc::SIGTERM;

/// Tells a process how the command ended.
///
/// # Errors
/// Fails with ESRCH, EPERM or EAGAIN.
pub(crate) fn tell(process: Pid, ended: Ended) -> Result<(), Errno> {
    let value = match ended {
        Ended::Exited(code) => code,
        Ended::Killed(signal) => -signal,
    };
    signals::queue(process, SIGNAL, value)
}

/// Returns how the command ended, if this signal tells that, and names the parent of this process as its sender.
/// Another process of the same user can claim that with rt_sigqueueinfo(2), but it could also kill this one.
pub(crate) fn told(received: &Received) -> Option<Ended> {
    let value = received.value_from(getppid()).filter(|_| received.signal() == SIGNAL)?;
    Some(if value < 0 { Ended::Killed(value.wrapping_neg()) } else { Ended::Exited(value) })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::sys::fork;

    #[test]
    fn only_the_parent_tells_how_the_command_ended() {
        for ended in [Ended::Exited(0), Ended::Exited(255), Ended::Killed(9)] {
            // It must not kill the child.
            let inherited = signals::block_all();
            let child = fork::spawn(|| {
                // From itself, it proves nothing.
                let _ = tell(Pid::this(), Ended::Exited(7));
                let until = Instant::now() + Duration::from_secs(60);
                let mut heard = Vec::new();
                while heard.is_empty() {
                    match signals::wait(Some(until)) {
                        Ok(Some(received)) => heard.extend(told(&received)),
                        _ => return 1,
                    }
                }
                i32::from(heard != [ended]) * 2
            });
            inherited.restore();
            let child = child.unwrap();
            let end = Instant::now() + Duration::from_secs(60);
            loop {
                // While its own signal is pending, the kernel drops another one of that number.
                tell(child, ended).unwrap();
                match fork::reap_child(child) {
                    fork::Reaped::Ended(_, how) => break assert_eq!(how, Ended::Exited(0), "{ended:?}"),
                    _ => assert!(Instant::now() < end),
                }
                std::thread::yield_now();
            }
        }
    }
}
