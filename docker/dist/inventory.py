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
# The sources of rdma-core's own helpers, of which the archives have the objects beside their own.
SHARED = {"util": ("bitmap.c", "cl_map.c", "interval_set.c", "node_name_map.c", "open_cdev.c", "rdma_nl.c", "util.c")}
# The licenses of crates whose metadata has none.
UNSTATED = {"rdma-sys": "MIT"}


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
        # gcc-12 and gcc-12-cross are gcc. The cross compiler's own crt1.o is of glibc, too.
        if re.match(r"gcc-\d", self.source):
            self.project = "gcc"
        elif self.source.startswith("cross-toolchain-base") and self.name.startswith("libc6-"):
            self.project = "glibc"
        else:
            self.project = self.source


def linked(link_map):
    """The objects that the linker took, by archive. An object beside the archives, such as crt1.o, is its own archive."""
    text = Path(link_map).read_text()
    objects = {}
    for archive, member in re.findall(r"(/\S+\.a)\(([^()\s]+)\)", text):
        objects.setdefault(Path(os.path.normpath(archive)), set()).add(member)
    for loose in set(re.findall(r"(/\S+\.o):\(", text)):
        # Of all Rust, the compiler makes one object.
        if not loose.endswith(".rcgu.o"):
            objects[Path(os.path.normpath(loose))] = {Path(loose).name}
    return objects


def paragraphs(copyright):
    """The paragraphs of a machine-readable copyright file (DEP-5), each with its fields; a line that starts with a space
    continues the field before it."""
    for text in re.split(r"\n\s*\n", copyright.read_text()):
        fields, name = {}, None
        for line in text.splitlines():
            if line[:1] in (" ", "\t"):
                if name is None:
                    fail(f"{copyright}: {line!r} continues no field")
                fields[name] += f"\n{line}"
            elif line and not line.startswith("#"):
                name, colon, value = line.partition(":")
                if not colon or name in fields:
                    fail(f"{copyright}: {line!r} is no field, or the second one of its name")
                fields[name] = value
        yield fields


def stanzas(copyright):
    """The patterns of a copyright file with their licenses, in its order."""
    found = []
    for fields in paragraphs(copyright):
        if "Files" not in fields:
            continue
        license = fields.get("License", "").split("\n")[0].strip()
        patterns = fields["Files"].split()
        if not license or not patterns:
            fail(f"{copyright}: a stanza of files names no file or no license: {fields['Files'].strip()!r}")
        found += [(pattern.replace("[", "[[]"), license) for pattern in patterns]
    if not found:
        fail(f"{copyright} has no stanza of files")
    return found


def chosen(license, where):
    """The alternative that is taken of a license."""
    alternatives = license.split(" or ")
    free = [name for name in alternatives if name in PERMISSIVE]
    if not free or "," in license or " and " in license:
        fail(f"{where} may be under {license}, which this binary cannot contain")
    return free[0]


def choice(copyright, archive, member):
    """The license that is chosen for an object of rdma-core. The last pattern that matches counts. The archive does not say
    from which directory an object is, so each that it can be from must let it in."""
    stem, source = archive.stem.split("-rdmav")[0], member.removesuffix(".o")
    origins = ORIGINS.get(stem, (f"providers/{stem.removeprefix('lib')}", "util", "ccan"))
    licenses = {}
    for origin in origins:
        matching = [license for pattern, license in stanzas(copyright) if fnmatch.fnmatchcase(f"{origin}/{source}", pattern)]
        if not matching:
            fail(f"{copyright} has no stanza for {origin}/{source}, which {archive.name}({member}) may be")
        licenses[origin] = chosen(matching[-1], f"{archive.name}({member})")
    shared = [origin for origin, names in SHARED.items() if source in names and origin in licenses]
    return licenses[shared[0] if shared else origins[0]]


