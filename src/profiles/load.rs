//! Loads profiles: the embedded ones and those in a user's directory.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::path::Path;

use super::check::{Wrong, check};
use super::embedded::{EMBEDDED, OUTLINES, USED};
use super::explain::{located, of_parser};
use super::folder::read_folder;
use super::format::Profile;
use super::outline::UsedVariables;
use super::{Outline, resolve};
use crate::libraries::nccl::devices::LIST;
use crate::text::visible;

/// All profiles, by name.
#[derive(Debug, Clone)]
pub struct Profiles {
    outlines: Cow<'static, [Outline]>,
    used: Cow<'static, UsedVariables>,
    /// Each profile merged with the profiles that it extends; created on first use.
    whole: OnceCell<ByName>,
    /// The first embedded profile that was asked for, by the name that was asked for: to make all of them takes as long
    /// as most other steps of a decision.
    first: OnceCell<(String, Option<Profile>)>,
    /// Whether the user's directory contains no profile.
    is_folder_empty: bool,
}

type ByName = BTreeMap<String, Profile>;

/// A profile that cannot be used. The text names the file, the line, and the key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ProfileError(pub(super) String);

/// The longest chain of profiles that extend each other.
const DEEPEST: usize = 16;

impl Profiles {
    /// Loads the embedded profiles and those in `folder`, which override embedded ones with the same name.
    ///
    /// # Errors
    /// The first file that cannot be read or is not a profile.
    pub fn load(folder: Option<&Path>) -> Result<Profiles, ProfileError> {
        if let Some(folder) = folder {
            return Profiles::with_those_in(folder);
        }
        let (outlines, used) = (Cow::Borrowed(&OUTLINES[..]), Cow::Borrowed(&USED));
        let (whole, first) = (OnceCell::new(), OnceCell::new());
        Ok(Profiles { outlines, used, whole, first, is_folder_empty: false })
    }

    /// Loads the embedded profiles and those in this directory. Most starts have none, and do not need its stack.
    ///
    /// # Errors
    /// The first file that cannot be read or is not a profile.
    #[cold]
    fn with_those_in(folder: &Path) -> Result<Profiles, ProfileError> {
        let mut profiles = embedded();
        let mut sources: BTreeMap<String, (String, String)> = BTreeMap::new();
        for (file, text) in read_folder(folder)? {
            let profile = parse(&file, &text)?;
            let lists_own_hcas = profile.may_fill().any(|variable| variable == LIST);
            let profile = Profile { is_of_user: true, lists_own_hcas, ..profile };
            let name = profile.name.clone();
            if let Some((other, _)) = sources.get(&name) {
                let why = format!("{other} has the name {name:?} as well, and only one of them can count");
                return Err(ProfileError(located(&file, &text, &Wrong::at("name", why))));
            }
            profiles.insert(name.clone(), profile);
            sources.insert(name, (file, text));
        }
        let whole = complete(profiles).map_err(|(name, why)| match sources.get(&name) {
            Some((file, text)) => ProfileError(located(file, text, &Wrong::at("extends", why))),
            // A user's profile may replace the one that an embedded profile extends.
            None => ProfileError(visible(&format!("profile {name}: key \"extends\": {why}"))),
        })?;
        for (name, (file, text)) in &sources {
            // `hands-off` may come from the profile that this one extends.
            let is_alone = |profile: &Profile| profile.script.is_some() && profile.hands_off.is_empty();
            if whole.get(name).is_some_and(is_alone) {
                let why =
                    "the profile has no hands-off: write there which variables the script sets".to_owned();
                return Err(ProfileError(located(file, text, &Wrong::at("script", why))));
            }
        }
        let outlines = whole.values().map(Outline::from).collect();
        let used = Cow::Owned(UsedVariables::of(whole.values()));
        let (whole, first) = (whole.into(), OnceCell::new());
        Ok(Profiles { outlines, used, whole, first, is_folder_empty: sources.is_empty() })
    }

    /// Returns whether the user named a directory of profiles, and it contains none.
    pub fn is_folder_empty(&self) -> bool {
        self.is_folder_empty
    }

