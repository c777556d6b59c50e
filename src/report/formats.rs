//! Writes variables in the syntax of each reader. If a reader would misread a value, its writer rejects the
//! value and says why.

use crate::env_plugin::answer::{MARKER, beginning};
use crate::facts::environment::is_variable_name;
use crate::libraries::nccl::conf;

use crate::text::visible;

/// The end of a sentence that starts with `its value has`.
pub(crate) type Why = &'static str;

/// Writes a variable, usually as a line without a newline.
pub(crate) type Writer = fn(&str, &str) -> Result<String, Why>;

/// A variable that a format cannot represent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unfit<'a> {
    pub name: &'a str,
    /// `None` if the name itself is invalid.
    pub why: Option<Why>,
}

impl std::fmt::Display for Unfit<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self.why {
            Some(why) => write!(f, "{} (its value has {why})", self.name),
            None => write!(f, "{:?} (it is not the name of a variable)", visible(self.name)),
        }
    }
}

/// Returns the variables as a writer formats them, and those that it rejects. Only this function calls
/// writers, because they rely on the checks here.
pub(crate) fn written<'a>(variables: &[(&'a str, &'a str)], writer: Writer) -> (Vec<String>, Vec<Unfit<'a>>) {
    let mut lines = Vec::new();
    let mut unfit = Vec::new();
    for &(name, value) in variables {
        let line = match value.contains('\0') {
            // A shell would execute what such a name contains.
            _ if !is_variable_name(name) => Err(None),
            true => Err(Some("a NUL")),
            false => writer(name, value).map_err(Some),
        };
        match line {
            Ok(line) => lines.push(line),
            Err(why) => unfit.push(Unfit { name, why }),
        }
    }
    (lines, unfit)
}

const LINE_BREAK: Why = "a line break";
const CONTROL: Why = "a control character";

fn one_line(value: &str) -> Result<(), Why> {
    if value.contains(['\n', '\r']) { Err(LINE_BREAK) } else { Ok(()) }
}

/// Returns the value as a line of this length holds it. A marker that lists fewer variables is still right about
/// those, and NCCL's come first.
fn cut_marker<'a>(name: &str, value: &'a str, most: usize) -> &'a str {
    if name == MARKER { beginning(value, most) } else { value }
}

fn without_controls(value: &str) -> Result<(), Why> {
    one_line(value)?;
    if value.contains(|c: char| c.is_control() && c != '\t') { Err(CONTROL) } else { Ok(()) }
}

/// Writes a line for `eval` in a shell.
pub(crate) fn shell(name: &str, value: &str) -> Result<String, Why> {
    Ok(format!("export {name}={}", quoted(value)))
}

/// Writes a line for `/etc/profile.d`. If a shell already has its own value, that value stays.
pub(crate) fn profile(name: &str, value: &str) -> Result<String, Why> {
    // The block consists of lines, so each variable must fit on one line.
    one_line(value)?;
    Ok(format!("[ -n \"${{{name}+x}}\" ] || export {name}={}", quoted(value)))
}

/// Quotes any text for POSIX shells and fish.
pub(crate) fn quoted(text: &str) -> String {
    if is_word(text) {
        return text.to_owned();
    }
    if text.is_empty() {
        return "''".to_owned();
    }
    // The single quote and the backslash stay outside the quotes, because shells treat them differently
    // inside: fish interprets a backslash there, and zsh (RC_QUOTES) two quotes.
    let mut quoted = String::new();
    let mut is_open = false;
    for c in text.chars() {
        let is_outside = c == '\'' || c == '\\';
        if is_open == is_outside {
            quoted.push('\'');
            is_open = !is_open;
        }
        if is_outside {
            quoted.push('\\');
        }
        quoted.push(c);
    }
    if is_open {
        quoted.push('\'');
    }
    quoted
}

/// Returns whether every shell takes the text literally. In zsh, a word that starts with an equals sign is
/// replaced with the path of a program.
fn is_word(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.,/:+@%".contains(c);
    !text.is_empty() && text.chars().all(plain)
}

