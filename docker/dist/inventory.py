#!/usr/bin/env python3
"""Writes what a release contains, as found in the linker's map and by cargo: a bill of materials (CycloneDX), the
notices of third parties, the list of sources that the LGPL asks for, and the versions of what built it.

    docker/dist/inventory.py ARCHITECTURE MAP DIRECTORY

It fails if an object has no license that lets it into this binary.
"""

import fnmatch
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

# The choices of rdma-core's dual licenses that are taken.
PERMISSIVE = ("MIT", "BSD-MIT", "BSD-2-clause", "BSD-3-clause", "CC0")
# The licenses of the other C libraries. Their sources are delivered, too, if the license asks for it.
OTHERS = {
    "glibc": ("LGPL-2.1-or-later", True),
    "libnl3": ("LGPL-2.1-only", True),
    "gcc": ("GPL-3.0-or-later WITH GCC-exception-3.1", False),
}
# Where an archive of rdma-core has objects from; a provider's is in providers/NAME.
ORIGINS = {"libibverbs": ("libibverbs", "util", "ccan"), "libmlx5": ("providers/mlx5", "util", "ccan")}


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def fail(message):
    sys.exit(f"dist: {message}")


class Package:
    """The distribution's package that has an archive, for this machine or unpacked into target/sysroot."""

    def __init__(self, archive, architecture):
        root, found, path = str(archive).partition(f"/target/sysroot/{architecture}/")
        self.root = Path(f"{root}{found}") if found else Path("/")
        # The same package of this machine has the same file, in the directory of its own architecture.
        path = f"/{path}".replace(architecture, os.uname().machine) if found else str(archive.resolve())
        # Of packages older than the merged /usr, dpkg knows the files by their old places.
        places = [path, path.removeprefix("/usr"), f"/usr{path}"]
        owner = subprocess.run(["dpkg-query", "-S", *places], capture_output=True, text=True).stdout
        if not owner:
            fail(f"no package has {archive}: the release must be built with the distribution's libraries")
        self.name = owner.split(":")[0]
        self.copyright = self.root / "usr/share/doc" / self.name / "copyright"
        if found:
            # An unpacked package is in no list of dpkg's. Its changelog starts with `source (version)`.
            changelog = self.root / "usr/share/doc" / self.name / "changelog.Debian.gz"
            with gzip.open(changelog, "rt") as lines:
                self.source, self.version = re.match(r"(\S+) \((\S+)\)", lines.readline()).groups()
        else:
            fields = "${source:Package} ${source:Version}\n"
            self.source, self.version = run("dpkg-query", "-W", "-f", fields, self.name).splitlines()[0].split()
        # gcc-12 and gcc-12-cross are gcc.
        self.project = "gcc" if re.match(r"gcc-\d", self.source) else self.source


def linked(link_map):
    """The objects that the linker took, by archive."""
    objects = {}
    for archive, member in re.findall(r"(/\S+\.a)\(([^()\s]+)\)", Path(link_map).read_text()):
        objects.setdefault(Path(os.path.normpath(archive)), set()).add(member)
    return objects


def stanzas(copyright):
    """The patterns of a machine-readable copyright file with their licenses, in its order."""
    text = copyright.read_text()
    return re.findall(r"^Files: *(.*?)\n(?:[A-Z][\w-]*:.*\n(?: .*\n)*?)*?License: *(.*)$", text, re.M)


def choice(copyright, archive, member):
    """The license that is chosen for an object of rdma-core. The last pattern that matches counts."""
    stem = archive.stem.split("-rdmav")[0]
    origins = ORIGINS.get(stem, (f"providers/{stem.removeprefix('lib')}", "util", "ccan"))
    chosen = []
    for origin in origins:
        path = f"{origin}/{member.removesuffix('.o')}"
        alternatives = [names for pattern, names in stanzas(copyright) if fnmatch.fnmatch(path, pattern)][-1:]
        free = [name for name in " or ".join(alternatives).split(" or ") if name in PERMISSIVE]
        if not free:
            fail(f"{archive.name}({member}) may be under {alternatives}, which this binary cannot contain")
        chosen.append(free[0])
    return chosen[0]


def c_libraries(link_map, architecture):
    """What is linked of each source package: its version, its license, and the objects by archive."""
    libraries = {}
    for archive, members in sorted(linked(link_map).items()):
        package = Package(archive, architecture)
        library = libraries.setdefault(package.project, {"package": package, "licenses": {}, "objects": {}})
        library["objects"][archive.name] = sorted(members)
        if package.project == "rdma-core":
            for member in members:
                name = choice(package.copyright, archive, member)
                library["licenses"].setdefault(name, []).append(f"{archive.name}({member})")
        elif package.project in OTHERS:
            library["licenses"][OTHERS[package.project][0]] = []
        else:
            fail(f"{archive} is of {package.source}, whose license docker/dist/inventory.py does not know")
    return libraries


def crates(target):
    """The crates in the binary: what build scripts and macros need runs only during the build."""
    metadata = json.loads(run("cargo", "metadata", "--locked", "--format-version=1", f"--filter-platform={target}"))
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    root = metadata["resolve"]["root"]
    found, waiting = {}, [root]
    while waiting:
        package = packages[waiting.pop()]
        if package["id"] in found or any("proc-macro" in part["kind"] for part in package["targets"]):
            continue
        found[package["id"]] = package
        waiting += [dependency["pkg"] for dependency in nodes[package["id"]]["deps"]
                    if any(kind["kind"] is None for kind in dependency["dep_kinds"])]
    own = found.pop(root)
    return own, sorted(found.values(), key=lambda crate: (crate["name"], crate["version"]))


