//! Variables in the formats of those who read them.

use std::io::{self, Write};

use indexmap::IndexMap;

use crate::cli::EnvFormat;
use crate::facts::settings::is_variable_name;
use crate::json;
use crate::nccl::conf;

/// Writes the variables; returns those that the format cannot hold.
///
/// # Errors
/// Whatever the sink gives.
pub fn write<'a>(
    out: &mut impl Write,
    variables: &[(&'a str, &'a str)],
    format: EnvFormat,
) -> io::Result<Vec<&'a str>> {
    let mut left_out = Vec::new();
    if format == EnvFormat::Json {
        let in_order: IndexMap<&str, &str> = variables.iter().copied().collect();
        json::write(out, &in_order)?;
        return Ok(left_out);
    }
    for &(name, value) in variables {
        match line(name, value, format) {
            Some(line) => writeln!(out, "{line}")?,
            None => left_out.push(name),
        }
    }
    Ok(left_out)
}

fn line(name: &str, value: &str, format: EnvFormat) -> Option<String> {
    // A shell would run what is in a name that is none.
    if !is_variable_name(name) {
        return None;
    }
    let is_one_line = !value.contains(['\n', '\r']);
    match format {
        EnvFormat::Sh => Some(format!("export {name}={}", quoted(value))),
        EnvFormat::Dotenv => Some(format!("{name}={}", double_quoted(value))),
        EnvFormat::NcclConf => conf::fits(name, value).then(|| format!("{name}={value}")),
        EnvFormat::Docker => is_one_line.then(|| format!("{name}={value}")),
        EnvFormat::Mpirun => {
            let pair = format!("{name}={value}");
            // Mostly read without a shell's eval: no quotes where none are needed.
            let is_plain = !value.is_empty() && is_word(&pair.replace('=', ""));
            Some(format!("-x {}", if is_plain { pair } else { quoted(&pair) }))
        }
        // Written as a whole.
        EnvFormat::Json => None,
    }
}

/// For a POSIX shell, whatever the bytes.
pub fn quoted(text: &str) -> String {
    if is_word(text) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Whether every shell takes it as it is. zsh looks for a program where a word begins with
/// an equals sign.
fn is_word(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.,/:+@%".contains(c);
    !text.is_empty() && text.chars().all(plain)
}

/// As the common dotenv readers take it.
fn double_quoted(text: &str) -> String {
    // Some expand a dollar in double quotes whatever is before it.
    if text.contains(['$', '`']) && !text.contains(['\'', '\\', '\n', '\r']) {
        return format!("'{text}'");
    }
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' | '$' | '`' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(variables: &[(&str, &str)], format: EnvFormat) -> (String, usize) {
        let mut out = Vec::new();
        let left_out = write(&mut out, variables, format).unwrap().len();
        (String::from_utf8(out).unwrap(), left_out)
    }

    #[test]
    fn each_format_holds_what_its_readers_understand() {
        let plain = [("NCCL_IB_HCA", "=mlx5_1,mlx5_2"), ("E", "")];
        let text = |format| written(&plain, format).0;
        assert_eq!(text(EnvFormat::Sh), "export NCCL_IB_HCA='=mlx5_1,mlx5_2'\nexport E=''\n");
        assert_eq!(text(EnvFormat::Dotenv), "NCCL_IB_HCA=\"=mlx5_1,mlx5_2\"\nE=\"\"\n");
        assert_eq!(text(EnvFormat::NcclConf), "NCCL_IB_HCA==mlx5_1,mlx5_2\nE=\n");
        assert_eq!(text(EnvFormat::Docker), "NCCL_IB_HCA==mlx5_1,mlx5_2\nE=\n");
        assert_eq!(text(EnvFormat::Mpirun), "-x NCCL_IB_HCA==mlx5_1,mlx5_2\n-x 'E='\n");
        assert_eq!(text(EnvFormat::Json), "{\n  \"NCCL_IB_HCA\": \"=mlx5_1,mlx5_2\",\n  \"E\": \"\"\n}\n");
    }

    #[test]
    fn what_a_format_cannot_hold_is_left_out_and_told() {
        let hard = [("A", "it's $HOME\nnext"), ("B", "1")];
        assert_eq!(
            written(&hard, EnvFormat::Sh),
            ("export A='it'\\''s $HOME\nnext'\nexport B=1\n".into(), 0)
        );
        assert_eq!(written(&hard, EnvFormat::Docker), ("B=1\n".into(), 1));
        assert_eq!(written(&hard, EnvFormat::NcclConf), ("B=1\n".into(), 1));
        assert_eq!(written(&hard, EnvFormat::Dotenv).0, "A=\"it's \\$HOME\\nnext\"\nB=\"1\"\n");
        let long = "x".repeat(1024);
        assert_eq!(written(&[("A", &long)], EnvFormat::NcclConf), (String::new(), 1));
    }
}
