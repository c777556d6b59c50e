//! How UCX reads `UCX_IB_ROCE_SUBNETS` (`ucs_config_sscanf_allow_list` in `src/ucs/config/parser.c` and
//! `uct_ib_device_parse_subnet_filter` in `src/uct/ib/base/ib_device.c`, 1.18 and later), and boolean
//! variables.

use std::net::IpAddr;

use ipnet::IpNet;

/// The GIDs that UCX may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Filter {
    All,
    Only(Vec<IpNet>),
    AllBut(Vec<IpNet>),
}

impl Filter {
    /// Returns as an error the entry that UCX cannot read and on which it fails.
    pub(super) fn read(value: &str) -> Result<Filter, String> {
        let (excluded, list) = match value.strip_prefix('^') {
            Some(rest) => (true, rest),
            None => (false, value),
        };
        let entries: Vec<&str> = list.split(',').filter(|entry| !entry.is_empty()).collect();
        if entries == ["all"] {
            return Ok(Filter::All);
        }
        let nets = entries.into_iter().map(|entry| net(entry).ok_or_else(|| entry.to_owned()));
        let nets: Vec<IpNet> = nets.collect::<Result<_, _>>()?;
        Ok(if excluded { Filter::AllBut(nets) } else { Filter::Only(nets) })
    }

    pub(super) fn lets_pass(&self, address: IpAddr) -> bool {
        match self {
            Filter::All => true,
            Filter::Only(nets) => nets.iter().any(|net| net.contains(&address)),
            Filter::AllBut(nets) => !nets.iter().any(|net| net.contains(&address)),
        }
    }
}

/// Parses an address and its network bits. Caps the bits at the address's length; ignores text after the
/// number, including a second slash and everything after it.
fn net(entry: &str) -> Option<IpNet> {
    let (address, bits) = entry.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let digits = bits.trim_start().bytes().take_while(u8::is_ascii_digit).count();
    let bits: u8 = bits.trim_start()[..digits].parse::<u32>().ok()?.min(128) as u8;
    IpNet::new(address, bits.min(if address.is_ipv4() { 32 } else { 128 })).ok()
}

/// Parses a boolean; returns `None` for text on which UCX fails (`ucs_config_sscanf_bool`; "on" and "off"
/// since 1.15).
pub(super) fn read_bool(value: &str) -> Option<bool> {
    match value.to_ascii_lowercase().as_str() {
        "y" | "yes" | "1" => Some(true),
        "n" | "no" | "0" => Some(false),
        _ => match value {
            "on" => Some(true),
            "off" => Some(false),
            _ => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_names_networks_or_is_rejected() {
        let pass = |value: &str, address: &str| {
            let filter = Filter::read(value).unwrap();
            filter.lets_pass(address.parse().unwrap())
        };
        for (value, address, wanted) in [
            ("10.1.0.0/16", "10.1.2.3", true),
            ("10.1.9.9/16,fd00::/8", "fd00::1", true),
            ("10.1.0.0/16", "10.2.0.1", false),
            ("^10.1.0.0/16", "10.2.0.1", true),
            ("^10.1.0.0/16", "10.1.0.1", false),
            ("10.1.0.1/99", "10.1.0.1", true),
            ("10.1.0.0/16x", "10.1.0.1", true),
            ("all", "10.1.0.1", true),
            ("^all", "10.1.0.1", true),
            ("", "10.1.0.1", false),
            ("^", "10.1.0.1", true),
        ] {
            assert_eq!(pass(value, address), wanted, "{value} {address}");
        }
        for (value, entry) in [
            ("10.1.0.0", "10.1.0.0"),
            ("10.2.0.0/16,eth0/3", "eth0/3"),
            ("10.1.0.0/", "10.1.0.0/"),
            ("10.1/16", "10.1/16"),
            ("all,10.1.0.0/16", "all"),
            ("10.1.0.0/255.255.0.0 ,x", "x"),
        ] {
            assert_eq!(Filter::read(value), Err(entry.to_owned()), "{value}");
        }
    }

    #[test]
    fn yes_and_no_are_words_of_ucx() {
        assert_eq!(["y", "YES", "1", "on"].map(read_bool), [Some(true); 4]);
        assert_eq!(["n", "No", "0", "off"].map(read_bool), [Some(false); 4]);
        assert_eq!(["", "true", "ON", "2"].map(read_bool), [None; 4]);
    }
}
