# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host that is a folder runs, and on what hosts differ."""

from __future__ import annotations

import json

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import host_versions


def fill(root, path, content):
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(content)


def nothing(argv):
    return 127, "", f"{argv[0]}: not installed"


CONTAINER = ["/usr/bin/python3", "-IB", "/usr/local/lib/sparkthor/sparkthor_host", "container"]
LAUNCH = [*CONTAINER[:-1], "launch"]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, ("venv", "/opt/sparkthor/venv")),
        ({"ray.json": '{"engine": ["/srv/e/bin/python"]}'}, ("venv", "/srv/e")),
        ({"group.json": '{"command": ["/srv/e/bin/vllm", "serve"]}'}, ("venv", "/srv/e")),
        ({"group.json": json.dumps({"command": [*LAUNCH, "--file=x", "--", "/srv/e/bin/vllm"]})}, ("venv", "/srv/e")),
        ({"group.json": json.dumps({"command": [*LAUNCH, "--file=x", "--", *CONTAINER, "run"]})}, ("container", "")),
        ({"group.json": json.dumps({"command": LAUNCH})}, ("venv", "/usr")),
        ({"ray.json": json.dumps({"engine": [*CONTAINER, "python"]})}, ("container", "")),
        ({"group.json": json.dumps({"command": [*CONTAINER, "run", "vllm", "serve"]})}, ("container", "")),
        # what an earlier executor left
        (
            {"ray.json": json.dumps({"engine": CONTAINER}), "group.json": '{"command": ["/srv/e/bin/vllm"]}'},
            ("venv", "/srv/e"),
        ),
        ({"ray.json": '{"engine": "python"}', "group.json": "[1"}, ("venv", "/opt/sparkthor/venv")),
    ],
)
def test_the_engine_is_what_the_running_programs_were_given(tmp_path, files, expected):
    for name, text in files.items():
        fill(tmp_path, f"etc/sparkthor/{name}", text)
    found = host_versions.HostVersions(nothing, str(tmp_path)).engine()
    assert (found["runtime"], found["path"]) == expected


def test_the_versions_of_an_engine_in_a_container(tmp_path):
    fill(tmp_path, "etc/sparkthor/ray.json", json.dumps({"engine": [*CONTAINER, "python"]}))
    inside = {"image": "sha256:" + "a" * 64, "versions": {"vllm": "0.31.0", "ray": "2.60.0", "other": "1"}}
    fill(tmp_path, "etc/sparkthor/container.json", json.dumps(inside))
    engine = {"vllm": "0.31.0", "ray": "2.60.0", "digest": "a" * 12}
    assert host_versions.HostVersions(nothing, str(tmp_path)).read() == engine

    def answers(text):
        return host_versions.HostVersions(lambda _argv: (0, text, ""), str(tmp_path)).read()

    assert answers("installed 1.19.0-1") == {**engine, "container toolkit": "1.19.0-1"}
    # removed, its settings kept
    assert answers("config-files 1.19.0-1") == engine


def test_a_host_tells_kernel_driver_firmware_and_the_revision_that_its_rank_loads(tmp_path):
    fill(tmp_path, "proc/sys/kernel/osrelease", "6.14.0-1015-nvidia\n")
    fill(tmp_path, "sys/module/nvidia/version", "580.95.05\n")
    for device in ("rocep1s0f0", "rocep1s0f1"):
        fill(tmp_path, f"sys/class/infiniband/{device}/fw_ver", "28.45.4028\n")
    fill(tmp_path, "etc/sparkthor/group.json", "{}")
    assert "model" not in "".join(host_versions.HostVersions(nothing, str(tmp_path)).read())
    fill(tmp_path, "etc/sparkthor/group.json", '{"host": "a"}')
    fill(tmp_path, "etc/sparkthor/vllm.yaml", "model: /var/lib/sparkthor/models/tiny@0123456789abcdef\n")
    assert host_versions.HostVersions(nothing, str(tmp_path)).read() == {
        "model tiny": "0123456789ab",
        "NIC firmware": "28.45.4028",
        "kernel": "6.14.0-1015-nvidia",
        "driver": "580.95.05",
    }
    fill(tmp_path, "etc/sparkthor/group.json", '{"engine": "of a later release"}')
    assert "model tiny" not in host_versions.HostVersions(nothing, str(tmp_path)).read()


