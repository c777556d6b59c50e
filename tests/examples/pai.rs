//! Tests the image for DLC, and the start command in it.

use super::images::image;
use super::started::{arguments, stand_ins};
use crate::support::docker::engine;
use crate::support::docker::host::{Host, OWN_SLOT};
use crate::support::repository;

const DLC: &[&str] =
    &["WORLD_SIZE=2", "RANK=1", "NPROC_PER_NODE=8", "MASTER_ADDR=dlc1abc-master-0", "MASTER_PORT=23456"];

#[test]
fn the_start_command_starts_torchrun_with_the_variables() {
    let Some(engine) = engine() else { return };
    let Some(image) = image(engine, "examples/pai-dlc/Dockerfile") else { return };
    let command = std::fs::read_to_string(repository("examples/pai-dlc/command.sh")).unwrap();
    let stand_ins: Vec<_> = stand_ins().collect();
    let mut base: Vec<_> = stand_ins.iter().map(String::as_str).collect();
    base.extend(DLC.iter().flat_map(|variable| ["--env", variable]));
    // The command runs once as PID 1, and once below a shell that stays.
    let below = format!("(\n{command}\n); exit $?");
    for (command, pid_1) in [(&command, true), (&below, false)] {
        let host = Host::with_one_hca(engine);
        let options = host.options(&base);
        let ended = engine.start_image(&image, options, &["sh", "-c", command]).wait().expect_code(0);
        let torchrun = "torchrun --nnodes=2 --node-rank=1 --nproc-per-node=8 --master-addr=dlc1abc-master-0 \
                        --master-port=23456 train.py";
        assert_eq!(arguments(&ended).join(" "), torchrun);
        assert_eq!(ended.variable("NCCL_IB_GID_INDEX"), Some(OWN_SLOT));
        let parent = ended.stdout.lines().find_map(|line| line.strip_prefix("parent ")).unwrap();
        assert!(parent.ends_with(" rdma-init"), "{ended:#?}");
        assert_eq!(parent == "1 rdma-init", pid_1, "{ended:#?}");
    }
}

#[test]
fn the_image_has_the_provider_for_erdma() {
    let Some(engine) = engine() else { return };
    let Some(image) = image(engine, "examples/pai-dlc/Dockerfile") else { return };
    let script = "cat /etc/libibverbs.d/erdma.driver";
    let ended = engine.start_image::<&str>(&image, [], &["sh", "-c", script]).wait().expect_code(0);
    assert!(ended.stdout.contains("driver"), "{ended:#?}");
}
