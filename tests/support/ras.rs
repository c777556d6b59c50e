//! A server that sends recorded answers of NCCL's RAS. tests/nccl uses NCCL's own.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};

use super::repository;

/// Answers one question after another with the recorded texts of these names, as a job of this container does: the
/// first rank has the number of a process that each container has. Returns the address.
pub fn server(answers: &[&str]) -> (String, JoinHandle<()>) {
    let recorded = |name: &&str| recorded(name).replacen("\"pid\": ", "\"pid\": 1, \"was\": ", 1);
    serve_all(answers.iter().map(recorded).collect())
}

/// Does the same as a job of another container.
pub fn server_of_others(answers: &[&str]) -> (String, JoinHandle<()>) {
    serve_all(
        answers
            .iter()
            .map(recorded)
            .map(|text| text.replace("\"pid\": ", "\"pid\": 4194305, \"was\": "))
            .collect(),
    )
}

fn recorded(name: &&str) -> String {
    std::fs::read_to_string(repository(format!("src/watch/ras/recorded/{name}.txt"))).unwrap()
}

fn serve_all(answers: Vec<String>) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let served = thread::spawn(move || {
        for answer in answers {
            // A client that was not served in time has closed its connection, and asks again over another one.
            while serve(listener.accept().unwrap().0, answer.as_bytes()).is_err() {}
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
