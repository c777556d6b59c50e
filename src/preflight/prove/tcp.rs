//! Moves data over one rail of a job that uses sockets: verified data goes both ways over a connection
//! between the interfaces that NCCL uses, and then both ends measure.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, poll};

use crate::preflight::prove::connections::Cookie;
use crate::preflight::prove::pair::{Cause, Measured, RailReport, Seen, Sent};
use crate::self_test::pair::TOGETHER;
use crate::sys::tcp;
use crate::verbs::rail::Side;
use crate::wire::connection::timeout;

/// The number of bytes to compare. They fill hundreds of packets, so that packets of the largest size
/// must get through.
pub(in crate::preflight) const VERIFIED: usize = 256 * 1024;

/// In bytes: how much to send at once when bandwidth is measured.
const BLOCK: usize = 64 * 1024;

/// In bytes: the sizes of single messages. Each is below the packet size of a usual MTU: 1280, 1500,
/// 4200, 9000.
const SIZES: [u32; 5] = [200, 1000, 1400, 4000, 8000];

/// In bytes: the start of such a message, which contains its size, and the answer.
const STEP: usize = 8;

/// In bytes: more than a packet can hold.
const LARGEST: usize = 64 * 1024;

const ROUND_TRIPS: usize = 50;

/// How long to measure each of the two figures.
const MEASURED: Duration = Duration::from_millis(200);

/// The longest time without progress.
const PATIENCE: Duration = Duration::from_secs(5);

/// What went wrong.
struct Wrong {
    why: String,
    cause: Option<Cause>,
}

impl Wrong {
    fn because(why: String) -> Wrong {
        Wrong { why, cause: None }
    }
}

/// Tests a rail over its connection. `name` is the other end's name, for messages.
pub(in crate::preflight) fn test(stream: TcpStream, side: Side, cookie: &Cookie, name: &str) -> RailReport {
    on(stream, name, |link| link.test(side, cookie))
}

/// Moves data over a rail both ways at once.
pub(in crate::preflight) fn together(stream: TcpStream, name: &str) -> RailReport {
    on(stream, name, |link| link.together())
}

fn on(stream: TcpStream, name: &str, work: impl FnOnce(&mut Link) -> Result<Measured, Wrong>) -> RailReport {
    let mut link = match Link::new(stream, name) {
        Ok(link) => link,
        Err(error) => {
            return RailReport::new(0, Err(format!("the connection to {name} cannot be used: {error}")));
        }
    };
    let done = work(&mut link);
    let cause = done.as_ref().err().and_then(|wrong| wrong.cause);
    let sent = tcp::counts(&link.stream).ok().map(|of| Sent { packets: of.packets, again: of.again });
    RailReport {
        seen: Seen { cause, sent, astray: false },
        ..RailReport::new(0, done.map_err(|wrong| wrong.why))
    }
}

