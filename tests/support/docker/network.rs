//! A network of the engine. Each test takes its own addresses from it.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

use super::Engine;

/// A network with its own subnet.
pub struct Network {
    pub name: String,
    subnet: [u8; 3],
    next: AtomicU32,
}

impl Network {
    pub(super) fn new(engine: &Engine, name: &str, options: &[&str]) -> Network {
        let name = format!("{}-{name}", engine.run);
        // The addresses are those of RFC 2544, which no network uses. Concurrent runs start their search at
        // different places, so that they do not use the same subnet.
        let start = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().subsec_nanos();
        for attempt in 0..512 {
            let [.., block, third] = ((start + attempt) % 512).to_be_bytes();
            let subnet = [198, 18 + block, third];
            let range = format!("{}.{}.{}.0/24", subnet[0], subnet[1], subnet[2]);
            let arguments = ["network", "create", "--label", &engine.run, "--subnet", &range];
            let made = engine.docker(arguments.iter().chain(options).chain(&[name.as_str()]));
            if made.code == Some(0) {
                return Network { name, subnet, next: AtomicU32::new(10) };
            }
            assert!(made.stderr.contains("overlaps"), "{made:#?}");
        }
        panic!("every subnet is taken");
    }

    /// Returns an address that no container has yet.
    pub fn address(&self) -> Ipv4Addr {
        let host = u8::try_from(self.next.fetch_add(1, Ordering::Relaxed)).expect("a /24 is enough");
        self.at(host)
    }

    /// Returns the host's address in the GID tables that are simulated for the containers.
    pub fn host_address(&self) -> Ipv4Addr {
        self.at(2)
    }

    fn at(&self, host: u8) -> Ipv4Addr {
        let [a, b, c] = self.subnet;
        Ipv4Addr::new(a, b, c, host)
    }
}
