//! Where node 0 listens. Pure.

use std::net::{IpAddr, SocketAddr};

use crate::wire::Address;

/// Returns where node 0 listens. With a token, that is on all of its addresses, because it can
/// authenticate every node. Without one, it is only on the address that `meet` names, if that address
/// is its own. A name that resolves to loopback on node 0 resolves to something else on other hosts. If
/// a name resolves to several of this host's addresses, nodes may connect to any of them.
pub(in crate::preflight) fn place(
    meet: &Address,
    has_token: bool,
    resolved: &[SocketAddr],
    own: &[IpAddr],
) -> Address {
    if meet.is_loopback() {
        return meet.clone();
    }
    let everywhere = Address::on_port(meet.port);
    if has_token || meet.is_empty() {
        return everywhere;
    }
    let is_own = |address: &IpAddr| !address.is_loopback() && own.contains(address);
    let mut named: Vec<IpAddr> = resolved.iter().map(|socket| socket.ip().to_canonical()).collect();
    named.retain(is_own);
    named.sort_unstable();
    named.dedup();
    match named[..] {
        [one] => Address::of(SocketAddr::new(one, meet.port)),
        _ => everywhere,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_token_node_0_listens_on_its_own_given_address() {
        let own: Vec<IpAddr> =
            ["127.0.0.1", "10.0.0.1", "10.1.0.1", "fd00::1"].map(|text| text.parse().unwrap()).into();
        let at = |meet: &str, has_token: bool, resolved: &[&str]| {
            let resolved: Vec<SocketAddr> =
                resolved.iter().map(|text| SocketAddr::new(text.parse().unwrap(), 5)).collect();
            place(&meet.parse().unwrap(), has_token, &resolved, &own).to_string()
        };
        assert_eq!(at("node0:5", false, &["10.0.0.1"]), "10.0.0.1:5");
        assert_eq!(at("node0:5", false, &["10.0.0.1", "127.0.1.1", "10.9.9.9", "10.0.0.1"]), "10.0.0.1:5");
        assert_eq!(at("[fd00::1]:5", false, &["fd00::1"]), "[fd00::1]:5");
        assert_eq!(at("node0:5", true, &["10.0.0.1"]), ":5", "with a token");
        for elsewhere in [&["127.0.1.1"][..], &["10.9.9.9"], &["10.0.0.1", "10.1.0.1"], &[]] {
            assert_eq!(at("node0:5", false, elsewhere), ":5", "{elsewhere:?}");
        }
        assert_eq!(at(":5", false, &[]), ":5");
        assert_eq!(at("localhost:5", false, &["127.0.0.1"]), "localhost:5");
        assert_eq!(at("127.0.0.1:5", true, &["127.0.0.1"]), "127.0.0.1:5");
    }
}
