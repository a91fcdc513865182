"""Pack what an offline GPU node lacks: Curiax and the packages that its image has not, for `make gpu-bundle`.

Two files: `curiax.tar.xz`, and `go.sh`, which unpacks it into a temporary folder, once, and runs a command with it:

    python scripts/gpu_bundle.py --out dist/gpu
    bash go.sh python3 -m curiax doctor        # there, with both files beside each other

What is needed is what pyproject.toml says, with some extras; what the node has is in `PRESENT`, or in a file made there
by `pip list --format freeze`. Wheels are those of the index that pip knows, for the Python and the system of the node.
Of some packages Curiax uses files and no Python, as of those that play Super Mario Bros.: they are packed without what
they need, and built here where the index has no wheel.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Collection, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ARCHIVE, SCRIPT = "curiax.tar.xz", "go.sh"
#: What an image made for JAX on GPUs has, as far as Curiax or its dependencies ask for it.
PRESENT = frozenset(
    {
        *("equinox", "imageio", "jax", "jaxlib", "jaxtyping", "jinja2", "markdown-it-py", "markupsafe", "matplotlib"),
        *("mdurl", "numba", "numpy", "optax", "pillow", "pygments", "rich", "safetensors", "scipy"),
    }
)
#: Packages that are never imported: nes-py's library is loaded, whatever Python it was built with, and a ROM is read.
FILES_ONLY = ("nes-py", "gym-super-mario-bros")
#: The one ROM that Curiax plays, of the several that come with it.
GAME = "super-mario-bros.nes"
GO = """#!/usr/bin/env bash
# Unpack Curiax and the packages beside it, once, and run a command with them: bash go.sh python3 -m curiax doctor
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
there=${TMPDIR:-/tmp}/curiax-@DIGEST@-$(id -u)
if [ ! -d "$there" ]; then
  # Beside it first: whoever comes second finds all of it or nothing.
  fresh=$(mktemp -d "$there.XXXXXX")
  tar -xJf "$here/@ARCHIVE@" -C "$fresh" 2>/dev/null ||
    python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2], filter="data")' \\
      "$here/@ARCHIVE@" "$fresh"
  mv -T "$fresh" "$there" 2>/dev/null || rm -rf "$fresh"
fi
# Where others may write, a folder of that name may be somebody else's.
[ -O "$there" ] || { echo "go.sh: $there is not yours; set TMPDIR to another folder" >&2; exit 2; }
export PYTHONPATH="$there/src:$there/site${PYTHONPATH:+:$PYTHONPATH}"
exec "$@"
"""


def plain(name: str) -> str:
    """A package's name as the index spells it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def name_of(requirement: str) -> str:
    """The package that a requirement or a line of `pip list --format freeze` is about."""
    found = re.match(r"[A-Za-z0-9._-]+", requirement.strip())
    return plain(found[0]) if found else ""


def needed(extras: Sequence[str], present: Collection[str]) -> list[str]:
    """What Curiax asks for and the node has not."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    known = project["optional-dependencies"]
    for extra in extras:
        if extra not in known:
            raise SystemExit(f"--extras {extra}: unknown; there are {', '.join(known)}.")
    wanted = project["dependencies"] + [line for extra in extras for line in known[extra]]
    return [line for line in wanted if name_of(line) not in present]


def download(wanted: Sequence[str], present: Collection[str], args: argparse.Namespace, folder: Path) -> None:
    """Fetch the wheels of what is wanted and of what that needs, less what the node has."""
    system = [word for name in args.platform for word in ("--platform", name)]
    target = ["--python-version", args.python_version, "--only-binary=:all:", *system]
    # First which ones, without fetching: some of them are large, and the node has them.
    plan, nowhere = folder / "plan.json", str(folder / "nowhere")
    pip("install", "--dry-run", "--ignore-installed", "--target", nowhere, "--report", str(plan), *target, *wanted)
    found = [entry["metadata"] for entry in json.loads(plan.read_text())["install"]]
    plan.unlink()
    exact = [f"{entry['name']}=={entry['version']}" for entry in found if plain(entry["name"]) not in present]
    pip("download", "--no-deps", "--dest", str(folder), *target, *exact)


def build(wanted: Sequence[str], args: argparse.Namespace, folder: Path) -> None:
    """Make wheels here, of just these packages."""
    here = platform.machine()
    if args.platform and not any("linux" in name and name.endswith(here) for name in args.platform):
        raise SystemExit(
            f"--platform {' '.join(args.platform)}: {', '.join(map(name_of, wanted))} would be built for this machine "
            f"({here}); make the bundle on one like the node, or leave out what needs it (--without, --extras)."
        )
    try:
        pip("wheel", "--no-deps", "--wheel-dir", str(folder), *wanted)
    except SystemExit as error:
        missing = "" if shutil.which("g++") else "\nThere is no C++ compiler, which nes-py needs: apt-get install g++."
        raise SystemExit(f"{error}{missing}") from None


def pip(*arguments: str) -> None:
    """Run pip; what it says goes into the error if it fails."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"pip {arguments[0]} failed ({done.returncode}):\n{done.stderr.strip()}")


