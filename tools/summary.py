# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Add up the JUnit files of a test run's stages; exit 1 if anything failed, was skipped, or nothing ran."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree


def main(folder: str) -> int:
    totals = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    for path in sorted(Path(folder).glob("*.xml")):
        suites = list(ElementTree.parse(path).getroot().iter("testsuite"))
        counts = {key: sum(int(suite.get(key, 0)) for suite in suites) for key in totals}
        print(f"{path.stem:24} {counts['tests']:5} tests")
        for key, value in counts.items():
            totals[key] += value
    failed = totals["failures"] + totals["errors"]
    passed = totals["tests"] - failed - totals["skipped"]
    print(f"{passed} passed, {failed} failed, {totals['skipped']} skipped")
    return 1 if failed or totals["skipped"] or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
