//! A server that sends recorded answers of NCCL's RAS. tests/nccl uses NCCL's own.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};

use super::repository;

/// Answers one question after another with the recorded texts of these names. Returns the address.
pub fn server(answers: &[&str]) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let recorded =
        |name: &&str| std::fs::read(repository(format!("src/watch/ras/recorded/{name}.txt"))).unwrap();
    let answers: Vec<Vec<u8>> = answers.iter().map(recorded).collect();
    let served = thread::spawn(move || {
        for answer in answers {
            // A client that was not served in time has closed its connection, and asks again over another one.
            while serve(listener.accept().unwrap().0, &answer).is_err() {}
        }
    });
    (address, served)
}

fn serve(mut stream: TcpStream, answer: &[u8]) -> io::Result<()> {
    let mut question = Vec::new();
    while !question.ends_with(b"STATUS\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        question.extend(byte);
    }
    stream.write_all(answer)?;
    stream.shutdown(Shutdown::Write)?;
    // If the client had closed its connection before, this one is broken now.
    stream.read(&mut [0]).map(drop)
}
