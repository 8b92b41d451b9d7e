# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A container image of SGLang for hosts that stand on this machine: image.py WHEELS ARCHIVE [ROOT]

Two layers, in an archive as ``docker save`` writes one: this machine's system (or that of ROOT), and the carried
wheels. What the machine's Python has already (torch, the CUDA libraries) is no part of it: a path file leads there, and
``engine_container_mounts`` of the inventory brings it into each container. So the trial of the engine cannot import it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
for _folder in (TOP / "lab" / "engine", TOP / "lab"):
    sys.path.insert(0, str(_folder))

import image as lab_image  # noqa: E402 - a program in a folder, not a package

NAME = "sparkthor-lab/sglang:gpu"
SYSTEM = ("bin", "sbin", "lib", "lib64", "usr", "etc")
#: of the machine, what an engine has no use for
UNWANTED = (
    *("usr/local", "usr/share", "usr/src", "usr/games", "usr/lib/modules", "usr/lib/firmware", "usr/lib/llvm*"),
    *("etc/ssh", "etc/docker", "etc/cdi", "usr/lib/x86_64-linux-gnu/libcudnn*", "usr/lib/x86_64-linux-gnu/libnccl*"),
    *("usr/lib/x86_64-linux-gnu/libcublas*", "usr/lib/x86_64-linux-gnu/libcusparse*"),
)
ENVIRONMENT = (
    # compilers of kernels lie beside CUDA and beside the machine's packages
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/cuda/bin:/opt/torch/.venv/bin",
    "CUDA_HOME=/usr/local/cuda",
)
#: its ranks are processes that import it anew
PROGRAM = """\
#!/usr/bin/python3
import sys
from sglang.cli.main import main
if __name__ == "__main__":
    sys.exit(main())
"""
#: what this release registers itself, and the machine's transformers has already
TWICE = re.compile(r"^(AutoConfig\.register\(.*)\)$", re.MULTILINE)


def site_of(root: Path) -> str:
    """Where the system's Python looks first, below the root."""
    found = sorted((root / "usr/bin").glob("python3.[0-9]*"), key=lambda path: len(path.name))
    name = next(path.name for path in found if path.name.removeprefix("python3.").isdigit())
    return f"usr/local/lib/{name}/dist-packages"


def fill(upper: Path, wheels: Path, root: Path, machine: list[str]) -> None:
    """The carried wheels, the program, and the way to the machine's packages."""
    site = upper / site_of(root)
    site.mkdir(parents=True)
    words = ["pip", "install", "-q", "--no-index", "--no-deps", "--no-compile", "--target", str(site)]
    python = "python3" if root == Path("/") else sys.executable
    subprocess.run([python, "-m", *words, *map(str, sorted(wheels.glob("*.whl")))], check=True)
    shutil.rmtree(site / "bin", ignore_errors=True)
    (site / "zz_of_the_machine.pth").write_text("".join(f"{path}\n" for path in machine), encoding="utf-8")
    for path in (site / "sglang/srt/configs").glob("qwen3_asr*.py"):
        path.write_text(TWICE.sub(r"\1, exist_ok=True)", path.read_text(encoding="utf-8")), encoding="utf-8")
    program = upper / "usr/local/bin/sglang"
    program.parent.mkdir(parents=True)
    program.write_text(PROGRAM, encoding="utf-8")
    program.chmod(0o755)


def packages_of_the_machine() -> list[str]:
    """Folders in which the machine's own Python finds its packages."""
    code = "import sys; print(*(path for path in sys.path if path.endswith('-packages')), sep='\\n')"
    found = subprocess.run(["python3", "-I", "-c", code], capture_output=True, text=True, check=True, cwd="/").stdout
    return [path for path in found.split() if path.startswith("/opt/")]


def make(wheels: Path, target: Path, root: Path) -> str:
    work = target.with_suffix(".work")
    shutil.rmtree(work, ignore_errors=True)
    upper = work / "upper"
    upper.mkdir(parents=True)
    try:
        fill(upper, wheels, root, packages_of_the_machine() if root == Path("/") else [])
        others = [path.name for path in root.iterdir() if path.name not in SYSTEM]
        layers = [
            (str(file), *lab_image.write_layer(str(folder), str(file), without))
            for folder, file, without in (
                (root, work / "layer-0", (*others, *UNWANTED)),
                (upper, work / "layer-1", ()),
            )
        ]
        digest: str = lab_image.write_archive(f"{target}.part", layers, NAME, ENVIRONMENT)
        os.replace(f"{target}.part", target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return digest


if __name__ == "__main__":
    print(make(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3] if len(sys.argv) > 3 else "/")))