    pub fn get(&self, name: &str) -> Option<&Profile> {
        if self.whole.get().is_none() {
            let make = || complete(with_bases(name)).unwrap_or_default().remove(name);
            let (asked, profile) = self.first.get_or_init(|| (name.to_owned(), make()));
            if asked == name {
                return profile.as_ref();
            }
        }
        self.whole().get(name)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Profile> {
        self.whole().values()
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.outlines().map(|outline| &*outline.name)
    }

    /// Returns the outlines, sorted by name.
    pub fn outlines(&self) -> impl Iterator<Item = &Outline> {
        self.outlines.iter()
    }

    /// Returns whether a profile may fill in this variable.
    pub fn may_fill(&self, variable: &str) -> bool {
        self.used.may_fill(variable)
    }

    /// Returns whether a profile may fill in this variable, or uses its value for another variable.
    pub fn reads(&self, variable: &str) -> bool {
        self.may_fill(variable) || self.used.is_source(variable)
    }

    /// Returns whether the presence of this variable affects a decision.
    pub fn is_marker(&self, variable: &str) -> bool {
        self.used.is_marker(variable)
    }

    /// Returns the files and directories whose presence affects a decision, each once.
    pub fn files(&self) -> Vec<&str> {
        let mut files: Vec<&str> =
            self.outlines().flat_map(|outline| outline.files.iter().map(|file| &**file)).collect();
        files.sort_unstable();
        files.dedup();
        files
    }

    fn whole(&self) -> &ByName {
        // A test ensures that the embedded profiles fit together.
        self.whole.get_or_init(|| complete(embedded()).unwrap_or_default())
    }
}

fn embedded() -> ByName {
    EMBEDDED.iter().map(|make| make()).map(|profile| (profile.name.clone(), profile)).collect()
}

/// Returns an embedded profile and those that it extends.
fn with_bases(name: &str) -> ByName {
    let mut found = ByName::new();
    let mut next = Some(name.to_owned());
    while let Some(name) = next {
        // Tests ensure that both lists have the same order, which is that of the names.
        let place = OUTLINES.binary_search_by(|outline| (*outline.name).cmp(name.as_str()));
        let Some(make) = place.ok().and_then(|place| EMBEDDED.get(place)) else { break };
        let profile = make();
        next = profile.extends.clone().filter(|base| !found.contains_key(base));
        found.insert(name, profile);
    }
    found
}

fn parse(file: &str, text: &str) -> Result<Profile, ProfileError> {
    let profile: Profile =
        toml::from_str(text).map_err(|error| ProfileError(of_parser(file, text, &error)))?;
    check(&profile).map_err(|wrong| ProfileError(located(file, text, &wrong)))?;
    Ok(profile)
}

/// Merges each profile with the profiles that it extends. On failure, returns the name of the profile that
/// cannot be merged, and the reason.
fn complete(mut profiles: ByName) -> Result<ByName, (String, String)> {
    let mut complete = Vec::new();
    for profile in profiles.values().filter(|profile| profile.extends.is_some()) {
        let mut whole = profile.clone();
        let mut seen = vec![profile.name.as_str()];
        while let Some(base) = whole.extends.take() {
            let fail = |why: String| Err((profile.name.clone(), why));
            let chain = || format!("{} -> {base}", seen.join(" -> "));
            let Some(base_profile) = profiles.get(&base) else {
                return fail(format!("there is no profile {base:?}"));
            };
            if seen.contains(&base.as_str()) {
                return fail(format!("the profile extends itself: {}", chain()));
            }
            if seen.len() > DEEPEST {
                return fail(format!(
                    "the profile extends more than {DEEPEST} others, one on top of the other: {}",
                    chain()
                ));
            }
            seen.push(&base_profile.name);
            whole = resolve::on_top_of(&whole, base_profile);
            whole.extends = base_profile.extends.clone();
        }
        whole.extends = profile.extends.clone();
        complete.push(whole);
    }
    profiles.extend(complete.into_iter().map(|profile| (profile.name.clone(), profile)));
    Ok(profiles)
}

/// Entry point for the fuzzers; see [`crate::fuzz`].
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz(data: &[u8]) {
    thread_local! { static EMBEDDED: ByName = embedded(); }
    let Ok(profile) = parse("fuzz.toml", &String::from_utf8_lossy(data)) else { return };
    let mut profiles = EMBEDDED.with(Clone::clone);
    let name = profile.name.clone();
    profiles.insert(name.clone(), profile);
    let Ok(whole) = complete(profiles) else { return };
    let whole = &whole[&name];
    let used = UsedVariables::of(std::iter::once(whole));
    assert!(whole.may_fill().all(|variable| used.may_fill(variable)), "{name}");
    drop(Outline::from(whole));
}

#[cfg(test)]
mod tests;
