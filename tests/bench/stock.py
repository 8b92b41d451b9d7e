# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stock collections (``ansible.posix`` has sysctl) from the community package, beside the cached base images."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

#: the release whose ansible-core requirement is nearest to the one in requirements/dev.txt
PACKAGE = "ansible==12.3.0"


def folder() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "sparkthor-lab" / f"stock-{PACKAGE.partition('==')[2]}"


def install(say: Callable[[str], None]) -> None:
    """Put the package into its folder, once; collections alone, because ansible-core is there already."""
    if (folder() / "ansible_collections" / "ansible" / "posix").is_dir():
        return
    say("  fetching the stock collections")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*command, "--no-compile", "--target", str(folder()), PACKAGE], check=True)
