# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the option tables in plugins/plugin_utils/_plan/vllm_options from vLLM's own parser.

    python -m tools.option_tables --python PYTHON 0.31.0 0.32.0 0.33.0

PYTHON is one that has vLLM's dependencies, such as the venv of the lab's engine. The wheel of each version is
downloaded, its Python files are unpacked, and plugins/module_utils/_engine/option_table.py is run on them. No GPU is
needed, because only the parser is built.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "plugins" / "module_utils" / "_engine" / "option_table.py"
TABLES = ROOT / "plugins" / "plugin_utils" / "_plan" / "vllm_options"
#: the platform of the wheel does not matter: its compiled files are not unpacked
PLATFORMS = ("manylinux1_x86_64", "manylinux_2_28_x86_64", "manylinux_2_31_x86_64", "manylinux_2_35_x86_64")


def unpack(version: str, folder: Path) -> Path:
    """The Python files of one version, which can stand first on the path."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += [f"--platform={name}" for name in PLATFORMS]
    command += ["--implementation=cp", "--abi=abi3", "--abi=cp38", "--python-version=3.12", f"--dest={folder}"]
    subprocess.run([*command, f"vllm=={version}"], check=True)
    (wheel,) = folder.glob("vllm-*.whl")
    top = folder / "unpacked"
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith((".py", ".json", "METADATA"))]
        archive.extractall(top, names)
    return top


def table(python: str, top: Path) -> str:
    """What the parser of that version says of its options."""
    # other platforms that are installed beside must not take part
    environment = {**os.environ, "PYTHONPATH": str(top), "VLLM_PLUGINS": "", "VLLM_LOGGING_LEVEL": "ERROR"}
    done = subprocess.run([python, "-B", str(SCRIPT)], env=environment, check=True, capture_output=True, text=True)
    return done.stdout[done.stdout.index('{\n "schema"') :]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--python", required=True, help="a Python with vLLM's dependencies")
    parser.add_argument("versions", nargs="+")
    arguments = parser.parse_args(argv)
    for version in arguments.versions:
        with tempfile.TemporaryDirectory() as folder:
            text = table(arguments.python, unpack(version, Path(folder)))
        (TABLES / f"{version}.json").write_text(text, encoding="utf-8")
        print(f"{version}: written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
