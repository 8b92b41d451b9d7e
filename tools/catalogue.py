# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/catalogue.md: what the recipes come to on 1, 2, 3, 4 and 8 Sparks, planned, and what others measured.

python -m tools.catalogue             write the page
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import measured, recipe_catalogue, recipe_table

PAGE = Path(__file__).resolve().parents[1] / "docs" / "catalogue.md"
#: numbers of Sparks, with the cabling that so many have
MACHINES = {1: "lan", 2: "direct", 3: "switch", 4: "switch", 8: "switch"}
_TOP = """# Catalogue

What the recipes come to on so many Sparks. *At once*: how many requests of the longest length fit. *Planned* is for one
request alone ([how](planning.md#tokens-per-second)), with a drafter for prose. *Measured* is what others measured, none
of it with this collection. `playbooks/recipe.yml -i INVENTORY` prints the same for your hosts. `python -m
tools.catalogue` writes this page.

To add a row: the field `measured` of a recipe, with hosts, tokens per second (of all streams together), streams,
prompt, engine, date and the address where the number stands; `weights` where they are others than the recipe's.

Of your own cluster `playbooks/bench.yml -e bench_source=URL` writes these rows, in `.results/bench/*.measured.yml`
beside the inventory. Publish the result at that address, and copy the rows that say something (one stream, eight
streams) under `measured:` of the recipe that served. A row that lacks its address or engine is refused.
"""


def _rows() -> list[tuple[int, dict[str, Any]]]:
    found = []
    for number, topology in MACHINES.items():
        hosts = [f"spark-{index + 1:02}" for index in range(number)]
        rows = recipe_catalogue.runs(hosts, topology, dict.fromkeys(hosts, "spark"), None)
        found += [(number, row) for row in rows if row["verdict"] != recipe_catalogue.REFUSED]
    return found


def _acknowledged(rows: list[tuple[int, dict[str, Any]]]) -> list[str]:
    """What an inventory has to say beside the name of a recipe."""
    needed = {row["name"]: ", ".join(row["acknowledge"]) for _number, row in rows if row["acknowledge"]}
    return [
        line
        for name in sorted(needed)
        for line in (f"`{name}` needs `vllm_serve_acknowledged: [{needed[name]}]` as well.", "")
    ]


def page() -> str:
    rows = _rows()
    lines = [
        _TOP,
        "| recipe | Sparks | split | GB | longest request, tokens | at once | planned, tokens/s | measured |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for number, row in rows:
        cells = [f"`{row['name']}`", str(number), row["split"], *recipe_table.numbers(row)]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", *_acknowledged(rows), "## Measured"]
    lines += [
        "",
        "| recipe | Sparks | tokens/s | prompt | engine | what else | date | source |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for number, row in rows:
        for one in row["measured"]:
            further = [f"weights {one['weights']}"] if one.get("weights") else []
            further += [one["note"]] if one.get("note") else []
            cells = [f"`{row['name']}`", str(number), measured.speed(one), one["prompt"], one["engine"]]
            cells += ["; ".join(further), one["date"], f"[source]({one['source']})"]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