struct Link<'a> {
    stream: TcpStream,
    /// The other end's name, for messages.
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

    /// Tests the rail. Both ends take turns with the same steps.
    fn test(&mut self, side: Side, cookie: &Cookie) -> Result<Measured, Wrong> {
        let mut measured = Measured { latency_us: 0.0, gbps: 0.0 };
        for turn in [Side::First, Side::Second] {
            match turn == side {
                true => self.send_sizes()?,
                false => self.take_sizes()?,
            }
        }
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

    fn closed(&self) -> Wrong {
        let why = format!("{} has closed the connection", self.name);
        Wrong { why, cause: Some(Cause::Waited) }
    }

    fn broke(&self, error: &io::Error) -> Wrong {
        Wrong::because(format!("the connection to {} broke: {error}", self.name))
    }

    /// Sends messages of growing sizes, up to the largest one that fits into one packet. Each waits for
    /// the answer to the one before. The kernel forbids routers to fragment them, so this shows from
    /// which size on they are lost, which happens if the path's MTU is smaller than its ends' MTUs.
    fn send_sizes(&mut self) -> Result<(), Wrong> {
        let largest = tcp::counts(&self.stream).map_or(0, |counts| counts.segment);
        let mut passed = 0;
        for size in SIZES.into_iter().filter(|size| *size < largest).chain([largest]) {
            let Ok(length) = usize::try_from(size) else { break };
            if length < STEP {
                break;
            }
            let mut message = vec![0; length];
            if let Some(start) = message.get_mut(..STEP) {
                start.copy_from_slice(&u64::from(size).to_le_bytes());
            }
            self.write(&message)?;
            self.read(&mut [0; STEP]).map_err(|wrong| match wrong.cause {
                Some(Cause::Waited) if passed > 0 => Wrong {
                    why: format!(
                        "messages of {passed} bytes reach {}, but one of {size} bytes does not: \
                         the MTU on the path is smaller than at its ends",
                        self.name
                    ),
                    cause: Some(Cause::Size { passed, lost: size }),
                },
                _ => wrong,
            })?;
            passed = size;
        }
        self.write(&[0; STEP])
    }

    /// Answers such messages.
    fn take_sizes(&mut self) -> Result<(), Wrong> {
        loop {
            let mut start = [0; STEP];
            self.read(&mut start)?;
            let size = u64::from_le_bytes(start);
            if size == 0 {
                return Ok(());
            }
            let rest = usize::try_from(size).unwrap_or(usize::MAX).saturating_sub(STEP);
            if rest > LARGEST {
                return Err(Wrong::because(format!("{} violates the protocol", self.name)));
            }
            self.read(&mut vec![0; rest])?;
            self.write(&start)?;
        }
    }

    /// Sends as much as possible for a while, and reads what the other end sends meanwhile. Returns the
    /// bandwidth of the data that the other end acknowledged in that time.
    fn together(&mut self) -> Result<Measured, Wrong> {
        self.stream.set_nonblocking(true).map_err(|error| self.broke(&error))?;
        let counts = || tcp::counts(&self.stream).map_err(|errno| self.broke(&errno.into()));
        let (before, start) = (counts()?.acknowledged, Instant::now());
        let (end, block, mut sink) = (start + TOGETHER, vec![0; BLOCK], vec![0; BLOCK]);
        let mut moved = start;
        let mut is_open = true;
        while Instant::now() < end {
            let mut events = PollFlags::POLLOUT;
            events.set(PollFlags::POLLIN, is_open);
            let until = end.min(moved + PATIENCE).saturating_duration_since(Instant::now());
            // EINTR is harmless: the loop looks again.
            let _ = poll(&mut [PollFd::new(self.stream.as_fd(), events)], timeout(until));
            match (&self.stream).write(&block) {
                Ok(_) => moved = Instant::now(),
                Err(error) if is_only_busy(&error) => {}
                // The other end started a little earlier, and has finished.
                Err(_) if start.elapsed() > TOGETHER / 2 => break,
                Err(error) => return Err(self.broke(&error)),
            }
            match (&self.stream).read(&mut sink) {
                Ok(0) if start.elapsed() > TOGETHER / 2 => is_open = false,
                Ok(0) => return Err(self.closed()),
                Ok(_) => moved = Instant::now(),
                Err(error) if is_only_busy(&error) => {}
                Err(_) if start.elapsed() > TOGETHER / 2 => break,
                Err(error) => return Err(self.broke(&error)),
            }
        }
        let (bytes, took) = (counts()?.acknowledged.saturating_sub(before), start.elapsed());
        if bytes == 0 {
            let why = format!("{} accepts no data while all nodes send", self.name);
            return Err(Wrong::because(why));
        }
        let gbps = bytes as f64 * 8.0 / took.as_secs_f64().max(1e-9) / 1e9;
        Ok(Measured { latency_us: 0.0, gbps: gbps as f32 })
    }

    fn verify(&mut self, wanted: &[u8]) -> Result<(), Wrong> {
        let mut received = vec![0; wanted.len()];
        self.read(&mut received)?;
        match received.iter().zip(wanted).position(|(is, wanted)| is != wanted) {
            None => Ok(()),
            Some(place) => {
                Err(Wrong::because(format!("data from {} arrived changed, at byte {place}", self.name)))
            }
        }
    }

    fn measure(&mut self) -> Result<Measured, Wrong> {
        let mut trips = Vec::with_capacity(ROUND_TRIPS);
        let end = Instant::now() + MEASURED;
        while trips.is_empty() || trips.len() < ROUND_TRIPS && Instant::now() < end {
            let start = Instant::now();
            self.write(&[Opcode::Echo as u8; 8])?;
            self.read(&mut [0; 8])?;
            trips.push(start.elapsed());
        }
        trips.sort();
        let latency = trips.get(trips.len() / 2).copied().unwrap_or_default();
        let mut block = vec![0; BLOCK];
        let start = Instant::now();
        let mut blocks = 0u64;
        while blocks == 0 || start.elapsed() < MEASURED {
            block.fill(Opcode::Take as u8);
            self.write(&block)?;
            blocks += 1;
        }
        block.fill(Opcode::Enough as u8);
        self.write(&block)?;
        // The other end answers when it has received everything.
        self.read(&mut [0; 8])?;
        let bits = (blocks + 1) * BLOCK as u64 * 8;
        Ok(Measured {
            latency_us: (latency.as_nanos() as f64 / 1000.0) as f32,
            gbps: (bits as f64 / start.elapsed().as_secs_f64().max(1e-9) / 1e9) as f32,
        })
    }

    fn be_measured(&mut self) -> Result<(), Wrong> {
        let mut first = [0; 8];
        loop {
            self.read(&mut first)?;
            if first[0] != Opcode::Echo as u8 {
                break;
            }
            self.write(&first)?;
        }
        let mut rest = vec![0; BLOCK];
        let mut order = first[0];
        self.read(rest.get_mut(8..).unwrap_or_default())?;
        while order == Opcode::Take as u8 {
            self.read(&mut rest)?;
            order = rest.first().copied().unwrap_or_default();
        }
        self.write(&first)
    }

    /// Fills the buffer. Fails if nothing arrives for a while.
    fn read(&mut self, bytes: &mut [u8]) -> Result<(), Wrong> {
        let mut done = 0;
        while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.stream.read(rest) {
                Ok(0) => return Err(self.closed()),
                Ok(length) => done += length,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let why = format!(
                        "from {}, no data arrived for {} s, {done} bytes into {}",
                        self.name,
                        PATIENCE.as_secs(),
                        bytes.len()
                    );
                    return Err(Wrong { why, cause: Some(Cause::Waited) });
                }
                Err(error) => return Err(self.broke(&error)),
            }
        }
        Ok(())
    }

    fn write(&mut self, mut bytes: &[u8]) -> Result<(), Wrong> {
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(length) => bytes = bytes.get(length..).unwrap_or_default(),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Err(Wrong::because(format!(
                        "{} has accepted no data for {} s",
                        self.name,
                        PATIENCE.as_secs()
                    )));
                }
                Err(error) => return Err(self.broke(&error)),
            }
        }
        Ok(())
    }
}

