# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs a program of this package: on a host as a folder (``python3 -IB …/sparkthor_host VERB``), elsewhere with ``-m``.

On a host this file lies one level above its siblings, as ``sparkthor_host/__main__.py``.
"""

from __future__ import annotations

import importlib
import os
import sys

if __name__ == "__main__":
    package = __package__
    if not package:
        # Python puts the folder itself first; with its parent there instead it is a package like any other
        folder = os.path.dirname(os.path.abspath(__file__))
        sys.path[0] = os.path.dirname(folder)
        package = f"{os.path.basename(folder)}._onhost"
    raise SystemExit(importlib.import_module(f"{package}.verbs").main(sys.argv[1:]))