def c_libraries(link_map, architecture):
    """What is linked of each source package: its version, its license, and the objects by archive."""
    libraries = {}
    # The package of an archive is the one whose version counts, and not that of a loose object.
    for archive, members in sorted(linked(link_map).items(), key=lambda item: (item[0].suffix, item[0])):
        package = Package(archive, architecture)
        library = libraries.setdefault(package.project, {"package": package, "names": set(), "licenses": {}, "objects": {}})
        library["names"].add(package.name)
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


def license_of(crate):
    license = crate["license"] or UNSTATED.get(crate["name"])
    if not license:
        fail(f"the crate {crate['name']} states no license, and docker/dist/inventory.py does not know it")
    return license


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
    lines += [f"    {crate['name']} {crate['version']}: {license_of(crate)}" for crate in used]
    for text, names in sorted(texts.items(), key=lambda item: item[1]):
        lines += ["", "-" * 80, ", ".join(dict.fromkeys(names)), "", text]
    return "\n".join(lines) + "\n"


def bill(own, used, libraries, rust, epoch):
    """The bill of materials, in CycloneDX 1.6."""
    # Older crates write MIT/Apache-2.0.
    components = [{"type": "library", "name": crate["name"], "version": crate["version"],
                   "purl": f"pkg:cargo/{crate['name']}@{crate['version']}",
                   "licenses": [{"expression": license_of(crate).replace("/", " OR ")}]} for crate in used]
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


def buildinfo(architecture, libraries, commit, epoch):
    """What the bytes of a release depend on: the commit, and the packages of the machine. If DIST_ALL_PACKAGES is set, the
    machine is there for the release alone, and all of its packages are listed."""
    os_release = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    # zlib1g is what dpkg-deb compresses with.
    wanted = ["binutils*", "buildah", "cargo*", "clang*", "coreutils", "dpkg", "findutils", "gcc*", "git", "gzip", "libc6*",
              "libclang*", "libgcc-*", "libibverbs*", "libllvm*", "libnl-*", "librdmacm*", "linux-libc-dev*", "lld*", "make",
              "pkg-config", "pkgconf*", "python3", "python3-minimal", "rustc", "sed", "tar", "zlib1g"]
    listed = run("dpkg-query", "-W", "-f", "${db:Status-Status} ${binary:Package} (= ${Version})\n")
    installed = [line.removeprefix("installed ") for line in listed.splitlines() if line.startswith("installed ")]
    # All packages that are linked in are listed, whatever their names are.
    names = {name for library in libraries.values() for name in library["names"]}
    is_wanted = lambda name: "DIST_ALL_PACKAGES" in os.environ or name in names or any(fnmatch.fnmatch(name, pattern) for pattern in wanted)
    packages = [line for line in installed if is_wanted(line.split()[0].split(":")[0])]
    lines = [f"Architecture: {architecture}", f"Commit: {commit}", f"Source-Date-Epoch: {epoch}",
             f"Distribution: {os_release.get('PRETTY_NAME', '').strip(chr(34))}",
             "Rust:", *(f" {line}" for line in run("rustc", "-vV").splitlines()),
             "Linked packages:",
             *sorted(f" {name} of {library['package'].source} (= {library['package'].version})"
                     for library in libraries.values() for name in library["names"]),
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
    if not documentation.exists():
        fail(f"there is no {documentation}, with the notices of Rust's standard library: build with a Rust of rustup")
    shutil.copyfile(documentation, licenses / "rust-std.html")
    own, used = crates(f"{architecture}-unknown-linux-gnu")
    (licenses / "crates.txt").write_text(notices(used))
    (licenses / "c-libraries.md").write_text(c_notices(libraries))
    rust = run("rustc", "--version").split()[1]
    sbom = json.dumps(bill(own, used, libraries, rust, epoch), indent=1)
    (Path(directory) / "sbom.cdx.json").write_text(sbom + "\n")
    (Path(directory) / "BUILDINFO").write_text(buildinfo(architecture, libraries, os.environ["SOURCE_COMMIT"], epoch))
    for name, library in sorted(libraries.items()):
        if OTHERS.get(name, (None, False))[1]:
            print(f"{library['package'].source}={library['package'].version}")


if __name__ == "__main__":
    main(*sys.argv[1:])
