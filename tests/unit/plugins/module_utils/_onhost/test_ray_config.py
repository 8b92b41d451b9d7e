# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import ray_config

from tests.unit.plugins.module_utils._onhost.ray_cluster import config


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ([], "not a JSON object"),
        ({}, "nobody is expected"),
        ({"nodes": [{"name": "a"}]}, "needs an address"),
        ({"nodes": [{"address": "10.0.0.1", "gpus": "many"}]}, "needs an address and a number"),
        ({"nodes": [{"address": "10.0.0.1"}]}, "head_address is missing"),
        ({"nodes": [{"address": "10.0.0.1"}] * 2, "head_address": "10.0.0.1"}, "given to two nodes"),
        ({"nodes": [{"address": "10.0.0.1", "role": "head"}], "ports": {"gcs": "x"}}, "ports"),
        ({"nodes": [{"address": "10.0.0.1", "role": "head"}], "ports": [6379]}, "ports"),
    ],
)
def test_bad_configuration(data, words):
    with pytest.raises(ray_config.RayConfigError, match=words):
        ray_config.Config.from_mapping(data, "ray.json")


def test_load_config_names_the_missing_file(tmp_path):
    with pytest.raises(ray_config.RayConfigError, match="was not set up as a Ray node"):
        ray_config.load_config(str(tmp_path / "ray.json"))
    (tmp_path / "ray.json").write_text("{")
    with pytest.raises(ray_config.RayConfigError, match="cannot be read"):
        ray_config.load_config(str(tmp_path / "ray.json"))


def test_a_credential_goes_before_the_file(tmp_path):
    (tmp_path / "file").write_text("from-file\n")
    (tmp_path / "credential").write_text("from-unit\n")
    made = config(token_path=str(tmp_path / "file"))
    assert ray_config.read_token(made, {}) == "from-file"
    assert ray_config.read_token(made, {"RAY_AUTH_TOKEN_PATH": str(tmp_path / "credential")}) == "from-unit"
    assert ray_config.read_token(made, {"RAY_AUTH_TOKEN_PATH": str(tmp_path / "gone")}) == "from-file"
    assert ray_config.read_token(config(token_path=str(tmp_path / "gone")), {}) == ""
    assert ray_config.read_token(config(auth=False, token_path=str(tmp_path / "file")), {}) == ""


def test_the_documented_ports_are_the_pinned_ones():
    """docs/ray.md has the one table; its rows must be the code's."""
    words = {"any": "every interface", "node": "control address, loopback", "loopback": "loopback"}
    rows = [
        f"| `{port.key}` | {port.default} | {port.where} | {words[port.binds]} | {port.purpose} |"
        for port in ray_config.PORTS
    ]
    low, high = ray_config.WORKER_PORTS
    fixed = ", ".join(str(port) for port in ray_config.FIXED_PORTS.values())
    document = (Path(__file__).parents[5] / "docs/ray.md").read_text(encoding="utf-8")
    table = [line for line in document.splitlines() if line.startswith("| ")][1 : len(rows) + 3]
    assert table[: len(rows)] == rows
    assert table[len(rows)].startswith(f"| | {low}–{high} |")
    assert table[len(rows) + 1].startswith(f"| | {fixed} |")
