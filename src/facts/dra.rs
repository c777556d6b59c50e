//! The devices in the resource claims of this Pod (Kubernetes dynamic resource allocation, DRA), as each
//! driver describes them in the container (KEP-5304, `DeviceMetadata` of `metadata.resource.k8s.io`; alpha in
//! Kubernetes 1.36, beta in 1.37).
//!
//! A driver need not write these files, so their absence means nothing.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::reader::Reader;

/// The directory that contains `KIND/CLAIM/REQUEST/DRIVER-metadata.json`.
const FOLDER: &str = "/var/run/kubernetes.io/dra-device-attributes";

/// The directory for claims that the Pod names, and the one for claims made from a template, where the entry
/// has the name that the Pod uses.
const KINDS: [&str; 2] = ["resourceclaims", "resourceclaimtemplates"];

const SUFFIX: &str = "-metadata.json";

/// The API group of the schema. A file contains one object for each version of the schema, and all of them
/// have the same content.
const GROUP: &str = "metadata.resource.k8s.io/";

/// The versions so far. The fields that rdma-init reads are the same in all of them; a later one may have others.
const VERSIONS: [&str; 2] = ["v1alpha1", "v1beta1"];

/// The most entries to examine in each directory, and the most devices. A Pod may have 64 claims
/// (`PodSpec.resourceClaims`), and a claim 32 requests and 32 devices.
const MOST_ENTRIES: usize = 128;
const MOST_DEVICES: usize = 512;

/// The most attributes of a device (Kubernetes allows 32:
/// `ResourceSliceMaxAttributesAndCapacitiesPerDevice`), and the most bytes of a text in one (Kubernetes
/// allows 64 for values: `DeviceAttributeMaxValueLength`; names are longer).
const MOST_ATTRIBUTES: usize = 64;
const LONGEST: usize = 512;

/// A device in a claim.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClaimedDevice {
    /// The name of the claim; for a claim made from a template, the name of the Pod's entry for it.
    pub claim: String,
    pub request: String,
    /// Such as `dra.net`.
    pub driver: String,
    /// The device's name in its pool, which the kernel does not know.
    pub name: String,
    /// The attributes by name, such as `resource.kubernetes.io/pciBusID`. Numbers and booleans are stored as
    /// text.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
}

impl ClaimedDevice {
    /// Returns the address of the device's PCI function, such as `0000:8d:00.0`: from the standard attribute,
    /// from DRANET's older one, or from the one of NVIDIA's GPU driver.
    #[must_use]
    pub fn pci_address(&self) -> Option<&str> {
        let names = ["resource.kubernetes.io/pciBusID", "dra.net/pciAddress", "gpu.nvidia.com/pciBusID"];
        names.iter().find_map(|name| self.attribute(name))
    }

    /// Returns the RDMA device's name on the node (DRANET). In exclusive mode, the device may have another
    /// name in the container.
    #[must_use]
    pub fn rdma_device(&self) -> Option<&str> {
        self.attribute("dra.net/rdmaDevice")
    }

    /// Returns the instance type, which DRANET reads from the cloud's metadata.
    #[must_use]
    pub fn instance_type(&self) -> Option<&str> {
        ["alibaba.dra.net/instanceType", "azure.dra.net/vmSize"].iter().find_map(|name| self.attribute(name))
    }

    /// Returns the placement group of the instance. On Azure, instances of different placement groups do not
    /// share an InfiniBand fabric (DRANET's documentation for Azure).
    #[must_use]
    pub fn placement_group(&self) -> Option<&str> {
        self.attribute("azure.dra.net/placementGroupId")
    }

    /// Returns the NVLink domain of the instance, which DRANET reads from Oracle's metadata on machines that
    /// have one, such as BM.GPU.GB200 (`pkg/cloudprovider/oke/oke.go`). NVIDIA's own drivers (for GPUs and for
    /// compute domains) give no device an attribute that shows its domain or clique.
    #[must_use]
    pub fn nvlink_domain(&self) -> Option<&str> {
        self.attribute("oke.dra.net/gpuMemoryFabricId")
    }

    /// Returns an attribute by its full name. A driver may omit its own domain from an attribute's name.
    #[must_use]
    pub fn attribute(&self, name: &str) -> Option<&str> {
        let plain = || {
            let (domain, plain) = name.split_once('/')?;
            self.attributes.get(plain).filter(|_| domain == self.driver)
        };
        self.attributes.get(name).or_else(plain).map(String::as_str)
    }
}

