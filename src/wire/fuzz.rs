//! What the fuzzers call in this module; see [`crate::fuzz`].

use std::cell::RefCell;
use std::io::Write;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::Protocol;
use super::address::Address;
use super::connection::Connection;
use super::handshake::{Handshake, Step, one_key};
use super::session::Session;
use crate::verbs::rail::Side;

const PROTOCOL: Protocol = Protocol { schema: concat!("rdma-init", "/fuzz/1"), command: "fuzz" };
const TOKEN: &[u8] = b"0123456789abcdef";
const LONGEST: usize = 512;

thread_local! {
    /// It opens no line, so it stays as it is. Its keys take as long to make as all else here.
    static SESSION: RefCell<Session> =
        RefCell::new(Session::new(PROTOCOL.schema, TOKEN, Side::First, [b"a", b"b"]));
}

/// Feeds a connection with bytes from a process that has no token.
pub(crate) fn connection(data: &[u8]) {
    let (mut theirs, ours) = UnixStream::pair().expect("two sockets");
    let Ok(mut connection) = Connection::new(TcpStream::from(OwnedFd::from(ours)), "there".into(), &PROTOCOL)
    else {
        return;
    };
    let wait = Duration::from_secs(1);
    let handshake =
        |side| Handshake::new(&PROTOCOL, side, "", wait, "there".into()).expect("a random number");
    let mut sides = None;
    for part in data.chunks(300) {
        theirs.write_all(part).expect("there is room");
        while let Ok(Some(line)) = connection.line_if_there(LONGEST) {
            let opened = SESSION.with_borrow_mut(|session| session.open(&line).is_some());
            assert!(!opened, "no line without the token counts");
            for side in sides.get_or_insert_with(|| [Side::First, Side::Second].map(handshake)) {
                match side.hear(&line, &one_key(TOKEN)) {
                    Ok(Step::Proven(..)) => panic!("a proof without the token"),
                    Ok(Step::Send(_) | Step::Later) => {}
                    Err(stranger) => {
                        assert!(!stranger.why.contains(|c: char| c.is_control()), "{:?}", stranger.why);
                        side.farewell(stranger.fault);
                    }
                }
            }
        }
        assert!(connection.held() <= LONGEST + 4096, "{}", connection.held());
    }
    if let Ok(address) = String::from_utf8_lossy(data).parse::<Address>() {
        assert_eq!(address.to_string().parse(), Ok(address), "an address is what it shows");
    }
}
