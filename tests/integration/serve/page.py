# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The blocks of docs/clients.md that are marked with python or sh, and how the tests run them as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.integration.conftest import TOP
from tests.integration.serve.conftest import MODEL, Serving

_BLOCK = re.compile(r"^## (?P<title>[^\n]+)$|^```(?P<kind>python|sh)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
#: sections whose programs have prompts that the first group's context is too short for
AGENTS = ("Claude Code", "opencode")
CLIENTS = TOP / ".lab/clients"
PACKAGES = {"Claude Code": "@anthropic-ai/claude-code@2.1.197", "opencode": "opencode-ai@1.18.33"}


def blocks() -> list[tuple[str, str, str]]:
    """Title of the section, kind and text of each block that is run."""
    found, title = [], "the page's head"
    for match in _BLOCK.finditer((TOP / "docs/clients.md").read_text()):
        title = match["title"] or title
        # the first tells the reader to put in what the tests put in
        if match["kind"] and "export BASE_URL" not in match["text"]:
            found.append((title, match["kind"], match["text"]))
    return found


def agents() -> str:
    """The folder of the programs of ``AGENTS``, which come from npm."""
    subprocess.run(
        ["npm", "install", "--no-fund", "--no-audit", "--prefix", str(CLIENTS / "npm"), *PACKAGES.values()],
        check=True,
        timeout=600,
    )
    return str(CLIENTS / "npm/node_modules/.bin")


def run(
    serving: Serving, kind: str, text: str, *, folder: Path | None = None, path: str = "", model: str = MODEL
) -> str:
    """Run one block, in a home of its own where ``folder`` is given, and return what it printed."""
    command = [sys.executable, "-c", text] if kind == "python" else ["bash", "-euc", text]
    environment = {
        "PATH": f"{path}:{os.environ['PATH']}" if path else os.environ["PATH"],
        "BASE_URL": f"{serving.cluster.endpoint}/v1",
        "API_KEY": serving.cluster.api_key,
        "MODEL": model,
    }
    if folder:
        environment["HOME"] = str(folder)
    done = subprocess.run(
        command,
        env=environment,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    print(f"{text}\n-> {done.stdout}{done.stderr}")
    assert done.returncode == 0, done.stderr or done.stdout
    assert serving.cluster.api_key not in done.stdout
    return done.stdout
