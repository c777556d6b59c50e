//! The shape of each message, beside the number of its protocol. Add each new variant of a message to these
//! lists: the compiler does not ask for it. If two builds understand different messages, their greetings
//! must say so, and the nodes must not fail halfway through. Nodes that use verbs also exchange the messages
//! of a self-test: if `self_test::pair` gets a new number, raise [`PAIR`], too.

use super::*;
use crate::json::shape;
use crate::preflight::prove::pair::{Cause, Measured, PairOutcome, RailReport, Seen, Sent, Ways};
use crate::preflight::prove::rails::Standing;
use crate::self_test::check::Outcome;
use crate::self_test::report::{Nvlink, Rail};
use crate::verbs::talk::End;

fn report(outcome: PairOutcome) -> PairReport {
    PairReport { round: 0, node: 0, partner: 1, seconds: 0.5, outcome }
}

fn seen(cause: Cause) -> Seen {
    Seen { cause: Some(cause), sent: Some(Sent::default()), astray: true }
}

fn brief() -> Brief {
    Brief {
        schema: String::new(),
        host: String::new(),
        passed: true,
        hcas: vec![Rail { traffic_class: Some(String::new()), ..Rail::default() }],
        nccl: Some(String::new()),
        profile: Some(String::new()),
        nvlink: Some(Nvlink { channels: String::new(), clique: Some(String::new()) }),
        nvlink_domain: Some(String::new()),
        placement_group: Some(String::new()),
        filled: [("v".to_owned(), String::new())].into(),
        set: [("v".to_owned(), String::new())].into(),
        checks: vec![crate::compare::brief::CheckVerdict {
            id: String::new(),
            outcome: Outcome::Passed,
            message: Some(String::new()),
        }],
    }
}

#[test]
fn messages_with_node_0_have_the_number_of_their_shape() {
    let join = |network| Join {
        node: 0,
        nodes: 1,
        job: Some(String::new()),
        address: Some([10, 0, 0, 1].into()),
        port: 1,
        rails: vec![String::new()],
        rates: vec![1.0],
        addresses: Addresses::default(),
        transport: String::new(),
        network,
        report: brief(),
    };
    let rails = [Cause::NoConnection(Ways::Both), Cause::Size { passed: 1, lost: 2 }, Cause::Waited];
    let rails = rails.map(|cause| RailReport {
        seen: seen(cause),
        ..RailReport::new(0, Ok(Measured { latency_us: 2.0, gbps: 390.0 }))
    });
    let failures = [
        PairFailure::Unreachable(String::new()),
        PairFailure::Silent,
        PairFailure::Left,
        PairFailure::Refused(String::new()),
    ];
    let partner = |work| Partner {
        round: 0,
        node: 1,
        name: String::new(),
        address: None,
        port: 1,
        secret: Secret::default(),
        is_again: true,
        work,
    };
    let order = |work| Order { first: 0, each_ms: 1, pairs: vec![partner(work)] };
    let told = Told { passed: true, line: String::new(), reason: Some(String::new()) };
    let networks = [Network::Verbs(String::new()), Network::Sockets(String::new()), Network::Unknown];
    let mut all: Vec<String> =
        networks.map(|network| shape(ToZero::Join(Box::new(join(network))))).into_iter().collect();
    all.push(shape(ToZero::Alive));
    all.extend(rails.map(|rail| shape(ToZero::Proved(vec![report(PairOutcome::Rails(vec![rail]))]))));
    all.extend(failures.map(|failure| shape(report(PairOutcome::Failed(failure)))));
    all.extend([
        shape(ToNode::Waiting { missing: String::new() }),
        shape(ToNode::Working),
        shape(ToNode::Gone { node: 1 }),
        shape(ToNode::Refused(String::new())),
        shape(ToNode::Verdict(told)),
    ]);
    all.extend(
        [Work::Rails, Work::Crosswise(1), Work::Together].map(|work| shape(ToNode::Prove(order(work)))),
    );
    assert_eq!(
        (MEETING.schema, all.join("\n").as_str()),
        ("rdma-init/preflight-meeting/10", include_str!("meeting.txt").trim_end()),
        "raise the number of the protocol, and write the new shapes here"
    );
}

#[test]
fn messages_of_a_pair_have_the_number_of_their_shape() {
    let place = RailEndpoint {
        name: String::new(),
        address: [10, 0, 0, 1].into(),
        port: 1,
        cookie: Cookie::default(),
    };
    let end = End {
        number: 1,
        lid: 1,
        gid: Some(std::net::Ipv6Addr::LOCALHOST),
        mtu: 4096,
        address: 1,
        key: 1,
        size: 1,
    };
    let all = [
        shape(CallId { round: 0, from: 0, to: 1 }.to_string()),
        shape(Call::Ready),
        shape(Call::Asks),
        shape(Answer::Busy { round: 0 }),
        shape(Answer::Go),
        shape(Answer::Over(PairFailure::Silent)),
        shape(Offer { rails: vec![Ok(place)] }),
        shape(Offer { rails: vec![Err(String::new())] }),
        shape(end),
        shape([Standing::default()]),
    ];
    assert_eq!(
        (PAIR.schema, all.join("\n").as_str()),
        ("rdma-init/preflight-pair/4", include_str!("pair.txt").trim_end()),
        "raise the number of the protocol, and write the new shapes here"
    );
}
