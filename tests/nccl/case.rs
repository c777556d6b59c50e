//! A case: a host, an environment, and the questions for NCCL there.

use super::host::{Host, hex};

#[derive(Debug, Clone, Default)]
pub struct Case {
    pub host: Host,
    /// The whole environment, in this order; a name may occur twice. NCCL logs everything, even if a
    /// variable here asks for less.
    pub environment: Vec<(String, String)>,
    /// The questions, which NCCL answers in this order in one process.
    pub asks: Vec<Ask>,
}

#[derive(Debug, Clone)]
pub enum Ask {
    /// The interface through which the processes first connect to each other.
    Bootstrap,
    /// The HCAs that NCCL uses, their order, and the GID index of each.
    Ib,
    /// Which ports form one NIC, if NCCL decides that after it has found the HCAs (since 2.24). This must
    /// come after [`Ask::Ib`].
    Nics,
    /// The values of these variables after NCCL has read the conf files. This must come before the other
    /// questions, because they change the variables for the log.
    Conf(Vec<String>),
    /// The integer that NCCL reads from a variable.
    Param { name: String, default: i64 },
    /// The distance that NCCL reads from a variable, and the name of the variable that overrides it.
    Level { name: String, disable: Option<String> },
    /// In the table of each port, the GID of the entry `from` moves to the entry `to`. If the kernel reports it,
    /// NCCL has reacted before the next question. For hosts with one port, after [`Ask::Ib`].
    Move { from: u32, to: u32, is_reported: bool },
    /// The GID index of each queue pair when NCCL connects its first device to itself. For 2.26 and later, after
    /// [`Ask::Ib`]. NCCL's bootstrap interface must have an address of this machine.
    Connect,
    /// The following questions are asked in a child of the process that loaded and prepared NCCL.
    Fork,
}

impl Case {
    pub fn lines(&self) -> String {
        let variables = self
            .environment
            .iter()
            .map(|(name, value)| format!("environment {}", hex(format!("{name}={value}"))));
        let asks = self.asks.iter().map(Ask::line);
        let lines = variables.chain(self.host.lines()).chain(asks).chain(["run".to_owned()]);
        lines.map(|line| line + "\n").collect()
    }
}

impl Ask {
    fn line(&self) -> String {
        match self {
            Ask::Bootstrap => "ask bootstrap".to_owned(),
            Ask::Ib => "ask ib".to_owned(),
            Ask::Nics => "ask nics".to_owned(),
            Ask::Fork => "ask fork".to_owned(),
            Ask::Move { from, to, is_reported } => {
                format!("ask move {from} {to} {}", if *is_reported { "reported" } else { "silent" })
            }
            Ask::Connect => "ask connect".to_owned(),
            Ask::Conf(names) => {
                let names: Vec<_> = names.iter().map(hex).collect();
                format!("ask conf {}", names.join(" "))
            }
            Ask::Param { name, default } => format!("ask param {} {default}", hex(name)),
            Ask::Level { name, disable } => {
                format!("ask level {} {}", hex(name), disable.as_ref().map_or("-".to_owned(), hex))
            }
        }
    }
}