/// Reads the devices of all claims that this container can see, each once.
pub(crate) fn read(reader: &Reader) -> Vec<ClaimedDevice> {
    let mut devices = Vec::new();
    if !reader.is_there(FOLDER) {
        return devices;
    }
    for kind in KINDS {
        let claims = format!("{FOLDER}/{kind}");
        for claim in first_names(reader, &claims) {
            let requests = format!("{claims}/{claim}");
            for request in first_names(reader, &requests) {
                let files = format!("{requests}/{request}");
                for file in first_names(reader, &files).iter().filter(|name| name.ends_with(SUFFIX)) {
                    let path = format!("{files}/{file}");
                    let Some(text) = reader.text(&path) else { continue };
                    match described(&text) {
                        Ok(metadata) => metadata.add_to(&mut devices, &claim),
                        Err(problem) => reader.remember(&reader.path(&path), problem),
                    }
                }
            }
        }
    }
    devices.truncate(MOST_DEVICES);
    devices
}

fn first_names(reader: &Reader, folder: &str) -> Vec<String> {
    let mut names = Vec::new();
    reader.each_name_if_listable(Path::new(folder), MOST_ENTRIES, |name| names.push(name.to_owned()));
    names.sort();
    names
}

/// Returns the first object with a known version, wherever it is. A driver writes one for each version, and a later version
/// may have another form.
fn described(text: &str) -> Result<Metadata, String> {
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
struct Metadata {
    #[serde(default)]
    requests: Vec<Request>,
}

#[derive(Deserialize)]
struct Request {
    name: String,
    #[serde(default)]
    devices: Vec<Described>,
}

#[derive(Deserialize)]
struct Described {
    name: String,
    driver: String,
    #[serde(default)]
    attributes: BTreeMap<String, Attribute>,
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
    fn add_to(self, devices: &mut Vec<ClaimedDevice>, claim: &str) {
        for request in self.requests {
            for device in request.devices {
                let device = device.of(claim, &request.name);
                if devices.len() < MOST_DEVICES && !devices.contains(&device) {
                    devices.push(device);
                }
            }
        }
    }
}

impl Described {
    fn of(self, claim: &str, request: &str) -> ClaimedDevice {
        let attributes = self.attributes.into_iter().take(MOST_ATTRIBUTES);
        ClaimedDevice {
            claim: harmless(claim),
            request: harmless(request),
            driver: harmless(&self.driver),
            name: harmless(&self.name),
            attributes: attributes
                .filter_map(|(name, value)| Some((harmless(&name), harmless(&value.text()?))))
                .collect(),
        }
    }
}

/// Replaces the control characters of a text from a third-party driver, and shortens it. It is shortened last, because a
/// replacement may be longer than the character.
fn harmless(text: &str) -> String {
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
pub(super) fn fuzz(text: &str) {
    let Ok(metadata) = described(text) else { return };
    let mut devices = Vec::new();
    metadata.add_to(&mut devices, "claim");
    for device in devices {
        assert!(device.attributes.len() <= MOST_ATTRIBUTES, "{device:?}");
        let own = [&device.driver, &device.name, &device.request];
        let attributes = device.attributes.iter().flat_map(|(name, value)| [name, value]);
        for text in own.into_iter().chain(attributes) {
            assert!(!text.contains(|c: char| c.is_control()) && text.len() <= LONGEST, "{device:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::fake_root::FakeRoot;

    /// Writes these files, each given by its path below the directory, and reads them.
    fn read_files(files: &[(&str, &str)]) -> (Vec<ClaimedDevice>, Vec<String>) {
        let root = FakeRoot::new();
        root.files(&FOLDER[1..], files);
        let reader = root.reader();
        let devices = read(&reader);
        (devices, reader.into_unreadable().into_iter().map(|unreadable| unreadable.error).collect())
    }

    fn metadata(version: &str, requests: &str) -> String {
        format!(
            r#"{{"apiVersion":"{version}","kind":"DeviceMetadata","metadata":{{"name":"c","generation":1}},"requests":{requests}}}"#
        )
    }

    const NIC: &str = r#"[{"name":"nic","devices":[{"name":"pci-0000-8d-00-0","driver":"dra.net","pool":"node-1",
        "attributes":{"resource.kubernetes.io/pciBusID":{"string":"0000:8d:00.0"},"rdmaDevice":{"string":"mlx5_2"},
        "dra.net/numaNode":{"int":1},"dra.net/rdma":{"bool":true},"driverVersion":{"version":"1.2.0"},"later":{"list":["x"]}}}]}]"#;

    #[test]
    fn the_devices_of_claims_and_of_templates_are_read() {
        let known = metadata("metadata.resource.k8s.io/v1alpha1", NIC);
        // The objects with a group and with a version that rdma-init does not know come first. The latter has no requests
        // in the form of the known versions.
        let several = format!(
            "{}\n{}\n{known}\n",
            metadata("metadata.k8s.io/v99", r#"[{"name":"x"}]"#),
            r#"{"apiVersion":"metadata.resource.k8s.io/v2","kind":"DeviceMetadata","claims":{}}"#
        );
        let (devices, unreadable) = read_files(&[
            ("resourceclaims/rails/nic/dra.net-metadata.json", &several),
            (
                "resourceclaimtemplates/more/nic/dra.net-metadata.json",
                &metadata("metadata.resource.k8s.io/v1beta1", NIC),
            ),
            ("resourceclaims/rails/nic/README", "no metadata"),
        ]);
        assert!(unreadable.is_empty(), "{unreadable:?}");
        let claims: Vec<&str> = devices.iter().map(|device| device.claim.as_str()).collect();
        assert_eq!(claims, ["rails", "more"]);
        let device = &devices[0];
        assert_eq!((device.request.as_str(), device.driver.as_str()), ("nic", "dra.net"));
        assert_eq!(device.pci_address(), Some("0000:8d:00.0"));
        assert_eq!(device.rdma_device(), Some("mlx5_2"), "the driver's own domain may be left out");
        let texts = ["dra.net/numaNode", "dra.net/rdma", "dra.net/driverVersion", "dra.net/later"];
        assert_eq!(texts.map(|name| device.attribute(name)), [Some("1"), Some("true"), Some("1.2.0"), None]);
        assert_eq!(device.attribute("other.net/rdmaDevice"), None);
    }

    #[test]
    fn the_clouds_attributes_are_found() {
        let text = r#"[{"name":"nic","devices":[{"name":"n","driver":"dra.net","attributes":{
            "azure.dra.net/placementGroupId":{"string":"c6c7"},"oke.dra.net/gpuMemoryFabricId":{"string":"abya"},
            "azure.dra.net/vmSize":{"string":"Standard_ND128isr_GB300_v6"}}}]}]"#;
        let file = metadata("metadata.resource.k8s.io/v1beta1", text);
        let (devices, _) = read_files(&[("resourceclaims/rails/nic/dra.net-metadata.json", &file)]);
        let device = &devices[0];
        assert_eq!((device.placement_group(), device.nvlink_domain()), (Some("c6c7"), Some("abya")));
        assert_eq!(device.instance_type(), Some("Standard_ND128isr_GB300_v6"));
    }

    #[test]
    fn what_is_not_metadata_is_remembered_and_costs_nothing() {
        let deep = format!("{}1{}", "[".repeat(20_000), "]".repeat(20_000));
        for (text, problem) in [
            ("{", "it is not JSON"),
            (&*deep, "it is not JSON"),
            (r#"{"apiVersion":"v1"}"#, "it contains no object of"),
            (
                r#"{"apiVersion":"metadata.resource.k8s.io/v1beta1","requests":7}"#,
                "it is not a DeviceMetadata",
            ),
            (
                r#"{"apiVersion":"metadata.resource.k8s.io/v2","kind":"DeviceMetadata","devices":[]}"#,
                "it contains only metadata.resource.k8s.io/v2, a version that rdma-init does not know",
            ),
        ] {
            let (devices, unreadable) = read_files(&[("resourceclaims/a/b/c-metadata.json", text)]);
            assert_eq!(devices, []);
            assert!(unreadable.len() == 1 && unreadable[0].contains(problem), "{unreadable:?}");
        }
        assert_eq!(read_files(&[]), (Vec::new(), Vec::new()));
    }

    #[test]
    fn devices_texts_and_attributes_are_bounded() {
        let attributes: String =
            (0..200).map(|n| format!(r#""a{n:03}":{{"string":"{}"}},"#, "é".repeat(600))).collect();
        let device = format!(
            r#"{{"name":"x\u001b[1m","driver":"d","attributes":{{{}}}}}"#,
            attributes.trim_end_matches(',')
        );
        let text = metadata(
            "metadata.resource.k8s.io/v1beta1",
            &format!(r#"[{{"name":"r","devices":[{device}]}}]"#),
        );
        let (devices, _) = read_files(&[("resourceclaims/a/b/c-metadata.json", &text)]);
        assert_eq!(devices[0].name, "x\u{fffd}[1m");
        assert_eq!(devices[0].attributes.len(), MOST_ATTRIBUTES);
        assert!(devices[0].attributes.values().all(|value| value.len() <= LONGEST && !value.is_empty()));
        // A replacement has three bytes.
        assert_eq!(harmless(&"\n".repeat(LONGEST)).len(), LONGEST - 2);
        let many: Vec<String> = (0..2000).map(|n| format!(r#"{{"name":"{n}","driver":"d"}}"#)).collect();
        let text = metadata(
            "metadata.resource.k8s.io/v1beta1",
            &format!(r#"[{{"name":"r","devices":[{}]}}]"#, many.join(",")),
        );
        assert_eq!(read_files(&[("resourceclaims/a/b/c-metadata.json", &text)]).0.len(), MOST_DEVICES);
    }
}
