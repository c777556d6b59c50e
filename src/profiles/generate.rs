//! Part of the build: writes the embedded profiles as Rust code. Parsing them at each start would take longer
//! than all other work of a start.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use indexmap::IndexMap;

#[path = "format.rs"]
#[allow(dead_code, reason = "only the types matter here")]
mod format;

use format::{
    AttributeEvidence, Condition, Constraints, DefaultRouteHca, Fabric, GpuRow, HcaEvidence, Only, Profile,
    Script, Text,
};

const FOLDER: &str = "src/profiles";

/// Writes `EMBEDDED`, `OUTLINES` and `USED`, which `src/profiles/embedded.rs` includes.
pub fn generate() {
    let profiles: Vec<Profile> = crate::sources(FOLDER, "toml").iter().map(|path| parse(path)).collect();
    crate::generated("profiles.rs", &(embedded(&profiles) + &outlines(&profiles) + &used(&profiles)));
}

fn parse(path: &Path) -> Profile {
    let text = fs::read_to_string(path).expect("it is text");
    toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Writes a function for each profile that creates it.
fn embedded(profiles: &[Profile]) -> String {
    let functions: String = profiles.iter().map(|profile| format!("|| {},\n", profile.literal())).collect();
    format!("pub(crate) const EMBEDDED: &[fn() -> Profile] = &[\n{functions}];\n")
}

/// Writes the outlines as constant data, which takes no time at the start.
fn outlines(profiles: &[Profile]) -> String {
    let mut items = String::new();
    let mut outlines = String::new();
    for (number, profile) in profiles.iter().enumerate() {
        let mut item = |kind: &str, of: &str, values: Vec<String>| {
            let (name, count) = (format!("{kind}_{number}"), values.len());
            items += &format!("static {name}: [{of}; {count}] = [{}];\n", values.join(", "));
            format!("Cow::Borrowed(&{name})")
        };
        let mut texts =
            |kind: &str, all: Vec<&str>| item(kind, "Text", all.into_iter().map(borrowed).collect());
        let files = texts("FILES", profile.files().collect());
        let evidence = item("EVIDENCE", "Condition", profile.evidence.iter().map(Literal::literal).collect());
        outlines += &format!(
            "Outline {{ name: {}, priority: {}, evidence: {evidence}, files: {files} }},\n",
            borrowed(&profile.name),
            profile.priority
        );
    }
    format!("{items}pub(crate) static OUTLINES: [Outline; {}] = [\n{outlines}];\n", profiles.len())
}

/// Writes the variables that the profiles use as constant data.
fn used(profiles: &[Profile]) -> String {
    let texts = |all: BTreeSet<&str>| {
        let texts: Vec<String> = all.into_iter().map(borrowed).collect();
        format!("Cow::Borrowed(&[{}])", texts.join(", "))
    };
    let all = || profiles.iter();
    let (patterns, markers) = all().flat_map(Profile::markers).partition(|marker| marker.contains('*'));
    let sources = all().flat_map(|profile| profile.from_environment.values().map(String::as_str));
    format!(
        "pub(super) static USED: UsedVariables = UsedVariables {{ filled: {}, sources: {}, markers: {}, patterns: {} }};\n",
        texts(all().flat_map(Profile::may_fill).collect()),
        texts(sources.collect()),
        texts(markers),
        texts(patterns)
    )
}

fn borrowed(text: &str) -> String {
    format!("Cow::Borrowed({text:?})")
}

/// Writes a value as the Rust expression that creates it.
trait Literal {
    fn literal(&self) -> String;
}

impl Literal for String {
    fn literal(&self) -> String {
        format!("{self:?}.to_owned()")
    }
}

impl Literal for Text {
    fn literal(&self) -> String {
        borrowed(self)
    }
}

macro_rules! as_debug_shows_it {
    ($($type:ty),*) => {
        $(impl Literal for $type {
            fn literal(&self) -> String {
                format!("{self:?}")
            }
        })*
    };
}

as_debug_shows_it!(bool, i32, u32);

impl<T: Literal> Literal for Option<T> {
    fn literal(&self) -> String {
        self.as_ref().map_or_else(|| "None".to_owned(), |value| format!("Some({})", value.literal()))
    }
}

impl<T: Literal> Literal for Vec<T> {
    fn literal(&self) -> String {
        format!("vec![{}]", self.iter().map(|value| value.literal() + ", ").collect::<String>())
    }
}

fn pairs<'a, V: Literal + 'a>(pairs: impl Iterator<Item = (&'a String, &'a V)>) -> String {
    let pairs = pairs.map(|(name, value)| format!("({}, {}), ", name.literal(), value.literal()));
    format!("[{}]", pairs.collect::<String>())
}

impl<T: Literal> Literal for IndexMap<String, T> {
    fn literal(&self) -> String {
        pairs(self.iter()) + ".into()"
    }
}

impl<T: Literal> Literal for BTreeMap<String, T> {
    fn literal(&self) -> String {
        pairs(self.iter()) + ".into()"
    }
}

impl Literal for Fabric {
    fn literal(&self) -> String {
        match self {
            Fabric::Interface(name) => format!("Fabric::Interface({})", name.literal()),
            Fabric::PluginOverInterfaces(names) => {
                format!("Fabric::PluginOverInterfaces({})", names.literal())
            }
            Fabric::Verbs | Fabric::Plugin => format!("Fabric::{self:?}"),
        }
    }
}

impl Literal for DefaultRouteHca {
    fn literal(&self) -> String {
        format!("DefaultRouteHca::{self:?}")
    }
}

/// Written as constant data.
impl Literal for Cow<'static, [Condition]> {
    fn literal(&self) -> String {
        format!(
            "Cow::Borrowed(const {{ &[{}] }})",
            self.iter().map(|value| value.literal() + ", ").collect::<String>()
        )
    }
}

/// The compiler ensures that no field is missing.
macro_rules! structure {
    ($type:ident { $($field:ident),* $(,)? }) => {
        impl Literal for $type {
            fn literal(&self) -> String {
                let $type { $($field),* } = self;
                let fields = [$(format!("{}: {}, ", stringify!($field), $field.literal())),*];
                format!("{} {{ {}}}", stringify!($type), fields.concat())
            }
        }
    };
}

structure!(Profile {
    name,
    title,
    source,
    extends,
    priority,
    fabric,
    default_route_hca,
    hands_off,
    unset,
    companions,
    hint,
    script,
    variables,
    from_environment,
    only,
    constraints,
    evidence,
    is_of_user,
    lists_own_hcas,
});
structure!(Constraints {
    cards,
    cards_elsewhere,
    cards_note,
    nccl_min,
    cuda_min,
    interfaces_up,
    nics,
    other_types,
    gpus
});
structure!(GpuRow { model, count, nics, rate });
structure!(Script { paths, sets, also });
structure!(Only { condition, nccl_min, variables });
structure!(Condition {
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
});
structure!(HcaEvidence { driver, name, pci, virtual_function });
structure!(AttributeEvidence { name, value });
