//! Completions and man pages, generated from the definition of the command line.

use std::io::{self, Write};

use super::Shell;

/// Writes the completions for a shell.
///
/// # Errors
/// Fails if the sink does.
pub(crate) fn completions(out: &mut impl Write, shell: Shell) -> io::Result<()> {
    let generator = match shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(generator, &mut super::command(), "rdma-init", &mut script);
    // If the program's name has a hyphen, clap_complete spells the name of bash's function in two ways (clap
    // issue 6421).
    let text = String::from_utf8_lossy(&script).replace("rdma__subcmd__init", "rdma__init");
    out.write_all(text.as_bytes())
}

/// Writes the man page of a command, or of the program.
///
/// # Errors
/// Fails if the sink does.
pub(crate) fn man(out: &mut impl Write, name: Option<&str>) -> io::Result<()> {
    let mut cli = super::command();
    cli.build();
    let page = name.and_then(|name| cli.find_subcommand(name)).unwrap_or(&cli);
    clap_mangen::Man::new(page.clone()).render(out)
}
