//! An instance type in the configuration that the profile does not have.

use std::cmp::Reverse;

use crate::finding::{Finding, Id};
use crate::nearest::slips;
use crate::plan::Context;
use crate::text::{shortened, visible};

/// The most names that a message proposes.
const MOST: usize = 3;

/// The most letters that a slip changes.
const SLIPS: usize = 3;

pub(super) fn finding(context: &Context) -> Option<Finding> {
    let constraints = &context.profile.constraints;
    let given = context.options.instance_type.as_deref()?;
    if constraints.nics.is_empty() || constraints.nics.contains_key(given) {
        return None;
    }
    let (is_certain, near) = near(constraints.nics.keys().map(String::as_str), given);
    // A type that the profile does not list may be right, unless its name is only written in another way.
    if constraints.other_types && !is_certain {
        return None;
    }
    let meant = match near.as_slice() {
        [] => String::new(),
        [first, others @ ..] => {
            let others: String = others.iter().map(|name| format!(" or {name}")).collect();
            format!("; did you mean {first}{others}?")
        }
    };
    let name = &context.profile.name;
    let message = format!(
        "The key instance-type is {}, and profile {name} has no such type{}",
        shortened(&visible(given)),
        if meant.is_empty() { "." } else { &meant }
    );
    let fix = match near.as_slice() {
        [] => format!("Write one of the types that rdma-init profiles {name} shows, or remove the key."),
        [first, ..] => format!("Write {first}, if that is the type, or remove the key."),
    };
    Some(Finding::warning(Id::UnknownInstanceType, message).with_fix(fix))
}

/// Returns the names that may be meant, the nearest first, and whether the first one certainly is: it differs only in
/// case, or in the prefix that Alibaba Cloud's types have.
fn near<'n>(names: impl Iterator<Item = &'n str>, given: &str) -> (bool, Vec<&'n str>) {
    let plain = |name: &str| {
        let name = name.to_ascii_lowercase();
        name.strip_prefix("ecs.").map(str::to_owned).unwrap_or(name)
    };
    let wanted = plain(given);
    let near = |name| Some((slips(&plain(name), &wanted, SLIPS)?, Reverse(common_start(name, given)), name));
    let mut near: Vec<(usize, Reverse<usize>, &str)> = names.filter_map(near).collect();
    near.sort_unstable();
    let is_certain = near.first().is_some_and(|(slips, ..)| *slips == 0);
    let most = if is_certain { 1 } else { MOST };
    (is_certain, near.into_iter().take(most).map(|(.., name)| name).collect())
}

fn common_start(one: &str, other: &str) -> usize {
    one.bytes().zip(other.bytes()).take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profiles::Profiles;

    #[test]
    fn near_types_are_proposed() {
        let profiles = Profiles::load(None).unwrap();
        let types = &profiles.get("pai-erdma").unwrap().constraints.nics;
        let near = |given: &str| near(types.keys().map(String::as_str), given);
        for given in ["ebmgn8i.32xlarge", "ECS.EBMGN8I.32XLARGE", "ecs.ebmgn8I.32xlarge"] {
            assert_eq!(near(given), (true, vec!["ecs.ebmgn8i.32xlarge"]), "{given}");
        }
        let (is_certain, names) = near("ecs.ebmgn8j.32xlarge");
        assert!(!is_certain && names.contains(&"ecs.ebmgn8i.32xlarge"), "{names:?}");
        assert!(names.len() <= MOST, "{names:?}");
        for given in ["ecs.nope", "", &"x".repeat(100_000)] {
            assert_eq!(near(given), (false, Vec::new()), "{given}");
        }
    }
}
