//! Tests a member of the job that has the token but does not follow node 0's orders. Anything it must not
//! do fails for the reason that SECURITY.md gives, and the verdict names only the attacker's node.

use std::net::TcpStream;
use std::time::Duration;

use rdma_init::preflight::meet::message::{Answer, Call, CallId, Join, Partner, ToNode, ToZero};
use rdma_init::preflight::prove::pair::{Measured, PairOutcome, PairReport, RailReport};
use rdma_init::wire::stranger::Fault;

use super::job::{Job, Node, TOKEN, has_names};
use super::stranger::{Stranger, call};
use crate::support::process::rdma_init;

/// A job of three whose node 2 is the attacker, and the pair of that node and node 1.
struct Attack {
    zero: Node,
    one: Node,
    attacker: Stranger,
    with_one: Partner,
}

impl Attack {
    /// Starts the attack; `None`, with a message, if nodes cannot have their own host names here.
    fn begin() -> Option<Attack> {
        if !has_names() {
            return None;
        }
        let job = Job::of(3);
        let [zero, one] = [0, 1].map(|node| job.start(node, &["--log-level", "debug"]));
        let mut attacker = Stranger::proven(&job);
        attacker.join(&job, 2, "node2");
        let order = attacker.order();
        let with_one = order.pairs.iter().find(|with| with.node == 1).expect("a pair with node 1").clone();
        Some(Attack { zero, one, attacker, with_one })
    }

    /// Returns the call identity that the attacker may use, changed in its round, its caller, or the node
    /// that is called.
    fn id(&self, change: impl Fn(&mut CallId)) -> CallId {
        let mut id = CallId { round: self.with_one.round, from: 2, to: 1 };
        change(&mut id);
        id
    }

    /// Expects that node 1 refuses a caller for this reason.
    #[track_caller]
    fn is_refused(&mut self, id: CallId, why: &str) {
        self.attacker.stays();
        let refusal = call(&self.with_one, id, &self.with_one.secret).err().expect("it is refused");
        // Node 1 waits for an order that may name the pair, about as long as the caller does.
        assert!([Fault::Token, Fault::Silent].contains(&refusal.fault), "{}", refusal.why);
        self.one.wait_for(&format!("{id}\"{why}"));
    }

    /// The attacker disconnects. Expects that all other nodes pass with each other.
    #[track_caller]
    fn names_the_attacker(self) {
        drop(self.attacker);
        for node in [self.zero, self.one] {
            node.end().expect_code(1).accuses(2, 3);
        }
    }
}

#[test]
fn a_member_cannot_speak_for_another_one() {
    let Some(mut attack) = Attack::begin() else { return };
    let id = attack.id(|id| (id.round, id.from) = (0, 0));
    attack.is_refused(id, ".");
    attack.one.wait_for("does not have the key of the identity \"0 0 1\"");
    attack.names_the_attacker();
}

#[test]
fn a_call_for_another_node_is_refused() {
    let Some(mut attack) = Attack::begin() else { return };
    let id = attack.id(|id| id.to = 0);
    attack.is_refused(id, ", which is not expected here");
    attack.names_the_attacker();
}

#[test]
fn rounds_and_partners_that_node_0_has_not_named_are_refused() {
    for change in [|id: &mut CallId| id.round = 7, |id: &mut CallId| id.round = 0] {
        let Some(mut attack) = Attack::begin() else { return };
        let id = attack.id(change);
        attack.is_refused(id, ", which is not expected here");
        attack.names_the_attacker();
    }
}

#[test]
fn one_caller_counts_for_each_round_and_pair() {
    let Some(mut attack) = Attack::begin() else { return };
    let id = attack.id(|_| ());
    let mut callers =
        [(); 2].map(|()| call(&attack.with_one, id, &attack.with_one.secret).expect("its pair"));
    callers[0].send(&Call::Asks).unwrap();
    let answer = callers[0].receive(Duration::from_secs(20));
    assert!(matches!(answer, Ok(Answer::Busy { .. } | Answer::Over(_))), "{answer:?}");
    let second = callers[1].receive::<Answer>(Duration::from_secs(20)).unwrap_err();
    assert_eq!(second.fault, Fault::Gone, "{}", second.why);
    attack.one.wait_for("closed an extra connection of node 2 for round");
    attack.attacker.stays();
    attack.names_the_attacker();
}

