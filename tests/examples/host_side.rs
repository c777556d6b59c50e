//! Runs the scripts that fill in variables on the host, before a container or a task starts.

use crate::support::docker::host::{Host, OWN_SLOT};
use crate::support::docker::{Ended, engine};
use crate::support::{binary, repository};

/// Runs a script on a host with one HCA. `example` is at `/example`.
fn on_a_host(example: &str, environment: &[&str], script: &str) -> Option<Ended> {
    let engine = engine()?;
    let host = Host::with_one_hca(engine);
    let busybox = |name: &str| format!("/bin/busybox:/bin/{name}:ro");
    let volumes = [
        format!("{}:/example:ro", repository(example).display()),
        format!("{}:/usr/local/bin/rdma-init:ro", binary().display()),
        busybox("sed"),
        busybox("mktemp"),
    ];
    let mut options = vec!["--entrypoint", "/bin/sh", "--tmpfs", "/tmp:exec"];
    options.extend(volumes.iter().flat_map(|volume| ["--volume", volume]));
    options.extend(environment.iter().flat_map(|variable| ["--env", variable]));
    Some(engine.run(host.options(&options), &["-c", script]).expect_code(0))
}

fn gid_index() -> String {
    format!("NCCL_IB_GID_INDEX={OWN_SLOT}")
}

#[test]
fn slurm_s_task_prolog_exports_what_the_task_does_not_have() {
    let environment = ["NCCL_SOCKET_IFNAME=eth9"];
    let Some(ended) = on_a_host("examples/slurm-prolog/task-prolog.sh", &environment, "/example") else {
        return;
    };
    let lines: Vec<_> = ended.stdout.lines().collect();
    assert!(lines.iter().all(|line| line.starts_with("export NCCL_")), "{ended:#?}");
    assert!(lines.contains(&"export NCCL_IB_HCA==mlx5_0"), "{ended:#?}");
    assert!(lines.contains(&format!("export {}", gid_index()).as_str()), "{ended:#?}");
    assert!(!ended.stdout.contains("NCCL_SOCKET_IFNAME"), "{ended:#?}");
}

#[test]
fn enroot_s_hook_appends_what_the_container_does_not_have() {
    // Without Slurm, the variable in the hook's own environment is not the container's. The last line is not ended.
    let environment = ["NCCL_IB_HCA=mlx5_9"];
    let script = "printf 'HOME=/root\\nNCCL_SOCKET_IFNAME=eth 9\\nnot a variable\\nLAST=1' >/tmp/environ
        export ENROOT_ENVIRON=/tmp/environ
        /example ignored && cat /tmp/environ
        echo second
        /example && cat /tmp/environ";
    let Some(ended) = on_a_host("examples/slurm-prolog/50-rdma-init.sh", &environment, script) else {
        return;
    };
    let (first, second) = ended.stdout.split_once("second\n").unwrap();
    let kept = "HOME=/root\nNCCL_SOCKET_IFNAME=eth 9\nnot a variable\nLAST=1\n";
    let added = first.strip_prefix(kept).unwrap_or_else(|| panic!("{ended:#?}"));
    assert!(added.lines().any(|line| line == "NCCL_IB_HCA==mlx5_0"), "{ended:#?}");
    assert!(added.lines().any(|line| line == gid_index()), "{ended:#?}");
    assert!(!added.contains("NCCL_SOCKET_IFNAME"), "{ended:#?}");
    assert_eq!(first, second);
}

/// pyxis gives the container the job's variables, except those that the file sets.
#[test]
fn enroot_s_hook_leaves_what_the_job_sets_under_pyxis() {
    let environment = ["SLURM_JOB_ID=1", "NCCL_IB_HCA=mlx5_0", "NCCL_SOCKET_IFNAME=eth9"];
    let script = "echo NCCL_SOCKET_IFNAME=eth8 >/tmp/environ
        ENROOT_ENVIRON=/tmp/environ /example && cat /tmp/environ";
    let Some(ended) = on_a_host("examples/slurm-prolog/50-rdma-init.sh", &environment, script) else {
        return;
    };
    assert!(ended.stdout.starts_with("NCCL_SOCKET_IFNAME=eth8\n"), "{ended:#?}");
    assert_eq!(ended.stdout.matches("NCCL_SOCKET_IFNAME").count(), 1, "{ended:#?}");
    assert!(!ended.stdout.contains("NCCL_IB_HCA"), "{ended:#?}");
    assert!(ended.stdout.lines().any(|line| line == gid_index()), "{ended:#?}");
}

