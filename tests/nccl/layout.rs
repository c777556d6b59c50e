//! Layouts of links that a container may have.

/// The links of a network namespace, and how a job should use them.
pub struct Layout {
    pub name: &'static str,
    /// The links in the order in which they are made.
    pub links: &'static [Link],
    /// The gateway of the default route, and its link.
    pub default: Option<(&'static str, &'static str)>,
    /// The interface and address through which the processes of a job reach each other; `None` if nothing
    /// shows which is right.
    pub right: Option<&'static str>,
}

pub struct Link {
    pub name: &'static str,
    pub state: State,
    /// The arguments of `ip addr add`: `ADDRESS/PREFIX`, and optionally more words.
    pub addresses: &'static [&'static str],
    /// The number of the link; `None` for the next free one.
    pub index: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Running,
    /// The link is up, but its other end is not.
    NoCarrier,
    Down,
}

const fn running(name: &'static str, addresses: &'static [&'static str]) -> Link {
    Link { name, state: State::Running, addresses, index: None }
}

const ETH0: Link = running("eth0", &["10.1.0.5/24"]);
const ETH1: Link = running("eth1", &["10.2.0.5/24"]);
const OVER_ETH0: Option<(&str, &str)> = Some(("10.1.0.1", "eth0"));
const OVER_ETH1: Option<(&str, &str)> = Some(("10.2.0.1", "eth1"));

pub const TWO: Layout =
    Layout { name: "two candidates", links: &[ETH0, ETH1], default: OVER_ETH1, right: Some("eth1 10.2.0.5") };

pub const ONLY_LO: Layout = Layout { name: "only lo", links: &[], default: None, right: None };

pub const LAYOUTS: &[Layout] = &[
    Layout {
        name: "IPv4 and IPv6",
        links: &[running("eth0", &["fd00::5/64", "10.1.0.5/24", "fe80::5/64"])],
        default: OVER_ETH0,
        right: Some("eth0 10.1.0.5"),
    },
    Layout {
        name: "only IPv6",
        links: &[running("eth0", &["fe80::5/64", "fd00::5/64"])],
        default: Some(("fd00::1", "eth0")),
        right: Some("eth0 fd00::5"),
    },
    Layout {
        name: "docker0 first",
        links: &[running("docker0", &["172.17.0.1/16"]), running("virbr0", &["192.168.122.1/24"]), ETH0],
        default: OVER_ETH0,
        right: Some("eth0 10.1.0.5"),
    },
    Layout {
        name: "a link named ib0",
        links: &[ETH0, running("ib0", &["10.3.0.5/24"])],
        default: OVER_ETH0,
        right: Some("eth0 10.1.0.5"),
    },
    TWO,
    Layout {
        name: "one name begins another",
        links: &[
            running("eth10", &["10.4.0.5/24"]),
            running("eth1", &["10.2.0.5/24", "10.2.1.5/24"]),
            running("e", &["10.5.0.5/24"]),
        ],
        default: OVER_ETH1,
        right: Some("eth1 10.2.0.5"),
    },
    Layout {
        name: "the first is down",
        links: &[Link { state: State::Down, ..ETH0 }, ETH1],
        default: OVER_ETH1,
        right: Some("eth1 10.2.0.5"),
    },
    Layout {
        name: "the first has no carrier",
        links: &[
            Link { state: State::NoCarrier, addresses: &["10.1.0.5/24", "fd00::5/64"], ..ETH0 },
            running("eth1", &["10.2.0.5/24", "fd01::5/64"]),
        ],
        default: OVER_ETH1,
        right: Some("eth1 10.2.0.5"),
    },
    Layout {
        name: "no carrier at all",
        links: &[Link { state: State::NoCarrier, ..ETH0 }],
        default: None,
        right: None,
    },
    Layout {
        name: "a label and a peer",
        links: &[
            running("eth0", &["10.1.0.5/24", "10.1.2.5/24 label eth0:1"]),
            running("eth1", &["10.2.0.5 peer 10.2.0.9/32"]),
        ],
        default: OVER_ETH0,
        right: Some("eth0 10.1.0.5"),
    },
    Layout {
        name: "one subnet twice",
        links: &[ETH0, running("eth1", &["10.1.0.6/24", "fd00::6/64"])],
        default: OVER_ETH0,
        right: Some("eth0 10.1.0.5"),
    },
    // Kernels list links by number. Older kernels list them by the last eight bits of the number.
    Layout {
        name: "numbers above 255",
        links: &[Link { index: Some(258), ..ETH0 }, Link { index: Some(40), ..ETH1 }],
        default: OVER_ETH0,
        right: Some("eth0 10.1.0.5"),
    },
    ONLY_LO,
];
