# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import ray_config, ray_gate

from tests.unit.plugins.module_utils._onhost.ray_node import write_config


def test_gate_says_why_in_one_line(tmp_path, capsys):
    path = write_config(tmp_path)
    assert ray_gate.main(["--config", path, "--timeout", "1"]) == 1
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert "0 of 2 nodes, 0 of 2 GPUs: the GCS at 127.0.0.1:1 cannot be reached: nothing listens there" in out
    assert ray_gate.main(["--config", path, "--timeout", "1", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["problems"][0]["code"] == "gcs_refused"


def test_gate_without_a_configuration(tmp_path, capsys):
    assert ray_gate.main(["--config", str(tmp_path / "none")]) == 2
    assert "was not set up as a Ray node" in capsys.readouterr().out
    assert ray_gate.main(["--config", str(tmp_path / "none"), "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["healthy"] is False


def test_the_gate_does_without_the_hosts_that_the_watchdog_left_out(tmp_path):
    nodes = [{"name": name, "address": f"10.0.0.{number}"} for number, name in enumerate("abc", 1)]
    nodes[0]["role"] = "head"
    config = ray_config.Config.from_mapping({"nodes": nodes, "node_address": "10.0.0.1"})
    path = tmp_path / "degraded.json"
    assert ray_gate.without(config, str(path)) == config
    path.write_text(json.dumps({"without": {"10.0.0.3": "c"}}))
    assert [node.name for node in ray_gate.without(config, str(path)).nodes] == ["a", "b"]
    path.write_text(json.dumps({"without": {"10.0.0.1": "a"}}))
    assert len(ray_gate.without(config, str(path)).nodes) == 3, "never without the head"
    path.write_text("[]")
    assert ray_gate.without(config, str(path)) == config
