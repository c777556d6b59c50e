//! Output for people and for programs. Every function writes to an `impl Write` or returns text, and none
//! makes a decision.

pub(crate) mod account;
pub(crate) mod compare;
pub(crate) mod environment;
pub(crate) mod facts;
mod forecast;
pub(crate) mod formats;
pub(crate) mod headline;
mod image;
pub(crate) mod metrics;
pub(crate) mod plan;
pub(crate) mod preflight;
pub(crate) mod preflight_page;
pub(crate) mod process;
pub(crate) mod ras;
pub(crate) mod self_test;
pub(crate) mod start;
pub(crate) mod stat;
pub(crate) mod topology;
pub(crate) mod why;

use std::fmt::Arguments;
use std::io::{self, Write};

/// As `writeln!`, for a line with texts of others: no text moves the cursor or adds a line.
macro_rules! line {
    ($out:expr, $($text:tt)*) => { $crate::report::write_line($out, format_args!($($text)*)) };
}
use line;

fn write_line(out: &mut impl Write, text: Arguments<'_>) -> io::Result<()> {
    writeln!(out, "{}", crate::text::visible(&text.to_string()))
}
