//! A server that sends recorded answers of NCCL's RAS. tests/nccl uses NCCL's own.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};

use super::repository;

/// Answers one question after another with the recorded texts of these names, as a job of this container does: all ranks
/// that answer have the number of a process that each container has. Returns the address.
pub fn server(answers: &[&str]) -> (String, JoinHandle<()>) {
    serve_all(answers.iter().map(|name| answer(name)).collect())
}

/// Returns such an answer.
pub fn answer(name: &str) -> String {
    let text = recorded(name);
    match text.split_once("\"missing_ranks\": [") {
        Some((answers, missing)) => {
            format!("{}\"missing_ranks\": [{missing}", numbered(answers, "\"pid\": "))
        }
        None => numbered(&text, "managed by process "),
    }
}

/// Does the same as a job of another container.
pub fn server_of_others(answers: &[&str]) -> (String, JoinHandle<()>) {
    serve_all(answers.iter().map(|name| answer_of_others(name)).collect())
}

/// Returns the answer of a job of another container.
pub fn answer_of_others(name: &str) -> String {
    recorded(name)
}

fn recorded(name: &str) -> String {
    fs::read_to_string(repository(format!("src/watch/ras/recorded/{name}.txt"))).unwrap()
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
    reply(&mut stream, answer)?;
    // If the client had closed its connection before, this one is broken now.
    stream.read(&mut [0]).map(drop)
}

fn reply(stream: &mut TcpStream, answer: &[u8]) -> io::Result<()> {
    let mut question = Vec::new();
    while !question.ends_with(b"STATUS\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        question.extend(byte);
    }
    stream.write_all(answer)?;
    stream.shutdown(Shutdown::Write)
}

/// The same server beside a program whose time passes in steps: it does what it can while all of the program sleeps.
pub struct SteppedServer {
    listener: TcpListener,
    answers: VecDeque<String>,
    /// The connection, until the client has closed it, and whether it was answered.
    served: Option<(TcpStream, bool)>,
}

impl SteppedServer {
    /// A server that gives one of these answers after the other, and the last one again and again.
    pub fn new(answers: impl IntoIterator<Item = String>) -> SteppedServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        SteppedServer { listener, answers: answers.into_iter().collect(), served: None }
    }

    pub fn address(&self) -> String {
        self.listener.local_addr().unwrap().to_string()
    }

    /// Serves a sleeping client as far as it can. Returns whether the client goes on: then no time may pass. What is on the
    /// way arrives without the client, so this waits for it.
    pub fn serve(&mut self, client: i32) -> bool {
        match &mut self.served {
            None if !has_connection(client) => return false,
            None => self.served = Some((self.listener.accept().unwrap().0, false)),
            Some((stream, is_answered @ false)) => {
                let answer = match self.answers.len() {
                    1 => self.answers[0].clone(),
                    _ => self.answers.pop_front().unwrap(),
                };
                // One that has given up has closed its connection.
                let _ = reply(stream, answer.as_bytes());
                *is_answered = true;
            }
            Some(_) if has_connection(client) => thread::yield_now(),
            Some(_) => self.served = None,
        }
        true
    }
}

/// Returns whether a process has a TCP socket.
fn has_connection(pid: i32) -> bool {
    let table = fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap_or_default();
    let inodes: Vec<&str> =
        table.lines().skip(1).filter_map(|line| line.split_ascii_whitespace().nth(9)).collect();
    let is_tcp = |fd: fs::DirEntry| {
        let target = fs::read_link(fd.path()).unwrap_or_default();
        let target = target.to_string_lossy();
        let inode = target.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
        inode.is_some_and(|inode| inodes.contains(&inode))
    };
    fs::read_dir(format!("/proc/{pid}/fd")).is_ok_and(|mut fds| fds.any(|fd| fd.is_ok_and(is_tcp)))
}
