//! Tests the client with servers that follow the protocol, and with servers that do not.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::super::client::{Failure, ask};
use super::super::protocol::Unreadable;
use super::bytes;

/// Starts a server for one client. Returns its address.
fn server(at: &str, serve: impl FnOnce(TcpStream) + Send + 'static) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind(at).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (address, thread::spawn(move || serve(listener.accept().unwrap().0)))
}

/// Reads the whole question. A server that closed earlier would reset the connection.
fn question(stream: &mut TcpStream) -> String {
    let mut question = Vec::new();
    while !question.ends_with(b"STATUS\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        question.extend(byte);
    }
    String::from_utf8(question).unwrap()
}

/// Sends these bytes to a client that has asked.
fn reply(mut stream: TcpStream, bytes: &[u8]) {
    question(&mut stream);
    stream.write_all(bytes).unwrap();
}

fn soon(time: Duration) -> Instant {
    Instant::now() + time
}

const LONG: Duration = Duration::from_secs(60);

#[test]
fn the_question_is_asked_and_the_answer_read() {
    for at in ["127.0.0.1:0", "[::1]:0"] {
        let (address, served) = server(at, |mut stream| {
            let question = question(&mut stream);
            assert_eq!(question, "CLIENT PROTOCOL 2\nTIMEOUT 5\nSET FORMAT json\nVERBOSE STATUS\n");
            // In pieces, as a network may deliver it.
            for piece in bytes("2.28.9", "dead").chunks(100) {
                stream.write_all(piece).unwrap();
            }
        });
        let answer = ask(&address, soon(LONG)).unwrap();
        served.join().unwrap();
        assert_eq!((answer.release.as_str(), answer.total), ("2.28.9", 1), "{at}");
    }
}

#[test]
fn the_name_localhost_leads_to_a_server_of_either_family() {
    let (address, served) = server("[::1]:0", |stream| reply(stream, &bytes("2.27.7", "sound")));
    let port = address.rsplit_once(':').unwrap().1;
    assert!(ask(&format!("localhost:{port}"), soon(LONG)).is_ok());
    served.join().unwrap();
}

/// The kernel gives a connection to any process that listens there, even to a stopped one.
#[test]
fn another_process_is_asked_if_one_does_not_greet() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let served = thread::spawn(move || {
        let silent = listener.accept().unwrap();
        reply(listener.accept().unwrap().0, &bytes("2.32.3", "sound"));
        drop(silent);
    });
    assert!(ask(&address, soon(LONG)).is_ok());
    served.join().unwrap();
}

#[test]
fn a_server_that_is_silent_slow_or_endless_does_not_hold_the_client() {
    const DEADLINE: Duration = Duration::from_millis(300);
    // The server has written by then, also on a busy machine.
    const LATER: Duration = Duration::from_secs(3);
    type Serve = fn(TcpStream);
    // Each server gives up after a long time, so that a client which waits on gets another failure.
    let until_closed = |mut stream: TcpStream| {
        stream.set_read_timeout(Some(LONG)).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    };
    let slow = |mut stream: TcpStream| {
        // A greeting, and a single byte from time to time, are not an answer.
        let _ = stream.write_all(b"SERVER PROTOCOL 2\n");
        question(&mut stream);
        stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let until = soon(LONG);
        let has_left = |stream: &mut TcpStream| matches!(stream.read(&mut [0]), Ok(0));
        while Instant::now() < until && stream.write_all(b"S").is_ok() && !has_left(&mut stream) {}
    };
    let endless = |mut stream: TcpStream| while stream.write_all(&[b'x'; 8192]).is_ok() {};
    let foreign = |mut stream: TcpStream| {
        let _ = stream.write_all(b"SSH-2.0-x\nmore");
        let _ = stream.read_to_end(&mut Vec::new());
    };
    for (serve, deadline, wanted) in [
        (until_closed as Serve, DEADLINE, &[Failure::TooLate][..]),
        (foreign, LATER, &[Failure::Unreadable(Unreadable::Foreign("SSH-2.0-x".to_owned()))]),
        (slow, DEADLINE, &[Failure::TooLate]),
        (endless, LONG, &[Failure::TooLong]),
    ] {
        let (address, served) = server("127.0.0.1:0", serve);
        let failure = ask(&address, soon(deadline)).unwrap_err();
        assert!(wanted.contains(&failure), "{failure:?}");
        served.join().unwrap();
    }
}

#[test]
fn why_there_is_no_answer_is_said() {
    let says = |address: &str| ask(address, soon(LONG)).unwrap_err().to_string();
    // The port is free again once the listener is gone.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    assert_eq!(says(&address), "no process listens there");
    for wrong in ["localhost", "[::1]", "[fe80::1%x]"] {
        assert_eq!(says(wrong), "the address cannot be used: it has no port", "{wrong}");
    }
    assert!(says("a b:1").starts_with("the address cannot be used: \"a b:1\" is not an address"));
    assert!(says("").starts_with("the address cannot be used: "));
    let (address, served) = server("127.0.0.1:0", |stream| reply(stream, b"220 mail\r\n"));
    assert_eq!(says(&address), "another program answers, with \"220 mail\"");
    served.join().unwrap();
    let (address, served) = server("127.0.0.1:0", drop);
    let failure = ask(&address, soon(LONG)).unwrap_err();
    served.join().unwrap();
    // The operating system reports a reset if the question was not read.
    assert!(matches!(failure, Failure::Broken(_) | Failure::Unreadable(Unreadable::Cut)), "{failure:?}");
    assert_eq!(ask("127.0.0.1:1", Instant::now()).unwrap_err(), Failure::TooLate);
}
