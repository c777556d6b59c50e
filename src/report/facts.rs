//! Writes the facts for people: `rdma-init inspect`.

use std::io::{self, Write};

use super::{image, line, topology};
use crate::facts::Facts;
use crate::facts::limits::{Amount, Limit};
use crate::facts::net::Interface;
use crate::facts::node_list::Holds;
use crate::facts::rdma::{Hca, Port};
use crate::facts::route::MAIN;
use crate::text::amount;
use crate::text::counted;

/// Writes all facts that were found.
///
/// # Errors
/// The sink's errors.
pub(crate) fn write(out: &mut impl Write, facts: &Facts) -> io::Result<()> {
    line!(out, "RDMA devices: {}", counted(facts.rdma.len(), "HCA"))?;
    for hca in &facts.rdma {
        write_hca(out, hca)?;
    }
    line!(out, "Network interfaces")?;
    for interface in &facts.net.interfaces {
        write_interface(out, interface)?;
    }
    for route in facts.net.routes.iter().filter(|route| route.is_default()) {
        let gateway = route.gateway.map(|g| format!(" via {g}")).unwrap_or_default();
        let table = if route.table == MAIN { String::new() } else { format!(", table {}", route.table) };
        let source = route.source.map(|source| format!(" for packets from {source}")).unwrap_or_default();
        line!(
            out,
            "  default route{gateway} on {}{source}, metric {}{table}",
            route.interface,
            route.metric
        )?;
    }
    for rule in facts.net.rules.iter().flatten().filter(|rule| !rule.is_of_the_kernel()) {
        line!(out, "  rule {rule}")?;
    }
    write_machine(out, facts)?;
    topology::write(out, facts, None)?;
    if let Some(found) = &facts.image {
        image::write(out, found)?;
    }
    if let Some(list) = &facts.node_list {
        line!(out, "Variables that vLLM leaves to each node, with Ray")?;
        let holds = match list.holds {
            Holds::Nothing => {
                "no such file, so the workers of other nodes get all of this node's variables".to_owned()
            }
            Holds::List if list.names.is_empty() => "names none".to_owned(),
            Holds::List => list.names.join(", "),
            Holds::NoList => "not a JSON list, so vLLM ignores it".to_owned(),
            Holds::Other => "not known".to_owned(),
        };
        line!(out, "  {}: {holds}", list.path)?;
    }
    if !facts.settings.0.is_empty() {
        line!(out, "Variables that are set")?;
        for setting in &facts.settings.0 {
            line!(out, "  {}={} ({})", setting.variable, setting.value, setting.origin)?;
        }
    }
    if !facts.unreadable.is_empty() {
        line!(out, "Could not be read")?;
        for unreadable in &facts.unreadable {
            line!(out, "  {}: {}", unreadable.path.display(), unreadable.error)?;
        }
    }
    Ok(())
}

fn write_hca(out: &mut impl Write, hca: &Hca) -> io::Result<()> {
    let driver = hca.driver.as_ref().map_or("no driver".to_owned(), |driver| format!("driver {driver}"));
    let mut about = vec![driver, format!("node type {}", String::from(hca.node_type.clone()))];
    about.extend(hca.pci_address.clone());
    about.extend(hca.numa_node.map(|node| format!("NUMA node {node}")));
    about.extend(hca.firmware.as_ref().map(|version| format!("firmware {version}")));
    match &hca.uverbs {
        Some(uverbs) => {
            about.push(format!("{} {}", uverbs.name, String::from(uverbs.access.clone())));
            about.extend(uverbs.abi.map(|abi| format!("kernel ABI {abi}")));
        }
        None => about.push("no uverbs device".to_owned()),
    }
    line!(out, "  {}: {}", hca.name, about.join(", "))?;
    hca.ports.iter().try_for_each(|port| write_port(out, port))
}

fn write_port(out: &mut impl Write, port: &Port) -> io::Result<()> {
    let about = [&String::from(port.link_layer.clone()), &port.state, &port.physical_state, &port.rate];
    // Values that the kernel does not report are omitted.
    let about: Vec<&str> = about.into_iter().map(String::as_str).filter(|text| !text.is_empty()).collect();
    line!(
        out,
        "    port {}: {}, {} of {} GID entries used",
        port.number,
        about.join(", "),
        port.gids.slots.len(),
        port.gids.size
    )?;
    if let Some(pkeys) = &port.pkeys {
        line!(out, "      partition keys: {pkeys}")?;
    }
    for gid in &port.gids.slots {
        line!(
            out,
            "      {:>4}  {:<39}  {:<15}  {:<10}  {}",
            gid.index,
            gid.gid.to_string(),
            gid.gid.to_ipv4_mapped().map(|v4| v4.to_string()).unwrap_or_default(),
            String::from(gid.kind.clone()),
            gid.netdev.as_deref().unwrap_or_default()
        )?;
    }
    Ok(())
}

fn write_interface(out: &mut impl Write, interface: &Interface) -> io::Result<()> {
    let addresses: Vec<String> = interface.addresses.iter().map(ToString::to_string).collect();
    let mut about = vec![interface.flags.join(" ")];
    about.extend(interface.mtu.map(|mtu| format!("MTU {mtu}")));
    about.extend(interface.pci_address.clone());
    about.extend(interface.master.as_ref().map(|master| format!("part of {master}")));
    about.push(if addresses.is_empty() { "no address".to_owned() } else { addresses.join(" ") });
    line!(out, "  {}: {}", interface.name, about.join(", "))
}

