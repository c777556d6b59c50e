//! The form of the metadata files of Kubernetes' dynamic resource allocation (KEP-5304, `DeviceMetadata`).

use std::collections::BTreeMap;

use indexmap::IndexSet;
use serde::{Deserialize, Deserializer};

use super::{ClaimedDevice, Limit, MOST_DEVICES};

/// The API group of the schema. A file contains one object for each version of the schema, and all of them
/// have the same content.
const GROUP: &str = "metadata.resource.k8s.io/";

/// The versions so far. The fields that rdma-init reads are the same in all of them; a later one may have others.
const VERSIONS: [&str; 2] = ["v1alpha1", "v1beta1"];

/// The most attributes of a device (Kubernetes allows 32:
/// `ResourceSliceMaxAttributesAndCapacitiesPerDevice`), and the most bytes of a text in one (Kubernetes
/// allows 64 for values: `DeviceAttributeMaxValueLength`; names are longer).
pub(super) const MOST_ATTRIBUTES: usize = 64;
pub(super) const LONGEST: usize = 512;

/// Returns the first object with a known version, wherever it is. A driver writes one for each version, and a later
/// version may have another form.
pub(super) fn described(text: &str) -> Result<Metadata, String> {
    let mut problem = None;
    let mut unknown = None;
    for object in serde_json::Deserializer::from_str(text).into_iter::<serde_json::Value>() {
        let object = object.map_err(|error| format!("it is not JSON: {error}"))?;
        let version = object.get("apiVersion").and_then(serde_json::Value::as_str);
        let Some(version) = version.and_then(|version| version.strip_prefix(GROUP)) else { continue };
        if !VERSIONS.contains(&version) {
            unknown.get_or_insert_with(|| harmless(version));
            continue;
        }
        match serde_json::from_value(object) {
            Ok(metadata) => return Ok(metadata),
            Err(error) => problem = Some(format!("it is not a DeviceMetadata of Kubernetes: {error}")),
        }
    }
    let of_version = |version: String| {
        format!("it contains only {GROUP}{version}, a version that rdma-init does not know")
    };
    Err(problem.or(unknown.map(of_version)).unwrap_or_else(|| format!("it contains no object of {GROUP}")))
}

/// The part of an object that rdma-init reads.
#[derive(Deserialize)]
pub(super) struct Metadata {
    #[serde(default, deserialize_with = "or_nothing")]
    requests: Vec<Request>,
}

#[derive(Deserialize)]
struct Request {
    name: String,
    #[serde(default, deserialize_with = "or_nothing")]
    devices: Vec<Described>,
}

#[derive(Deserialize)]
struct Described {
    name: String,
    driver: String,
    /// Each one is an [`Attribute`] in the known versions.
    #[serde(default, deserialize_with = "or_nothing")]
    attributes: BTreeMap<String, serde_json::Value>,
}

/// Takes `null` for an absent list or map: Go writes a slice or a map that is nil so.
fn or_nothing<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(value: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(value)?.unwrap_or_default())
}

/// One value, in the field for its type.
#[derive(Deserialize)]
struct Attribute {
    string: Option<String>,
    version: Option<String>,
    int: Option<i64>,
    bool: Option<bool>,
}

impl Attribute {
    /// Returns the value as text; `None` for a type that only a later version of the schema has.
    fn text(self) -> Option<String> {
        let number = || self.int.map(|number| number.to_string());
        let text = self.string.or(self.version).or_else(number);
        text.or_else(|| self.bool.map(|is_so| is_so.to_string()))
    }
}

impl Metadata {
    /// Adds the devices, each once. Stops if there are too many.
    pub(super) fn add_to(self, devices: &mut IndexSet<ClaimedDevice>, claim: &str) -> Result<(), Limit> {
        for request in self.requests {
            for device in request.devices {
                let device = device.of(claim, &request.name);
                if devices.len() < MOST_DEVICES {
                    devices.insert(device);
                } else if !devices.contains(&device) {
                    return Err(Limit::Devices);
                }
            }
        }
        Ok(())
    }
}

impl Described {
    fn of(self, claim: &str, request: &str) -> ClaimedDevice {
        // An attribute of another form, which only a later version of the schema has, is left out alone.
        let text = |value| serde_json::from_value::<Attribute>(value).ok()?.text();
        let attributes = self.attributes.into_iter();
        ClaimedDevice {
            claim: harmless(claim),
            request: harmless(request),
            driver: harmless(&self.driver),
            name: harmless(&self.name),
            attributes: attributes
                .filter_map(|(name, value)| Some((harmless(&name), harmless(&text(value)?))))
                .take(MOST_ATTRIBUTES)
                .collect(),
        }
    }
}

/// Replaces the control characters of a text from a third-party driver, and shortens it. It is shortened last, because
/// a replacement may be longer than the character.
pub(super) fn harmless(text: &str) -> String {
    let mut kept = String::new();
    for c in text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }) {
        if kept.len() + c.len_utf8() > LONGEST {
            break;
        }
        kept.push(c);
    }
    kept
}

/// Entry point for the fuzzers; see [`crate::fuzz`].
#[cfg(any(test, fuzzing))]
pub(in crate::facts) fn fuzz(text: &str) {
    let Ok(metadata) = described(text) else { return };
    let mut devices = IndexSet::new();
    let is_whole = metadata.add_to(&mut devices, "claim").is_ok();
    assert!(devices.len() <= MOST_DEVICES && (is_whole || devices.len() == MOST_DEVICES));
    for device in devices {
        assert!(device.attributes.len() <= MOST_ATTRIBUTES, "{device:?}");
        let own = [&device.driver, &device.name, &device.request];
        let attributes = device.attributes.iter().flat_map(|(name, value)| [name, value]);
        for text in own.into_iter().chain(attributes) {
            assert!(!text.contains(|c: char| c.is_control()) && text.len() <= LONGEST, "{device:?}");
        }
    }
}
