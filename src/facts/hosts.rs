//! /etc/hosts (hosts(5)). Pure.

use std::collections::HashMap;
use std::net::IpAddr;

/// The most bytes of /etc/hosts. Some launchers write all hosts of a cluster into it, which may be tens of
/// thousands of nodes.
pub(crate) const LONGEST: u64 = 8 * 1024 * 1024;

/// The most addresses to use for a name. A name with more addresses does not stand for one node.
pub(crate) const MOST: usize = 64;

/// Returns all addresses of a name, ignoring case. Skips malformed lines.
pub(crate) fn addresses(file: &[u8], name: &str) -> Vec<IpAddr> {
    let name = name.strip_suffix('.').unwrap_or(name).as_bytes();
    let lines = file.split(|byte| *byte == b'\n');
    let mut found = Vec::new();
    for line in lines {
        let line = line.split(|byte| *byte == b'#').next().unwrap_or_default();
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let address = words.next();
        if words.any(|word| word.eq_ignore_ascii_case(name))
            && let Some(address) = address.and_then(|text| std::str::from_utf8(text).ok()?.parse().ok())
            && !found.contains(&address)
            && found.len() < MOST
        {
            found.push(address);
        }
    }
    found
}

/// Returns the first name of each address; `localhost` is not one.
pub(crate) fn names(file: &[u8]) -> HashMap<IpAddr, String> {
    let mut names = HashMap::new();
    for line in file.split(|byte| *byte == b'\n') {
        let line = line.split(|byte| *byte == b'#').next().unwrap_or_default();
        let mut words = std::str::from_utf8(line).unwrap_or_default().split_ascii_whitespace();
        let address = words.next().and_then(|text| text.parse().ok());
        // Files from templates have lines such as `127.0.0.1 localhost node1`.
        if let (Some(address), Some(name)) = (address, words.find(|name| !is_localhost(name))) {
            names.entry(address).or_insert_with(|| name.to_owned());
        }
    }
    names
}

/// The most services to use from a line.
const SERVICES: usize = 16;

/// Returns the services that `/etc/nsswitch.conf` names for hosts (nsswitch.conf(5)), without the actions
/// after them; empty if no line is about hosts.
pub(crate) fn services(file: &str) -> Vec<String> {
    let lines = file.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let Some(line) = lines.filter_map(|line| line.strip_prefix("hosts:")).next() else { return Vec::new() };
    let mut services = Vec::new();
    let mut rest = line;
    while let Some((before, action)) = rest.split_once('[') {
        services.extend(before.split_whitespace());
        rest = action.split_once(']').map_or("", |(_, after)| after);
    }
    services.extend(rest.split_whitespace());
    services.truncate(SERVICES);
    services.into_iter().map(str::to_owned).collect()
}

/// Returns whether the name always means this host, whatever a file or a server says (RFC 6761,
/// section 6.3).
pub(crate) fn is_localhost(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    host == "localhost" || host.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str) -> Vec<String> {
        let file = b"# node1 is 9.9.9.9\n127.0.0.1\tlocalhost\n10.0.0.1 node1.job.svc Node1 # node2\n\
                     10.0.0.1 node1\nfd00::1 node1\n10.0.0 node3\n\xff\xfe node3\nnode3\n10.0.0.4 a.node4\n\
                     ::1 node5\r\n";
        addresses(file, name).iter().map(IpAddr::to_string).collect()
    }

    #[test]
    fn a_name_has_all_addresses_of_its_lines() {
        assert_eq!(of("node1"), ["10.0.0.1", "fd00::1"]);
        assert_eq!(of("NODE1.job.svc."), ["10.0.0.1"]);
        assert_eq!(of("node5"), ["::1"]);
    }

    #[test]
    fn an_address_has_the_first_name_that_is_not_the_loopbacks() {
        let file = b"127.0.0.1 localhost node9\n10.0.0.1 # node0\n10.0.0.1 node1.job.svc node1\n\xff\n::1 localhost\nfd00::1\tnode2";
        let names = names(file);
        let name = |address: &str| names.get(&address.parse().unwrap()).map(String::as_str);
        assert_eq!(name("10.0.0.1"), Some("node1.job.svc"));
        assert_eq!(name("fd00:0::1"), Some("node2"));
        assert_eq!(name("127.0.0.1"), Some("node9"));
        assert_eq!(name("::1"), None);
        assert_eq!(names.len(), 3);
    }

    #[test]
    fn the_services_for_hosts_are_those_of_the_first_line_about_them() {
        for (file, wanted) in [
            ("passwd: files\nhosts:  files dns\nhosts: dns", "files dns"),
            (
                "hosts: mymachines resolve [!UNAVAIL=return] files[success=return]dns # x",
                "mymachines resolve files dns",
            ),
            ("hosts: dns [NOTFOUND=return", "dns"),
            ("#hosts: dns\n", ""),
            ("hosts:", ""),
        ] {
            assert_eq!(services(file).join(" "), wanted, "{file}");
        }
    }

    #[test]
    fn comments_and_malformed_lines_are_ignored() {
        for name in ["node2", "node3", "node4", "10.0.0.1", "#"] {
            assert_eq!(of(name), [""; 0], "{name}");
        }
    }
}
