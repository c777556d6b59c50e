"""Appends the notices of everything that is linked in to a binary, for `rdma-init licenses`:

    python3 docker/dist/notices.py ARCHITECTURE BINARY

They are at the end of the file, behind the ELF image, so no process loads them: the text (zlib), its length there (8
bytes, little-endian), and a mark. Nothing changes if they are there.
"""
import html
import os
import re
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

HERE = Path(__file__).parent
MARK = b"rdma-init:notice"


def plain(text):
    """The text of a page of HTML."""
    text = re.sub(r"(?is)<(style|script|head).*?</\1>", "", text)
    return re.sub(r"\n{3,}", "\n\n", html.unescape(re.sub(r"<[^>]+>", "", text)))


def collect(architecture, binary):
    """The notices as one text, those of rdma-init first."""
    with tempfile.TemporaryDirectory() as folder:
        # What the inventory dates and names with these is not used here.
        environment = {"SOURCE_DATE_EPOCH": "0", "SOURCE_COMMIT": "", **os.environ}
        subprocess.run([sys.executable, HERE / "inventory.py", architecture, f"{binary}.map", folder],
                       env=environment, check=True, stdout=subprocess.DEVNULL)
        texts = [HERE.parent.parent / name for name in ("LICENSE-MIT", "LICENSE-APACHE")]
        names = ["c-libraries.md", "crates.txt"]
        found = sorted(path.name for path in Path(folder, "licenses").iterdir())
        texts += [Path(folder, "licenses", name) for name in names + [name for name in found if name not in names]]
        lines = ["rdma-init is licensed under either of Apache-2.0 or MIT, at your option. It contains the work of",
                 "others: C libraries, crates, and Rust's standard library. Their licenses follow those of rdma-init."]
        for path in texts:
            text = path.read_text(errors="replace")
            text = plain(text) if path.suffix == ".html" else text
            lines += ["", "=" * 80, path.name, "=" * 80, "", text.strip()]
        return "\n".join(lines) + "\n"


def main(architecture, binary):
    with open(binary, "rb") as file:
        file.seek(-len(MARK), os.SEEK_END)
        if file.read() == MARK:
            return
    packed = zlib.compress(collect(architecture, binary).encode(), 9)
    with open(binary, "ab") as file:
        file.write(packed + len(packed).to_bytes(8, "little") + MARK)


if __name__ == "__main__":
    main(*sys.argv[1:])
