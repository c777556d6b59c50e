//! Writes the man pages and the shell completions, which it makes from the definition of the
//! command line.
//!
//!     cargo run --release --example manual -- FOLDER

use std::io;
use std::path::Path;

use clap::CommandFactory;
use clap_complete::{Shell, generate_to};
use rdma_init::cli::Cli;

fn main() -> io::Result<()> {
    match std::env::args_os().nth(1) {
        Some(folder) => write(Path::new(&folder)),
        None => Err(io::Error::other("which folder to write to?")),
    }
}

pub fn write(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    clap_mangen::generate_to(Cli::command(), folder)?;
    for shell in [Shell::Fish, Shell::Zsh] {
        generate_to(shell, &mut Cli::command(), "rdma-init", folder)?;
    }
    let bash = generate_to(Shell::Bash, &mut Cli::command(), "rdma-init", folder)?;
    // clap_complete spells this function's name in two ways where the program's name has a
    // hyphen (clap issue 6421).
    let text = std::fs::read_to_string(&bash)?.replace("rdma__subcmd__init", "rdma__init");
    std::fs::write(bash, text)
}
