//! What NCCL did in a case.

use std::fmt;
use std::net::IpAddr;

use super::host::unhex;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    /// The bootstrap interface and its address.
    pub bootstrap: Option<Result<(String, IpAddr), Failure>>,
    pub ib: Option<Ib>,
    /// The HCAs of each NIC that NCCL builds from several ports, or why it builds none.
    pub nics: Option<Result<Vec<Vec<String>>, Failure>>,
    /// The values of the variables, in the order of the questions.
    pub conf: Vec<Option<Vec<u8>>>,
    pub params: Vec<i64>,
    pub levels: Vec<Level>,
    /// The GID indexes of each connection's queue pairs.
    pub connections: Vec<Result<Vec<u32>, Failure>>,
    /// Everything that NCCL logged.
    pub log: String,
    /// The signal that ended NCCL, which answered only the questions before that. SIGALRM means that a case
    /// took too long.
    pub crash: Option<i32>,
}

/// The failure of a function.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// The result of the function, an `ncclResult_t`.
    pub code: i32,
    /// NCCL's warnings during the call, in order.
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Ib {
    /// The result of listing the devices, an `ncclResult_t`; 0 for success.
    pub code: i32,
    /// The devices in the order of the "Using" line; empty without such a line.
    pub using: Vec<Used>,
    /// The HCAs of each NIC that has several ports, as far as the line shows them.
    pub nics: Vec<Vec<String>>,
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Used {
    pub hca: String,
    pub port: u32,
    /// The link layer: `RoCE` or `IB`.
    pub link_layer: String,
    /// The GID index. `None` if NCCL crashed before this question.
    pub gid: Option<Result<i32, Failure>>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Level {
    /// The distance as a number; -2 if the variable has no effect.
    pub number: i32,
    /// The name of the distance in NCCL's log.
    pub name: Option<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.warnings.join("; "))
    }
}

impl Outcome {
    /// Reads the driver's answers. They refer to parts of the log, so the log is needed as well.
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
                "nics" => outcome.nics = Some(part(2).result(number(1), || part(2).nics())),
                "gid" => outcome.add_gid(words[6], number(1), part(4).result(number(2), || number(3))),
                "connect" => {
                    let indexes = || words[4..].iter().map(|index| index.parse().unwrap()).collect();
                    outcome.connections.push(part(2).result(number(1), indexes));
                }
                "conf" => outcome.conf.extend(words[1..].iter().map(|w| (*w != "-").then(|| unhex(w)))),
                "param" => outcome.params.push(words[1].parse().unwrap()),
                "level" => outcome.levels.push(Level { number: number(1), name: part(2).level() }),
                _ => panic!("the driver says {answer:?}"),
            }
        }
        // Up to 2.23, the list of the HCAs contains the NICs.
        if let (Some(Ok(nics)), Some(ib)) = (&mut outcome.nics, &outcome.ib) {
            nics.extend(ib.nics.iter().cloned());
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

/// The part of the log that one answer wrote.
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
            // The line may be truncated, because NCCL's own buffer and that of its log are limited.
            let (list, _) = using.rsplit_once("; OOB ").unwrap_or_else(|| panic!("the line is cut: {using}"));
            list
        });
        Ib {
            code,
            using: using.map(|list| list.split_whitespace().filter_map(used).collect()).unwrap_or_default(),
            nics: using.map(in_braces).unwrap_or_default(),
            warnings: self.warnings(),
        }
    }

    /// Reads lines such as `NET/IB : Made virtual device [4] name=mlx5_0+mlx5_1 speed=800000 ndevs=2`.
    fn nics(&self) -> Vec<Vec<String>> {
        let names = self.0.lines().filter_map(|line| {
            let (_, made) = line.split_once("Made virtual device ")?;
            made.split_once(" name=")?.1.split(' ').next()
        });
        names
            .map(|name| name.split('+').map(str::to_owned).collect::<Vec<_>>())
            .filter(|nic| nic.len() > 1)
            .collect()
    }

    /// Returns PXB from a line `NCCL_NET_GDR_LEVEL set by environment to PXB`.
    fn level(&self) -> Option<String> {
        let (_, name) = self.0.lines().find_map(|line| line.split_once(" set by environment to "))?;
        Some(name.to_owned())
    }
}

/// Returns the HCAs of `[0]={[0] mlx5_0:1/RoCE, [1] mlx5_1:1/RoCE}`, for each pair of braces.
fn in_braces(list: &str) -> Vec<Vec<String>> {
    let nics = list.split("={").skip(1).filter_map(|rest| rest.split_once('}'));
    nics.map(|(ports, _)| ports.split_whitespace().filter_map(used).map(|used| used.hca).collect()).collect()
}

/// Reads a word of the list: `[0]mlx5_0:1/RoCE`. If ports are merged, it is the second word of `[0]={[0]
/// mlx5_0:1/RoCE,`. In 2.30, rail and plane may follow the port.
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