#[test]
fn a_value_that_enroot_s_file_cannot_hold_costs_only_itself() {
    let script = r#"printf '[set]\nA_B = "line\\ntwo"\nC_D = "1"\n' >/tmp/rdma-init.toml
        echo RDMA_INIT_CONFIG=/tmp/rdma-init.toml >/tmp/environ
        ENROOT_ENVIRON=/tmp/environ /example && cat /tmp/environ"#;
    let Some(ended) = on_a_host("examples/slurm-prolog/50-rdma-init.sh", &[], script) else { return };
    assert!(ended.stdout.contains("\nC_D=1\n") && !ended.stdout.contains("A_B"), "{ended:#?}");
    assert!(ended.stdout.contains("\nNCCL_IB_HCA==mlx5_0\n"), "{ended:#?}");
}

/// If a node has no rdma-init, or enroot no file, a container starts without the variables.
#[test]
fn enroot_s_hook_fails_open() {
    let script = "echo A=1 >/tmp/environ
        sed 's,/usr/local/bin/rdma-init,/missing,' /example >/tmp/hook
        ENROOT_ENVIRON=/tmp/environ sh /tmp/hook && cat /tmp/environ
        ENROOT_ENVIRON=/tmp/none /example && ls /tmp/none";
    let Some(ended) = on_a_host("examples/slurm-prolog/50-rdma-init.sh", &[], &format!("{script} || :"))
    else {
        return;
    };
    ended.expect_stdout("A=1\n");
}

/// Stands in for Apptainer: it reads the file as Apptainer does, with a shell.
const APPTAINER: &str = r#"mkdir /tmp/bin && cat >/tmp/bin/apptainer <<'END'
#!/bin/sh
[ "$1 $2 $3 $5" = 'exec --nv --env-file train.sif' ] || { echo "apptainer: $*" >&2; exit 2; }
set -a; . "$4"; set +a
shift 5
exec "$@"
END
busybox chmod +x /tmp/bin/apptainer
export PATH=/tmp/bin:/usr/local/bin:/bin TMPDIR=/tmp
"#;

/// The script's process becomes Apptainer's, so a scheduler's signal reaches the command.
#[test]
fn a_signal_reaches_apptainer_s_command_and_no_file_stays() {
    let script = r#"/example busybox sleep 1000 &
        until [ "$(cat /proc/$!/comm)" = busybox ]; do busybox usleep 1000; done
        kill -TERM $!; wait $!
        echo "code: $?, left: $(ls /tmp)""#;
    let script = format!("{APPTAINER}{script}");
    let Some(ended) = on_a_host("examples/apptainer/train.sh", &[], &script) else { return };
    assert!(ended.stdout.ends_with("code: 143, left: bin\n"), "{ended:#?}");
}

#[test]
fn apptainer_gets_the_variables_in_a_file() {
    let script = format!(r#"{APPTAINER}/example env || exit; echo "left: $(ls /tmp)""#);
    let environment = ["NCCL_SOCKET_IFNAME=eth9"];
    let Some(ended) = on_a_host("examples/apptainer/train.sh", &environment, &script) else { return };
    assert_eq!(ended.variable("NCCL_IB_HCA"), Some("=mlx5_0"), "{ended:#?}");
    assert_eq!(ended.variable("NCCL_IB_GID_INDEX"), Some(OWN_SLOT), "{ended:#?}");
    assert_eq!(ended.variable("NCCL_SOCKET_IFNAME"), Some("eth9"), "{ended:#?}");
    assert!(ended.stdout.ends_with("left: bin\n"), "{ended:#?}");
}
