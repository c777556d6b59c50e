//! SGLang. Its processes find those of other nodes at the address that [`node_address`] describes.

use super::node_address::AddressingProgram;
use super::{Library, LibraryContext};

const ADDRESS: AddressingProgram = AddressingProgram {
    library: "SGLang",
    variable: "SGLANG_HOST_IP",
    also: Some("HOST_IP"),
    of_interface: Some("SGLANG_LOCAL_IP_NIC"),
    asks_for_name: true,
};

pub(super) const LIBRARY: Library = Library {
    name: "sglang",
    title: ADDRESS.library,
    packages: &["sglang"],
    filled: &[ADDRESS.variable],
    gid: &[],
    read: &[ADDRESS.variable, "HOST_IP", "SGLANG_LOCAL_IP_NIC"],
    is_here,
    fills: |subject| ADDRESS.fill(subject).into_iter().collect(),
    findings: |subject| ADDRESS.finding(subject).map(Into::into).into_iter().collect(),
    will: |_| None,
};

fn is_here(subject: &LibraryContext) -> bool {
    // Other programs use HOST_IP, too.
    subject.has_package("sglang")
        || [ADDRESS.variable, "SGLANG_LOCAL_IP_NIC"].iter().any(|name| subject.value(name).is_some())
}
