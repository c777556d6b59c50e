//! `extends`: merges a profile with the one that it extends.

use super::fits;
use super::format::Profile;

/// Returns `profile` with the values of `base` where it has none of its own. It does not inherit evidence: a
/// host that matches the base need not match the extension.
pub(super) fn on_top_of(profile: &Profile, base: &Profile) -> Profile {
    // What the extension sets or leaves to other programs is not the base's to set any more.
    let is_taken = |variable: &str| {
        profile.variables.contains_key(variable)
            || profile.hands_off.iter().any(|pattern| fits(pattern, variable))
    };
    let mut variables = base.variables.clone();
    variables.retain(|variable, _| !is_taken(variable));
    variables.extend(profile.variables.clone());
    let either = |own: &Vec<String>, base: &Vec<String>| {
        let mut all = base.clone();
        all.extend(own.iter().filter(|name| !base.contains(name)).cloned());
        all
    };
    let constraints = profile.constraints.clone();
    let base_constraints = base.constraints.clone();
    Profile {
        fabric: profile.fabric.clone().or(base.fabric.clone()),
        default_route_hca: profile.default_route_hca.or(base.default_route_hca),
        hands_off: either(&profile.hands_off, &base.hands_off),
        // If the extension sets a variable, the variable is no longer left unset.
        unset: either(&profile.unset, &base.unset)
            .into_iter()
            .filter(|name| !profile.variables.contains_key(name))
            .collect(),
        companions: either(&profile.companions, &base.companions),
        script: profile.script.clone().or(base.script.clone()),
        from_environment: {
            let mut all = base.from_environment.clone();
            all.retain(|variable, _| !is_taken(variable));
            all.extend(profile.from_environment.clone());
            all
        },
        // The extension's tables come last, so that they override the base's; so do its plain variables.
        only: {
            let of_base = base.only.iter().cloned().map(|mut only| {
                only.variables.retain(|variable, _| !is_taken(variable));
                only
            });
            of_base.chain(profile.only.iter().cloned()).filter(|only| !only.variables.is_empty()).collect()
        },
        hint: profile.hint.clone().or(base.hint.clone()),
        lists_own_hcas: profile.lists_own_hcas || base.lists_own_hcas,
        variables,
        constraints: super::Constraints {
            cards: first_filled(constraints.cards, base_constraints.cards),
            cards_elsewhere: first_filled(constraints.cards_elsewhere, base_constraints.cards_elsewhere),
            cards_note: constraints.cards_note.or(base_constraints.cards_note),
            nccl_min: constraints.nccl_min.or(base_constraints.nccl_min),
            cuda_min: constraints.cuda_min.or(base_constraints.cuda_min),
            interfaces_up: first_filled(constraints.interfaces_up, base_constraints.interfaces_up),
            gpus: first_filled(constraints.gpus, base_constraints.gpus),
            other_types: constraints.other_types || base_constraints.other_types,
            nics: if constraints.nics.is_empty() { base_constraints.nics } else { constraints.nics },
        },
        ..profile.clone()
    }
}

fn first_filled<T>(own: Vec<T>, base: Vec<T>) -> Vec<T> {
    if own.is_empty() { base } else { own }
}
