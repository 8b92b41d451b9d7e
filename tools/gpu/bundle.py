# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All that a bare machine with GPUs and no network lacks, in parts of a size that can be carried.

    tools/gpu/describe.sh FOLDER                            on the machine: what it has
    python -m tools.gpu.bundle --machine FOLDER --to DIR    here: fetch, trim, pack; prints what is in it and how big
    tools/gpu/setup.sh DIR/part-*                           on the machine again, once all parts are there

In it: Debian packages that hosts of the lab consist of, the controller's wheels (Ansible), and the engine's wheels
without what the machine's Python has already (see wheels.py). Downloads are kept in DIR/cache.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sparklab import base

from tools.gpu.trim import trim
from tools.gpu.wheels import canonical
from tools.playbooks import TOP

LOCK = TOP / "requirements" / "engine" / "gpu-cp312-x86_64.txt"
#: what a controller needs to run the playbooks; the rest of dev.txt is for developers
CONTROLLER = (
    *("ansible-core", "ansible-runner", "netaddr", "jmespath", "pyyaml", "jinja2", "markupsafe", "cryptography"),
    *("cffi", "pycparser", "packaging", "resolvelib", "pexpect", "ptyprocess", "python-daemon", "lockfile"),
)
#: MiB a part may have
PART = 52
#: wheels that carry what a text model on one kind of GPU never loads
TRIMMED = ("vllm", "ray")


class BundleError(Exception):
    """One line: what is missing and what to do."""


@dataclass(frozen=True)
class Machine:
    """What describe.sh wrote."""

    python: str
    machine: str
    glibc: str
    arch: int
    debs: dict[str, tuple[str, str]]

    @classmethod
    def read(cls, folder: Path) -> Machine:
        path = folder / "machine.txt"
        if not path.exists():
            raise BundleError(f"{path} is not there: run tools/gpu/describe.sh on the machine and bring its folder")
        words = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
        plain = {line[0]: line[1] for line in words if len(line) == 2}
        gpus = {line[1].rstrip(",") for line in words if line[0] == "gpu"}
        if len(gpus) != 1:
            raise BundleError(f"{path}: {len(gpus) or 'no'} kinds of GPU, and a bundle is made for one")
        debs = {line[1]: (line[2], line[3]) for line in words if line[0] == "deb" and line[4:] == ["ii"]}
        return cls(plain["python"], plain["machine"], plain["glibc"], int(gpus.pop().replace(".", "")), debs)

    def check_lock(self) -> None:
        want = f"cp{self.python.replace('.', '')}-{self.machine}"
        if want not in LOCK.name:
            raise BundleError(
                f"the machine's Python is {self.python} on {self.machine}, and {LOCK.name} is for another: "
                f"make a lock gpu-{want}.txt, or name an interpreter to describe.sh that fits"
            )

    def platforms(self) -> list[str]:
        minor = int(self.glibc.split(".")[1])
        tags = [f"manylinux_2_{number}_{self.machine}" for number in range(minor, 4, -1)]
        return [*tags, *(f"{name}_{self.machine}" for name in ("manylinux2014", "manylinux2010", "manylinux1"))]


def run(argv: Sequence[str], **more: object) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, **more)  # type: ignore[call-overload]
    if done.returncode:
        tail = " | ".join((done.stderr or done.stdout).strip().splitlines()[-3:])
        raise BundleError(f"{' '.join(argv[:6])}: exit {done.returncode}: {tail}")
    return str(done.stdout)


def pins(path: Path) -> list[str]:
    lines = (line.split("#")[0].split(" --")[0].strip().rstrip("\\").strip() for line in path.read_text().splitlines())
    return [line for line in lines if "==" in line]


def download(machine: Machine, wanted: Iterable[str], folder: Path) -> None:
    """pip download for the machine's Python, with this machine's own settings; what is there is not looked up again."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (wanted := [pin for pin in wanted if not pinned(folder, [pin])]):
        return
    words = [f"--platform={tag}" for tag in machine.platforms()]
    words += [f"--python-version={machine.python}", "--implementation=cp", "--only-binary=:all:", "--no-deps"]
    for abi in (f"cp{machine.python.replace('.', '')}", "abi3", "none"):
        words += ["--abi", abi]
    run([sys.executable, "-m", "pip", "download", "-q", *words, "-d", str(folder), *wanted])


def pinned(folder: Path, wanted: Iterable[str]) -> list[Path]:
    """Wheels of these pins; others in the folder are what an earlier lock asked for."""
    chosen = {tuple(canonical(word) for word in pin.split(";")[0].split("==")) for pin in wanted}
    return [path for path in sorted(folder.glob("*.whl")) if tuple(map(canonical, path.name.split("-")[:2])) in chosen]


def lacking_debs(machine: Machine, wanted: Iterable[str]) -> list[str]:
    return [name for name in wanted if name not in machine.debs]


def status_file(machine: Machine) -> str:
    """dpkg's status as apt needs it: what is installed. Without dependencies, so that nothing there is upgraded."""
    return "".join(
        f"Package: {name}\nStatus: install ok installed\nVersion: {version}\nArchitecture: {arch}\n"
        f"{'' if arch == 'all' else 'Multi-Arch: same' + chr(10)}Maintainer: none\nDescription: none\n\n"
        for name, (version, arch) in machine.debs.items()
    )


