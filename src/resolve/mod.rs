//! Resolves host names without running the image's code.
//!
//! The `getaddrinfo` of a static glibc loads `libnss_*.so` into this process from any place that the
//! image or `LD_LIBRARY_PATH` names. So this module resolves names itself: it uses an address as it is,
//! then reads /etc/hosts, then asks DNS according to /etc/resolv.conf. It does not ask other sources
//! that `/etc/nsswitch.conf` may name (LDAP, mDNS).

mod exchange;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod message;
mod settings;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::path::Path;
use std::time::Instant;

use exchange::{Reply, ask};
use settings::ResolverSettings;

use crate::facts::hosts::{self, MOST};
use crate::facts::reader::{Reader, Unreadable};
use crate::text::{shortened, visible};

/// The most bytes of /etc/resolv.conf that are read.
const LONGEST_SETTINGS: u64 = 64 * 1024;

/// Returns the addresses of a host, with a port: IPv4 first, and otherwise in the order in which they
/// were found.
///
/// # Errors
/// The name is unknown, or no server that may know it answers in time; the text is safe to show.
pub(crate) fn addresses(host: &str, port: u16, until: Instant) -> Result<Vec<SocketAddr>, String> {
    addresses_below(Path::new("/"), host, port, until)
}

fn addresses_below(root: &Path, host: &str, port: u16, until: Instant) -> Result<Vec<SocketAddr>, String> {
    if let Some(literal) = literal(host, port) {
        return Ok(vec![literal]);
    }
    if hosts::is_localhost(host) {
        let loopback = [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()];
        return Ok(loopback.map(|address| SocketAddr::new(address, port)).to_vec());
    }
    if !is_host_name(host) {
        return Err(format!("\"{}\" is neither an address nor the name of a host", presentable(host)));
    }
    let reader = Reader::new(root);
    let hosts = reader.bytes("/etc/hosts", hosts::LONGEST).unwrap_or_default();
    let found = hosts::addresses(&hosts, host);
    if !found.is_empty() {
        return Ok(with_port(found, port));
    }
    let settings = reader.bytes("/etc/resolv.conf", LONGEST_SETTINGS).unwrap_or_default();
    let settings = ResolverSettings::parse(&settings);
    by_dns(&settings, host, until).map(|found| with_port(found, port)).map_err(|why| {
        // These files may contain the name.
        let unreadable = reader.into_unreadable().into_iter();
        let unreadable: String =
            unreadable.map(|Unreadable { path, error }| format!("; {}: {error}", path.display())).collect();
        format!("it is not in /etc/hosts, and {why}{unreadable}")
    })
}

/// Reads an address: `127.0.0.1`, `::1`, `fe80::1%eth0`, `fe80::1%2`.
fn literal(host: &str, port: u16) -> Option<SocketAddr> {
    if let Ok(address) = host.parse() {
        return Some(SocketAddr::new(address, port));
    }
    let (address, scope) = host.split_once('%')?;
    let scope = scope.parse().or_else(|_| nix::net::if_::if_nametoindex(scope)).ok()?;
    Some(SocketAddrV6::new(address.parse().ok()?, port, 0, scope).into())
}

/// Returns whether a name has labels of 1 to 63 letters, digits, hyphens and, as in some
/// clusters, underscores, and 253 bytes in all (RFC 1123, section 2.1). DNS also allows a dot
/// at the end.
fn is_host_name(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    host.len() <= 253
        && host.split('.').all(|label| (1..=63).contains(&label.len()) && label.bytes().all(plain))
}

/// Asks for each name that the host may have, in order, until a server knows one.
fn by_dns(settings: &ResolverSettings, host: &str, until: Instant) -> Result<Vec<IpAddr>, String> {
    let servers = settings.shown_servers();
    let mut unanswered = None;
    let names = settings.candidates(host);
    for name in &names {
        match by_servers(settings, name, until) {
            Reply::Addresses(found) => return Ok(found),
            Reply::Nothing => {}
            // The same servers would be just as slow for another name.
            Reply::Silent => return Err(format!("no DNS server of /etc/resolv.conf ({servers}) answers")),
            Reply::Failed(why) => {
                unanswered = Some(format!("DNS ({servers}) cannot resolve {name}: {why}"));
            }
        }
    }
    let shown: Vec<&str> = names.iter().map(String::as_str).take(4).collect();
    let more = if names.len() > shown.len() { ", ..." } else { "" };
    let tried = format!("{}{more}", shown.join(", "));
    Err(unanswered.unwrap_or_else(|| format!("DNS ({servers}) does not know it ({tried})")))
}

/// Asks each server in turn, as often as the settings say.
fn by_servers(settings: &ResolverSettings, name: &str, until: Instant) -> Reply {
    let mut last = Reply::Silent;
    for _ in 0..settings.attempts {
        for server in &settings.servers {
            let now = Instant::now();
            if now >= until {
                return last;
            }
            match ask(settings, *server, name, until.min(now + settings.timeout)) {
                Reply::Silent => {}
                Reply::Failed(why) => last = Reply::Failed(why),
                answer => return answer,
            }
        }
    }
    last
}

fn with_port(mut addresses: Vec<IpAddr>, port: u16) -> Vec<SocketAddr> {
    addresses.sort_by_key(IpAddr::is_ipv6);
    addresses.truncate(MOST);
    addresses.into_iter().map(|address| SocketAddr::new(address, port)).collect()
}

fn presentable(text: &str) -> String {
    visible(&shortened(text))
}

#[cfg(test)]
mod tests;
