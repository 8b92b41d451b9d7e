# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A head that serves, for the tests of several packages."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit import servers
from tests.unit.plugins.module_utils.serving_head import Engine


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    one = Engine(str(tmp_path / "vllm.sock"))
    with servers.serving(one.server):
        yield one
    os.unlink(one.path)


@pytest.fixture
def config(tmp_path: Path) -> str:
    (tmp_path / "vllm.yaml").write_text("model: x\n")
    path = tmp_path / "serving.json"
    path.write_text(
        json.dumps(
            {
                "unit": "sparkthor-vllm.service",
                "socket": str(tmp_path / "vllm.sock"),
                "model": "tiny",
                "inputs": [str(tmp_path / "vllm.yaml")],
                "settings": {"deadline": 20.0, "interval": 10.0},
            }
        )
    )
    return str(path)
