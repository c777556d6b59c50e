//! A port in front of node 0's port. A node that connects to it is running, and waits there until it is let
//! through.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};

use super::job::Job;

pub struct Gate {
    listener: TcpListener,
    zero: String,
}

/// The connection of a waiting node.
pub struct Waiting {
    node: TcpStream,
    zero: String,
}

impl Gate {
    pub fn before(job: &Job) -> Gate {
        Gate { listener: TcpListener::bind("127.0.0.1:0").unwrap(), zero: job.meet() }
    }

    /// Returns the same job as it looks to nodes that use this port.
    pub fn job(&self, job: &Job) -> Job {
        Job { nodes: job.nodes, port: self.listener.local_addr().unwrap().port() }
    }

    /// Waits for a node.
    pub fn wait(&self) -> Waiting {
        Waiting { node: self.listener.accept().unwrap().0, zero: self.zero.clone() }
    }
}

impl Waiting {
    /// Forwards the messages between the node and node 0 from now on, until one of them ends.
    pub fn let_through(self) {
        let zero = TcpStream::connect(self.zero).unwrap();
        let [of_node, of_zero] = [&self.node, &zero].map(|stream| stream.try_clone().unwrap());
        for [from, to] in [[self.node, zero], [of_zero, of_node]] {
            std::thread::spawn(move || pass_on(from, to));
        }
    }
}

/// Forwards each message at once.
fn pass_on(mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}
