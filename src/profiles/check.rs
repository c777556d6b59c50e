//! Checks what the format of a profile does not check by itself: rejects values that cannot be right, and
//! conditions that no host meets.

use super::format::{Condition, Constraints, Fabric, Only, Profile, Text, fits};
use super::makers;
use super::never;
use crate::facts::environment::is_variable_name;
use crate::facts::secret::is_secret;
use crate::image::flavor::Flavor;
use crate::libraries::nccl::number::{is_as_it_shows, strtoll};
use crate::libraries::nccl::version::NEWEST;
use crate::libraries::nccl::{level, ranges};

/// A fault, and its location.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    /// The steps from the value up to the whole file.
    pub(super) place: Vec<Step>,
    pub(super) why: String,
}

/// A step down to a value: its key, or its position in a list, counted from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Key(String),
    Item(usize),
}

type Checked = Result<(), Wrong>;

/// A test for whether a value can be right.
type Test = fn(&str) -> bool;

impl Wrong {
    pub(super) fn at(key: &str, why: String) -> Wrong {
        Wrong { place: vec![Step::Key(key.to_owned())], why }
    }

    fn below(mut self, step: Step) -> Wrong {
        self.place.push(step);
        self
    }

    fn below_key(self, key: &str) -> Wrong {
        self.below(Step::Key(key.to_owned()))
    }
}

/// Rejects faults that the format alone does not rule out.
pub(super) fn check(profile: &Profile) -> Checked {
    let reserved = ["auto", "none"];
    if profile.name.is_empty() || reserved.contains(&profile.name.as_str()) {
        return Err(Wrong::at("name", format!("{:?} cannot be the name of a profile", profile.name)));
    }
    constants(&profile.variables).map_err(|wrong| wrong.below_key("variables"))?;
    let is_name: Test = |text| !text.is_empty() && is_variable_name(text);
    let names = [("unset", &profile.unset), ("companions", &profile.companions)];
    for (key, names) in names {
        each(key, names, is_name, "the name of a variable")?;
    }
    each("hands-off", &profile.hands_off, is_pattern_of_variables, VARIABLES)?;
    for (variable, source) in &profile.from_environment {
        if !is_name(variable) || !is_name(source) {
            let why = format!("{variable:?} = {source:?} must have two names of variables");
            return Err(Wrong::at(variable, why).below_key("from-environment"));
        }
        if is_secret(source) {
            let why = format!(
                "{source:?} may hold a secret, to judge by its name, and rdma-init does not keep its value: use another variable"
            );
            return Err(Wrong::at(variable, why).below_key("from-environment"));
        }
    }
    for (number, only) in profile.only.iter().enumerate() {
        check_only(only).map_err(|wrong| wrong.below(Step::Item(number)).below_key("only"))?;
    }
    if let Some(script) = &profile.script {
        each("paths", &script.paths, is_file, FILE).map_err(|wrong| wrong.below_key("script"))?;
        one("sets", &script.sets, is_name, "the name of a variable")
            .map_err(|wrong| wrong.below_key("script"))?;
        each("also", &script.also, is_name, "the name of a variable")
            .map_err(|wrong| wrong.below_key("script"))?;
    }
    match &profile.fabric {
        Some(Fabric::Interface(name)) => one("interface", name, is_interface, INTERFACE),
        Some(Fabric::PluginOverInterfaces(names)) => {
            let key = "plugin-over-interfaces";
            filled(key, names, "the interfaces").and_then(|()| each(key, names, is_interface, INTERFACE))
        }
        Some(Fabric::Verbs | Fabric::Plugin) | None => Ok(()),
    }
    .map_err(|wrong| wrong.below_key("fabric"))?;
    constraints(&profile.constraints).map_err(|wrong| wrong.below_key("constraints"))?;
    for (number, condition) in profile.evidence.iter().enumerate() {
        let in_table = |wrong: Wrong| wrong.below(Step::Item(number)).below_key("auto");
        if !condition.has_positive() {
            let why = "a table without a condition other than \"not\" would match every host".to_owned();
            return Err(in_table(Wrong { place: Vec::new(), why }));
        }
        check_condition(condition).map_err(in_table)?;
    }
    Ok(())
}