def fetch_debs(machine: Machine, described: Path, cache: Path) -> list[Path]:
    """The packages of a simulated host that the machine lacks, with what they depend on, from its own sources."""
    apt = cache / "apt"
    for folder in ("lists/partial", "archives/partial"):
        (apt / folder).mkdir(parents=True, exist_ok=True)
    for name, target in (("machine.sources", "list.sources"), ("sources.list", "list.list")):
        text = (described / name).read_text(encoding="utf-8") if (described / name).exists() else ""
        (apt / target).write_text(text.replace("/usr/share/keyrings/", f"{described.resolve()}/"), encoding="utf-8")
    (apt / "status").write_text(status_file(machine), encoding="utf-8")
    arch = "amd64" if machine.machine == "x86_64" else "arm64"
    options = {
        "Dir::Etc::sourcelist": apt / "none", "Dir::Etc::sourceparts": apt, "Dir::State::lists": apt / "lists",
        "Dir::State::status": apt / "status", "Dir::Cache": apt, "APT::Architecture": arch,
        "APT::Architectures": arch, "APT::Sandbox::User": "root", "APT::Install-Recommends": "false",
        "Acquire::Languages": "none",
    }  # fmt: skip
    words = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
    run(["apt-get", "-q", *words, "update"])
    for old in (apt / "archives").glob("*.deb"):
        old.unlink()  # of another machine, or a version before
    # hosts stand on the machine itself, so what a layer would give them is the machine's too
    packages = [*base.PACKAGES, *base.LAYERS["door"], "systemd-container", "openssh-client"]
    wanted = lacking_debs(machine, packages)
    if wanted:
        run(["apt-get", "-q", "-y", *words, "--download-only", "install", *wanted])
    return sorted((apt / "archives").glob("*.deb"))


def pack_tree(wheel: Path, arch: int, folder: Path) -> Path:
    """A trimmed wheel, unpacked, as one small archive."""
    target = folder / f"{wheel.stem}.tar.xz"
    if target.exists():
        return target
    tree = folder / wheel.stem
    shutil.rmtree(tree, ignore_errors=True)
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            path = archive.extract(member, tree)
            # zipfile forgets that a program is one
            if member.external_attr >> 16 & 0o111:
                os.chmod(path, 0o755)
    trim(tree.as_posix(), re.split(r"[-_]", wheel.name)[0].lower(), arch)
    part = target.with_suffix(".part")
    run(["tar", "-C", str(folder), "--use-compress-program=xz -4 -T0", "-cf", str(part), tree.name])
    part.replace(target)
    shutil.rmtree(tree)
    return target


def share_out(sizes: dict[Path, int], limit: int) -> list[list[Path]]:
    """Files into as few parts as a first fit finds; the biggest first."""
    parts: list[tuple[int, list[Path]]] = []
    for path, size in sorted(sizes.items(), key=lambda item: (-item[1], item[0])):
        if size > limit:
            raise BundleError(f"{path.name} alone has {size >> 20} MiB, and a part may have {limit >> 20}")
        for number, (used, files) in enumerate(parts):
            if used + size <= limit:
                parts[number] = (used + size, [*files, path])
                break
        else:
            parts.append((size, [path]))
    return [files for _used, files in parts]


def make(described: Path, to: Path, limit: int) -> list[str]:
    machine = Machine.read(described)
    machine.check_lock()
    cache = to / "cache"
    # wheels of a newer machine would not run on an older one
    wheels, controller = (cache / f"{kind}-{machine.glibc}" for kind in ("wheels", "controller"))
    trees = cache / f"trees-{machine.arch}"
    trees.mkdir(parents=True, exist_ok=True)
    download(machine, pins(LOCK), wheels)
    known = {re.split("==", pin)[0].lower(): pin for pin in pins(TOP / "requirements" / "dev.txt")}
    tools = [known[name] for name in CONTROLLER]
    download(machine, tools, controller)
    debs = fetch_debs(machine, described, cache)
    kinds = dict.fromkeys(debs, "debs") | dict.fromkeys(pinned(controller, tools), "controller")
    for wheel in pinned(wheels, pins(LOCK)):
        if wheel.name.split("-")[0] in TRIMMED:
            kinds[pack_tree(wheel, machine.arch, trees)] = "trees"
        else:
            kinds[wheel] = "wheels"
    parts = share_out({path: path.stat().st_size for path in kinds}, limit << 20)
    for old in to.glob("part-*"):
        shutil.rmtree(old)
    sums, lines = [], []
    for number, files in enumerate(parts, 1):
        folder = to / f"part-{number}"
        for path in files:
            inside = folder / kinds[path] / path.name
            inside.parent.mkdir(parents=True, exist_ok=True)
            os.link(path, inside)
            sums.append(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {kinds[path]}/{path.name}\n")
        lines.append(f"part-{number}: {sum(path.stat().st_size for path in files) >> 20} MiB, {len(files)} files")
    for kind in ("debs", "controller", "wheels", "trees"):
        chosen = [path for path, one in kinds.items() if one == kind]
        lines.append(f"{kind}: {len(chosen)} files, {sum(path.stat().st_size for path in chosen) >> 20} MiB")
    for number in range(1, len(parts) + 1):
        (to / f"part-{number}" / "SHA256SUMS").write_text("".join(sorted(sums)), encoding="utf-8")
        (to / f"part-{number}" / "python").write_text(machine.python + "\n", encoding="utf-8")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.gpu.bundle", description=__doc__)
    parser.add_argument("--machine", type=Path, required=True, help="the folder that describe.sh wrote")
    parser.add_argument("--to", type=Path, required=True, help="where the parts go")
    parser.add_argument("--part", type=int, default=PART, help=f"MiB that a part may have (default {PART})")
    options = parser.parse_args()
    try:
        print("\n".join(make(options.machine, options.to.resolve(), options.part)))
    except (BundleError, OSError) as error:
        print(f"bundle: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
