//! Rules that select the tables in which the kernel looks for a packet's route (ip-rule(8)).

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::route::{DEFAULT, LOCAL, MAIN};
use crate::json::known_texts;

/// A rule. The first rule that matches a packet, and whose table has a route for the packet, decides.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RoutingRule {
    /// The rule with the lowest priority comes first.
    pub priority: u32,
    pub family: Family,
    /// Whether the rule matches exactly the packets that do not meet its conditions.
    #[serde(skip_serializing_if = "is_false")]
    pub not: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<IpNet>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<IpNet>,
    /// The interface that received the packet; `lo` for packets from this host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iif: Option<String>,
    /// The interface that the sender is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oif: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fwmark: Option<u32>,
    /// The other conditions for a packet, named as in ip-rule(8), such as `ipproto`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<String>,
    pub action: RuleEffect,
    /// The table, if the action is to look in one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
}

fn is_false(value: &bool) -> bool {
    !*value
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    #[default]
    Inet,
    Inet6,
}

impl Family {
    pub fn of(address: &std::net::IpAddr) -> Family {
        if address.is_ipv4() { Family::Inet } else { Family::Inet6 }
    }
}

impl RoutingRule {
    /// Returns whether this is one of the default rules of every network namespace, at most three for each
    /// family.
    pub fn is_of_the_kernel(&self) -> bool {
        let table = match self.priority {
            0 => LOCAL,
            32766 => MAIN,
            32767 => DEFAULT,
            _ => return false,
        };
        let plain = RoutingRule {
            priority: self.priority,
            family: self.family,
            table: Some(table),
            ..RoutingRule::default()
        };
        *self == plain
    }
}

/// What the kernel does with a packet that matches the rule (`linux/fib_rules.h`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum RuleEffect {
    /// Look up the route in the table.
    #[default]
    Lookup,
    /// Continue with a later rule.
    Goto,
    Nop,
    /// Stop the search: the packet has no route.
    Blackhole,
    Unreachable,
    Prohibit,
    /// Any other action, by its number.
    Other(String),
}

impl RuleEffect {
    /// Returns whether the search ends, so that the kernel does not apply a later rule.
    pub fn ends(&self) -> bool {
        matches!(self, RuleEffect::Blackhole | RuleEffect::Unreachable | RuleEffect::Prohibit)
    }
}

known_texts!(
    RuleEffect::Other,
    Lookup = "lookup",
    Goto = "goto",
    Nop = "nop",
    Blackhole = "blackhole",
    Unreachable = "unreachable",
    Prohibit = "prohibit"
);

impl std::fmt::Display for RoutingRule {
    /// Writes the rule as `ip rule` does.
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "{}: ", self.priority)?;
        if self.not {
            f.write_str("not ")?;
        }
        match &self.from {
            Some(net) => write!(f, "from {}", shown(net))?,
            None => f.write_str("from all")?,
        }
        if let Some(net) = &self.to {
            write!(f, " to {}", shown(net))?;
        }
        if let Some(name) = &self.iif {
            write!(f, " iif {name}")?;
        }
        if let Some(name) = &self.oif {
            write!(f, " oif {name}")?;
        }
        if let Some(mark) = self.fwmark {
            write!(f, " fwmark {mark:#x}")?;
        }
        for other in &self.others {
            write!(f, " {other}")?;
        }
        write!(f, " {}", String::from(self.action.clone()))?;
        self.table.map_or(Ok(()), |table| write!(f, " {table}"))
    }
}

fn shown(net: &IpNet) -> String {
    match net.prefix_len() == net.max_prefix_len() {
        true => net.addr().to_string(),
        false => net.to_string(),
    }
}
