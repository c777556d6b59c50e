//! `rdma-init profiles`: which there are, and what is in one.

use std::io::Write;

use anyhow::bail;

use crate::config::Config;
use crate::host;

pub fn run(out: &mut impl Write, name: Option<&str>, json: bool, config: &Config) -> anyhow::Result<()> {
    let profiles = host::profiles(config)?;
    let Some(name) = name else {
        if json {
            let all: Vec<_> = profiles.iter().collect();
            serde_json::to_writer_pretty(&mut *out, &all)?;
            writeln!(out)?;
            return Ok(());
        }
        let width = profiles.names().map(str::len).max().unwrap_or_default();
        for profile in profiles.iter() {
            writeln!(out, "{:width$}  {}", profile.name, profile.title)?;
        }
        return Ok(());
    };
    let Some(profile) = profiles.get(name) else {
        bail!(host::no_such_profile(name, &profiles));
    };
    if json {
        serde_json::to_writer_pretty(&mut *out, profile)?;
        writeln!(out)?;
    } else {
        write!(out, "{}", toml::to_string(profile)?)?;
    }
    Ok(())
}
