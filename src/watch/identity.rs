//! Checks whether the job's GIDs are still where the job uses them, and its devices under their names. Pure.

use std::time::Duration;

use super::WatchedPort;
use crate::facts::gid::address;
use crate::facts::port_look::{GidPlace, PortLook};
use crate::finding::{Finding, Id};
use crate::findings::port_name::{port_id, port_name};
use crate::text::{coarse, condensed, visible};

const FIX: &str = "Find out what changes the addresses of this interface. Restart the container: rdma-init then decides again.";
const FIX_OF_SEARCHED: &str = "Find out what changes the addresses of this interface. Only connections that exist may fail: NCCL needs no restart for new ones.";
const FIX_OF_UNKNOWN: &str = "Find out what changes the addresses of this interface. With NCCL before 2.21, restart the container: rdma-init then decides again.";

/// Where the GID of each port was in the last report about it, and since when.
pub(super) struct Identity(Vec<(GidPlace, Duration)>);

impl Identity {
    pub(super) fn new(ports: usize) -> Identity {
        Identity(vec![(GidPlace::InPlace, Duration::ZERO); ports])
    }

    /// Returns where the GID of a port, by its index, was in the last report, and since when it is not in its place.
    pub(super) fn astray(&self, index: usize) -> (Option<Duration>, GidPlace) {
        let (place, since) = self.0.get(index).copied().unwrap_or((GidPlace::InPlace, Duration::ZERO));
        ((place != GidPlace::InPlace).then_some(since), place)
    }

    /// Returns what to report about the GIDs. `sound` tells for each port whether it was present and active
    /// at this reading and at the previous one: a link that goes down may lose its addresses.
    pub(super) fn judge(
        &mut self,
        at: Duration,
        ports: &[WatchedPort],
        looks: &[PortLook],
        sound: &[bool],
    ) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (((port, look), is_sound), told) in ports.iter().zip(looks).zip(sound).zip(&mut self.0) {
            let (Some(used), Some(place), true) = (&port.gid, look.gid, *is_sound) else { continue };
            let (before, since) = *told;
            let are_gone =
                |one, other| matches!((one, other), (GidPlace::Gone { .. }, GidPlace::Gone { .. }));
            if place == before || are_gone(place, before) {
                continue;
            }
            *told = (place, at);
            let address = address(used.gid);
            let (hca, index) = (port.name(), used.index);
            let finding = match place {
                GidPlace::InPlace => {
                    let time = coarse(at.saturating_sub(since));
                    let message =
                        format!("The GID of {hca} ({address}) is at index {index} again, after {time}.");
                    Finding::info(Id::GidChanged, message)
                }
                GidPlace::At(now) => {
                    let (follows, fix) = match used.is_searched {
                        Some(true) => {
                            ("NCCL searches for it, so new connections follow".to_owned(), FIX_OF_SEARCHED)
                        }
                        Some(false) => (
                            format!(
                                "NCCL does not search for it, and new connections use what is at index {index} now"
                            ),
                            FIX,
                        ),
                        None => (
                            format!(
                                "NCCL 2.21 and later search for it, so new connections follow; with an earlier one, they use what is at index {index} now"
                            ),
                            FIX_OF_UNKNOWN,
                        ),
                    };
                    let message = format!(
                        "The GID of {hca} ({address}) has moved from index {index}, which the job uses, to {now}: {follows}."
                    );
                    Finding::warning(Id::GidChanged, message).with_fix(fix)
                }
                GidPlace::Retyped => {
                    let message = format!(
                        "The GID of {hca} ({address}), which the job uses, is no longer {} at index {index}, and is so at no other index.",
                        String::from(used.kind.clone())
                    );
                    Finding::warning(Id::GidChanged, message).with_fix(FIX)
                }
                GidPlace::Gone { has_address } => {
                    let why = match has_address {
                        true => "it is at no index of the table",
                        false => "no interface here still has this address",
                    };
                    let message = format!(
                        "The GID of {hca} ({address}), which the job uses, is gone from index {index}: {why}."
                    );
                    Finding::warning(Id::GidChanged, message).with_fix(FIX)
                }
            };
            findings.push(finding.about_ports([port.id()]));
        }
        findings
    }
}

/// Returns what to report about a device that has another name than before, with these ports. `away`: for how long it
/// was seen to be gone.
pub(super) fn renamed(ports: &[(&WatchedPort, &PortLook)], away: Option<Duration>) -> Option<Finding> {
    let (port, look) = ports.first()?;
    // A job with one port of the device has no number for it.
    let original = if let [(port, _)] = ports {
        port_name(&port.hca, port.port, port.is_one_of_several)
    } else {
        visible(&port.hca)
    };
    let name = match &look.renamed {
        Some(name) => format!("under another name: it is {} now", visible(name)),
        None => "under its original name".to_owned(),
    };
    let after = away.map(|away| format!(", after {}", coarse(away))).unwrap_or_default();
    let lost = ports.iter().filter(|(port, look)| look.errors.is_lost_since(&port.first.errors));
    let lost: Vec<String> = lost.map(|(port, _)| port_name(&port.hca, port.port, true)).collect();
    let inactive = match lost.len() {
        0 => String::new(),
        all if all == ports.len() => ", and is not active yet".to_owned(),
        1 => format!(", and {} is not active yet", condensed(&lost)),
        _ => format!(", and {} are not active yet", condensed(&lost)),
    };
    // What it was recognized by. Under its original name, nothing needed to be.
    let same = match (&look.renamed, &port.device.pci_address, &port.device.node_guid) {
        (Some(_), Some(pci), _) if !look.is_found_by_guid => format!(" (PCI function {pci})"),
        (Some(_), _, Some(guid)) => format!(" (node GUID {guid})"),
        _ => String::new(),
    };
    let message = format!("{original}{same} came back {name}{after}{inactive}.");
    let ids = ports.iter().map(|(port, look)| port_id(look.renamed.as_ref().unwrap_or(&port.hca), port.port));
    Some(Finding::warning(Id::LinkDown, message).about_ports(ids).with_fix(FIX_OF_NAME))
}