fn check_only(only: &Only) -> Checked {
    let Only { condition, nccl_min, variables } = only;
    if *condition == Condition::default() && nccl_min.is_none() {
        let why = "a table without a condition belongs in \"variables\"".to_owned();
        return Err(Wrong { place: Vec::new(), why });
    }
    constants(variables).map_err(|wrong| wrong.below_key("variables"))?;
    maybe("nccl-min", nccl_min.as_deref(), is_release, RELEASE)?;
    check_condition(condition).map_err(|wrong| wrong.below_key("if"))
}

/// Why a constant cannot be right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WrongConstant {
    /// No environment can hold it.
    NulByte,
    /// NCCL reads another number than the one that the text shows; with the range.
    Misread(String),
    /// With the range.
    OutOfRange(String),
    /// NCCL ignores it; with the values that it accepts.
    NotAccepted(String),
}

impl std::fmt::Display for WrongConstant {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            WrongConstant::NulByte => f.write_str("contains a NUL byte"),
            WrongConstant::Misread(range) => {
                write!(f, "must be a number without a leading 0 and without anything after it: {range}")
            }
            WrongConstant::OutOfRange(range) => write!(f, "is out of range: it can be {range}"),
            WrongConstant::NotAccepted(values) => {
                write!(f, "is a value that NCCL does not know: it can be {values}")
            }
        }
    }
}

/// The variables that accept two words (`src/misc/socket.cc`, `src/transport/net_ib`).
const FAMILIES: [&str; 2] = ["NCCL_SOCKET_FAMILY", "NCCL_IB_ADDR_FAMILY"];
/// The variables that accept a distance (`src/graph/paths.cc`, `ncclGetLevel`).
const LEVELS: [&str; 2] = ["NCCL_NET_GDR_LEVEL", "NCCL_P2P_LEVEL"];

/// Checks the value of a constant, of a profile or of a platform's variable.
///
/// # Errors
/// Why it cannot be right.
pub(crate) fn constant(variable: &str, value: &str) -> Result<(), WrongConstant> {
    if value.contains('\0') {
        return Err(WrongConstant::NulByte);
    }
    if value.is_empty() {
        return Ok(());
    }
    if FAMILIES.contains(&variable) && !["AF_INET", "AF_INET6"].contains(&value) {
        return Err(WrongConstant::NotAccepted("AF_INET or AF_INET6".to_owned()));
    }
    if LEVELS.contains(&variable) && level::parse(value, NEWEST).is_none() {
        let names = level::names(NEWEST).join(", ");
        return Err(WrongConstant::NotAccepted(format!("one of {names}, or 0 to 4")));
    }
    let Some(number) = ranges::find(variable) else { return Ok(()) };
    let range = || number.range(NEWEST, Flavor::Nccl);
    if !is_as_it_shows(value) {
        return Err(WrongConstant::Misread(range()));
    }
    match strtoll(value) {
        Some(value) if number.is_in_range(value, NEWEST) => Ok(()),
        _ => Err(WrongConstant::OutOfRange(range())),
    }
}

/// Returns the range of a variable's numbers, in words; `None` if any text can be right.
pub(crate) fn range_of(variable: &str) -> Option<String> {
    Some(ranges::find(variable)?.range(NEWEST, Flavor::Nccl))
}

fn constants<'a>(variables: impl IntoIterator<Item = (&'a String, &'a String)>) -> Checked {
    for (variable, value) in variables {
        match constant(variable, value) {
            _ if variable.is_empty() || !is_variable_name(variable) => {}
            Ok(()) => continue,
            Err(WrongConstant::NulByte) => {}
            Err(wrong) => return Err(Wrong::at(variable, format!("{value:?} {wrong}"))),
        }
        return Err(Wrong::at(variable, format!("{variable:?} cannot be an environment variable")));
    }
    Ok(())
}

