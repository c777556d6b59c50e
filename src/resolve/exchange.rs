//! Asks a DNS server over UDP, and over TCP if the answer does not fit into a datagram.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use super::message::{Family, ServerAnswer, answer, question};
use super::settings::ResolverSettings;
use crate::sys::random;

/// The largest datagram, in bytes. Servers send at most 512 bytes over UDP unless they are asked for
/// more (RFC 1035, section 4.2.1).
const LONGEST_DATAGRAM: usize = 4096;

/// The result of asking a server about a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reply {
    Addresses(Vec<IpAddr>),
    /// The name does not exist, or has no address.
    Nothing,
    /// The server failed; the text is a sentence that says how.
    Failed(String),
    /// The server did not answer in time.
    Silent,
}

/// Asks for both address families at once, unless the settings say otherwise.
pub(super) fn ask(settings: &ResolverSettings, server: SocketAddr, name: &str, until: Instant) -> Reply {
    let families: &[Family] =
        if settings.only_ipv4 { &[Family::Ipv4] } else { &[Family::Ipv4, Family::Ipv6] };
    let together = if settings.one_by_one { 1 } else { families.len() };
    let mut answers = Vec::new();
    for families in families.chunks(together) {
        match exchange(settings, server, name, families, until) {
            Ok(more) => answers.extend(more),
            Err(error) => answers.push(Some(ServerAnswer::Failed(error.to_string()))),
        }
    }
    summary(answers)
}

/// Combines the answers. Addresses of one family are enough, whatever the result for the other family
/// is.
fn summary(answers: Vec<Option<ServerAnswer>>) -> Reply {
    let mut found = Vec::new();
    let (mut failure, mut is_silent, mut is_unknown) = (None, false, false);
    for answer in answers {
        match answer {
            Some(ServerAnswer::Addresses(addresses)) => found.extend(addresses),
            Some(ServerAnswer::NoSuchName) => is_unknown = true,
            Some(ServerAnswer::Failed(why)) => failure = Some(why),
            Some(ServerAnswer::Truncated) | None => is_silent = true,
        }
    }
    match failure {
        _ if !found.is_empty() => Reply::Addresses(found),
        _ if is_unknown => Reply::Nothing,
        Some(why) => Reply::Failed(why),
        None if is_silent => Reply::Silent,
        None => Reply::Nothing,
    }
}

struct Query<'a> {
    id: u16,
    name: &'a str,
    family: Family,
    bytes: Vec<u8>,
    answer: Option<ServerAnswer>,
}

/// Returns the answer for each family; `None` if there was none.
fn exchange(
    settings: &ResolverSettings,
    server: SocketAddr,
    name: &str,
    families: &[Family],
    until: Instant,
) -> io::Result<Vec<Option<ServerAnswer>>> {
    let mut queries = Vec::new();
    for family in families {
        let mut id = [0; 2];
        random::fill(&mut id)?;
        let id = u16::from_ne_bytes(id);
        let bytes = question(id, name, *family).ok_or(ErrorKind::InvalidInput)?;
        queries.push(Query { id, name, family: *family, bytes, answer: None });
    }
    if !settings.only_tcp {
        by_datagrams(server, &mut queries, until)?;
    }
    for query in &mut queries {
        if settings.only_tcp || query.answer == Some(ServerAnswer::Truncated) {
            let failed = |error: io::Error| Some(ServerAnswer::Failed(format!("over TCP: {error}")));
            query.answer = by_stream(server, query, until).unwrap_or_else(failed);
        }
    }
    Ok(queries.into_iter().map(|query| query.answer).collect())
}

/// Asks over UDP. The kernel chooses the port, so an attacker who cannot see the question must guess it
/// as well. The kernel also drops answers from other addresses.
fn by_datagrams(server: SocketAddr, queries: &mut [Query], until: Instant) -> io::Result<()> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(server)?;
    for query in &*queries {
        socket.send(&query.bytes)?;
    }
    let mut buffer = [0; LONGEST_DATAGRAM];
    while queries.iter().any(|query| query.answer.is_none()) {
        let Some(left) = left(until) else { break };
        socket.set_read_timeout(Some(left))?;
        match socket.recv(&mut buffer) {
            Ok(length) => {
                let bytes = buffer.get(..length).unwrap_or_default();
                for query in queries.iter_mut().filter(|query| query.answer.is_none()) {
                    query.answer = answer(bytes, query.id, query.name, query.family);
                }
            }
            Err(error) if is_wait(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Asks over TCP. Returns `None` if no answer arrived in time, or if it answers a different question.
fn by_stream(server: SocketAddr, query: &Query, until: Instant) -> io::Result<Option<ServerAnswer>> {
    let Some(time) = left(until) else { return Ok(None) };
    let mut stream = match TcpStream::connect_timeout(&server, time) {
        Err(error) if is_wait(&error) => return Ok(None),
        other => other?,
    };
    stream.set_write_timeout(left(until).or(Some(Duration::from_millis(1))))?;
    let length = u16::try_from(query.bytes.len()).map_err(|_| ErrorKind::InvalidInput)?;
    stream.write_all(&[&length.to_be_bytes(), query.bytes.as_slice()].concat())?;
    // A message over TCP starts with its length.
    let Some(length) = exactly(&mut stream, 2, until)? else { return Ok(None) };
    let length = length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
    let Some(bytes) = exactly(&mut stream, length, until)? else { return Ok(None) };
    let answer = answer(&bytes, query.id, query.name, query.family);
    Ok(answer.filter(|answer| *answer != ServerAnswer::Truncated))
}

/// Reads this many bytes. Returns `None` if they did not arrive in time, or if the other end closed the
/// connection.
fn exactly(stream: &mut TcpStream, length: usize, until: Instant) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = vec![0; length];
    let mut rest = bytes.as_mut_slice();
    while !rest.is_empty() {
        let Some(left) = left(until) else { return Ok(None) };
        stream.set_read_timeout(Some(left))?;
        match stream.read(rest) {
            Ok(0) => return Ok(None),
            Ok(length) => rest = rest.get_mut(length..).unwrap_or_default(),
            Err(error) if is_wait(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Some(bytes))
}

fn left(until: Instant) -> Option<Duration> {
    Some(until.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
}

fn is_wait(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}
