# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The status of a host that is a folder, and parsers of what its programs print."""

from __future__ import annotations

import json
import os

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._facts import host_status
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action import shape

SHOW = """Result=success
NRestarts=2
Id=sparkthor-ray.service
LoadState=loaded
ActiveState=active
SubState=running
UnitFileState=enabled
NeedDaemonReload=yes
ActiveEnterTimestampMonotonic=40000000
InvocationID=abc

Id=sparkthor-vllm.service
LoadState=not-found
ActiveState=inactive
"""


def test_units_are_read_and_absent_ones_left_out():
    units = host_status.parse_unit_states(SHOW, uptime=100.0)
    assert list(units) == ["sparkthor-ray"]
    ray = units["sparkthor-ray"]
    assert (ray["active"], ray["seconds"], ray["restarts"], ray["need_daemon_reload"]) == ("active", 60.0, 2, True)


def test_a_unit_that_is_not_active_has_no_age():
    failed = SHOW.replace("ActiveState=active", "ActiveState=failed")
    assert host_status.parse_unit_states(failed, uptime=100.0)["sparkthor-ray"]["seconds"] is None


def test_only_known_plain_options_are_taken():
    text = (
        "model: '/var/lib/x'\napi-key: secret\ntensor-parallel-size: 2\nhf-overrides:\n  a: 1\nserved-model-name: [x]\n"
    )
    assert host_status.parse_options(text) == {"model": "/var/lib/x", "tensor-parallel-size": "2"}


def host(root, commands):
    """A host that is a folder; ``commands`` answers by the first word."""
    (root / "var/lib").mkdir(parents=True, exist_ok=True)

    def run(argv):
        return commands.get(argv[0], (127, "", f"{argv[0]}: not installed"))

    return host_status.HostReader(run, str(root))


def test_models_are_listed_where_the_host_keeps_them(tmp_path):
    for folder in ("var/lib/sparkthor/models/usual", "data/models/mine", "data/models/.records", "etc/sparkthor"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "var/lib/sparkthor/models/usual@0123456789abcdef").mkdir()
    assert host(tmp_path, {}).models() == ["usual"]
    (tmp_path / "etc/sparkthor/cluster.json").write_text('{"folders": {"models": "/data/models"}}')
    assert host(tmp_path, {}).models() == ["mine"]


def test_the_disk_is_the_one_that_holds_the_models(tmp_path):
    for folder in ("var/lib/sparkthor", "etc/sparkthor"):
        (tmp_path / folder).mkdir(parents=True)
    # another file system than that of the tests' files
    (tmp_path / "data").symlink_to("/dev/shm")
    assert host(tmp_path, {}).disk()["total"] == total(tmp_path)
    (tmp_path / "etc/sparkthor/cluster.json").write_text('{"folders": {"models": "/data"}}')
    assert host(tmp_path, {}).disk()["total"] == total("/dev/shm") != total(tmp_path)
    (tmp_path / "etc/sparkthor/cluster.json").write_text('{"folders": {"models": "/not/there/yet"}}')
    assert host(tmp_path, {}).disk()["total"] == total(tmp_path)


def total(path):
    found = os.statvfs(path)
    return found.f_blocks * found.f_frsize


def test_a_bare_host_is_all_absence_and_no_error(tmp_path):
    status = host(tmp_path, {}).read()
    assert status["units"] == {}
    assert status["models"] == []
    assert status["versions"] == {}
    assert status["ray"] == {"configured": False}
    assert status["serving"]["model"] == ""
    assert status["memory"]["total"] == 0
    assert status["rdma"]["links"] == []
    assert status["firewall"]["state"] == "unmanaged"
    json.dumps(status)


def fill(root, path, content):
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(content)


def test_what_a_serving_head_says(tmp_path):
    fill(tmp_path, "proc/uptime", "100.5 3\n")
    fill(tmp_path, "proc/loadavg", "0.5 1 2 3/4 5\n")
    fill(tmp_path, "proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 400 kB\nSwapTotal: 10 kB\nSwapFree: 4 kB\n")
    fill(tmp_path, "etc/sparkthor/serving.json", '{"model": "m", "socket": "/s", "ray": true}')
    fill(tmp_path, "run/sparkthor/state.json", '{"state": "serving", "memory": {"x": 1}}')
    fill(tmp_path, "etc/sparkthor/ray.json", '{"head_address": "10.0.0.1", "node_address": "10.0.0.1"}')
    fill(tmp_path, host_status.GATE[2][1:] + "/__main__.py", "")
    fill(tmp_path, "var/lib/sparkthor/maintenance", "new cable\n")
    fill(tmp_path, "opt/sparkthor/venv/lib/python3.12/site-packages/vllm-0.32.0.dist-info/METADATA", "")
    fill(tmp_path, "opt/sparkthor/venv/lib/python3.12/site-packages/numpy-2.0.dist-info/METADATA", "")
    gate = {host_status.GATE[0]: (1, '{"healthy": false, "reason": "2 of 3"}', ""), "systemctl": (0, SHOW, "")}
    status = host(tmp_path, gate).read()
    assert status["memory"] == {
        "total": 1024000,
        "available": 409600,
        "cached": 0,
        "swap_total": 10240,
        "swap_used": 6144,
    }
    assert status["uptime_seconds"] == 100
    assert status["load"] == [0.5, 1.0, 2.0]
    assert status["versions"] == {"vllm": "0.32.0"}
    assert status["serving"]["state"] == {"state": "serving"}
    assert status["serving"]["maintenance"] == "new cable"
    assert status["ray"]["cluster"]["reason"] == "2 of 3"
    assert status["units"]["sparkthor-ray"]["seconds"] == 60.5