fn write_machine(out: &mut impl Write, facts: &Facts) -> io::Result<()> {
    let process = &facts.process;
    line!(out, "Machine")?;
    let mut gpus = vec![facts.gpu.count.map_or("no GPU".to_owned(), |n| counted(n as usize, "GPU"))];
    gpus.extend(facts.gpu.models.iter().cloned());
    line!(out, "  {}", gpus.join(", "))?;
    write_beyond_the_gpus(out, facts)?;
    if let (Some(vendor), product) = (&facts.dmi.vendor, &facts.dmi.product) {
        line!(out, "  {vendor}, {}", product.as_deref().unwrap_or_default())?;
    }
    for device in &facts.dra {
        let place = device.pci_address().or_else(|| device.rdma_device().map(str::to_owned));
        let place = place.map(|place| format!(", {place}"));
        let (claim, name, driver) = (&device.claim, &device.name, &device.driver);
        line!(out, "  claim {claim}: {name} of {driver}{}", place.unwrap_or_default())?;
    }
    for device in &facts.given {
        let absent = if device.class.is_none() { ", which does not exist here" } else { "" };
        line!(out, "  {}: {}{absent}", device.variable, device.address)?;
    }
    for (name, limit, is_bytes) in [
        ("memlock", facts.limits.memlock, true),
        ("nofile", facts.limits.nofile, false),
        ("stack", facts.limits.stack, true),
    ] {
        if let Some(Limit { soft, hard }) = limit {
            line!(out, "  {name}: soft {}, hard {}", shown(soft, is_bytes), shown(hard, is_bytes))?;
        }
    }
    if let Some(shm) = facts.shm {
        line!(out, "  /dev/shm: {}, {} free", amount(shm.size), amount(shm.available))?;
    }
    let sets = &process.capabilities;
    line!(
        out,
        "  uid {}, capabilities: effective {}; bounding {}; ambient {}{}",
        process.uid,
        sets.effective.names(),
        sets.bounding.names(),
        sets.ambient.names(),
        if process.initial_user_namespace { "" } else { ", in its own user namespace" }
    )?;
    if !facts.platform.markers.is_empty() {
        line!(out, "  the environment has {}", facts.platform.markers.join(", "))?;
    }
    Ok(())
}

/// Writes what GPUs of several machines need to share memory.
fn write_beyond_the_gpus(out: &mut impl Write, facts: &Facts) -> io::Result<()> {
    let imex = &facts.imex;
    for channel in &imex.channels {
        let stale = if imex.is_stale(channel) {
            ", which the driver does not recognize as one of its channels"
        } else {
            ""
        };
        line!(out, "  IMEX channel {}: {}{stale}", channel.number, String::from(channel.access.clone()))?;
    }
    if imex.count > imex.channels.len() {
        line!(out, "  {} more IMEX channels", imex.count - imex.channels.len())?;
    }
    if let (0, Some(channels)) = (imex.count, imex.of_driver) {
        line!(out, "  no IMEX channel of the {channels} that the driver has")?;
    }
    if let Some(bytes) = facts.memory.cma_outside_areas {
        line!(out, "  free CMA memory outside of CMA areas: {}", amount(bytes))?;
    }
    if let Some(nodes) = &facts.memory.without_cpu {
        line!(out, "  memory without a CPU: NUMA node {nodes}")?;
    }
    if !facts.data_direct.is_empty() {
        let functions: Vec<&str> =
            facts.data_direct.iter().filter_map(|function| function.path.rsplit('/').next()).collect();
        line!(out, "  Data Direct: {}", functions.join(", "))?;
    }
    Ok(())
}

fn shown(amount_of: Amount, is_bytes: bool) -> String {
    match amount_of {
        Amount::Limited(number) if is_bytes => amount(number),
        Amount::Limited(number) => number.to_string(),
        Amount::Unlimited(_) => "unlimited".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::facts::document::Document;

    const DOCUMENTS: [&str; 3] = [
        include_str!("../../fuzz/corpus/facts/gh200.json"),
        include_str!("../../fuzz/corpus/facts/aws-efa-with-plugin.json"),
        include_str!("../../fuzz/corpus/facts/conf-file-odd-lines.json"),
    ];

    /// Returns the pointers to all texts (RFC 6901).
    fn texts(value: &Value, at: &str) -> Vec<String> {
        match value {
            Value::String(_) => vec![at.to_owned()],
            Value::Array(list) => {
                list.iter().enumerate().flat_map(|(n, value)| texts(value, &format!("{at}/{n}"))).collect()
            }
            Value::Object(fields) => {
                fields.iter().flat_map(|(name, value)| texts(value, &format!("{at}/{name}"))).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The document of a stranger has its texts as they are; the readers of a host have cleaned theirs.
    #[test]
    fn no_text_of_a_document_moves_the_cursor_or_adds_a_line() {
        let mut printed = 0;
        for text in DOCUMENTS {
            let document: Value = serde_json::from_str(text).unwrap();
            for place in texts(&document, "") {
                let mut changed = document.clone();
                let field = changed.pointer_mut(&place).unwrap();
                *field = format!("{}\u{1b}[2J\u{7f}\nmlx5_9", field.as_str().unwrap()).into();
                let Ok(facts) = Document::parse(&changed.to_string()) else { continue };
                let mut out = Vec::new();
                write(&mut out, &facts).unwrap();
                let out = String::from_utf8(out).unwrap();
                assert!(!out.contains(|c: char| c.is_control() && c != '\n'), "{place}: {out:?}");
                assert!(!out.contains("\nmlx5_9"), "{place}: {out}");
                printed += usize::from(out.contains("mlx5_9"));
            }
        }
        assert!(printed > 40, "{printed}");
    }
}
