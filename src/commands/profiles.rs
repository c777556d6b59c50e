//! `rdma-init profiles`: lists the profiles, or shows one.

use std::io::Write;

use anyhow::bail;
use serde::Serialize;

use crate::config::Config;
use crate::json;
use crate::pipeline::read;
use crate::profiles::Profile;

pub fn run(out: &mut impl Write, name: Option<&str>, json: bool, config: &Config) -> anyhow::Result<()> {
    let profiles = read::profiles(config)?;
    let Some(name) = name else {
        if json {
            return write_json(out, profiles.iter().collect());
        }
        let width = profiles.names().map(str::len).max().unwrap_or_default();
        for profile in profiles.iter() {
            writeln!(out, "{:width$}  {}", profile.name, profile.title)?;
        }
        return Ok(());
    };
    let Some(profile) = profiles.get(name) else {
        bail!("there is no profile {name:?}; {}", read::advice_on_profile(name, &profiles, &[]));
    };
    if json {
        write_json(out, vec![profile])
    } else {
        write!(out, "{}", toml::to_string(profile)?)?;
        Ok(())
    }
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    profiles: Vec<&'a Profile>,
}

fn write_json(out: &mut impl Write, profiles: Vec<&Profile>) -> anyhow::Result<()> {
    let document = Document { schema: "rdma-init/profiles/1", profiles };
    json::write(out, &document)?;
    Ok(())
}