def test_a_gate_that_hangs_is_a_word_not_an_error(tmp_path):
    fill(tmp_path, "etc/sparkthor/ray.json", '{"head_address": "10.0.0.1", "node_address": "10.0.0.1"}')
    fill(tmp_path, host_status.GATE[2][1:] + "/__main__.py", "")
    status = host(tmp_path, {host_status.GATE[0]: (124, "", "no answer within 5 s")}).read()
    assert status["ray"]["error"] == "no answer within 5 s"


def test_files_of_others_are_not_believed(tmp_path):
    fill(tmp_path, "run/sparkthor/state.json", "[1, 2")
    fill(tmp_path, "etc/sparkthor/serving.json", '["list"]')
    status = host(tmp_path, {}).read()
    assert status["serving"]["state"] == {}
    assert status["serving"]["model"] == ""


def test_the_versions_of_an_engine_at_a_place_of_its_own(tmp_path):
    fill(tmp_path, "etc/sparkthor/ray.json", '{"engine": ["/srv/e/bin/python"]}')
    fill(tmp_path, "srv/e/.sparkthor-engine.json", '{"digest": "0123456789abcdef"}')
    fill(tmp_path, "srv/e/lib/python3.12/site-packages/torch-2.13.0.dist-info/METADATA", "")
    status = host(tmp_path, {}).read()
    assert status["engine"] == {"runtime": "venv", "path": "/srv/e"}
    assert status["versions"] == {"digest": "0123456789ab", "torch": "2.13.0"}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("\n26 updates can be applied immediately.\n14 of these updates are standard security updates.\nTo see", 14),
        ("\n3 updates can be applied immediately.\n1 of these updates is a standard security update.\n", 1),
        ("\n2 updates can be applied immediately.\n5 additional security updates can be applied with ESM Apps.\n", 0),
        ("", None),
    ],
)
def test_security_updates_that_wait(tmp_path, text, number):
    (tmp_path / "var/lib/update-notifier").mkdir(parents=True)
    (tmp_path / "var/lib/update-notifier/updates-available").write_text(text)
    assert host_status.parse_updates(text) == number


def test_groups_beside_the_hosts_own_one_are_told_apart(tmp_path):
    fill(tmp_path, "etc/sparkthor/serving.json", '{"model": "m", "ray": true}')
    assert "beside" not in host(tmp_path, {}).read()["serving"]
    fill(tmp_path, "etc/sparkthor/beside/embed/serving.json", '{"model": "e", "ray": false}')
    fill(tmp_path, "etc/sparkthor/beside/embed/vllm.yaml", "max-model-len: 8192\n")
    fill(tmp_path, "run/sparkthor/beside/embed/state.json", '{"state": "loading", "memory": {}}')
    fill(tmp_path, "var/lib/sparkthor/beside/embed/maintenance", "tests\n")
    asked = []

    def run(argv):
        asked.append(argv)
        return 127, "", ""

    status = host_status.HostReader(run, str(tmp_path)).read()
    assert (status["serving"]["model"], status["serving"]["maintenance"]) == ("m", "")
    assert status["serving"]["beside"] == {
        "embed": {
            **{"model": "e", "socket": "", "executor": "mp", "state": {"state": "loading"}, "maintenance": "tests"},
            **{"engine": "vllm"},
            "options": {"max-model-len": "8192"},
        }
    }
    assert status["node"]["beside"] == ["embed"]
    [units] = [argv for argv in asked if argv[:2] == ["systemctl", "show"] and "sparkthor-vllm.service" in argv]
    assert {"sparkthor-vllm-embed.service", "sparkthor-watchdog-embed.service"} <= set(units)


@pytest.mark.parametrize("value", ["[" * 60 + "]" * 60, "[" * 900 + "]" * 900, "NaN", "9" * 30, '"\\ud800"'])
def test_no_state_file_makes_what_a_host_tells_useless(tmp_path, value):
    fill(tmp_path, "etc/sparkthor/serving.json", '{"model": "m"}')
    fill(tmp_path, "run/sparkthor/state.json", f'{{"state": "serving", "line": {value}}}')
    os.makedirs(os.fsencode(tmp_path) + b"/var/lib/sparkthor/models/\xff")
    status = host(tmp_path, {}).read()
    shape.bounded({"status": json.loads(json.dumps(status))})
    assert status["serving"]["state"]["state"] == "serving"
    assert status["models"] == ["?"]


def test_a_field_of_a_wrong_type_in_a_state_file_is_unknown(tmp_path):
    fill(tmp_path, "etc/sparkthor/serving.json", '{"model": "m"}')
    fill(tmp_path, "run/sparkthor/state.json", '{"state": "serving", "healthy": "yes", "restarts": [1]}')
    assert host(tmp_path, {}).read()["serving"]["state"] == {"state": "serving"}
