//! Writes which HCA is near which GPU, as a matrix in the style of `nvidia-smi topo -m`.

use std::io::{self, Write};

use crate::fabric::distance::{Distance, of_hca};
use crate::facts::Facts;
use crate::facts::rdma::Hca;
use crate::text::{WIDEST, condensed, visible};

/// Written if the location of a GPU or of an HCA is unknown.
const UNKNOWN: &str = "-";

/// All distances and their meanings.
const MEANINGS: [(Distance, &str); 5] = [
    (Distance::Pix, "behind one PCIe switch"),
    (Distance::Pxb, "behind several PCIe switches"),
    (Distance::Phb, "across the host bridge"),
    (Distance::Node, "across host bridges of one NUMA node"),
    (Distance::Sys, "across NUMA nodes"),
];

/// Writes a line for each GPU and a column for each HCA that is a PCI device; nothing if no GPU or no HCA
/// has a known location. `used` contains the HCAs of the job, if they are decided.
///
/// # Errors
/// The sink's errors.
pub(crate) fn write(out: &mut impl Write, facts: &Facts, used: Option<&[&str]>) -> io::Result<()> {
    let gpus = &facts.gpu.devices;
    let hcas: Vec<&Hca> = facts.rdma.iter().filter(|hca| hca.pci_path.is_some()).collect();
    if gpus.is_empty() || hcas.is_empty() {
        return Ok(());
    }
    let is_used = |hca: &Hca| used.is_some_and(|used| used.contains(&hca.name.as_str()));
    let mark = |hca: &Hca| if is_used(hca) { "*" } else { "" };
    let heads = hcas.iter().map(|hca| format!("{}{}", visible(&hca.name), mark(hca)));
    let mut rows = vec![row("", heads, "NUMA node", "nearest")];
    let mut seen = Vec::new();
    for (index, gpu) in gpus.iter().enumerate() {
        let distances: Vec<Option<Distance>> = hcas.iter().map(|hca| of_hca(gpu, hca)).collect();
        seen.extend(distances.iter().flatten());
        let words = distances.iter().map(|distance| distance.map_or(UNKNOWN, Distance::word).to_owned());
        let least = distances.iter().flatten().min();
        let at_it = hcas.iter().zip(&distances).filter(|(_, at)| least.is_some() && at.as_ref() == least);
        let nearest: Vec<&str> = at_it.map(|(hca, _)| hca.name.as_str()).collect();
        rows.push(row(&format!("GPU {index}"), words, &node(gpu.numa_node), &visible(&condensed(&nearest))));
    }
    rows.push(row("NUMA node", hcas.iter().map(|hca| node(hca.numa_node)), "", ""));
    writeln!(out, "GPUs and HCAs")?;
    let width =
        |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or_default().min(WIDEST);
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    for row in &rows {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}", width = *width)).collect();
        writeln!(out, "  {}", cells.join("  ").trim_end())?;
    }
    for (distance, meaning) in MEANINGS.iter().filter(|(distance, _)| seen.contains(distance)) {
        writeln!(out, "  {:4}  {meaning}", distance.word())?;
    }
    if hcas.iter().any(|hca| is_used(hca)) {
        writeln!(out, "  {:4}  the job uses this HCA", "*")?;
    }
    Ok(())
}

fn row(name: &str, cells: impl Iterator<Item = String>, node: &str, nearest: &str) -> Vec<String> {
    let ends = [node.to_owned(), nearest.to_owned()];
    std::iter::once(name.to_owned()).chain(cells).chain(ends).collect()
}

/// Returns the number of a NUMA node as text.
fn node(number: Option<i32>) -> String {
    number.filter(|number| *number >= 0).map_or(UNKNOWN.to_owned(), |number| number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::pci::PciDevice;

    fn host(gpus: &[(&str, i32)], hcas: &[(&str, Option<&str>, i32)]) -> Facts {
        let mut facts = Facts::default();
        let path = |place: &str| format!("/sys/devices/{place}");
        let gpu = |(place, node): &(&str, i32)| PciDevice { path: path(place), numa_node: Some(*node) };
        facts.gpu.devices = gpus.iter().map(gpu).collect();
        let hca = |(name, place, node): &(&str, Option<&str>, i32)| Hca {
            name: (*name).to_owned(),
            pci_path: place.map(path),
            numa_node: Some(*node),
            ..Hca::default()
        };
        facts.rdma = hcas.iter().map(hca).collect();
        facts
    }

    fn written(facts: &Facts, used: Option<&[&str]>) -> String {
        let mut out = Vec::new();
        write(&mut out, facts, used).unwrap();
        String::from_utf8(out).unwrap()
    }

    const SWITCHES: [&str; 2] =
        ["pci0000:10/0000:10:01.0/0000:11:00.0", "pci0000:90/0000:90:01.0/0000:91:00.0"];

    #[test]
    fn each_gpu_is_a_line_and_each_hca_a_column() {
        let below = |switch: usize, device: usize| {
            format!("{}/0000:12:0{device}.0/0000:1{device}:00.0", SWITCHES[switch])
        };
        let (a, b, c, d) = (below(0, 1), below(1, 1), below(0, 2), below(1, 2));
        let facts = host(
            &[(&a, 0), (&b, 1), ("virtual", -1)],
            &[
                ("mlx5_0", Some(&c), 0),
                ("mlx5_10", Some(&d), 1),
                ("rxe0", None, -1),
                ("bnxt_re0", Some("pci0000:80/0000:80:01.0"), -1),
            ],
        );
        assert_eq!(
            written(&facts, Some(&["mlx5_0"])),
            "GPUs and HCAs\n             mlx5_0*  mlx5_10  bnxt_re0  NUMA node  nearest\n  GPU 0      PIX      SYS      SYS       0          mlx5_0\n  GPU 1      SYS      PIX      SYS       1          mlx5_10\n  GPU 2      -        -        -         -\n  NUMA node  0        1        -\n  PIX   behind one PCIe switch\n  SYS   across NUMA nodes\n  *     the job uses this HCA\n"
        );
        assert!(!written(&facts, None).contains('*'));
    }

    #[test]
    fn without_places_nothing_is_written() {
        assert_eq!(written(&host(&[], &[("mlx5_0", Some("pci0000:10/0000:10:01.0"), 0)]), None), "");
        assert_eq!(written(&host(&[("pci0000:10/0000:10:01.0", 0)], &[("rxe0", None, -1)]), None), "");
    }
}
