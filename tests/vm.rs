//! Runs scripts in a virtual machine that has a real kernel with soft-RoCE devices. See tests/vm/run.sh. NIXL is large
//! to install, so its test is ignored by default: `make test-nixl` installs it and runs that test. Tests that take many
//! minutes are ignored as well: `make test-watch`.

use std::env::consts::ARCH;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::{binary, is_all_wanted, repository, vm};

fn guest(script: &str, arguments: &[&Path]) {
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
fn a_container_without_a_gid_of_its_own_uses_those_of_its_node() {
    guest("node_gid.sh", &[&binary()]);
}

#[test]
fn a_container_without_a_gid_of_its_own_uses_those_of_its_node_on_linux_6_12() {
    if vm::machine() == "x86_64" && is_wanted("the kernels take the namespace from the same place") {
        vm::guest_of("x86_64-6.12", vm::SECONDS, "node_gid.sh", &[&binary()]);
    }
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

/// Returns whether this run tries in emulation, too, what `also` proves without it, and prints a message if not.
fn is_wanted(also: &str) -> bool {
    let is_wanted = is_all_wanted();
    if !is_wanted {
        eprintln!("SKIPPED: only RDMA_INIT_TEST_ALL=1 tries this here, because {also}");
    }
    is_wanted
}

#[test]
fn ranks_over_ssh_see_the_values_of_their_own_node() {
    if !is_wanted("containers with sshd prove it as well (examples::mpi)") {
        return;
    }
    guest("ssh.sh", &[&binary(), &repository("target/vm/sshd")]);
}

/// Runs a script in so many machines with three networks between them. Each is given its number.
fn guests(count: u8, script: &str) {
    let binary = binary();
    let numbers = ["1", "2", "3"].map(Path::new);
    let arguments = |number: u8| vec![binary.as_path(), numbers[usize::from(number) - 1]];
    for said in vm::guests(count, script, arguments).into_iter().flatten() {
        println!("{}", String::from_utf8_lossy(&said));
    }
}

#[test]
fn three_nodes_of_a_job_find_the_one_at_fault() {
    guests(3, "preflight.sh");
}

#[test]
fn three_nodes_of_a_job_find_what_is_wrong_on_the_way() {
    if !is_wanted(
        "nodes in network namespaces prove it as well (preflight::lossy, preflight::places, preflight::rates)",
    ) {
        return;
    }
    guests(3, "preflight_paths.sh");
}

#[test]
fn two_nodes_test_the_fabric_between_them() {
    guests(2, "pair.sh");
}

#[test]
fn two_nodes_connect_their_containers_by_their_own_gids() {
    guests(2, "node_gid_pair.sh");
}

/// The watcher beside jobs. What it sees is what the kernel counts and tells, which differs between kernels.
mod watcher {
    use super::*;

    /// Runs a script in this machine, which may take so many seconds.
    fn guest(machine: Option<&str>, seconds: u64, script: &str, arguments: &[&Path]) {
        let Some(machine) = machine else { return };
        if let Some(said) =
            vm::guest_of(machine, seconds, script, &[&[binary().as_path()], arguments].concat())
        {
            println!("{}", String::from_utf8_lossy(&said));
        }
    }

    /// Returns the library of this machine that watch_loss.sh preloads. Only a machine of this architecture has it.
    fn few_retries(machine: &str) -> Option<PathBuf> {
        let cache = if machine == ARCH { "vm".to_owned() } else { format!("vm-{machine}") };
        machine.starts_with(ARCH).then(|| repository("target").join(cache).join("few_retries.so"))
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
                    let few_retries = $machine.and_then(few_retries);
                    guest($machine, vm::SECONDS, "watch_loss.sh", few_retries.as_deref().as_slice());
                }

                #[test]
                $(#[$others])?
                fn tells_at_node_0_that_the_job_has_stalled() {
                    guest($machine, vm::SECONDS, "watch_job.sh", &[]);
                }

                #[test]
                $(#[$others])?
                fn is_silent_beside_a_sound_job() {
                    if !is_wanted("the watchers of all others say nothing else, either") {
                        return;
                    }
                    guest($machine, vm::SECONDS, "watch_sound.sh", &[Path::new("20")]);
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
        (vm::machine() == "x86_64" && is_wanted("the kernels differ in counters and events alone"))
            .then_some("x86_64-6.12"),
        #[ignore = "the kernels differ in counters and events alone: make test-watch"]
    );
}