/// Node 1 accepts its peers, however many callers fill its queue.
#[test]
fn a_flood_of_callers_keeps_no_partner_out() {
    let Some(mut attack) = Attack::begin() else { return };
    let at = (attack.with_one.address.unwrap(), attack.with_one.port);
    // More than node 1 keeps, and fewer than the kernel does.
    let flood: Vec<TcpStream> = (0..200).filter_map(|_| TcpStream::connect(at).ok()).collect();
    let id = attack.id(|_| ());
    let mut caller = call(&attack.with_one, id, &attack.with_one.secret).expect("its pair");
    caller.send(&Call::Asks).unwrap();
    let answer = caller.receive(Duration::from_secs(20));
    assert!(matches!(answer, Ok(Answer::Busy { .. } | Answer::Over(_))), "{answer:?}");
    assert!(flood.len() > 100);
    attack.attacker.stays();
    attack.names_the_attacker();
}

/// A node that reports something impossible is named with it, and its peers are not.
#[test]
fn a_node_that_reports_impossible_figures_is_disconnected() {
    for (latency_us, gbps) in [(2.0, 0.0), (2.0, 1e-40), (2.0, 3e38), (-1.0, 1.0)] {
        let Some(mut attack) = Attack::begin() else { return };
        let rail = RailReport::new(0, Ok(Measured { latency_us, gbps }));
        let outcome = PairOutcome::Rails(vec![rail]);
        let round = attack.with_one.round;
        let report = PairReport { round, node: 2, partner: 1, seconds: 1.0, outcome };
        attack.attacker.channel.send(&ToZero::Proved(vec![report])).unwrap();
        attack.zero.wait_for("node2 has disconnected: it reports something impossible: ");
        attack.names_the_attacker();
    }
}

#[test]
fn impossible_rates_keep_a_node_out() {
    let job = Job::of(2);
    let zero = job.start(0, &["--wait", "20s"]);
    let mut attacker = Stranger::proven(&job);
    let ToZero::Join(join) = attacker.joining(&job, 1, "node1") else { panic!() };
    attacker.channel.send(&ToZero::Join(Box::new(Join { rates: vec![3e38], ..*join }))).unwrap();
    let told = attacker.channel.receive(Duration::from_secs(20)).unwrap();
    assert!(matches!(&told, ToNode::Refused(why) if why.contains("a rail of 3e38 Gbit/s")), "{told:?}");
    zero.end().expect_code(1).expect("node 1 did not join within 20s: it was rejected");
}

/// Joins are counted per index: a process that joins and leaves repeatedly with one index keeps no other
/// node out.
#[test]
fn repeated_joins_with_one_index_keep_no_other_node_out() {
    if !has_names() {
        return;
    }
    let job = Job::of(3);
    let zero = job.start(0, &["--log-level", "debug"]);
    for time in 0..60 {
        let mut attacker = Stranger::proven(&job);
        attacker.join(&job, 1, &format!("time{time}"));
        match attacker.channel.receive(Duration::from_secs(20)).unwrap() {
            ToNode::Refused(why) if why.contains("index 1 has joined and left 16 times") => break,
            // Node 0 may not have noticed yet that the previous one is gone.
            ToNode::Refused(why) if why.contains("two nodes have the index 1") => {}
            ToNode::Waiting { .. } => {}
            other => panic!("{other:?}"),
        }
        assert!(time < 59, "it is never refused");
    }
    let two = job.start(2, &["--log-level", "debug"]);
    zero.wait_for("node2 has joined");
    drop((zero, two));
}

/// The names that nodes claim for themselves are only for people. The list has Slurm's own name for the
/// index.
#[test]
fn a_name_that_a_node_claims_is_in_no_list() {
    if !has_names() {
        return;
    }
    for (is_of_slurm, wanted) in [(true, "node2\n"), (false, "")] {
        let folder = tempfile::tempdir().unwrap();
        let list = folder.path().join("list");
        let job = Job::of(3);
        let start = |node: u32| {
            let (nodes, index, meet) = (job.nodes.to_string(), node.to_string(), job.meet());
            let mut options = vec!["preflight", "--meet", &meet];
            if !is_of_slurm {
                options.extend(["--nodes", &nodes, "--node", &index]);
            }
            if node == 0 {
                options.extend(["--exclude-file", list.to_str().unwrap()]);
            }
            let mut command = rdma_init(options);
            command.env("RDMA_INIT_TOKEN", TOKEN);
            Node::start(node, if is_of_slurm { job.of_slurm(node, command) } else { command })
        };
        let [zero, one] = [0, 1].map(start);
        let mut attacker = Stranger::proven(&job);
        attacker.join(&job, 2, "node1");
        attacker.order();
        drop(attacker);
        one.end().expect_code(1);
        let ended = zero.end().expect_code(1);
        assert_eq!(std::fs::read_to_string(&list).unwrap(), wanted, "{ended:#?}");
        if !is_of_slurm {
            ended.expect("node 0 never lists a name that only the node itself reports");
        }
    }
}