def unpack(wheel: Path, site: Path) -> None:
    """Lay a wheel's modules into a folder; scripts, headers and games that nobody plays stay out."""
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            parts = Path(entry.filename).parts
            if parts and parts[0].endswith(".data"):
                if len(parts) < 3 or parts[1] not in ("purelib", "platlib"):
                    continue
                parts = parts[2:]
            if entry.is_dir() or ".." in parts or Path(*parts).is_absolute():
                continue
            if parts[-1].endswith(".nes") and parts[-1] != GAME:
                continue
            target = site.joinpath(*parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(archive.read(entry))


def pack(wheels: Sequence[Path], archive: Path) -> None:
    """One compressed archive: `src/` with Curiax, `site/` with the packages."""

    def without_caches(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        # The same files give the same archive, whoever packs them and when.
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = ""
        return None if "__pycache__" in entry.name else entry

    with tempfile.TemporaryDirectory() as folder, tarfile.open(archive, "w:xz", preset=6) as packed:
        site = Path(folder)
        for wheel in wheels:
            unpack(wheel, site)
        packed.add(ROOT / "src" / "curiax", "src/curiax", filter=without_caches)
        packed.add(site, "site", filter=without_caches)


def require_small(archive: Path, wheels: Sequence[Path], most: float) -> None:
    """Refuse an archive that is too large, and say what makes it so."""
    size = archive.stat().st_size / 2**20
    if size <= most:
        return
    archive.unlink()
    largest = sorted(wheels, key=lambda wheel: -wheel.stat().st_size)[:8]
    lines = [f"  {wheel.stat().st_size / 2**20:6.1f} MB  {wheel.name}" for wheel in largest]
    raise SystemExit(
        f"The bundle has {size:.1f} MB, more than --most-mb {most:g}. The largest wheels, as downloaded:\n"
        + "\n".join(lines or ["  none: it is Curiax itself"])
        + "\nLeave some out with --without NAME, or allow more with --most-mb."
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Pack."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--out", type=Path, default=ROOT / "dist" / "gpu", help="folder (default %(default)s)")
    options.add_argument("--python-version", default="3.12", help="of the node (default %(default)s)")
    options.add_argument("--platform", nargs="*", default=[], help="of the node, as pip names them (default: this one)")
    options.add_argument("--extras", nargs="*", default=["atari"], help="of Curiax (default %(default)s)")
    options.add_argument("--present", type=Path, help="what the node has: its `pip list --format freeze`")
    options.add_argument("--also", nargs="*", default=[], metavar="NAME", help="further packages")
    options.add_argument(
        "--build",
        nargs="*",
        default=[],
        metavar="NAME",
        help="pack these without what they need, built here where the index has no wheel: for packages that are not "
        f"imported. Always so: {', '.join(FILES_ONLY)}",
    )
    options.add_argument("--without", nargs="*", default=[], metavar="NAME", help="packages to leave out")
    options.add_argument("--most-mb", type=float, default=64.0, help="largest archive (default %(default)s)")
    source = options.add_mutually_exclusive_group()
    source.add_argument("--wheels", type=Path, help="take the wheels in this folder, and ask no index")
    source.add_argument("--no-wheels", action="store_true", help="Curiax alone")
    args = options.parse_args(argv)

    present = {*PRESENT}
    if args.present:
        present = {name_of(line) for line in args.present.read_text().splitlines()}
    present |= {plain(name) for name in args.without}
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.wheels or Path(temporary)
        if not (args.wheels or args.no_wheels):
            alone = {*FILES_ONLY, *map(name_of, args.build)}
            wanted = [*needed(args.extras, present), *args.also]
            names = {name_of(line) for line in wanted}
            wanted += [line for line in args.build if name_of(line) not in names]
            built = [line for line in wanted if name_of(line) in alone]
            if built:
                build(built, args, folder)
            if len(wanted) > len(built):
                download([line for line in wanted if line not in built], present, args, folder)
        wheels = sorted(folder.glob("*.whl"))
        args.out.mkdir(parents=True, exist_ok=True)
        archive = args.out / ARCHIVE
        pack(wheels, archive)
        require_small(archive, wheels, args.most_mb)
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()[:12]
    script = args.out / SCRIPT
    script.write_text(GO.replace("@DIGEST@", digest).replace("@ARCHIVE@", ARCHIVE))
    script.chmod(0o755)
    for wheel in wheels:
        print(wheel.name)
    print(
        f"{archive} ({archive.stat().st_size / 2**20:.1f} MB) and {script}: carry both, run bash {SCRIPT} COMMAND there"
    )


if __name__ == "__main__":
    main()
