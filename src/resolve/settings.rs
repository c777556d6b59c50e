//! /etc/resolv.conf (resolv.conf(5)), limited in size. Pure, except for the default search list, which
//! is the domain in this host's name.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use resolv_conf::{Config, ScopedIp};

const DNS: u16 = 53;

/// The limits of glibc (resolv.h: MAXNS, RES_MAXNDOTS, RES_MAXRETRY, RES_MAXRETRANS).
const MOST_SERVERS: usize = 3;
const MOST_DOTS: u32 = 15;
const MOST_ATTEMPTS: u32 = 5;
const LONGEST_TIMEOUT: u32 = 30;

/// The number of search domains that Kubernetes allows a Pod.
const MOST_DOMAINS: usize = 32;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ResolverSettings {
    pub servers: Vec<SocketAddr>,
    /// The domains that are appended to a name.
    search: Vec<String>,
    /// A name with fewer dots is looked up in the search domains first.
    dots: usize,
    /// How long one server may take to answer.
    pub timeout: Duration,
    pub attempts: u32,
    /// Whether to ask for IPv4 and IPv6 one after the other.
    pub one_by_one: bool,
    pub only_ipv4: bool,
    /// Whether to use TCP from the start.
    pub only_tcp: bool,
}

impl ResolverSettings {
    /// Reads the file. Ignores lines that it cannot parse.
    pub(super) fn parse(file: &[u8]) -> ResolverSettings {
        let (config, _) = Config::parse_with_errors(file);
        let servers = config.get_nameservers_or_local();
        let search = match config.get_last_search_or_domain().count() {
            0 => config.get_system_domain().into_iter().collect(),
            _ => config.get_last_search_or_domain().cloned().collect::<Vec<_>>(),
        };
        let domain = |text: String| text.trim_matches('.').to_owned();
        ResolverSettings {
            servers: servers.iter().filter_map(socket).take(MOST_SERVERS).collect(),
            search: search
                .into_iter()
                .map(domain)
                .filter(|domain| super::is_host_name(domain))
                .take(MOST_DOMAINS)
                .collect(),
            dots: config.ndots.min(MOST_DOTS) as usize,
            timeout: Duration::from_secs(config.timeout.clamp(1, LONGEST_TIMEOUT).into()),
            attempts: config.attempts.clamp(1, MOST_ATTEMPTS),
            one_by_one: config.single_request || config.single_request_reopen,
            only_ipv4: config.no_aaaa,
            only_tcp: config.use_vc,
        }
    }

    /// Returns the names to ask for, in order and without the dot at the end.
    pub(super) fn candidates(&self, host: &str) -> Vec<String> {
        if let Some(absolute) = host.strip_suffix('.') {
            return vec![absolute.to_owned()];
        }
        let longer = self.search.iter().map(|domain| format!("{host}.{domain}"));
        let mut names: Vec<String> = longer.filter(|name| super::is_host_name(name)).collect();
        let place = if host.matches('.').count() >= self.dots { 0 } else { names.len() };
        names.insert(place, host.to_owned());
        names
    }

    pub(super) fn shown_servers(&self) -> String {
        self.servers.iter().map(|server| server.ip().to_string()).collect::<Vec<_>>().join(", ")
    }
}

fn socket(address: &ScopedIp) -> Option<SocketAddr> {
    match address {
        ScopedIp::V4(address) => Some(SocketAddr::new(IpAddr::V4(*address), DNS)),
        ScopedIp::V6(address, scope) => {
            let index = |scope: &String| {
                scope.parse().ok().or_else(|| nix::net::if_::if_nametoindex(scope.as_str()).ok())
            };
            let scope = scope.as_ref().map_or(Some(0), index)?;
            Some(SocketAddrV6::new(*address, DNS, 0, scope).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KUBERNETES: &[u8] = b"search job.svc.cluster.local svc.cluster.local cluster.local\n\
                                nameserver 10.96.0.10\noptions ndots:5\n";

    #[test]
    fn a_pod_looks_in_its_own_domains_first() {
        let settings = ResolverSettings::parse(KUBERNETES);
        assert_eq!(settings.servers, ["10.96.0.10:53".parse().unwrap()]);
        let domains = ["job.svc.cluster.local", "svc.cluster.local", "cluster.local"];
        let behind = |host: &str| domains.map(|domain| format!("{host}.{domain}")).to_vec();
        let last = |host: &str| [behind(host), vec![host.to_owned()]].concat();
        assert_eq!(settings.candidates("worker-0.job"), last("worker-0.job"));
        let dots = "a.b.c.d.e.f";
        assert_eq!(settings.candidates(dots), [vec![dots.to_owned()], behind(dots)].concat());
        assert_eq!(settings.candidates("node2."), ["node2"]);
    }

    #[test]
    fn a_name_with_a_dot_is_first_taken_as_it_is() {
        let settings = ResolverSettings::parse(b"search a.b\n");
        assert_eq!(settings.candidates("node2"), ["node2.a.b", "node2"]);
        assert_eq!(settings.candidates("x.y"), ["x.y", "x.y.a.b"]);
    }

    #[test]
    fn every_setting_has_a_bound() {
        let long = format!("a{}", ".b".repeat(200));
        let file = format!(
            "nameserver 10.0.0.1\nnameserver 10.0.0.2\nnameserver fd00::1\nnameserver 10.0.0.4\n\
             nameserver nonsense\noptions ndots:4000000000 timeout:4000000000 attempts:0 use-vc no-aaaa \
             single-request unheard-of\nsearch {long} .. a..b c\\046d {}\n\u{1}\u{2}",
            "e ".repeat(1000)
        );
        let settings = ResolverSettings::parse(file.as_bytes());
        assert_eq!(settings.shown_servers(), "10.0.0.1, 10.0.0.2, fd00::1");
        assert_eq!((settings.dots, settings.attempts), (15, 1));
        assert_eq!(settings.timeout, Duration::from_secs(30));
        assert!(settings.only_tcp && settings.only_ipv4 && settings.one_by_one);
        assert_eq!(settings.search, ["e"; MOST_DOMAINS]);
    }

    #[test]
    fn without_a_file_the_server_is_this_host() {
        assert_eq!(ResolverSettings::parse(b"").shown_servers(), "127.0.0.1, ::1");
        assert_eq!(ResolverSettings::parse(b"\xff\xfe\0").shown_servers(), "127.0.0.1, ::1");
    }
}
