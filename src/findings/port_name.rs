//! How lines for people name a port of the job.

use crate::text::visible;

/// Returns the HCA's name, with the port's number if the job uses several ports of the HCA: `mlx5_1`, `mlx5_1:2`.
pub(crate) fn port_name(hca: &str, port: u32, is_one_of_several: bool) -> String {
    visible(&if is_one_of_several { port_id(hca, port) } else { hca.to_owned() })
}

/// Returns the name in documents: `mlx5_1:1`.
pub(crate) fn port_id(hca: &str, port: u32) -> String {
    format!("{hca}:{port}")
}

/// Returns both names of a port whose device has another name now than at the start: `mlx5_1 (now roce1)`.
pub(crate) fn names_of_port(hca: &str, now: Option<&str>, port: u32, is_one_of_several: bool) -> String {
    let name = port_name(hca, port, is_one_of_several);
    match now {
        Some(now) => format!("{name} (now {})", port_name(now, port, is_one_of_several)),
        None => name,
    }
}

/// Returns whether the job uses several ports of this HCA, whose HCAs, one for each port, are these.
pub(crate) fn has_several<'a>(hca: &str, hcas: impl Iterator<Item = &'a str>) -> bool {
    hcas.filter(|other| *other == hca).count() > 1
}
