//! Implements `rdma-init licenses`: prints the notices of everything that is linked in.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;

use anyhow::Context;
use miniz_oxide::inflate::decompress_to_vec_zlib_with_limit;

/// What `docker/dist/notices.py` appends to the program's file: the text (zlib), its length there, and this mark.
const MARK: &[u8; 16] = b"rdma-init:notice";

/// In bytes: more than all notices.
const LONGEST: usize = 16 * 1024 * 1024;

pub(super) fn run(out: &mut impl Write) -> anyhow::Result<()> {
    let file = File::open("/proc/self/exe").context("cannot open the file of this program")?;
    let notices = read(&file).context(
        "the file of this program has no notices: its build could not collect them, or a tool such as strip has removed them. The archive of a release has them in licenses/",
    )?;
    Ok(out.write_all(&notices)?)
}

fn read(file: &File) -> Option<Vec<u8>> {
    let mut end = [0; 24];
    let length = file.metadata().ok()?.len();
    file.read_exact_at(&mut end, length.checked_sub(24)?).ok()?;
    let (packed, mark) = end.split_first_chunk::<8>()?;
    let packed = u64::from_le_bytes(*packed);
    (mark == MARK && packed <= LONGEST as u64).then_some(())?;
    let mut bytes = vec![0; usize::try_from(packed).ok()?];
    file.read_exact_at(&mut bytes, (length - 24).checked_sub(packed)?).ok()?;
    decompress_to_vec_zlib_with_limit(&bytes, LONGEST).ok()
}
