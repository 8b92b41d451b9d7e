# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The collection as users have it: built, and installed by the commands of the built site into an empty home."""

from __future__ import annotations

import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[3]
PAGE = TOP / ".lab" / "docs" / "html" / "tutorial" / "hardware.html"
#: where `ansible-galaxy collection install` puts the collection
INSTALLED = Path(".ansible/collections/ansible_collections/sparkthor/cluster")


class Commands(HTMLParser):
    """The lines of every block of shell commands of a built page, as somebody copies them."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._depth = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        shell = tag == "div" and "highlight-sh" in (dict(attrs).get("class") or "")
        if tag == "div" and (shell or self._depth):
            self._depth += 1

    def handle_endtag(self, tag: str) -> None:
        if tag == "div" and self._depth:
            self._depth -= 1

    def handle_data(self, data: str) -> None:
        if self._depth:
            self.lines.append(data)

    @classmethod
    def of(cls, page: Path) -> list[str]:
        parser = cls()
        parser.feed(page.read_text(encoding="utf-8"))
        return [line for line in "".join(parser.lines).splitlines() if line.strip()]


class Controller:
    """A home of its own in which the commands of the page are run, one shell for all of them."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.done: list[str] = []  # commands whose effect lasts, such as entering the virtual environment

    @property
    def collection(self) -> Path:
        return self.home / INSTALLED

    def run(self, command: str, timeout: int = 600) -> subprocess.CompletedProcess[str]:
        kept = {name: os.environ[name] for name in ("LANG", "TMPDIR", "PIP_CONFIG_FILE") if name in os.environ}
        pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        path = f"{self.home / 'bin'}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        return subprocess.run(
            ["/bin/sh", "-e", "-c", "\n".join([*self.done, command])],
            cwd=self.home,
            env={**kept, **pip, "HOME": str(self.home), "PATH": path, "LC_ALL": "C.UTF-8"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=timeout,
            check=False,
        )

    def succeed(self, command: str, timeout: int = 600) -> str:
        done = self.run(command, timeout)
        assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}"
        return done.stdout


@pytest.fixture(scope="session")
def built() -> Path:
    subprocess.run([sys.executable, "-m", "tools.release"], cwd=TOP, check=True, capture_output=True)
    return next((TOP / ".lab" / "release").glob("*.tar.gz"))


@pytest.fixture(scope="session")
def commands() -> list[str]:
    """The commands of the page that puts the collection on real machines, as the site is built from this checkout."""
    subprocess.run([TOP / "tools" / "docs.sh"], cwd=TOP, check=True, capture_output=True)
    found = Commands.of(PAGE)
    assert len(found) > 8, f"{PAGE} has lost its commands"
    return found


def controller(home: Path, core: str, built: Path, commands: list[str]) -> Controller:
    """A controller made by the page's commands up to the one that installs the collection's Python packages.

    Two words differ from the page: the version of ansible-core, and that the collection comes from the archive that
    was just built instead of Galaxy.
    """
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "python3").symlink_to(sys.executable)
    made = Controller(home)
    for command in commands[: commands.index(next(line for line in commands if "controller.txt" in line)) + 1]:
        if command == "pip install ansible-core":
            command = f"pip install --quiet 'ansible-core=={core}.*'"
        elif command == "ansible-galaxy collection install sparkthor.cluster":
            command = f"ansible-galaxy collection install {built}"
        made.succeed(command, timeout=900)
        if command.startswith(". "):
            made.done.append(command)
    return made
