"""Measures the code: `make measure`, or `python3 tests/measure.py FOLDER` for another checkout.

Production lines by room (the folders of src, without tests), enums with their variants, the rows of "where a change goes"
in docs/architecture.md, and the hops of the data paths in tests/paths.txt: the files, functions and types that a fact
passes on its way. A path that names something that is not there is an error.
"""

import re
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
# The paths are those of this checkout.
PATHS = Path(__file__).with_name("paths.txt")


def production(text):
    """Returns the lines that are not tests. rustfmt puts the end of an item at its own indentation."""
    lines, kept, skipped_to = text.splitlines(), [], None
    for number, line in enumerate(lines):
        if skipped_to is not None:
            if line.startswith(skipped_to):
                skipped_to = None
            continue
        if line.strip() == "#[cfg(test)]":
            indent = line[: len(line) - len(line.lstrip())]
            following = next((later for later in lines[number + 1 :] if not later.lstrip().startswith("#[")), "")
            skipped_to = indent + following.strip() if following.rstrip().endswith(";") else indent + "}"
            continue
        kept.append(line)
    return kept


def is_test(path):
    return path.name in ("tests.rs", "fake.rs") or "tests" in path.parts


def enums(lines):
    """Returns the number of variants of each enum."""
    found, text = [], "\n".join(lines)
    for start in re.finditer(r"^( *)(?:pub(?:\([a-z: ]+\))? )?enum \w+(?:<[^>]*>)? \{\n(.*?)^\1\}", text, re.M | re.S):
        inside = start[1] + "    "
        variants = re.findall(rf"^{inside}(?=[A-Z])\w+", start[2], re.M)
        found.append(len(variants))
    return found


def hops():
    """Returns the rows of the data paths: a name, and the numbers of files, functions and types."""
    rows = []
    for line in PATHS.read_text().splitlines():
        if line.startswith("#") or not line.strip():
            continue
        if not line.startswith(" "):
            rows.append([line, set(), set(), set()])
            continue
        path, *names = line.split()
        source = (ROOT / "src" / path).read_text()
        rows[-1][1].add(path)
        for name in names:
            kind = "fn" if name[0].islower() else "(?:struct|enum|type|trait)"
            if not re.search(rf"\b{kind} {name}\b", source):
                sys.exit(f"{PATHS}: src/{path} has no {name}")
            rows[-1][2 if kind == "fn" else 3].add((path, name))
    return rows


lines, variants = Counter(), []
for file in sorted((ROOT / "src").rglob("*.rs")):
    inner = file.relative_to(ROOT / "src")
    if is_test(inner):
        continue
    kept = production(file.read_text())
    lines[inner.parts[0].removesuffix(".rs")] += len(kept)
    variants += enums(kept)
for room, count in lines.most_common():
    print(f"{count:7} {room}")
print(f"{sum(lines.values()):7} lines of production")
print(f"{len(variants):7} enums with {sum(variants)} variants")
page = (ROOT / "docs/architecture.md").read_text()
table = page[page.index("| you want to |") :].split("\n\n")[0]
print(f"{len(table.splitlines()) - 2:7} rows of where a change goes")
if ROOT.resolve() == Path(__file__).resolve().parent.parent:
    for name, *counts in hops():
        print("{}: {} files, {} functions, {} types".format(name, *map(len, counts)))
