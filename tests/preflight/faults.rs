//! Tests one fault in each job: the verdict contains exactly what is expected, and so does the list for the
//! scheduler.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use serde_json::{Value, json};

use super::job::{Ended, Job, Node};
use crate::support::nodes::Nodes;

/// The kind of a fault or of an outlier, and its nodes.
pub type Expected = (&'static str, &'static [u64]);

/// A job of namespaces that use `eth0` for the rendezvous, and the other interfaces for NCCL.
pub struct Case {
    pub name: &'static str,
    pub nodes: u32,
    /// The number of the other interfaces: `eth1` and so on.
    pub rails: usize,
    pub break_it: fn(&Nodes, &Job),
    /// More options of all nodes.
    pub options: &'static [&'static str],
    pub faults: &'static [Expected],
    /// What moves less than `--min-bandwidth`. On a busy machine, being slower than others proves nothing.
    pub too_slow: &'static [Expected],
    /// The nodes in the list for the scheduler.
    pub excluded: &'static [u32],
    /// A part of the reason that each node prints; empty if the job passes.
    pub reason: &'static str,
}

pub const SOUND: Case = Case {
    name: "nothing",
    nodes: 4,
    rails: 1,
    break_it: |_, _| {},
    options: &[],
    faults: &[],
    too_slow: &[],
    excluded: &[],
    reason: "",
};

/// How many jobs run at the same time. They are mostly waiting.
const JOBS: usize = 6;

/// The options of all nodes.
const OPTIONS: [&str; 4] = ["--wait", "60s", "--bisection=false", "--json"];

/// Runs all cases, and reports each case whose result is not as expected.
#[track_caller]
pub fn come_out(cases: &[Case]) {
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            let started = Instant::now();
            let came_out = case.comes_out();
            println!("{}: {:.1?}", case.name, started.elapsed());
            if let Err(why) = came_out {
                wrong.lock().unwrap().push(format!("{}: {why}", case.name));
            }
        }
    };
    std::thread::scope(|scope| (0..JOBS.min(cases.len())).for_each(|_| drop(scope.spawn(work))));
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

impl Case {
    fn comes_out(&self) -> Result<(), String> {
        let nodes = Nodes::new(self.nodes as usize, self.rails + 1);
        let job = Job::of(self.nodes);
        (self.break_it)(&nodes, &job);
        let ended = run(&nodes, &job, self.rails, self.options);
        let document = document(&ended[0])?;
        let of_kind = |what: &str| of_kind(&document, what).into();
        let check = |what: &str, is: Value, wanted: Value| match is == wanted {
            true => Ok(()),
            false => Err(format!(
                "{what}: {is}, and not {wanted}\n{:#}\n{:#}",
                document["faults"], document["slow"]
            )),
        };
        check("faults", of_kind("faults"), json!(self.faults))?;
        check("slow", of_kind("slow"), json!(self.too_slow))?;
        let names: Vec<String> = self.excluded.iter().map(|node| format!("node{node}")).collect();
        check("excluded", document["exclude"].clone(), json!(names))?;
        let code = i32::from(!self.reason.is_empty());
        for ended in &ended {
            if ended.code != Some(code) || !ended.said().contains(self.reason) {
                return Err(format!("not {code} with {:?}: {ended:#?}", self.reason));
            }
        }
        Ok(())
    }
}

/// Starts a node of the job.
pub fn start(nodes: &Nodes, job: &Job, node: u32, rails: usize, options: &[&str]) -> Node {
    let names: Vec<String> = (1..=rails).map(|rail| format!("eth{rail}")).collect();
    let command = job.command_in(nodes, node, &[&OPTIONS, options].concat());
    let mut command = job.of_slurm(node, command);
    command.env("NCCL_SOCKET_IFNAME", format!("={}", names.join(",")));
    Node::start(node, command)
}

/// Runs the job to its end.
pub fn run(nodes: &Nodes, job: &Job, rails: usize, options: &[&str]) -> Vec<Ended> {
    let started: Vec<Node> = (0..job.nodes).map(|node| start(nodes, job, node, rails, options)).collect();
    started.into_iter().map(Node::end).collect()
}

/// Returns the document of node 0.
pub fn document(zero: &Ended) -> Result<Value, String> {
    serde_json::from_str(&zero.stdout).map_err(|error| format!("no document ({error}): {zero:#?}"))
}

/// Returns the kind and the nodes: of each of the `faults` that is not a warning, or of everything that is
/// `slow` compared with the given limit.
pub fn of_kind(document: &Value, what: &str) -> Vec<Value> {
    let all = document[what]
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| one["kind"] != "unsteady" && one["wanted"] != false);
    all.map(|one| json!([one["kind"], one["nodes"]])).collect()
}
