//! nccl.conf, as NCCL parses it (`src/misc/param.cc`, `setEnvFile`).

/// A variable that a conf file sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Counted from 1.
    pub number: usize,
    pub key: String,
    pub value: String,
}

/// NCCL's buffers hold this many bytes of a key and of a value.
const LONGEST: usize = 1023;

/// Splits each line at its first `=`. Nothing is trimmed and quotes are literal,
/// so that ` NCCL_DEBUG` and `export NCCL_DEBUG` are other keys. A line that
/// starts with `#` sets nothing of interest in any version.
pub fn parse(text: &str) -> Vec<Line> {
    text.split('\n')
        .enumerate()
        .filter(|(_, line)| !line.starts_with('#'))
        .filter_map(|(index, line)| {
            let (key, value) = line.split_once('=')?;
            Some(Line { number: index + 1, key: cut(key), value: cut(value) })
        })
        .collect()
}

fn cut(text: &str) -> String {
    let end = (0..=LONGEST.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text[..end.unwrap_or(0)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_taken_literally() {
        let text = "NCCL_DEBUG=INFO\n NCCL_IB_TC=1\nexport NCCL_IB_SL=2\n# NCCL_ALGO=Ring\n\nnonsense\nNCCL_IB_HCA==mlx5_1,mlx5_2\nNCCL_NET=\"IB\" # c";
        let lines: Vec<_> =
            parse(text).iter().map(|l| format!("{}|{}|{}", l.number, l.key, l.value)).collect();
        assert_eq!(
            lines,
            [
                "1|NCCL_DEBUG|INFO",
                "2| NCCL_IB_TC|1",
                "3|export NCCL_IB_SL|2",
                "7|NCCL_IB_HCA|=mlx5_1,mlx5_2",
                "8|NCCL_NET|\"IB\" # c",
            ]
        );
    }

    #[test]
    fn long_values_are_cut_where_nccl_cuts_them() {
        let lines = parse(&format!("A={}", "x".repeat(2000)));
        assert_eq!(lines[0].value.len(), 1023);
        assert_eq!(parse(&format!("A={}", "é".repeat(1000)))[0].value.len(), 1022);
    }
}