def test_a_hosts_nics_show_their_firmware_once():
    assert host_versions.firmware(["28.45.4028", "28.45.4028", ""]) == {"NIC firmware": "28.45.4028"}
    assert host_versions.firmware([]) == {}


SPARKS = {"a": "spark", "b": "spark"}


def test_what_differs():
    a = {"vllm": "1", "kernel": "6.8", "model tiny": "aa", "digest": "d"}
    b = {"vllm": "1", "kernel": "6.9", "model other": "bb", "digest": "d", "ray": "2"}
    found = host_versions.differing({"a": a, "b": b}, SPARKS)
    # each of two groups has a model of its own
    assert found == {"kernel": {"a": "6.8", "b": "6.9"}, "ray": {"a": "-", "b": "2"}}
    assert host_versions.difference("ray", found["ray"]) == "ray differs: a -, b 2"
    assert host_versions.differing({"a": a, "b": {**a, "model tiny": "ab"}}, SPARKS) == {
        "model tiny": {"a": "aa", "b": "ab"}
    }


def test_hosts_of_two_kinds_differ_by_nature_and_those_of_one_do_not():
    spark = {"vllm": "1+cu130", "kernel": "6.8", "digest": "d", "nvidia-nccl-cu13": "2", "container toolkit": "1.19"}
    thor = {"vllm": "1+tegra", "kernel": "6.9", "digest": "e", "container toolkit": "1.18"}
    kinds = {"a": "spark", "b": "spark", "t": "thor"}
    assert host_versions.differing({"a": spark, "b": spark, "t": thor}, kinds) == {}
    other = {**spark, "kernel": "6.7", "nvidia-nccl-cu13": "3"}
    found = host_versions.differing({"a": spark, "b": other, "t": {**thor, "vllm": "2"}}, kinds)
    assert found == {
        "vllm": {"a": "1+cu130", "b": "1+cu130", "t": "2"},
        "kernel": {"a": "6.8", "b": "6.7"},
        "nvidia-nccl-cu13": {"a": "2", "b": "3"},
    }


def test_each_serving_group_has_an_engine_of_its_own():
    vllm, sglang = {"vllm": "1", "digest": "d", "kernel": "6.8"}, {"sglang": "5", "digest": "e", "kernel": "6.8"}
    by_host = {"a": vllm, "b": vllm, "c": sglang, "d": sglang}
    kinds = dict.fromkeys(by_host, "spark")
    parts = [["a", "b"], ["c", "d"]]
    assert host_versions.differing(by_host, kinds, parts) == {}
    by_host["d"] = {**sglang, "sglang": "6", "kernel": "6.9"}
    assert host_versions.differing(by_host, kinds, parts) == {
        "sglang": {"c": "5", "d": "6"},
        "kernel": {"a": "6.8", "b": "6.8", "c": "6.8", "d": "6.9"},
    }


def test_what_all_have_alike():
    a = {"vllm": "1", "kernel": "6.8", "driver": "580", "model tiny": "aa", "digest": "d", "empty": ""}
    # a Thor's kernel differs by nature, and the second group serves another model
    b = {"vllm": "1", "kernel": "6.9", "driver": "580", "model other": "bb", "digest": "d", "empty": ""}
    assert host_versions.common({"a": a, "b": b}) == {"vllm": "1", "driver": "580"}
    assert host_versions.common({"a": a, "b": dict(a)}) == {
        name: a[name] for name in a if name not in ("digest", "empty")
    }
    assert host_versions.common({}) == {}
