//! The code that the fuzzers call here; see [`crate::fuzz`].

use super::message::{Family, ServerAnswer, answer};
use super::settings::ResolverSettings;
use super::{MOST, hosts, is_host_name};

const NAME: &str = "node2.job";

/// Parses answers of a DNS server, and the files that are read before a server is asked.
pub(crate) fn answers(data: &[u8]) {
    let id = data.first_chunk().map_or(0, |id| u16::from_be_bytes(*id));
    for family in [Family::Ipv4, Family::Ipv6] {
        if let Some(ServerAnswer::Addresses(found)) = answer(data, id, NAME, family) {
            assert!(found.len() <= MOST);
            assert!(found.iter().all(|address| address.is_ipv4() == (family == Family::Ipv4)));
        }
    }
    let settings = ResolverSettings::parse(data);
    assert!(settings.candidates(NAME).iter().all(|name| is_host_name(name)));
    settings.shown_servers();
    assert!(hosts::addresses(data, NAME).len() <= MOST);
    hosts::names(data);
    hosts::services(&String::from_utf8_lossy(data));
}
