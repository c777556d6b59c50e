//! A server that sends recorded answers of NCCL's RAS. tests/nccl uses NCCL's own.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};

use super::repository;

/// Answers one question after another with the recorded texts of these names, as a job of this container does: all ranks
/// that answer have the number of a process that each container has. Returns the address.
pub fn server(answers: &[&str]) -> (String, JoinHandle<()>) {
    let own = |text: String| match text.split_once("\"missing_ranks\": [") {
        Some((answers, missing)) => {
            format!("{}\"missing_ranks\": [{missing}", numbered(answers, "\"pid\": "))
        }
        None => numbered(&text, "managed by process "),
    };
    serve_all(answers.iter().map(recorded).map(own).collect())
}

/// Does the same as a job of another container.
pub fn server_of_others(answers: &[&str]) -> (String, JoinHandle<()>) {
    serve_all(answers.iter().map(recorded).collect())
}

fn recorded(name: &&str) -> String {
    std::fs::read_to_string(repository(format!("src/watch/ras/recorded/{name}.txt"))).unwrap()
}

/// Replaces the number after each of these words by 1.
fn numbered(text: &str, words: &str) -> String {
    let mut parts = text.split(words);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        format!("{text}{words}1{}", part.trim_start_matches(|c: char| c.is_ascii_digit()))
    })
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