const FIX_OF_NAME: &str = "Restart the container: rdma-init then decides again. NCCL opens HCAs by their names at its start, and connections over this one have failed if its driver was loaded again.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::gid::GidType;
    use crate::facts::port_look::UsedGid;

    /// Returns what is reported after each of these readings of one port, which are 10 seconds apart.
    fn said(is_searched: bool, looks: &[(GidPlace, bool)]) -> Vec<(u64, String)> {
        let found = found(Some(is_searched), looks).into_iter();
        found.map(|(number, one)| (number, one.message)).collect()
    }

    fn found(is_searched: Option<bool>, looks: &[(GidPlace, bool)]) -> Vec<(u64, Finding)> {
        let gid = "::ffff:10.0.0.3".parse().unwrap();
        let gid = UsedGid { index: 3, gid, kind: GidType::RoceV2, is_searched };
        let port = WatchedPort { hca: "mlx5_3".into(), port: 1, gid: Some(gid), ..WatchedPort::default() };
        let mut identity = Identity::new(1);
        let mut all = Vec::new();
        for (number, (place, is_sound)) in (1..).zip(looks) {
            let look = PortLook { gid: Some(*place), ..PortLook::default() };
            let at = Duration::from_secs(number * 10);
            let found = identity.judge(at, std::slice::from_ref(&port), &[look], &[*is_sound]);
            all.extend(found.into_iter().map(|one| (number, one)));
        }
        all
    }

    const HERE: (GidPlace, bool) = (GidPlace::InPlace, true);
    const MOVED: (GidPlace, bool) = (GidPlace::At(5), true);
    const GONE: (GidPlace, bool) = (GidPlace::Gone { has_address: false }, true);
    const LOST: (GidPlace, bool) = (GidPlace::Gone { has_address: true }, false);

    #[test]
    fn a_gid_that_moves_is_told_once_and_whether_the_job_follows() {
        let told = |end: &str| {
            format!("The GID of mlx5_3 (10.0.0.3) has moved from index 3, which the job uses, to 5: {end}.")
        };
        let job = [HERE, MOVED, MOVED];
        assert_eq!(said(true, &job), [(2, told("NCCL searches for it, so new connections follow"))]);
        assert_eq!(
            said(false, &job),
            [(2, told("NCCL does not search for it, and new connections use what is at index 3 now"))]
        );
    }

    /// A restart is only for a job that does not follow.
    #[test]
    fn the_fix_fits_to_whether_the_job_follows() {
        let said = |is_searched| {
            let (_, found) = found(is_searched, &[HERE, MOVED]).remove(0);
            (found.fix.unwrap(), found.message)
        };
        assert_eq!(said(Some(true)).0, FIX_OF_SEARCHED);
        assert!(!FIX_OF_SEARCHED.contains("Restart") && said(Some(false)).0 == FIX);
        let (fix, message) = said(None);
        assert!(
            fix == FIX_OF_UNKNOWN && message.contains(" to 5: NCCL 2.21 and later search for it, "),
            "{message}"
        );
    }

    #[test]
    fn an_address_that_leaves_and_comes_back_is_told_once_each() {
        let gone = "The GID of mlx5_3 (10.0.0.3), which the job uses, is gone from index 3: no interface here still has this address.";
        let back = "The GID of mlx5_3 (10.0.0.3) is at index 3 again, after 30s.";
        let still = (GidPlace::Gone { has_address: true }, true);
        assert_eq!(
            said(true, &[HERE, GONE, GONE, still, HERE, HERE]),
            [(2, gone.to_owned()), (5, back.to_owned())]
        );
    }

    #[test]
    fn a_gid_that_becomes_another_type_is_told() {
        let told = "The GID of mlx5_3 (10.0.0.3), which the job uses, is no longer RoCE v2 at index 3, and is so at no other index.";
        let back = "The GID of mlx5_3 (10.0.0.3) is at index 3 again, after 20s.";
        let retyped = (GidPlace::Retyped, true);
        assert_eq!(
            said(false, &[HERE, retyped, retyped, HERE]),
            [(2, told.to_owned()), (4, back.to_owned())]
        );
    }

    #[test]
    fn a_port_of_an_hca_with_several_is_named_with_its_number() {
        let gid = "::ffff:10.0.0.3".parse().unwrap();
        let gid = Some(UsedGid { index: 3, gid, kind: GidType::RoceV2, is_searched: Some(true) });
        let port = |port| WatchedPort {
            hca: "mlx5_3".into(),
            port,
            is_one_of_several: true,
            gid: gid.clone(),
            ..WatchedPort::default()
        };
        let look = |place| PortLook { gid: Some(place), ..PortLook::default() };
        let looks = [look(GidPlace::InPlace), look(GidPlace::At(5))];
        let found =
            Identity::new(2).judge(Duration::from_secs(10), &[port(1), port(2)], &looks, &[true, true]);
        let [found] = &found[..] else { panic!("{found:?}") };
        assert!(found.message.starts_with("The GID of mlx5_3:2 (10.0.0.3) has moved"), "{found:?}");
        assert_eq!(found.about.ports, ["mlx5_3:2"]);
    }

    #[test]
    fn a_link_that_is_down_has_lost_no_gid() {
        assert_eq!(said(true, &[HERE, LOST, LOST, (GidPlace::InPlace, false), HERE]), []);
    }
}
