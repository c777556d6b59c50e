//! One rail of a job that runs over sockets: a TCP connection between the interfaces that NCCL
//! uses. Verified data goes both ways, and then both ends measure.
//!
//! Both ends bind to the address of their interface. NCCL binds where it listens
//! (ncclSocketListen in src/misc/socket.cc of NCCL 2.27) and lets the kernel choose an address where
//! it connects. But in its job each node listens, and here only one of the two does: so the
//! connection comes from the address on which the node would listen, and the answers show whether
//! others reach that one.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, SockaddrStorage};

use super::pair::Measured;
use crate::libraries::nccl::interfaces::Endpoint;
use crate::verbs::rail::Side;
use crate::wire::connection::timeout;

/// What the connecting end says first, so that the other end knows it from a stranger.
pub type Cookie = [u8; 16];

/// The number of bytes that are compared. They make hundreds of packets, so that the largest
/// packets have to come through.
const VERIFIED: usize = 256 * 1024;

/// In bytes: what is sent at once when bandwidth is measured.
const BLOCK: usize = 64 * 1024;

const ROUND_TRIPS: usize = 50;

/// The time for measuring each of the two figures.
const MEASURED: Duration = Duration::from_millis(200);

/// The longest time in which nothing moves.
const PATIENCE: Duration = Duration::from_secs(5);

/// The time for a connection.
const TRY: Duration = Duration::from_secs(5);

/// Waits for the other end on an address of this node; gives the port before it does.
pub struct Waiting {
    listener: TcpListener,
    pub own: SocketAddr,
}

impl Waiting {
    /// # Errors
    /// A sentence.
    pub fn on(address: IpAddr) -> Result<Waiting, String> {
        let failed = |error: io::Error| format!("cannot listen on {address}: {error}");
        let listener = TcpListener::bind((address, 0)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let own = listener.local_addr().map_err(failed)?;
        Ok(Waiting { listener, own })
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Tests the rail with whoever comes and knows the cookie.
    ///
    /// # Errors
    /// A sentence.
    pub fn test(&self, cookie: &Cookie, name: &str) -> Result<Measured, String> {
        let end = Instant::now() + TRY + PATIENCE;
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    let mut link = Link::new(stream, name).map_err(|error| error.to_string())?;
                    let mut said = Cookie::default();
                    // Whoever says something else is a stranger.
                    if link.read(&mut said).is_ok() && said == *cookie {
                        return link.test(Side::Second, cookie);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let left = end.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(format!("no connection came to {} from {name}", self.own));
                    }
                    let _ = poll(&mut [PollFd::new(self.listener.as_fd(), PollFlags::POLLIN)], timeout(left));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(format!("cannot listen on {} any longer: {error}", self.own)),
            }
        }
    }
}

/// Connects from an interface to the other end, and tests the rail.
///
/// # Errors
/// A sentence.
pub fn test(from: &Endpoint, to: SocketAddr, cookie: &Cookie, name: &str) -> Result<Measured, String> {
    let Endpoint { interface, address } = from;
    let failed = |error: io::Error| {
        format!("no connection from {interface} ({address}) to {name} at {to}: {}", told(&error))
    };
    let stream = connect(*address, to).map_err(failed)?;
    let mut link = Link::new(stream, name).map_err(failed)?;
    link.write(cookie)?;
    link.test(Side::First, cookie)
}

fn connect(from: IpAddr, to: SocketAddr) -> io::Result<TcpStream> {
    let family = match (from, to) {
        (IpAddr::V4(_), SocketAddr::V4(_)) => AddressFamily::Inet,
        (IpAddr::V6(_), SocketAddr::V6(_)) => AddressFamily::Inet6,
        // NCCL tries it as well. The interface may have an address of the other kind.
        _ => return TcpStream::connect_timeout(&to, TRY),
    };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let stream = TcpStream::from(socket::socket(family, SockType::Stream, flags, None)?);
    socket::bind(stream.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(from, 0)))?;
    match socket::connect(stream.as_raw_fd(), &SockaddrStorage::from(to)) {
        Ok(()) => return Ok(stream),
        Err(Errno::EINPROGRESS) => {}
        Err(errno) => return Err(errno.into()),
    }
    let end = Instant::now() + TRY;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        match poll(&mut [PollFd::new(stream.as_fd(), PollFlags::POLLOUT)], timeout(left)) {
            Ok(0) if left.is_zero() => return Err(ErrorKind::TimedOut.into()),
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) => return stream.take_error()?.map_or(Ok(stream), Err),
            Err(errno) => return Err(errno.into()),
        }
    }
}

