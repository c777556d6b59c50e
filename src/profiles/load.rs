//! Reading profiles: the embedded ones and a folder of the user's.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::embedded::EMBEDDED;
use super::format::Profile;
use super::resolve;
use crate::facts::settings::is_variable_name;

/// All profiles, by name, each complete with what it extends.
#[derive(Debug, Clone, Default)]
pub struct Profiles {
    by_name: BTreeMap<String, Profile>,
}

/// A profile that cannot be used. The text names the file, the line and the key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ProfileError(String);

/// More than any profile needs.
const LONGEST: u64 = 1024 * 1024;

impl Profiles {
    /// The embedded profiles, and those of `folder`, which win over embedded
    /// ones of the same name.
    ///
    /// # Errors
    /// The first file that cannot be read or is no profile.
    pub fn load(folder: Option<&Path>) -> Result<Profiles, ProfileError> {
        let mut profiles = Profiles::default();
        EMBEDDED.iter().for_each(|profile| profiles.insert(profile()));
        if let Some(folder) = folder {
            for (file, text) in read_folder(folder)? {
                profiles.add(&file, &text)?;
            }
        }
        profiles.complete()
    }

    pub fn get(&self, name: &str) -> Option<&Profile> {
        self.by_name.get(name)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Profile> {
        self.by_name.values()
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    /// Every variable that a profile may fill.
    pub fn variables(&self) -> BTreeSet<&str> {
        let all = self.iter().flat_map(|p| p.variables.keys().chain(&p.companions));
        all.map(String::as_str).collect()
    }

    /// Every variable whose presence is evidence for a profile.
    pub fn markers(&self) -> BTreeSet<&str> {
        self.iter().flat_map(|p| &p.evidence).filter_map(|c| c.environment.as_deref()).collect()
    }

    fn add(&mut self, file: &str, text: &str) -> Result<(), ProfileError> {
        let profile: Profile =
            toml::from_str(text).map_err(|error| ProfileError(explain(file, text, &error)))?;
        check(&profile).map_err(|why| ProfileError(format!("{file}: {why}")))?;
        self.insert(profile);
        Ok(())
    }

    fn insert(&mut self, profile: Profile) {
        self.by_name.insert(profile.name.clone(), profile);
    }

    fn complete(mut self) -> Result<Profiles, ProfileError> {
        let mut complete = Vec::new();
        for profile in self.iter().filter(|profile| profile.extends.is_some()) {
            let mut whole = profile.clone();
            let mut seen = vec![profile.name.as_str()];
            while let Some(base) = whole.extends.take() {
                let chain = || format!("{} -> {base}", seen.join(" -> "));
                let Some(base_profile) = self.by_name.get(&base) else {
                    return Err(ProfileError(format!(
                        "profile {} has the key \"extends\" with {base:?}, and there is no such profile",
                        profile.name
                    )));
                };
                if seen.contains(&base.as_str()) {
                    return Err(ProfileError(format!(
                        "profile {} extends itself: {}",
                        profile.name,
                        chain()
                    )));
                }
                seen.push(&base_profile.name);
                whole = resolve::on_top_of(&whole, base_profile);
                whole.extends = base_profile.extends.clone();
            }
            whole.extends = profile.extends.clone();
            complete.push(whole);
        }
        complete.into_iter().for_each(|profile| self.insert(profile));
        Ok(self)
    }
}

fn read_folder(folder: &Path) -> Result<Vec<(String, String)>, ProfileError> {
    let failed = |path: &Path, error: std::io::Error| {
        ProfileError(format!("cannot read {} (profile-dir): {error}", path.display()))
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(|error| failed(folder, error))? {
        let path = entry.map_err(|error| failed(folder, error))?.path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let metadata = fs::metadata(&path).map_err(|error| failed(&path, error))?;
        if !metadata.is_file() || metadata.len() > LONGEST {
            return Err(ProfileError(format!(
                "{} is no profile: it is not a regular file of at most {LONGEST} bytes",
                path.display()
            )));
        }
        let text = fs::read_to_string(&path).map_err(|error| failed(&path, error))?;
        files.push((path.display().to_string(), text));
    }
    files.sort();
    Ok(files)
}

/// `FILE:LINE: key "KEY": MESSAGE`.
fn explain(file: &str, text: &str, error: &toml::de::Error) -> String {
    let message = error.message().trim().replace('\n', " ");
    let Some(span) = error.span() else { return format!("{file}: {message}") };
    let before = text.get(..span.start).unwrap_or(text);
    let number = before.matches('\n').count() + 1;
    let line = text.lines().nth(number - 1).unwrap_or_default();
    match line.split_once('=').map(|(key, _)| key.trim()) {
        Some(key) if !message.contains(key) && !message.starts_with("missing field") => {
            format!("{file}:{number}: key \"{key}\": {message}")
        }
        _ => format!("{file}:{number}: {message}"),
    }
}

/// What the format alone does not rule out.
fn check(profile: &Profile) -> Result<(), String> {
    let reserved = ["auto", "none"];
    if profile.name.is_empty() || reserved.contains(&profile.name.as_str()) {
        return Err(format!("key \"name\": {:?} cannot be the name of a profile", profile.name));
    }
    for (variable, value) in &profile.variables {
        if !is_variable_name(variable) || value.contains('\0') {
            return Err(format!("key \"variables\": {variable:?} cannot be an environment variable"));
        }
    }
    if profile.evidence.contains(&super::Condition::default()) {
        return Err("key \"auto\": a table without a condition would match every host".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(files: &[(&str, &str)]) -> Result<Profiles, String> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let prefix = format!("{}/", folder.path().display());
        Profiles::load(Some(folder.path())).map_err(|error| error.to_string().replace(&prefix, ""))
    }

    const HEAD: &str = "name = \"site\"\ntitle = \"t\"\nsource = \"s\"\n";

    #[test]
    fn embedded_profiles_are_sound() {
        let profiles = Profiles::load(None).unwrap();
        assert_eq!(profiles.iter().count(), EMBEDDED.len());
        for profile in profiles.iter() {
            assert_eq!(check(profile), Ok(()), "{}", profile.name);
            let shown = toml::to_string(profile).unwrap();
            assert_eq!(toml::from_str::<Profile>(&shown).unwrap(), *profile);
        }
    }

    #[test]
    fn an_extension_keeps_the_order_of_its_base_and_adds_its_own() {
        let profiles = Profiles::load(None).unwrap();
        let (erdma, pai) = (profiles.get("erdma").unwrap(), profiles.get("pai-erdma").unwrap());
        let names: Vec<_> = pai.variables.keys().cloned().collect();
        let mut wanted: Vec<_> = erdma.variables.keys().cloned().collect();
        wanted.extend(["PYTHONUNBUFFERED".to_owned(), "TZ".to_owned()]);
        assert_eq!(names, wanted);
        assert_eq!(pai.constraints, erdma.constraints);
    }

    #[test]
    fn a_user_profile_replaces_an_embedded_one() {
        let text = "name = \"erdma\"\ntitle = \"t\"\nsource = \"s\"\n[variables]\nNCCL_DEBUG = \"WARN\"\n";
        let profiles = load(&[("erdma.toml", text), ("notes.txt", "not a profile")]).unwrap();
        assert_eq!(profiles.get("erdma").unwrap().variables.len(), 1);
        // What extends it now extends the user's.
        assert_eq!(profiles.get("pai-erdma").unwrap().variables.len(), 3);
    }

    #[test]
    fn a_broken_profile_is_named_with_line_and_key() {
        let error = |text: &str| load(&[("site.toml", &format!("{HEAD}{text}"))]).unwrap_err();
        assert!(
            error("colour = 1").starts_with("site.toml:4: unknown field `colour`"),
            "{}",
            error("colour = 1")
        );
        let wrong = error("priority = \"high\"");
        assert!(wrong.starts_with("site.toml:4: key \"priority\": invalid type"), "{wrong}");
        let number = error("[variables]\nNCCL_IB_TC = 106");
        assert!(number.starts_with("site.toml:5: key \"NCCL_IB_TC\": invalid type"), "{number}");
        assert!(error("[variables").starts_with("site.toml:4:"), "{}", error("[variables"));
        assert_eq!(
            error("extends = \"nobody\""),
            "profile site has the key \"extends\" with \"nobody\", and there is no such profile"
        );
        assert_eq!(error("extends = \"site\""), "profile site extends itself: site -> site");
        assert_eq!(
            error("[[auto]]"),
            "site.toml: key \"auto\": a table without a condition would match every host"
        );
        let missing = load(&[("x.toml", "name = \"x\"")]).unwrap_err();
        assert!(missing.starts_with("x.toml:1:") && missing.contains("`title`"), "{missing}");
    }
}
