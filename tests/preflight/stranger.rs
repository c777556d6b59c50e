//! A node that follows the protocol only as far as it wants to.

use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rdma_init::compare::brief::Brief;
use rdma_init::preflight::message::{Join, MEETING, ToZero};
use rdma_init::wire::connection::Connection;
use rdma_init::wire::{Channel, reach};
use serde_json::json;

use super::job::{Job, TOKEN};
use crate::support::poll_until;

pub struct Stranger {
    pub channel: Channel,
    pub port: TcpListener,
}

/// Connects to node 0 of a job once it is there.
pub fn connect(job: &Job) -> TcpStream {
    poll_until("node 0 listens", || TcpStream::connect(job.meet()).ok())
}

impl Stranger {
    /// Proves to be of the job, and says no more.
    pub fn proven(job: &Job) -> Stranger {
        let connection = Connection::new(connect(job), "node 0".to_owned(), &MEETING).unwrap();
        let end = Instant::now() + Duration::from_secs(20);
        let proven = reach::prove(connection, &MEETING, TOKEN.as_bytes(), Duration::from_secs(5), end);
        let (channel, _) = proven.expect("it has the token");
        Stranger { channel, port: TcpListener::bind("127.0.0.1:0").unwrap() }
    }

    pub fn join(&mut self, job: &Job, node: u32, host: &str) {
        let message = self.joining(job, node, host);
        self.channel.send(&message).expect("node 0 is there");
    }

    pub fn joining(&self, job: &Job, node: u32, host: &str) -> ToZero {
        let report: Brief = serde_json::from_value(json!({
            "schema": "rdma-init/self-test/1", "host": host, "passed": true, "hcas": [], "nccl": null,
            "profile": null, "filled": {}, "checks": []
        }))
        .unwrap();
        ToZero::Join(Box::new(Join {
            node,
            nodes: job.nodes,
            job: None,
            address: Some("127.0.0.1".parse().unwrap()),
            port: self.port.local_addr().unwrap().port(),
            rails: vec!["eth0".to_owned()],
            transport: "sockets".to_owned(),
            report,
        }))
    }
}
