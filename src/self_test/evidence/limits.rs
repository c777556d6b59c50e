//! Resource limits.

use super::Evidence;
use crate::facts::Facts;
use crate::facts::limits::{Amount, Limit};
use crate::findings::memlock::{self, Pinning};
use crate::plan::Plan;
use crate::text::amount;

/// The number of open files that each rank of a large job needs.
const FEW_FILES: u64 = 4096;

/// In bytes; some threads of NCCL and of frameworks need more stack.
const SMALL_STACK: u64 = 1024 * 1024;

pub(crate) fn memlock(facts: &Facts, _: &Plan) -> Evidence {
    Evidence::of(facts.limits.memlock.map(|limit| {
        let lifted = match memlock::pinning(limit, &facts.process) {
            Pinning::Capability => ", and CAP_IPC_LOCK lifts it",
            Pinning::Limited(_) | Pinning::Unlimited => "",
        };
        format!("{}{lifted}", limits(limit, amount))
    }))
}

pub(crate) fn nofile(facts: &Facts, _: &Plan) -> Evidence {
    few(
        facts.limits.nofile,
        FEW_FILES,
        |count| count.to_string(),
        |count| {
            format!(
                "Only {count} files may be open at once. A large job needs more, or fails with \"Too many open files\"."
            )
        },
        "Docker: --ulimit nofile=1048576:1048576. containerd: LimitNOFILE=infinity in its unit.",
    )
}

pub(crate) fn stack(facts: &Facts, _: &Plan) -> Evidence {
    few(
        facts.limits.stack,
        SMALL_STACK,
        amount,
        |bytes| {
            format!(
                "The stack cannot grow beyond {}: threads of NCCL and of the framework may crash with a segmentation fault.",
                amount(bytes)
            )
        },
        "Docker: --ulimit stack=67108864:67108864.",
    )
}

fn limits(limit: Limit, show: fn(u64) -> String) -> String {
    let shown = |amount| match amount {
        Amount::Limited(number) => show(number),
        Amount::Unlimited(_) => "unlimited".to_owned(),
    };
    format!("soft {}, hard {}", shown(limit.soft), shown(limit.hard))
}

fn few(
    limit: Option<Limit>,
    least: u64,
    show: fn(u64) -> String,
    warning: fn(u64) -> String,
    fix: &str,
) -> Evidence {
    let Some(limit) = limit else { return Evidence::skip("the facts do not say") };
    let evidence = Evidence::of([limits(limit, show)]);
    match limit.soft {
        Amount::Limited(number) if number < least => evidence.warn(warning(number), fix),
        _ => evidence,
    }
}
