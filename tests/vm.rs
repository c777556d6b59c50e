//! Runs scripts in a virtual machine that has a real kernel with soft-RoCE devices. See tests/vm/run.sh. NIXL is large
//! to install, so its test is ignored by default: `make test-nixl` installs it and runs that test. Tests that take many
//! minutes are ignored as well: `make test-watch`.

use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::support::{binary, repository, vm};

/// The right of a test to run machines, which are emulated and take a processor each. Two tests have it at the same
/// time, however many threads the harness has.
struct Turn;

static TURNS_LEFT: Mutex<u8> = Mutex::new(2);
static TURN_IS_OVER: Condvar = Condvar::new();

impl Turn {
    fn wait() -> Turn {
        let left = TURNS_LEFT.lock().unwrap_or_else(PoisonError::into_inner);
        let mut left =
            TURN_IS_OVER.wait_while(left, |left| *left == 0).unwrap_or_else(PoisonError::into_inner);
        *left -= 1;
        Turn
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *TURNS_LEFT.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        TURN_IS_OVER.notify_one();
    }
}

fn guest(script: &str, arguments: &[&Path]) {
    let _turn = Turn::wait();
    if let Some(said) = vm::guest(script, arguments) {
        println!("{}", String::from_utf8_lossy(&said));
    }
}

#[test]
fn the_harness_itself_works() {
    guest("smoke.sh", &[Path::new(&vm::machine())]);
}

#[test]
fn a_container_gets_the_slots_of_its_own_addresses() {
    guest("container.sh", &[&binary()]);
}

#[test]
fn docker_s_default_profiles_and_less_are_enough() {
    guest("docker.sh", &[&binary()]);
}

#[test]
fn a_self_test_finds_what_is_wrong_with_a_device() {
    guest("self_test.sh", &[&binary()]);
}

#[test]
fn a_self_test_keeps_a_job_from_a_fabric_that_is_not_fit() {
    guest("start.sh", &[&binary()]);
}

#[test]
fn what_a_job_has_moved_is_told() {
    guest("traffic.sh", &[&binary()]);
}

#[test]
fn a_device_in_another_rdma_namespace_is_told_as_that() {
    guest("rdma_namespace.sh", &[&binary()]);
}

#[test]
fn ucx_takes_what_is_predicted_with_and_without_what_is_filled_in() {
    guest("ucx.sh", &[&binary()]);
}

#[test]
#[ignore = "needs NIXL: make test-nixl"]
fn nixl_moves_data_over_rdma_with_what_is_filled_in() {
    let setup = Command::new(repository("tests/vm/nixl.sh")).stderr(Stdio::inherit()).output().unwrap();
    assert!(setup.status.success(), "NIXL cannot be installed (see above)");
    let environment = String::from_utf8(setup.stdout).unwrap();
    guest("nixl.sh", &[&binary(), Path::new(environment.trim_end())]);
}

#[test]
fn mooncake_takes_what_is_predicted_and_moves_data_with_what_is_filled_in() {
    guest("mooncake.sh", &[&binary(), &repository("target/vm/mooncake")]);
}

#[test]
fn nvshmem_takes_what_is_predicted_with_and_without_what_is_filled_in() {
    guest("nvshmem.sh", &[&binary(), &repository("target/vm/nvshmem")]);
}

#[test]
fn ranks_over_ssh_see_the_values_of_their_own_node() {
    guest("ssh.sh", &[&binary(), &repository("target/vm/sshd")]);
}

/// Makes the tests with several machines run one after the other: soft-RoCE drops a connection if the other machine
/// gets too little processor time. They wait most of the time, so a test with one machine runs beside them.
fn several_guests() -> (MutexGuard<'static, ()>, Turn) {
    static ONE_TEST: Mutex<()> = Mutex::new(());
    let one = ONE_TEST.lock().unwrap_or_else(PoisonError::into_inner);
    (one, Turn::wait())
}

