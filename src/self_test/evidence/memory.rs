//! The memory that processes share.

use super::Evidence;
use crate::facts::Facts;
use crate::plan::Plan;
use crate::self_test::check::Outcome;
use crate::text::amount;

pub(crate) fn room(facts: &Facts, _: &Plan) -> Evidence {
    match facts.shm {
        Some(shm) => Evidence::of([format!("{}, {} free", amount(shm.size), amount(shm.available))]),
        None => Evidence::skip("there is no /dev/shm"),
    }
}

pub(crate) fn writable(facts: &Facts, _: &Plan) -> Evidence {
    match facts.shm.and_then(|shm| shm.writable) {
        None => Evidence::skip("the facts do not say"),
        Some(true) => Evidence::of(["this user may write to it".to_owned()]),
        Some(false) => Evidence {
            wrong: Some((
                Outcome::Failed,
                "This user may not create files in /dev/shm, and NCCL needs them between the GPUs of a node."
                    .to_owned(),
                "Mount it with mode 1777, or run as another user.".to_owned(),
            )),
            ..Evidence::default()
        },
    }
}