/// Writes a line that Compose and the common Python, Ruby, and JavaScript libraries all read in the same
/// way. They differ in how they treat a backslash, and in which quotes they expand a dollar sign.
pub(crate) fn dotenv(name: &str, value: &str) -> Result<String, Why> {
    let has = |chars: &[char]| value.contains(chars);
    if value.contains("${") {
        return Err("${, which some readers expand in any quotes");
    }
    if has(&['\\']) {
        return Err("a backslash, which each reader interprets differently");
    }
    if value.contains(|c: char| c.is_control() && !"\t\n\r".contains(c)) {
        return Err(CONTROL);
    }
    if !has(&['"', '$', '`']) {
        return Ok(format!("{name}=\"{}\"", value.replace('\n', "\\n").replace('\r', "\\r")));
    }
    if !has(&['\'', '\n', '\r']) {
        return Ok(format!("{name}='{value}'"));
    }
    Err("characters that need two different kinds of quotes")
}

/// Writes a line that every version of NCCL reads correctly.
pub(crate) fn nccl_conf(name: &str, value: &str) -> Result<String, Why> {
    let value = cut_marker(name, value, conf::LONGEST);
    one_line(value)?;
    match conf::fits(name, value) {
        true => Ok(format!("{name}={value}")),
        false => Err("more bytes than the 1023 that NCCL reads"),
    }
}

/// The longest line that Docker reads (`bufio.MaxScanTokenSize`); it rejects a file with a longer one.
const LONGEST_FOR_DOCKER: usize = 64 * 1024 - 2;

/// Writes a line for `docker run --env-file`, which takes the rest of the line literally.
pub(crate) fn docker(name: &str, value: &str) -> Result<String, Why> {
    one_line(value)?;
    let line = format!("{name}={value}");
    if line.len() > LONGEST_FOR_DOCKER { Err("more bytes than Docker reads of a line") } else { Ok(line) }
}

/// Writes an option for `mpirun $(rdma-init env --format mpirun)`. A shell splits this output at white
/// space and expands patterns, but does not remove quotes. An `eval` would do much more.
pub(crate) fn mpirun(name: &str, value: &str) -> Result<String, Why> {
    let harmless: String = value.chars().filter(|c| !"=^".contains(*c)).collect();
    match harmless.is_empty() || is_word(&harmless) {
        true => Ok(format!("-x {name}={value}")),
        false => Err("white space, or a character with a meaning for a shell"),
    }
}

/// Returns a word for sshd's `SetEnv`. sshd before 8.7 knows no escapes, and cuts the line at any `#`.
pub(crate) fn sshd(name: &str, value: &str) -> Result<String, Why> {
    without_controls(value)?;
    match value.contains(['"', '\\', '#']) {
        true => Err("a quote, a backslash or a #"),
        false => Ok(format!(" \"{name}={value}\"")),
    }
}

/// Writes a line for `~/.ssh/environment`. sshd (`read_environment_file`) takes the rest of the line
/// literally.
pub(crate) fn ssh_environment(name: &str, value: &str) -> Result<String, Why> {
    one_line(value)?;
    Ok(format!("{name}={value}"))
}

/// In bytes: pam_env before 1.4 reads no more of a line, and nothing after it.
const LONGEST_FOR_PAM: usize = 1022;