def notices(used):
    """The texts of the crates' licenses, each once, with the crates that have it."""
    texts = {}
    for crate in used:
        directory = Path(crate["manifest_path"]).parent
        files = [path for path in sorted(directory.iterdir())
                 if re.match(r"(licen[sc]e|copying|notice|unlicense)", path.name, re.I) and path.is_file()]
        for path in files:
            text = path.read_text(errors="replace").strip()
            texts.setdefault(text, []).append(f"{crate['name']} {crate['version']}")
    lines = ["The crates in this binary, with their licenses:", ""]
    lines += [f"    {crate['name']} {crate['version']}: {crate['license'] or 'MIT'}" for crate in used]
    for text, names in sorted(texts.items(), key=lambda item: item[1]):
        lines += ["", "-" * 80, ", ".join(dict.fromkeys(names)), "", text]
    return "\n".join(lines) + "\n"


def bill(own, used, libraries, rust, epoch):
    """The bill of materials, in CycloneDX 1.6."""
    # Older crates write MIT/Apache-2.0.
    components = [{"type": "library", "name": crate["name"], "version": crate["version"],
                   "purl": f"pkg:cargo/{crate['name']}@{crate['version']}",
                   "licenses": [{"expression": (crate["license"] or "MIT").replace("/", " OR ")}]} for crate in used]
    components.append({"type": "library", "name": "rust-std", "version": rust,
                       "licenses": [{"expression": "MIT OR Apache-2.0"}]})
    for name, library in sorted(libraries.items()):
        package = library["package"]
        distribution = run("sh", "-c", ". /etc/os-release && echo $ID").strip()
        components.append({
            "type": "library", "name": name, "version": package.version,
            "purl": f"pkg:deb/{distribution}/{package.source}@{package.version}?arch=source",
            "licenses": [{"license": {"name": license}} for license in sorted(library["licenses"])],
            "properties": [{"name": f"rdma-init:archive:{archive}", "value": " ".join(members)}
                           for archive, members in sorted(library["objects"].items())]})
    return {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
            "metadata": {"timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch)),
                         "component": {"type": "application", "name": own["name"], "version": own["version"],
                                       "licenses": [{"expression": own["license"]}]}},
            "components": components}


def c_notices(libraries):
    lines = ["# The C libraries in this binary", ""]
    for name, library in sorted(libraries.items()):
        package = library["package"]
        lines += [f"## {name} ({package.source} {package.version})", ""]
        for license, objects in sorted(library["licenses"].items()):
            lines.append(f"{license}" + (":" if objects else ", all objects that are linked"))
            lines += [f"    {name}" for name in sorted(objects)]
        lines += ["", f"Copyright and texts: {name}.copyright in this directory.", ""]
    return "\n".join(lines) + Path(__file__).with_name("relink.md").read_text()


def buildinfo(architecture, libraries, epoch):
    """What the bytes of a release depend on, beside the source."""
    os_release = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    wanted = ["binutils*", "buildah", "cargo*", "dpkg", "gcc*", "gzip", "libc6*", "libclang*", "libgcc-*", "libibverbs*",
              "libllvm*", "libnl-*", "librdmacm*", "linux-libc-dev*", "pkg-config", "pkgconf*", "rustc", "tar"]
    listed = run("dpkg-query", "-W", "-f", "${db:Status-Status} ${binary:Package} (= ${Version})\n")
    installed = [line.removeprefix("installed ") for line in listed.splitlines() if line.startswith("installed ")]
    packages = [line for line in installed if any(fnmatch.fnmatch(line.split()[0].split(":")[0], w) for w in wanted)]
    lines = [f"Architecture: {architecture}", f"Source-Date-Epoch: {epoch}",
             f"Distribution: {os_release.get('PRETTY_NAME', '').strip(chr(34))}",
             "Rust:", *(f" {line}" for line in run("rustc", "-vV").splitlines()),
             "Linked sources:",
             *sorted(f" {library['package'].source} (= {library['package'].version})" for library in libraries.values()),
             "Packages:", *(f" {line}" for line in sorted(packages))]
    return "\n".join(lines) + "\n"


def main(architecture, link_map, directory):
    epoch = int(os.environ["SOURCE_DATE_EPOCH"])
    licenses = Path(directory) / "licenses"
    licenses.mkdir(parents=True)
    libraries = c_libraries(link_map, architecture)
    for needed in ("rdma-core", "glibc"):
        if needed not in libraries:
            fail(f"{link_map} names no object of {needed}: it is not the map of the binary")
    for name, library in libraries.items():
        shutil.copyfile(library["package"].copyright, licenses / f"{name}.copyright")
    shutil.copyfile("/usr/share/common-licenses/LGPL-2.1", licenses / "LGPL-2.1")
    documentation = Path(run("rustc", "--print", "sysroot").strip()) / "share/doc/rust/COPYRIGHT-library.html"
    if documentation.exists():
        shutil.copyfile(documentation, licenses / "rust-std.html")
    own, used = crates(f"{architecture}-unknown-linux-gnu")
    (licenses / "crates.txt").write_text(notices(used))
    (licenses / "c-libraries.md").write_text(c_notices(libraries))
    rust = run("rustc", "--version").split()[1]
    sbom = json.dumps(bill(own, used, libraries, rust, epoch), indent=1)
    (Path(directory) / "sbom.cdx.json").write_text(sbom + "\n")
    (Path(directory) / "BUILDINFO").write_text(buildinfo(architecture, libraries, epoch))
    for name, library in sorted(libraries.items()):
        if OTHERS.get(name, (None, False))[1]:
            print(f"{library['package'].source}={library['package'].version}")


if __name__ == "__main__":
    main(*sys.argv[1:])
