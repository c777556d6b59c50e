use super::metadata::{LONGEST, MOST_ATTRIBUTES, harmless};
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
    assert_eq!(device.pci_address().as_deref(), Some("0000:8d:00.0"));
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
        (r#"{"apiVersion":"metadata.resource.k8s.io/v1beta1","requests":7}"#, "it is not a DeviceMetadata"),
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
    let text =
        metadata("metadata.resource.k8s.io/v1beta1", &format!(r#"[{{"name":"r","devices":[{device}]}}]"#));
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
    let (devices, unreadable) = read_files(&[("resourceclaims/a/b/c-metadata.json", &text)]);
    assert_eq!(devices.len(), MOST_DEVICES);
    assert_eq!(unreadable, ["it describes more than 512 devices, and rdma-init has left the rest out"]);
}

#[test]
fn null_is_nothing_and_an_attribute_of_an_unknown_form_is_left_out_alone() {
    let read_one = |requests: &str| {
        let text = metadata("metadata.resource.k8s.io/v1beta1", requests);
        let (mut devices, unreadable) = read_files(&[("resourceclaims/a/b/c-metadata.json", &text)]);
        assert!(unreadable.is_empty(), "{requests}: {unreadable:?}");
        devices.pop().map(|device| device.attributes.into_iter().collect::<Vec<_>>())
    };
    assert_eq!(read_one("null"), None);
    assert_eq!(read_one(r#"[{"name":"r","devices":null}]"#), None);
    let device = |attributes: &str| {
        format!(r#"[{{"name":"r","devices":[{{"name":"d","driver":"x","attributes":{attributes}}}]}}]"#)
    };
    assert_eq!(read_one(&device("null")), Some(Vec::new()));
    for odd in ["null", "7", r#""text""#, r#"{"int":1.5}"#, r#"{"int":12345678901234567890123}"#, r#"["x"]"#]
    {
        let attributes = format!(r#"{{"a":{odd},"b":{{"string":"kept"}}}}"#);
        assert_eq!(read_one(&device(&attributes)), Some(vec![("b".to_owned(), "kept".to_owned())]), "{odd}");
    }
}

#[test]
fn the_first_entries_by_name_count_and_the_others_are_told() {
    let root = FakeRoot::new();
    let text = metadata("metadata.resource.k8s.io/v1beta1", NIC);
    for number in 0..300 {
        root.file(&format!("{}/resourceclaims/c{number:03}/r/dra.net-metadata.json", &FOLDER[1..]), &text);
    }
    let reader = root.reader();
    let claims: Vec<String> = read(&reader).into_iter().map(|device| device.claim).collect();
    let wanted: Vec<String> = (0..MOST_ENTRIES).map(|number| format!("c{number:03}")).collect();
    assert_eq!(claims, wanted);
    let unreadable = reader.into_unreadable();
    assert_eq!(unreadable.len(), 1, "{unreadable:?}");
    assert!(unreadable[0].path.ends_with("resourceclaims"), "{unreadable:?}");
    assert_eq!(
        unreadable[0].error,
        "it has at least 300 entries, and rdma-init has read only the first 128 by name"
    );
}

#[test]
fn what_is_read_is_bounded_in_all() {
    let root = FakeRoot::new();
    // As many files as Kubernetes allows, each nearly as long as a file may be, and all with the same device.
    let text = format!("{}{}", metadata("metadata.resource.k8s.io/v1beta1", NIC), " \n".repeat(127 << 10));
    for request in 0..32 {
        root.file(
            &format!("{}/resourceclaims/c/r{request}/x-metadata.json", &FOLDER[1..]),
            &(text.clone() + "{}"),
        );
    }
    let reader = root.reader();
    assert_eq!(read(&reader).len(), 1);
    let told = |reader: Reader| reader.into_unreadable().pop().map(|unreadable| unreadable.error);
    let wanted = "its files have more than 4 MiB, and rdma-init has left the rest out";
    assert_eq!(told(reader).as_deref(), Some(wanted));
    // Files that are too long cost, too.
    let root = FakeRoot::new();
    for request in 0..MOST_BYTES / UNREADABLE + 1 {
        root.file(
            &format!("{}/resourceclaims/c/r{request}/x-metadata.json", &FOLDER[1..]),
            " ".repeat(300 << 10),
        );
    }
    let reader = root.reader();
    assert_eq!(read(&reader), []);
    let unreadable = reader.into_unreadable();
    assert_eq!(unreadable.len(), MOST_BYTES / UNREADABLE + 2, "each file, and the limit");
    assert_eq!(unreadable.last().map(|last| last.error.as_str()), Some(wanted));
    // So do entries.
    let root = FakeRoot::new();
    for claim in 0..5 {
        for entry in 0..MOST_LISTED - 2 {
            root.folder(&format!("{}/resourceclaims/c{claim}/r{entry}", &FOLDER[1..]));
        }
    }
    let reader = root.reader();
    assert_eq!(read(&reader), []);
    let unreadable = reader.into_unreadable();
    let wanted = "it has more than 16384 entries, and rdma-init has left the rest out";
    assert_eq!(unreadable.last().map(|last| last.error.as_str()), Some(wanted));
}

#[test]
fn an_empty_text_of_the_cloud_is_an_absent_one() {
    let device = |attributes: &[(&str, &str)]| ClaimedDevice {
        attributes: attributes.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
        ..ClaimedDevice::default()
    };
    let azure = device(&[
        ("azure.dra.net/placementGroupId", ""),
        ("oke.dra.net/gpuMemoryFabricId", " "),
        ("alibaba.dra.net/instanceType", ""),
        ("azure.dra.net/vmSize", "Standard_ND96isr_H100_v5"),
        ("dra.net/rdmaDevice", ""),
    ]);
    assert_eq!((azure.placement_group(), azure.nvlink_domain(), azure.rdma_device()), (None, None, None));
    assert_eq!(azure.instance_type(), Some("Standard_ND96isr_H100_v5"));
    assert!(!azure.is_rdma());
}

#[test]
fn an_address_that_is_none_counts_as_absent() {
    let address = |standard: &str| {
        let attributes =
            [("resource.kubernetes.io/pciBusID", standard), ("dra.net/pciAddress", "0000:8D:00.0")];
        let attributes = attributes.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        ClaimedDevice { attributes, ..ClaimedDevice::default() }.pci_address()
    };
    for (standard, found) in [
        ("", "0000:8d:00.0"),
        ("mlx5_core.sf.4", "0000:8d:00.0"),
        ("00000000:28:00.0", "0000:28:00.0"),
        (" 0000:2A:00.0", "0000:2a:00.0"),
    ] {
        assert_eq!(address(standard).as_deref(), Some(found), "{standard:?}");
    }
}