/// Writes a line for `/etc/environment` that pam_env (`_parse_env_file`) and a shell that sources the file
/// read in the same way. pam_env knows quotes around a value but no escapes, and a `#` cuts the value even
/// inside quotes.
pub(crate) fn pam(name: &str, value: &str) -> Result<String, Why> {
    // The name, an equals sign and two quotes are on the same line.
    let value = cut_marker(name, value, LONGEST_FOR_PAM.saturating_sub(name.len() + 3));
    without_controls(value)?;
    if value.contains(['"', '\'', '\\', '#']) {
        return Err("a quote, a backslash or a #");
    }
    let plain = value.is_empty() || is_word(value);
    let line = if plain { format!("{name}={value}") } else { format!("{name}='{value}'") };
    if line.len() > LONGEST_FOR_PAM { Err("more bytes than PAM reads of a line") } else { Ok(line) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Writer; 9] = [shell, profile, dotenv, nccl_conf, docker, mpirun, sshd, ssh_environment, pam];

    #[test]
    fn no_format_has_a_name_that_is_none_nor_a_nul() {
        for name in ["NCCL_A}$(id)", "NCCL_A\nPermitRootLogin yes", "NCCL_foo.bar", "", "A B", "1A"] {
            for writer in ALL {
                let variables = [(name, "1"), ("B", "1"), ("C", "a\0b")];
                let (lines, unfit) = written(&variables, writer);
                assert!(lines.len() == 1 && lines[0].contains("B=") && unfit.len() == 2, "{lines:?}");
            }
        }
        let shown = |name, why| Unfit { name, why }.to_string();
        assert_eq!(shown("A\nB", None), "\"A\u{fffd}B\" (it is not the name of a variable)");
        assert_eq!(shown("A", Some(LINE_BREAK)), "A (its value has a line break)");
    }

    /// In line-based formats, each line is one variable: no value can start another line.
    #[test]
    fn no_value_begins_a_line_in_a_format_of_lines() {
        for break_ in ["\n", "\r\n", "\r"] {
            let value = format!("1{break_}PermitRootLogin yes");
            for writer in [profile, nccl_conf, docker, mpirun, sshd, ssh_environment, pam] {
                assert!(writer("A", &value).is_err());
            }
            assert!(!dotenv("A", &value).unwrap().contains(['\n', '\r']));
        }
    }

    #[test]
    fn each_format_refuses_what_its_reader_would_take_for_something_else() {
        let refused = |writer: Writer, values: &[&str]| {
            for value in values {
                assert!(writer("A", value).is_err(), "{value}");
            }
        };
        refused(dotenv, &["${HOME}", "a\\", "\u{1b}[m", "'$", "\n$"]);
        refused(nccl_conf, &[&"x".repeat(1024)]);
        refused(docker, &[&"x".repeat(64 * 1024)]);
        refused(
            mpirun,
            &["a b", "a\tb", "*", "?", "[a]", "$(id)", "`id`", "a;b", "a\\", "'", "\"", "~", "(", "é"],
        );
        refused(sshd, &["\"", "\\", "#", "\u{1b}", "\u{85}"]);
        refused(pam, &["\"", "'", "\\", "#", "\u{1b}", &"x".repeat(1021)]);
    }

    #[test]
    fn what_a_format_can_hold_is_written_so_that_it_arrives() {
        let line = |writer: Writer, value| writer("A", value).unwrap();
        assert_eq!(line(shell, "it's \\"), "export A='it'\\''s '\\\\");
        assert_eq!(line(shell, ""), "export A=''");
        assert_eq!(line(dotenv, "a\nb"), "A=\"a\\nb\"");
        assert_eq!(line(dotenv, "$HOME \"x\""), "A='$HOME \"x\"'");
        assert_eq!(line(docker, " # '$x\" "), "A= # '$x\" ");
        let marker = format!("1:5d2c:{}", ["IB_TC=c0ffee00"; 100].join(","));
        for (writer, entries) in [(nccl_conf as Writer, 67), (pam, 66), (shell, 100)] {
            let line = writer(MARKER, &marker).unwrap();
            assert!(line.matches("IB_TC=c0ffee00").count() == entries && !line.contains(",'"), "{line}");
        }
        assert_eq!(line(mpirun, "^=mlx5_1,mlx5_2:1"), "-x A=^=mlx5_1,mlx5_2:1");
        assert_eq!(line(mpirun, ""), "-x A=");
        assert_eq!(line(sshd, " a;b 'c' $(d) "), " \"A= a;b 'c' $(d) \"");
        assert_eq!(line(ssh_environment, " \"#'\\ "), "A= \"#'\\ ");
        assert_eq!(line(pam, "a;touch x"), "A='a;touch x'");
        assert_eq!(line(pam, "=mlx5_1"), "A='=mlx5_1'");
        assert_eq!([line(pam, "106"), line(pam, "")], ["A=106", "A="]);
    }
}