/// Runs a script in three machines with two networks between them, and one more for TCP. Each machine gets
/// its number.
fn three_guests(script: &str) {
    let _one = several_guests();
    // All sockets are bound at the same time, so that their ports are distinct.
    let sockets = [(); 3].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    let networks = sockets.map(|socket| socket.local_addr().unwrap().port());
    std::thread::scope(|scope| {
        let guests = [1, 2, 3].map(|number: u8| {
            scope.spawn(move || {
                let own = number.to_string();
                vm::guest_on(&networks, number, script, &[&binary(), Path::new(&own)])
            })
        });
        for said in guests.into_iter().filter_map(|guest| guest.join().unwrap()) {
            println!("{}", String::from_utf8_lossy(&said));
        }
    });
}

#[test]
fn three_nodes_of_a_job_find_the_one_at_fault() {
    three_guests("preflight.sh");
}

#[test]
fn three_nodes_of_a_job_find_what_is_wrong_on_the_way() {
    three_guests("preflight_paths.sh");
}

/// Runs a script in two machines with three networks between them. Each is given its number, and these arguments.
fn two_guests(script: &str, arguments: &[&Path]) {
    let _one = several_guests();
    // All sockets are bound at the same time, so that their ports are distinct.
    let sockets = [(); 6].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    let ports = sockets.map(|socket| socket.local_addr().unwrap().port());
    let links = [0, 2, 4].map(|first| (ports[first], ports[first + 1]));
    let back = links.map(|(local, remote)| (remote, local));
    let run = |links: &[(u16, u16)], number| {
        let binary = binary();
        let first = [binary.as_path(), Path::new(number)];
        vm::guest_with(links, script, &[&first, arguments].concat())
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| run(&back, "2"));
        let own = run(&links, "1");
        for said in [own, other.join().unwrap()].into_iter().flatten() {
            println!("{}", String::from_utf8_lossy(&said));
        }
    });
}

#[test]
fn two_nodes_test_the_fabric_between_them() {
    two_guests("pair.sh", &[]);
}

/// The watcher beside jobs. What it sees is what the kernel counts and tells, which differs between kernels.
mod watcher {
    use super::*;

    /// Runs a script in this machine, which may take so many seconds.
    fn guest(machine: Option<&str>, seconds: u64, script: &str, arguments: &[&Path]) {
        let Some(machine) = machine else { return };
        let _turn = Turn::wait();
        if let Some(said) =
            vm::guest_of(machine, seconds, script, &[&[binary().as_path()], arguments].concat())
        {
            println!("{}", String::from_utf8_lossy(&said));
        }
    }

    macro_rules! tests {
        ($name:ident, $machine:expr $(, #[$others:meta])?) => {
            mod $name {
                use super::*;

                #[test]
                fn tells_what_happens_to_the_ports_and_nothing_else() {
                    guest($machine, vm::SECONDS, "watch.sh", &[]);
                }

                #[test]
                fn tells_of_lost_packets_and_failed_queue_pairs_and_nothing_else() {
                    guest($machine, vm::SECONDS, "watch_loss.sh", &[]);
                }

                #[test]
                $(#[$others])?
                fn tells_at_node_0_that_the_job_has_stalled() {
                    guest($machine, vm::SECONDS, "watch_job.sh", &[]);
                }

                #[test]
                $(#[$others])?
                fn is_silent_beside_a_sound_job() {
                    guest($machine, vm::SECONDS, "watch_sound.sh", &[Path::new("60")]);
                }

                #[test]
                #[ignore = "takes minutes: make test-watch"]
                fn tells_that_one_of_four_rails_falls_behind() {
                    guest($machine, vm::SECONDS + 1200, "watch_balance.sh", &[Path::new("4")]);
                }

                #[test]
                #[ignore = "takes more than five minutes: make test-watch"]
                fn notes_after_five_minutes_that_one_of_two_rails_falls_behind() {
                    guest($machine, vm::SECONDS + 600, "watch_balance.sh", &[Path::new("2")]);
                }

                #[test]
                #[ignore = "takes more than ten minutes: make test-watch"]
                fn is_silent_beside_a_sound_job_for_ten_minutes() {
                    guest($machine, vm::SECONDS + 600, "watch_sound.sh", &[Path::new("600")]);
                }
            }
        };
    }

    tests!(here, Some(&*vm::machine()));
    // If another machine was asked for, or has this architecture, that one is enough.
    tests!(
        linux_6_12,
        (vm::machine() == "x86_64").then_some("x86_64-6.12"),
        #[ignore = "the kernels differ in counters and events alone: make test-watch"]
    );
}
