# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import pwd
import sys

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import ray_config
from ansible_collections.sparkthor.cluster.plugins.modules import ray_info


def check(capsys, path):
    with patch_module_args({"config": str(path), "before_start": True}), pytest.raises(SystemExit) as ended:
        ray_info.main()
    result = json.loads(capsys.readouterr().out)
    assert ended.value.code == 0
    assert result["changed"] is False
    return result


def test_what_stands_against_a_start_is_data(capsys, tmp_path):
    engine = tmp_path / "engine"
    engine.write_text(f'#!{sys.executable}\nprint(\'{{"python": "3.12.3", "ray": "2.50.0"}}\')\n')
    engine.chmod(0o755)
    path = tmp_path / "ray.json"
    nodes = [{"name": "a", "address": "203.0.113.1", "role": "head"}]
    # ports on which nobody on the machine that runs this listens
    ports = {port.key: 1 + index for index, port in enumerate(ray_config.PORTS)}
    described = {"nodes": nodes, "node_address": "203.0.113.1", "engine": [str(engine)], "ports": ports}
    described["user"] = pwd.getpwuid(os.geteuid()).pw_name
    path.write_text(json.dumps({**described, "worker_ports": [2, 2]}))
    result = check(capsys, path)
    assert result["versions"] == {"python": "3.12.3", "ray": "2.50.0"}
    assert result["obstacles"][0].startswith("the control address 203.0.113.1 is on no interface of this host")
    assert result["obstacles"][-1].startswith("Ray 2.50.0 is older than 2.54")


@pytest.mark.parametrize(
    "content", [None, "{", "[]", '{"nodes": []}', '{"nodes": [{"address": "a"}], "ports": {"gcs": "x"}}']
)
def test_a_host_without_a_usable_description(capsys, tmp_path, content):
    path = tmp_path / "ray.json"
    if content is not None:
        path.write_text(content)
    result = check(capsys, path)
    assert len(result["obstacles"]) == 1
    assert str(path) in result["obstacles"][0]
    assert result["versions"] == {}