fn told(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::TimedOut => format!("nobody answers for {} s", TRY.as_secs()),
        ErrorKind::AddrNotAvailable => "this node no longer has this address".to_owned(),
        _ => error.to_string(),
    }
}

struct Link<'a> {
    stream: TcpStream,
    /// The other end, for sentences.
    name: &'a str,
}

impl Link<'_> {
    fn new(stream: TcpStream, name: &str) -> io::Result<Link<'_>> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Link { stream, name })
    }

    /// The two ends do the same things in turn.
    fn test(&mut self, side: Side, cookie: &Cookie) -> Result<Measured, String> {
        let mut measured = Measured { latency_us: 0.0, gbps: 0.0 };
        for turn in [Side::First, Side::Second] {
            match turn == side {
                true => self.write(&pattern(turn, cookie))?,
                false => self.verify(&pattern(turn, cookie))?,
            }
        }
        for turn in [Side::First, Side::Second] {
            match turn == side {
                true => measured = self.measure()?,
                false => self.be_measured()?,
            }
        }
        Ok(measured)
    }

    fn verify(&mut self, wanted: &[u8]) -> Result<(), String> {
        let mut came = vec![0; wanted.len()];
        self.read(&mut came)?;
        match came.iter().zip(wanted).position(|(came, wanted)| came != wanted) {
            None => Ok(()),
            Some(place) => Err(format!("data from {} arrived changed, at byte {place}", self.name)),
        }
    }

    fn measure(&mut self) -> Result<Measured, String> {
        let mut trips = Vec::with_capacity(ROUND_TRIPS);
        let end = Instant::now() + MEASURED;
        while trips.is_empty() || trips.len() < ROUND_TRIPS && Instant::now() < end {
            let start = Instant::now();
            self.write(&[Order::Echo as u8; 8])?;
            self.read(&mut [0; 8])?;
            trips.push(start.elapsed());
        }
        trips.sort();
        let latency = trips.get(trips.len() / 2).copied().unwrap_or_default();
        let mut block = vec![0; BLOCK];
        let start = Instant::now();
        let mut blocks = 0u64;
        while blocks == 0 || start.elapsed() < MEASURED {
            block.fill(Order::Take as u8);
            self.write(&block)?;
            blocks += 1;
        }
        block.fill(Order::Enough as u8);
        self.write(&block)?;
        // The other end answers when it has all of it.
        self.read(&mut [0; 8])?;
        let bits = (blocks + 1) * BLOCK as u64 * 8;
        Ok(Measured {
            latency_us: (latency.as_nanos() as f64 / 1000.0) as f32,
            gbps: (bits as f64 / start.elapsed().as_secs_f64().max(1e-9) / 1e9) as f32,
        })
    }

    fn be_measured(&mut self) -> Result<(), String> {
        let mut first = [0; 8];
        loop {
            self.read(&mut first)?;
            if first[0] != Order::Echo as u8 {
                break;
            }
            self.write(&first)?;
        }
        let mut rest = vec![0; BLOCK];
        let mut order = first[0];
        self.read(rest.get_mut(8..).unwrap_or_default())?;
        while order == Order::Take as u8 {
            self.read(&mut rest)?;
            order = rest.first().copied().unwrap_or_default();
        }
        self.write(&first)
    }

    /// Fills the bytes. The time is over when nothing comes for a while.
    fn read(&mut self, bytes: &mut [u8]) -> Result<(), String> {
        let mut done = 0;
        while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.stream.read(rest) {
                Ok(0) => return Err(format!("{} has closed the connection", self.name)),
                Ok(length) => done += length,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Err(format!(
                        "from {}, nothing came for {} s, {done} bytes into {}",
                        self.name,
                        PATIENCE.as_secs(),
                        bytes.len()
                    ));
                }
                Err(error) => return Err(format!("the connection to {} broke: {error}", self.name)),
            }
        }
        Ok(())
    }

    fn write(&mut self, mut bytes: &[u8]) -> Result<(), String> {
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(length) => bytes = bytes.get(length..).unwrap_or_default(),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Err(format!(
                        "{} takes no data for {} s; it may be that large packets are lost on the way (MTU)",
                        self.name,
                        PATIENCE.as_secs()
                    ));
                }
                Err(error) => return Err(format!("the connection to {} broke: {error}", self.name)),
            }
        }
        Ok(())
    }
}

