//! What NCCL made of a case.

use std::fmt;
use std::net::IpAddr;

use super::host::unhex;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    /// The interface and its address.
    pub bootstrap: Option<Result<(String, IpAddr), Failure>>,
    pub ib: Option<Ib>,
    /// The values that were asked for, in that order.
    pub conf: Vec<Option<Vec<u8>>>,
    pub params: Vec<i64>,
    pub levels: Vec<Level>,
    /// All that NCCL logged.
    pub log: String,
    /// The signal that ended NCCL: what was asked before it is answered. SIGALRM
    /// stands for a case that took too long.
    pub crash: Option<i32>,
}

/// A function that did not succeed.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// `ncclResult_t`
    pub code: i32,
    /// What NCCL warned of meanwhile, first line first.
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Ib {
    /// `ncclResult_t`, 0 for success.
    pub code: i32,
    /// In the order of the "Using" line; empty where there is none.
    pub using: Vec<Used>,
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Used {
    pub hca: String,
    pub port: u32,
    /// `RoCE` or `IB`.
    pub link_layer: String,
    /// The slot. `None` where NCCL crashed before it was asked for this one.
    pub gid: Option<Result<i32, Failure>>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Level {
    /// -2 where the variable decides nothing.
    pub number: i32,
    /// As NCCL names it in its log.
    pub name: Option<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.warnings.join("; "))
    }
}

impl Outcome {
    /// From the driver's answers; only with the log they can be told.
    pub fn read(answers: &[String], log: &[u8], crash: Option<i32>) -> Outcome {
        let mut outcome =
            Outcome { log: String::from_utf8_lossy(log).into_owned(), crash, ..Outcome::default() };
        for answer in answers {
            let words: Vec<&str> = answer.split(' ').collect();
            let number = |at: usize| words[at].parse::<i32>().unwrap();
            let part = |at: usize| Part::of(log, words[at].parse().unwrap(), words[at + 1].parse().unwrap());
            match words[0] {
                "bootstrap" => outcome.bootstrap = Some(part(2).result(number(1), || chosen(&words[4..]))),
                "ib" => outcome.ib = Some(part(2).ib(number(1))),
                "gid" => outcome.add_gid(words[6], number(1), part(4).result(number(2), || number(3))),
                "conf" => outcome.conf.extend(words[1..].iter().map(|w| (*w != "-").then(|| unhex(w)))),
                "param" => outcome.params.push(words[1].parse().unwrap()),
                "level" => outcome.levels.push(Level { number: number(1), name: part(2).level() }),
                _ => panic!("the driver says {answer:?}"),
            }
        }
        outcome
    }

    fn add_gid(&mut self, hca: &str, port: i32, gid: Result<i32, Failure>) {
        let hca = unhex(hca);
        let used = self.ib.iter_mut().flat_map(|ib| &mut ib.using);
        for used in used.filter(|used| used.hca.as_bytes() == hca && used.port == port as u32) {
            used.gid = Some(gid.clone());
        }
    }
}

fn chosen(words: &[&str]) -> (String, IpAddr) {
    (String::from_utf8(unhex(words[0])).unwrap(), words[1].parse().unwrap())
}

/// The part of the log that one answer has written.
struct Part(String);

impl Part {
    fn of(log: &[u8], start: usize, end: usize) -> Part {
        Part(String::from_utf8_lossy(&log[start..end]).into_owned())
    }

    fn warnings(&self) -> Vec<String> {
        let warnings = self.0.lines().filter_map(|line| line.split_once(" NCCL WARN "));
        warnings.map(|(_, warning)| warning.to_owned()).collect()
    }

    fn result<T>(&self, code: i32, value: impl FnOnce() -> T) -> Result<T, Failure> {
        if code == 0 { Ok(value()) } else { Err(Failure { code, warnings: self.warnings() }) }
    }

    fn ib(&self, code: i32) -> Ib {
        let using = self.0.lines().find_map(|line| line.split_once("NET/IB : Using "));
        let using = using.map(|(_, using)| {
            // NCCL's own buffer, or its log's, has an end.
            let (list, _) = using.rsplit_once("; OOB ").unwrap_or_else(|| panic!("the line is cut: {using}"));
            list.split_whitespace().filter_map(used).collect()
        });
        Ib { code, using: using.unwrap_or_default(), warnings: self.warnings() }
    }

    /// Of `NCCL_NET_GDR_LEVEL set by environment to PXB`.
    fn level(&self) -> Option<String> {
        let (_, name) = self.0.lines().find_map(|line| line.split_once(" set by environment to "))?;
        Some(name.to_owned())
    }
}

/// A word of the list: `[0]mlx5_0:1/RoCE`, or, where ports are merged, the second of
/// `[0]={[0] mlx5_0:1/RoCE,`; 2.30 can have rail and plane behind the port.
fn used(word: &str) -> Option<Used> {
    let word = word.rsplit(']').next()?.trim_end_matches([',', '}']);
    let (device, link_layer) = word.split_once('/')?;
    let mut parts = device.split(':');
    Some(Used {
        hca: parts.next()?.to_owned(),
        port: parts.next()?.parse().ok()?,
        link_layer: link_layer.to_owned(),
        gid: None,
    })
}
