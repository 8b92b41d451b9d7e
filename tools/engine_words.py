# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines of ``plugins/`` that say vLLM outside of its adapter: what every other engine has to work around.

``make house`` prints how many there are, by file, and fails where there are more than ``engine_words.txt`` holds them
at. After a change that takes some away, ``python -m tools.engine_words`` writes the smaller numbers down.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
HELD = Path(__file__).with_name("engine_words.txt")
#: names that stay whichever engine serves: of the role, its variables, modules, units, files and sockets
NAMES = re.compile(
    r"_*vllm_serve\w*|\bvllm_(?:service|options)\b|engine_vllm_version"
    r"|sparkthor-vllm[\w.*-]*|/sparkthor/(?:beside/\S+/)?vllm\S*|\bvllm-(?:prepare|started-with|starts|degraded)\b\S*"
)
#: vLLM's own part: its two files, and the modules by which they do it
ADAPTER = re.compile(
    r"/engines/vllm\w*\.py$|/_plan/vllm_\w+\.py$|/_plan/(?:serve_command|engine_version)\.py$"
    r"|/_engine/(?:option_table|vllm_\w+)\.py$|/_onhost/vllm_prepare\.py$|/_doctor/rules/vllm\.yml$"
    r"|/(?:modules|action)/vllm_\w+\.py$"
)
_WORD = re.compile("vllm", re.IGNORECASE)
#: an import of the adapter's modules is how the rest reaches it
_IMPORTS = re.compile(r"^\s*(?:from \S+ import .*|import .*|vllm_\w+,)$")


def says_engine(line: str) -> bool:
    """Whether a line names vLLM where any engine may be meant."""
    return bool(_WORD.search(NAMES.sub("", line))) and not _IMPORTS.match(line)


def counted(top: Path = TOP) -> dict[str, int]:
    """Such lines by the file's path below ``top``; files without one are left out."""
    counts: dict[str, int] = {}
    for path in sorted((top / "plugins").rglob("*")):
        name = str(path.relative_to(top))
        if path.suffix in (".py", ".yml") and not ADAPTER.search(f"/{name}"):
            number = sum(map(says_engine, path.read_text(encoding="utf-8").splitlines()))
            if number:
                counts[name] = number
    return counts


def held(path: Path = HELD) -> dict[str, int]:
    """What is allowed, as the list says it: a number and a path in a line."""
    pairs = (line.split() for line in path.read_text(encoding="utf-8").splitlines())
    return {name: int(number) for number, name in pairs}


def grown(now: dict[str, int], allowed: dict[str, int]) -> list[str]:
    """Where there are more such lines than before, if there are more in all: one may move from file to file."""
    if sum(now.values()) <= sum(allowed.values()):
        return []
    more = {name: number for name, number in now.items() if number > allowed.get(name, 0)}
    return [
        f"{name} says vLLM in {number} lines and may in {allowed.get(name, 0)}: ask the group's engine instead"
        for name, number in more.items()
    ]


def show(now: dict[str, int]) -> list[str]:
    """How many there are, and where most of them are."""
    most = sorted(now.items(), key=lambda pair: (-pair[1], pair[0]))
    return [f"{sum(now.values())} lines say vLLM outside of its adapter, in {len(now)} files", *_lines(most)]


def _lines(pairs: list[tuple[str, int]]) -> list[str]:
    return [f"{number:>6}  {name}" for name, number in pairs]


def main() -> int:
    """Write the list anew, unless there are more than before."""
    now = counted()
    if more := grown(now, held() if HELD.exists() else now):
        print("\n".join(["not written:", *more]))
        return 1
    HELD.write_text("".join(f"{line}\n" for line in _lines(sorted(now.items()))), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
