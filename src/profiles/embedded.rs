//! The profiles that are part of the program. `generate.rs` writes them during the build from the TOML files
//! in this directory; a file that is not a profile fails the build.

use std::borrow::Cow;

use super::format::{
    AttributeEvidence, Condition, Constraints, DefaultRouteHca, Fabric, GpuRow, HcaEvidence, Only, Profile,
    Script, Text,
};
use super::outline::{Outline, UsedVariables};

include!(concat!(env!("OUT_DIR"), "/profiles.rs"));

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn every_file_is_embedded_as_it_is() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/profiles");
        let mut files: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
            .collect();
        files.sort();
        let written: Vec<Profile> =
            files.iter().map(|file| toml::from_str(&fs::read_to_string(file).unwrap()).unwrap()).collect();
        let embedded: Vec<Profile> = EMBEDDED.iter().map(|profile| profile()).collect();
        assert_eq!(embedded, written);
        for (file, profile) in files.iter().zip(&embedded) {
            assert_eq!(file.file_stem().unwrap(), profile.name.as_str());
        }
        let outlines: Vec<Outline> = written.iter().map(Outline::from).collect();
        assert_eq!(OUTLINES.as_slice(), outlines);
        assert_eq!(USED, UsedVariables::of(written.iter()));
        assert!(OUTLINES.is_sorted_by_key(|outline| &outline.name));
    }
}
