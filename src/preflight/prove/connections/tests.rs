use std::io::Write;

use super::*;

fn loopback(address: &str) -> Endpoint {
    Endpoint { interface: "lo".to_owned(), address: address.parse().unwrap() }
}

/// Advances both until the outgoing connection is made or has failed.
fn made(incoming: &mut Incoming, mut outgoing: Outgoing) -> Result<Made, String> {
    let end = Instant::now() + 4 * TRY;
    loop {
        incoming.advance();
        outgoing = outgoing.advance();
        if let Outgoing::Over(result) = outgoing {
            return result;
        }
        assert!(Instant::now() < end);
        let mut fds: Vec<PollFd> = incoming.fds().chain(outgoing.fd()).collect();
        poll(&mut fds, timeout(TRY)).unwrap();
    }
}

#[test]
fn the_connection_comes_from_the_address_of_the_interface() {
    let listening = Listening::on("127.0.0.1".parse().unwrap()).unwrap();
    let place = listening.place("eth0");
    let mut incoming = Incoming::new(Ok(listening));
    made(&mut incoming, Outgoing::to(&loopback("127.0.0.77"), &place, "node2")).unwrap();
    let made = incoming.end(None).unwrap();
    assert_eq!(made.stream.peer_addr().unwrap().ip().to_string(), "127.0.0.77");
    // This address is reserved for examples.
    let Outgoing::Over(Err(why)) = Outgoing::to(&loopback("192.0.2.1"), &place, "node2") else { panic!() };
    assert!(why.ends_with("this node no longer has this address"), "{why}");
}

#[test]
fn a_port_on_which_nothing_listens_is_told() {
    let place = Listening::on("127.0.0.1".parse().unwrap()).unwrap().place("eth0");
    let mut nothing = Incoming::Over(Err(NOT_TRIED.to_owned()));
    let why = made(&mut nothing, Outgoing::to(&loopback("127.0.0.1"), &place, "node2")).unwrap_err();
    let start = "no connection from lo (127.0.0.1) to node2 eth0 at 127.0.0.1:";
    assert!(why.starts_with(start) && why.contains("refused"), "{why}");
}

#[test]
fn another_program_is_taken_for_neither_end() {
    let listening = Listening::on("127.0.0.1".parse().unwrap()).unwrap();
    let place = listening.place("eth0");
    let mut incoming = Incoming::new(Ok(listening));
    let at = SocketAddr::new(place.address, place.port);
    let mut strangers: Vec<TcpStream> = (0..16).map(|_| TcpStream::connect(at).unwrap()).collect();
    strangers[16 - 1].write_all(&[7; 16]).unwrap();
    made(&mut incoming, Outgoing::to(&loopback("127.0.0.1"), &place, "node2")).unwrap();
    assert!(incoming.end(None).is_ok());
    // Another program sends its own data back.
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = RailEndpoint { port: other.local_addr().unwrap().port(), ..place };
    let mut nothing = Incoming::Over(Err(NOT_TRIED.to_owned()));
    let outgoing = Outgoing::to(&loopback("127.0.0.1"), &place, "node2");
    other.accept().unwrap().0.write_all(&[9; 16]).unwrap();
    let why = made(&mut nothing, outgoing).unwrap_err();
    assert!(why.ends_with("another program answers there"), "{why}");
}

#[test]
fn what_the_other_end_could_not_connect_is_not_waited_for() {
    let waiting = || Incoming::new(Listening::on("127.0.0.1".parse().unwrap()));
    let other = "node2 says: refused".to_owned();
    assert_eq!(waiting().end(Some(other)).unwrap_err(), "node2 says: refused");
    assert!(waiting().end(None).unwrap_err().starts_with("no connection arrived at 127.0.0.1:"));
}
