#!/usr/bin/env python3
"""Tests what docker/dist/inventory.py reads from copyright files and from the linker's map."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docker/dist"))
sys.dont_write_bytecode = True
import inventory  # noqa: E402

HEAD = "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nSource: x\n\n"
ALL = "Files: *\nCopyright: disclaimed\nLicense: BSD-MIT or GPL-2\n\n"
# A field may continue on the next lines, before and after its first word.
FOLDED = "Files: libibverbs/man/*\n       libibverbs/neigh.h\n       libibverbs/neigh.c\nCopyright: 2001, A\n           2002, B\n"
CCAN = "Files:\n ccan/*\nCopyright: unspecified\nLicense: CC0\n\n"
TEXT = "License: BSD-MIT\n Permission is hereby granted.\n .\n Files: this line is of the text\n"


class Licenses(unittest.TestCase):
    def choice(self, text, member="neigh.c.o", archive="/usr/lib/libibverbs.a"):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(text)
            file.flush()
            return inventory.choice(Path(file.name), Path(archive), member)

    def refused(self, text, part, **object):
        with self.assertRaises(SystemExit) as refused:
            self.choice(text, **object)
        self.assertIn(part, str(refused.exception))

    def test_a_stanza_of_several_lines_counts(self):
        text = HEAD + ALL + CCAN + FOLDED + "License: BSD-2-clause\n\n" + TEXT
        self.assertEqual(self.choice(text), "BSD-2-clause")
        self.assertEqual(self.choice(text, "device.c.o"), "BSD-MIT")

    def test_several_patterns_on_one_line_count(self):
        text = HEAD + ALL + "Files: libibverbs/a.c libibverbs/neigh.*\nLicense: BSD-3-clause\n"
        self.assertEqual(self.choice(text), "BSD-3-clause")

    def test_gpl_alone_is_refused_wherever_it_is_written(self):
        self.refused(HEAD + ALL + FOLDED + "License: GPL-2\n", "under GPL-2,")
        self.refused(HEAD + ALL + FOLDED + "License: GPL-2\n Text of it.\n", "under GPL-2,")
        self.refused(HEAD + ALL + FOLDED + "License: BSD-MIT and GPL-2\n", "BSD-MIT and GPL-2")
        self.refused(HEAD + ALL + FOLDED + "License: BSD-MIT or MIT, and GPL-2\n", "GPL-2")
        # The archive does not say whether the object is of libibverbs or of util.
        self.refused(HEAD + ALL + "Files: util/*\nLicense: GPL-2\n", "under GPL-2,")

    def test_an_object_without_a_stanza_is_refused(self):
        self.refused(HEAD + "Files: providers/*\nLicense: BSD-MIT\n", "no stanza for libibverbs/neigh.c")
        self.refused("This package was debianized by A.\n", "is no field")
        self.refused(HEAD + TEXT, "no stanza of files")
        self.refused(HEAD + ALL + FOLDED + "\n" + TEXT, "names no file or no license")
        self.refused(HEAD + "Files: *\nFiles: a\nLicense: MIT\n", "second one of its name")

    def test_a_helper_has_the_license_of_its_own_directory(self):
        text = HEAD + ALL + "Files: util/*\nLicense: MIT\n\nFiles: providers/efa/*\nLicense: BSD-2-clause or GPL-2\n"
        self.assertEqual(self.choice(text, "bitmap.c.o"), "MIT")
        self.assertEqual(self.choice(text, "verbs.c.o", "/usr/lib/libefa.a"), "BSD-2-clause")


class Map(unittest.TestCase):
    def test_archives_and_loose_objects_are_found(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("""
   200270   200270   20  4  /usr/lib/gcc/x86_64-linux-gnu/12/../../../x86_64-linux-gnu/crt1.o:(.note.ABI-tag)
   200270   200270   20  4  /usr/lib/gcc/x86_64-linux-gnu/12/crtbeginT.o:(.text)
   200270   200270   20  4  /usr/lib/x86_64-linux-gnu/libc.a(wcrtomb.o):(.text)
   200270   200270   20  4  /build/target/release/deps/a.cgu.0.rcgu.o:(.text)
   200270   200270   20  4  /build/other.o:(.text)
   200270   200270   20  4  <internal>:(.text)
""")
            file.flush()
            found = {str(archive): members for archive, members in inventory.linked(file.name).items()}
        self.assertEqual(found, {
            "/usr/lib/x86_64-linux-gnu/crt1.o": {"crt1.o"},
            "/usr/lib/gcc/x86_64-linux-gnu/12/crtbeginT.o": {"crtbeginT.o"},
            "/usr/lib/x86_64-linux-gnu/libc.a": {"wcrtomb.o"},
            "/build/other.o": {"other.o"},
        })

    def test_an_object_of_no_package_is_refused(self):
        with self.assertRaises(SystemExit) as refused:
            inventory.Package(Path("/build/other.o"), "x86_64")
        self.assertIn("no package has /build/other.o", str(refused.exception))

    def test_a_crate_without_a_license_is_refused(self):
        self.assertEqual(inventory.license_of({"name": "rdma-sys", "license": None}), "MIT")
        with self.assertRaises(SystemExit):
            inventory.license_of({"name": "other", "license": None})


if __name__ == "__main__":
    unittest.main()