/// What the measuring end asks of the other one, in each byte that it sends.
#[derive(Clone, Copy)]
enum Order {
    /// Send these 8 bytes back.
    Echo = 1,
    /// Take this block, and another one.
    Take = 2,
    /// This was the last block; answer with 8 bytes.
    Enough = 3,
}

/// Data that no other connection has, and no other direction.
fn pattern(from: Side, cookie: &Cookie) -> Vec<u8> {
    let salt = match from {
        Side::First => 0x5a,
        Side::Second => 0xa5,
    };
    let cookie = cookie.iter().cycle();
    (0u32..VERIFIED as u32)
        .zip(cookie)
        .map(|(place, byte)| byte ^ salt ^ (place.wrapping_mul(31) >> 3) as u8)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loopback() -> Endpoint {
        Endpoint { interface: "lo".to_owned(), address: "127.0.0.1".parse().unwrap() }
    }

    fn both(cookies: [Cookie; 2]) -> [Result<Measured, String>; 2] {
        let waiting = Waiting::on("127.0.0.1".parse().unwrap()).unwrap();
        let own = waiting.own;
        std::thread::scope(|scope| {
            let second = scope.spawn(move || waiting.test(&cookies[1], "node1 eth0"));
            let first = test(&loopback(), own, &cookies[0], "node2 eth0");
            [first, second.join().unwrap()]
        })
    }

    #[test]
    fn both_ends_measure() {
        for end in both([[7; 16]; 2]) {
            let measured = end.unwrap();
            assert!(measured.latency_us > 0.0 && measured.gbps > 0.0, "{measured:?}");
        }
    }

    #[test]
    fn a_port_where_nobody_listens_is_told() {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let why = test(&loopback(), port, &[0; 16], "node2 eth0").unwrap_err();
        let start = "no connection from lo (127.0.0.1) to node2 eth0 at 127.0.0.1:";
        assert!(why.starts_with(start) && why.contains("refused"), "{why}");
    }

    #[test]
    fn the_connection_comes_from_the_address_of_the_interface() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let _stream = connect("127.0.0.77".parse().unwrap(), to).unwrap();
        assert_eq!(listener.accept().unwrap().1.ip().to_string(), "127.0.0.77");
        // This address is for examples alone.
        let from = Endpoint { address: "192.0.2.1".parse().unwrap(), ..loopback() };
        let why = test(&from, to, &[0; 16], "node2 eth0").unwrap_err();
        assert!(why.ends_with("this node no longer has this address"), "{why}");
    }

    #[test]
    fn data_that_is_changed_is_found() {
        let waiting = Waiting::on("127.0.0.1".parse().unwrap()).unwrap();
        let own = waiting.own;
        let cookie = [9; 16];
        std::thread::scope(|scope| {
            let second = scope.spawn(move || waiting.test(&cookie, "node1 eth0"));
            let mut stream = TcpStream::connect(own).unwrap();
            let mut data = pattern(Side::First, &cookie);
            data[1000] ^= 1;
            stream.write_all(&cookie).unwrap();
            stream.write_all(&data).unwrap();
            let why = second.join().unwrap().unwrap_err();
            assert_eq!(why, "data from node1 eth0 arrived changed, at byte 1000");
        });
    }
}
