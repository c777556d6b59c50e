//! A case: a host, an environment, and what NCCL is asked there.

use super::host::{Host, hex};

#[derive(Debug, Clone, Default)]
pub struct Case {
    pub host: Host,
    /// The whole environment, in this order; a name may come twice. NCCL logs everything, even
    /// if a variable here asks for less.
    pub environment: Vec<(String, String)>,
    /// The questions, which NCCL answers in this order in one process.
    pub asks: Vec<Ask>,
}

#[derive(Debug, Clone)]
pub enum Ask {
    /// The interface through which the processes connect to each other at first.
    Bootstrap,
    /// The HCAs that NCCL uses, their order, and the GID slot of each.
    Ib,
    /// Which ports become one NIC, where NCCL decides that after it has found the HCAs (since
    /// 2.24). It has to come after [`Ask::Ib`].
    Nics,
    /// The values of these variables after NCCL has read the conf files. It has to come before
    /// the other questions, because these change the variables of the log.
    Conf(Vec<String>),
    /// The integer that NCCL reads from a variable.
    Param { name: String, default: i64 },
    /// The distance that NCCL reads from a variable, and the name of the variable that
    /// overrules it.
    Level { name: String, disable: Option<String> },
    /// What follows is asked in a child of the process, which NCCL is loaded and prepared in.
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
