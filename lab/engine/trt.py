# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What C(prepare.py) makes, and a container image with the stand-in of TensorRT-LLM, as C(docker save) writes one.

Two layers: the lab's own Debian bookworm, and the stand-in under the program's name with what says that the package is
installed. The same inputs give the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys

import image
import prepare
import trt_stand_in
from sparklab import base

NAME = f"sparkthor-lab/tensorrt-llm:{trt_stand_in.VERSION}"
STAND_IN = os.path.join(prepare.HERE, "trt_stand_in.py")
LINK = os.path.join(prepare.LINKS, "trt.tar")
#: raise when what is made changes in a way its inputs do not show
VERSION = "1"
_ENVIRONMENT = ("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",)


def make_program(folder: str) -> None:
    """The program and its package below a folder, where the image's Python finds them."""
    program = os.path.join(folder, "usr", "local", "bin", "trtllm-serve")
    about = os.path.join(
        *(folder, "usr", "local", "lib", "python3.11", "dist-packages"),
        *(f"tensorrt_llm-{trt_stand_in.VERSION}.dist-info", "METADATA"),
    )
    for path in (program, about):
        os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(STAND_IN, encoding="utf-8") as source, open(program, "w", encoding="utf-8") as file:
        file.write(f"#!/usr/bin/python3\n{source.read()}")
    os.chmod(program, 0o755)
    with open(about, "w", encoding="utf-8") as file:
        file.write(f"Metadata-Version: 2.1\nName: tensorrt_llm\nVersion: {trt_stand_in.VERSION}\n")


def digest() -> str:
    with open(STAND_IN, "rb") as file:
        made_by = hashlib.sha256(file.read())
    made_by.update(f"{VERSION}\0{base.base_name('bookworm')}\0{image.UNWANTED}\0{NAME}".encode())
    return made_by.hexdigest()[:12]


def make(lower: str, target: str) -> str:
    """The archive; returns the image's digest. ``lower`` is the folder of its system."""
    work = f"{target}.work"
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(os.path.join(work, "upper"))
    try:
        make_program(os.path.join(work, "upper"))
        layers = []
        for number, (folder, leave_out) in enumerate(((lower, image.UNWANTED), (os.path.join(work, "upper"), ()))):
            file = os.path.join(work, f"layer-{number}")
            layers.append((file, *image.write_layer(folder, file, leave_out)))
        found = image.write_archive(f"{target}.part", layers, NAME, _ENVIRONMENT)
        os.replace(f"{target}.part", target)
        return found
    finally:
        shutil.rmtree(work, ignore_errors=True)


def main() -> int:
    try:
        where = prepare.prepare(progress=print)
        target = os.path.join(where["cache"], "images", f"trt-{digest()}.tar")
        with prepare._one_at_a_time(where["cache"]):
            image.only(target, lambda: make(str(base.base("bookworm")), target))
            prepare.point(LINK, target)
    except (prepare.PrepareError, prepare.engine_pins.EngineError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps({"image": target, "name": NAME}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