fn constraints(constraints: &Constraints) -> Checked {
    let Constraints { nccl_min, cuda_min, interfaces_up, nics, cards, gpus, .. } = constraints;
    maybe("nccl-min", nccl_min.as_deref(), is_release, RELEASE)?;
    maybe("cuda-min", cuda_min.as_deref(), is_release, RELEASE)?;
    each("interfaces-up", interfaces_up, is_interface, INTERFACE)?;
    if !cards.is_empty() && cards.iter().all(|count| *count == 0) {
        return Err(Wrong::at(
            "cards",
            "no node with GPUs has 0 of them: write the numbers that have RDMA".to_owned(),
        ));
    }
    for (number, row) in gpus.iter().enumerate() {
        let in_row = |wrong: Wrong| wrong.below(Step::Item(number)).below_key("gpus");
        one("model", &row.model, |text| !text.is_empty(), "the model of a GPU, or a pattern of it")
            .map_err(in_row)?;
        if row.count == 0 {
            let why = "no machine with these GPUs has 0 of them: write how many it has".to_owned();
            return Err(in_row(Wrong::at("count", why)));
        }
    }
    match nics.keys().find(|name| name.contains('*')) {
        Some(name) => {
            let why = "it must be the whole name of an instance type, without \"*\"".to_owned();
            Err(Wrong::at(name, why).below_key("nics"))
        }
        None => Ok(()),
    }
}

/// Rejects a condition that no host meets.
fn check_condition(condition: &Condition) -> Checked {
    let Condition {
        hca,
        hca_name,
        no_hca,
        link_layer,
        interface,
        interface_up,
        interface_driver,
        dmi_vendor,
        dmi_product,
        dmi_asset_tag,
        dmi_other_than,
        gpu_model,
        gpu_vendor,
        environment,
        master_addr,
        file,
        claimed_attribute,
        not,
    } = condition;
    let is_text: Test = |text| !text.is_empty();
    let is_whole_text: Test = |text| !text.is_empty() && !text.contains('*');
    let texts: [(&str, &Option<Text>, Test, &str); 14] = [
        ("hca-name", hca_name, is_text, "the name of an HCA"),
        ("link-layer", link_layer, |text| LINK_LAYERS.contains(&text), "\"InfiniBand\" or \"Ethernet\""),
        ("interface", interface, is_pattern_of_interfaces, INTERFACES),
        ("interface-up", interface_up, is_pattern_of_interfaces, INTERFACES),
        ("interface-driver", interface_driver, is_text, "the name of a kernel driver"),
        ("dmi-vendor", dmi_vendor, is_text, TEXT),
        ("dmi-product", dmi_product, is_text, TEXT),
        ("dmi-asset-tag", dmi_asset_tag, is_text, TEXT),
        ("dmi-other-than", dmi_other_than, is_whole_text, "the whole name of a cloud, without \"*\""),
        ("gpu-model", gpu_model, is_text, TEXT),
        ("gpu-vendor", gpu_vendor, |text| MAKES.iter().any(|make| fits(text, make)), "\"nvidia\" or \"amd\""),
        ("environment", environment, is_pattern_of_variables, VARIABLES),
        ("master-addr", master_addr, is_text, "a name or an address"),
        ("file", file, is_file, FILE),
    ];
    for (key, text, is_right, wanted) in texts {
        maybe(key, text.as_deref(), is_right, wanted)?;
    }
    if let Some(hca) = hca {
        maybe("pci", hca.pci.as_deref(), is_pci_id, "vendor and device in lower case, such as \"15b3:101e\"")
            .map_err(|wrong| wrong.below_key("hca"))?;
        if hca.driver.is_empty() && hca.name.is_empty() {
            let why = "it must have the driver of an HCA, and the name for an HCA without one".to_owned();
            return Err(Wrong::at("hca", why));
        }
    }
    if let Some(attribute) = claimed_attribute {
        one(
            "name",
            &attribute.name,
            |name| {
                name.contains('*')
                    || name
                        .split_once('/')
                        .is_some_and(|(domain, rest)| !domain.is_empty() && !rest.is_empty())
            },
            "a name with its domain, such as \"dra.net/rdma\"",
        )
        .map_err(|wrong| wrong.below_key("claimed-attribute"))?;
    }
    let meant = dmi_other_than.as_deref().map(makers::meant_by).unwrap_or_default();
    if let Some(name) = dmi_other_than
        && !meant.is_empty()
    {
        let meant: Vec<String> = meant.iter().map(|maker| format!("{maker:?}")).collect();
        let why = format!("{name:?} is no name that rdma-init has for a cloud: write {}", meant.join(" or "));
        return Err(Wrong::at("dmi-other-than", why));
    }
    if *no_hca && (hca.is_some() || hca_name.is_some() || link_layer.is_some()) {
        let why = "no host has an HCA and none: remove this key, or the one that asks for an HCA".to_owned();
        return Err(Wrong::at("no-hca", why));
    }
    for (number, condition) in not.iter().enumerate() {
        let in_list = |wrong: Wrong| wrong.below(Step::Item(number)).below_key("not");
        if *condition == Condition::default() {
            let why = "a table without a condition holds on every host".to_owned();
            return Err(in_list(Wrong { place: Vec::new(), why }));
        }
        check_condition(condition).map_err(in_list)?;
    }
    match not.iter().position(|unwanted| never::follows(condition, unwanted)) {
        Some(number) => {
            let why =
                "the table above it asks for what this one rules out, so it holds on no host".to_owned();
            Err(Wrong { place: vec![Step::Item(number), Step::Key("not".to_owned())], why })
        }
        None => Ok(()),
    }
}

