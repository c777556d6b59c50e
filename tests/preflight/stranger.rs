//! A node that follows the protocol only as far as a test wants.

use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rdma_init::compare::brief::Brief;
use rdma_init::preflight::meet::message::{
    CallId, Join, MEETING, Order, PAIR, Partner, Secret, ToNode, ToZero, pair_key,
};
use rdma_init::preflight::who::addresses::Addresses;
use rdma_init::preflight::who::own::Network;
use rdma_init::wire::connection::Connection;
use rdma_init::wire::stranger::Stranger as Refusal;
use rdma_init::wire::{Channel, reach};
use serde_json::json;

use super::job::{Job, TOKEN};
use crate::support::poll_until;

pub struct Stranger {
    pub channel: Channel,
    pub port: TcpListener,
}

/// Connects to node 0 of a job as soon as it listens.
pub fn connect(job: &Job) -> TcpStream {
    poll_until("node 0 listens", || TcpStream::connect(job.meet()).ok())
}

impl Stranger {
    /// Proves that it belongs to the job, and sends nothing else.
    pub fn proven(job: &Job) -> Stranger {
        // On a busy machine, the time for one proof may expire. In this case, a node connects again.
        let (channel, _) = poll_until("node 0 takes the proof", || {
            let connection = Connection::new(connect(job), "node 0".to_owned(), &MEETING).unwrap();
            let end = Instant::now() + Duration::from_secs(20);
            reach::prove(connection, "", TOKEN.as_bytes(), Duration::from_secs(5), end).ok()
        });
        Stranger { channel, port: TcpListener::bind("127.0.0.1:0").unwrap() }
    }

    pub fn join(&mut self, job: &Job, node: u32, host: &str) {
        let message = self.joining(job, node, host);
        self.channel.send(&message).expect("node 0 is there");
    }

    /// Waits for the pairs that node 0 orders this node to test.
    pub fn order(&mut self) -> Order {
        loop {
            match self.channel.receive(Duration::from_secs(60)).expect("node 0 is there") {
                ToNode::Prove(order) => return order,
                ToNode::Waiting { .. } | ToNode::Working => self.stays(),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Sends node 0 a sign of life.
    pub fn stays(&mut self) {
        self.channel.send(&ToZero::Alive).expect("node 0 is there");
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
            rates: vec![0.0],
            addresses: Addresses::default(),
            transport: "sockets".to_owned(),
            network: Network::default(),
            report,
        }))
    }
}

/// Calls the node that an order names as a peer, with this identity and the secret of some pair.
pub fn call(at: &Partner, identity: CallId, secret: &Secret) -> Result<Channel, Refusal> {
    let stream = TcpStream::connect((at.address.expect("it is not node 0"), at.port)).unwrap();
    let connection = Connection::new(stream, at.name.clone(), &PAIR).unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    let (identity, key) = (identity.to_string(), pair_key(secret, TOKEN));
    reach::prove(connection, &identity, &key, Duration::from_secs(5), end).map(|(channel, _)| channel)
}
