//! The names by which a scheduler can exclude nodes. A member of the job chooses the name that it
//! claims, so a claimed name alone never gets into a list. Only the name that the launcher gives node 0
//! for an index does. Pure.

use std::collections::HashMap;

/// What is known about the name of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Name {
    /// The launcher has this name for the index.
    Launcher(String),
    /// The launcher gives node 0 no names.
    #[default]
    Unknown,
    /// The order of the launcher's names is not certain, and the node claims a different name than
    /// this.
    Differs(String),
    /// Another node claims this name, or has it as well.
    Shared(String),
}

/// Returns the host in a name, without its domain.
fn short(name: &str) -> String {
    name.split('.').next().unwrap_or_default().to_ascii_lowercase()
}

/// Returns the names of all nodes. `names` are the launcher's names in the order of the indices;
/// `certain` says whether that order is certain. `claims` are the host names that the nodes claim;
/// `None` for a node that never joined.
///
/// If the order is not certain, a name counts only if its node claims it as well. The name of a node
/// that never joined counts if the claims of all other nodes match.
pub(crate) fn names(names: &[String], certain: bool, claims: &[Option<&str>]) -> Vec<Name> {
    let mut claimed: HashMap<String, Vec<usize>> = HashMap::new();
    for (node, claim) in claims.iter().enumerate() {
        let of_launcher = names.get(node).map(|name| short(name));
        for name in of_launcher.into_iter().chain(claim.map(short)) {
            let nodes = claimed.entry(name).or_default();
            if !nodes.contains(&node) {
                nodes.push(node);
            }
        }
    }
    let agrees = |node: usize| {
        let claim = claims.get(node).copied().flatten();
        claim.zip(names.get(node)).is_none_or(|(claim, name)| short(claim) == short(name))
    };
    let is_order_right = certain || (0..claims.len()).all(agrees);
    let name = |node: usize| {
        let Some(name) = names.get(node).filter(|name| !name.is_empty()) else { return Name::Unknown };
        let has_come = claims.get(node).is_some_and(Option::is_some);
        let is_right = is_order_right || has_come && agrees(node);
        match claimed.get(&short(name)).is_some_and(|nodes| nodes.len() > 1) {
            true => Name::Shared(name.clone()),
            false if is_right => Name::Launcher(name.clone()),
            false => Name::Differs(name.clone()),
        }
    };
    (0..claims.len()).map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(launcher: &[&str], certain: bool, claims: &[&str]) -> Vec<Name> {
        let launcher: Vec<String> = launcher.iter().map(|name| (*name).to_owned()).collect();
        let claims: Vec<Option<&str>> =
            claims.iter().map(|claim| Some(*claim).filter(|claim| *claim != "-")).collect();
        names(&launcher, certain, &claims)
    }

    fn good(name: &str) -> Name {
        Name::Launcher(name.to_owned())
    }

    fn shared(name: &str) -> Name {
        Name::Shared(name.to_owned())
    }

    #[test]
    fn only_the_launcher_s_own_name_of_an_index_counts() {
        assert_eq!(of(&["n0", "n1"], true, &["container-a", "-"]), [good("n0"), good("n1")]);
        assert_eq!(of(&[], false, &["n0", "n1"]), [Name::Unknown, Name::Unknown]);
    }

    #[test]
    fn a_name_that_another_node_claims_does_not_count() {
        assert_eq!(
            of(&["n0", "n1", "n2"], true, &["n0", "n2", "n2"]),
            [good("n0"), good("n1"), shared("n2")]
        );
        assert_eq!(of(&["n0", "n1"], true, &["n0", "N0.example"]), [shared("n0"), good("n1")]);
        assert_eq!(of(&["n0", "n0"], true, &["a", "b"]), [shared("n0"), shared("n0")]);
        // Containers may all have one name that is not one of the launcher's names.
        assert_eq!(of(&["n0", "n1"], true, &["worker", "worker"]), [good("n0"), good("n1")]);
    }

    #[test]
    fn an_order_that_is_not_certain_has_to_be_confirmed() {
        assert_eq!(of(&["n0", "n1"], false, &["n0.example", "N1"]), [good("n0"), good("n1")]);
        assert_eq!(of(&["n0", "n1", "n2"], false, &["n0", "n1", "-"]), [good("n0"), good("n1"), good("n2")]);
        let differs = |name: &str| Name::Differs(name.to_owned());
        assert_eq!(
            of(&["n0", "n1", "n2"], false, &["n0", "x", "-"]),
            [good("n0"), differs("n1"), differs("n2")]
        );
        // If the order is different, no name stands for an index.
        assert_eq!(of(&["n0", "n1"], false, &["n1", "n0"]), [shared("n0"), shared("n1")]);
    }
}
