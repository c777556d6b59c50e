//! What is asked of NCCL, and where.

use super::host::{Host, hex};

#[derive(Debug, Clone, Default)]
pub struct Case {
    pub host: Host,
    /// The whole environment, in this order; a name may come twice. NCCL logs
    /// everything, whatever is set here.
    pub environment: Vec<(String, String)>,
    /// Answered in this order, in one process.
    pub asks: Vec<Ask>,
}

#[derive(Debug, Clone)]
pub enum Ask {
    /// The interface of the connections that come first.
    Bootstrap,
    /// The HCAs, their order, and the slot of each.
    Ib,
    /// What these variables are once the conf files are read. Comes before the
    /// others, which change the variables of the log.
    Conf(Vec<String>),
    /// What a variable is as an integer.
    Param { name: String, default: i64 },
    /// What a variable is as a distance, and the one that overrules it.
    Level { name: String, disable: Option<String> },
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
