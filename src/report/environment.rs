//! Writes variables in the formats of their readers.

use std::io::{self, Write};

use clap::ValueEnum;
use indexmap::IndexMap;

use super::formats::{self, Unfit, Writer};
use crate::json;
use crate::libraries::of_variable;

/// A format that `env` writes. The comments are its help.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum EnvFormat {
    /// For eval in a POSIX shell
    #[default]
    Sh,
    /// For tools that read .env files
    Dotenv,
    /// For /etc/nccl.conf
    NcclConf,
    /// One JSON object
    Json,
    /// For docker run --env-file
    Docker,
    /// Options for Open MPI's mpirun
    Mpirun,
}

/// Writes the variables; returns those that the format cannot hold.
///
/// # Errors
/// The sink's errors.
pub(crate) fn write<'a>(
    out: &mut impl Write,
    variables: &[(&'a str, &'a str)],
    format: EnvFormat,
) -> io::Result<Vec<Unfit<'a>>> {
    let writer: Writer = match format {
        EnvFormat::Sh => formats::shell,
        EnvFormat::Dotenv => formats::dotenv,
        EnvFormat::NcclConf => formats::nccl_conf,
        EnvFormat::Docker => formats::docker,
        EnvFormat::Mpirun => formats::mpirun,
        EnvFormat::Json => {
            // JSON can represent every value.
            let in_order: IndexMap<&str, &str> = variables.iter().copied().collect();
            json::write(out, &in_order)?;
            return Ok(Vec::new());
        }
    };
    // Only NCCL reads its conf file.
    let of_nccl = |name: &str| format != EnvFormat::NcclConf || of_variable(name).is_none();
    let wanted: Vec<(&str, &str)> = variables.iter().copied().filter(|(name, _)| of_nccl(name)).collect();
    let (lines, unfit) = formats::written(&wanted, writer);
    lines.iter().try_for_each(|line| writeln!(out, "{line}"))?;
    Ok(unfit)
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
        assert_eq!(text(EnvFormat::Mpirun), "-x NCCL_IB_HCA==mlx5_1,mlx5_2\n-x E=\n");
        assert_eq!(text(EnvFormat::Json), "{\n  \"NCCL_IB_HCA\": \"=mlx5_1,mlx5_2\",\n  \"E\": \"\"\n}\n");
    }

    #[test]
    fn what_a_format_cannot_hold_is_left_out_and_told() {
        let others = [("NCCL_NET", "IB"), ("GLOO_SOCKET_IFNAME", "eth0")];
        assert_eq!(written(&others, EnvFormat::NcclConf), ("NCCL_NET=IB\n".into(), 0));
        let hard = [("A", "it's $HOME\nnext"), ("B", "1")];
        assert_eq!(
            written(&hard, EnvFormat::Sh),
            ("export A='it'\\''s $HOME\nnext'\nexport B=1\n".into(), 0)
        );
        assert_eq!(written(&hard, EnvFormat::Docker), ("B=1\n".into(), 1));
        assert_eq!(written(&hard, EnvFormat::NcclConf), ("B=1\n".into(), 1));
        assert_eq!(written(&hard, EnvFormat::Dotenv), ("B=\"1\"\n".into(), 1));
        assert_eq!(written(&hard, EnvFormat::Mpirun), ("-x B=1\n".into(), 1));
        let long = "x".repeat(1024);
        assert_eq!(written(&[("A", &long)], EnvFormat::NcclConf), (String::new(), 1));
    }
}