const LINK_LAYERS: [&str; 2] = ["InfiniBand", "Ethernet"];
const MAKES: [&str; 2] = ["nvidia", "amd"];
const TEXT: &str = "a text that is not empty";
const FILE: &str = "the absolute path of a file, without \"*\"";
const INTERFACE: &str = "the whole name of an interface, without \"*\"";
const INTERFACES: &str = "the name of an interface, which has at most 15 characters, or a pattern of it";
const RELEASE: &str = "a release such as \"2.27\"";
const VARIABLES: &str = "the name of a variable, or a pattern of it";

/// Rejects a value that fails the test.
fn one(key: &str, value: &str, is_right: Test, wanted: &str) -> Checked {
    match is_right(value) {
        true => Ok(()),
        false => Err(Wrong::at(key, format!("{value:?} must be {wanted}"))),
    }
}

fn maybe(key: &str, value: Option<&str>, is_right: Test, wanted: &str) -> Checked {
    value.map_or(Ok(()), |value| one(key, value, is_right, wanted))
}

/// Rejects an empty list.
fn filled(key: &str, values: &[String], wanted: &str) -> Checked {
    match values {
        [] => Err(Wrong::at(key, format!("the list is empty: it must have {wanted}"))),
        _ => Ok(()),
    }
}

fn each(key: &str, values: &[String], is_right: Test, wanted: &str) -> Checked {
    match values.iter().position(|value| !is_right(value)) {
        Some(number) => {
            let why = format!("{:?} must be {wanted}", values[number]);
            Err(Wrong { place: vec![Step::Item(number), Step::Key(key.to_owned())], why })
        }
        None => Ok(()),
    }
}

/// Returns whether a text is a release, such as `2.27` or `2.27.3`.
fn is_release(text: &str) -> bool {
    let mut parts = text.split('.');
    (2..=3).contains(&parts.clone().count()) && parts.all(|part| part.parse::<u16>().is_ok())
}

fn is_file(text: &str) -> bool {
    text.starts_with('/') && !text.contains(['*', '\0'])
}

fn is_pattern_of_variables(text: &str) -> bool {
    !text.is_empty() && is_variable_name(&text.replace('*', "_"))
}

fn is_interface(text: &str) -> bool {
    is_pattern_of_interfaces(text) && !text.contains('*')
}

/// Returns whether a text can be a pattern for an interface's name: see `IFNAMSIZ` and the kernel's
/// `dev_valid_name`.
fn is_pattern_of_interfaces(text: &str) -> bool {
    let literal = text.chars().filter(|c| *c != '*');
    !text.is_empty()
        && literal.clone().count() <= 15
        && !literal.clone().any(|c| c == '/' || c.is_whitespace())
}

/// Returns whether a text can be a pattern for a vendor and device ID as in sysfs, without `0x`.
fn is_pci_id(text: &str) -> bool {
    let is_half = |half: &str| {
        let digits = half.chars().filter(|c| *c != '*');
        let count = digits.clone().count();
        digits.clone().all(|c| matches!(c, '0'..='9' | 'a'..='f'))
            && (count == 4 || count < 4 && half.contains('*'))
    };
    match text.split_once(':') {
        Some((vendor, device)) => is_half(vendor) && is_half(device),
        None => text.contains('*') && is_half(text),
    }
}