fn is_only_busy(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// What the measuring end asks of the other one, in each byte that it sends.
#[derive(Clone, Copy)]
enum Opcode {
    /// Send these 8 bytes back.
    Echo = 1,
    /// Read this block, and expect another one.
    Take = 2,
    /// This was the last block; answer with 8 bytes.
    Enough = 3,
}

/// Returns data that differs from that of every other connection and of the other direction.
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
    use std::net::TcpListener;

    use super::*;

    fn connected() -> [TcpStream; 2] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let first = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        [first, listener.accept().unwrap().0]
    }

    #[test]
    fn both_ends_measure() {
        let [first, second] = connected();
        let reports = std::thread::scope(|scope| {
            let second = scope.spawn(move || test(second, Side::Second, &[7; 16], "node1 eth0"));
            [test(first, Side::First, &[7; 16], "node2 eth0"), second.join().unwrap()]
        });
        for report in reports {
            let measured = report.result.unwrap();
            assert!(measured.latency_us > 0.0 && measured.gbps > 0.0, "{measured:?}");
        }
    }

    #[test]
    fn both_ends_move_data_at_once() {
        let [first, second] = connected();
        let reports = std::thread::scope(|scope| {
            let second = scope.spawn(move || together(second, "node1 eth0"));
            [together(first, "node2 eth0"), second.join().unwrap()]
        });
        for report in reports {
            assert!(report.result.clone().unwrap().gbps > 0.0, "{report:?}");
        }
    }

    #[test]
    fn an_end_that_goes_at_once_has_moved_nothing() {
        let [first, second] = connected();
        drop(first);
        assert!(together(second, "node1 eth0").result.is_err());
    }

    #[test]
    fn data_that_is_changed_is_found() {
        let [mut first, second] = connected();
        let cookie = [9; 16];
        std::thread::scope(|scope| {
            let second = scope.spawn(move || test(second, Side::Second, &cookie, "node1 eth0"));
            // This end sends no sizes, and the other end sends all of its sizes.
            first.write_all(&[0; STEP]).unwrap();
            let mut link = Link::new(first.try_clone().unwrap(), "node2 eth0").unwrap();
            assert!(link.take_sizes().is_ok());
            let mut data = pattern(Side::First, &cookie);
            data[1000] ^= 1;
            first.write_all(&data).unwrap();
            let report = second.join().unwrap();
            assert_eq!(report.result.unwrap_err(), "data from node1 eth0 arrived changed, at byte 1000");
            assert_eq!(report.seen.cause, None);
        });
    }

    #[test]
    fn the_size_from_which_on_messages_are_lost_is_told() {
        // A path whose MTU is only a little smaller loses the largest message alone.
        for passing in [&SIZES[..2], &SIZES] {
            let [first, mut second] = connected();
            let segment = tcp::counts(&first).unwrap().segment;
            let (passed, lost) = (passing[passing.len() - 1], *SIZES.get(passing.len()).unwrap_or(&segment));
            let report = std::thread::scope(|scope| {
                let report = scope.spawn(move || test(first, Side::First, &[9; 16], "node2 eth0"));
                for size in passing {
                    let mut message = vec![0; usize::try_from(*size).unwrap()];
                    second.read_exact(&mut message).unwrap();
                    second.write_all(&message[..STEP]).unwrap();
                }
                second.shutdown(std::net::Shutdown::Write).unwrap();
                report.join().unwrap()
            });
            assert_eq!(report.seen.cause, Some(Cause::Size { passed, lost }));
            assert!(report.seen.sent.is_some());
            let why = report.result.unwrap_err();
            let start = format!("messages of {passed} bytes reach node2 eth0, but one of {lost} bytes");
            assert!(why.starts_with(&start), "{why}");
        }
    }

    #[test]
    fn an_end_that_only_waited_reports_that() {
        let [first, second] = connected();
        drop(first);
        let report = test(second, Side::Second, &[9; 16], "node1 eth0");
        assert_eq!(report.result.unwrap_err(), "node1 eth0 has closed the connection");
        assert_eq!(report.seen.cause, Some(Cause::Waited));
    }
}
