//! Resource limits.

use super::Evidence;
use crate::facts::limits::{Amount, Limit};

pub fn limits(limit: Limit, show: impl Fn(u64) -> String) -> String {
    let shown = |amount| match amount {
        Amount::Limited(number) => show(number),
        Amount::Unlimited(_) => "unlimited".to_owned(),
    };
    format!("soft {}, hard {}", shown(limit.soft), shown(limit.hard))
}

pub fn few(
    limit: Option<Limit>,
    least: u64,
    message: &str,
    fix: &str,
    show: impl Fn(u64) -> String,
) -> Evidence {
    let Some(limit) = limit else { return Evidence::skip("the facts do not say") };
    let evidence = Evidence::of([limits(limit, &show)]);
    match limit.soft {
        Amount::Limited(number) if number < least => evidence.warn(message.replace("{}", &show(number)), fix),
        _ => evidence,
    }
}
