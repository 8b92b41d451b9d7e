# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/render.yml as users run it, on inventories without any host behind them."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

TOP = Path(__file__).resolve().parents[3]


def render(dest: Path, inventory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            str(Path(sys.executable).parent / "ansible-playbook"),
            str(TOP / "playbooks" / "render.yml"),
            "-i",
            str(inventory),
            "-e",
            json.dumps({"render_dir": str(dest)}),
            *arguments,
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=TOP,
        env={**os.environ, "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"},
    )


#: the image of this inventory has no Ray, so that its ranks are started without unless it is asked for
BY_RAY = ("-e", json.dumps({"vllm_serve_executor": "ray"}))


def files(dest: Path) -> dict[str, str]:
    return {str(path.relative_to(dest)): path.read_text() for path in dest.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def inventory(tmp_path_factory):
    """A copy without the secrets that a contributor with such machines has beside the original."""
    copy = tmp_path_factory.mktemp("inventories") / "3spark_ring"
    return shutil.copytree(TOP / "inventories" / "3spark_ring", copy, ignore=shutil.ignore_patterns(".secrets"))


@pytest.fixture(scope="module")
def ring(tmp_path_factory, inventory):
    dest = tmp_path_factory.mktemp("ring")
    done = render(dest, inventory, *BY_RAY)
    assert done.returncode == 0, done.stdout + done.stderr
    return dest


def test_every_host_has_its_own_fabric(ring):
    for host, neighbours in (("spark-01", 2), ("spark-02", 2), ("spark-03", 2)):
        plan = yaml.safe_load((ring / host / "etc/netplan/40-cx7.yaml").read_text())["network"]["ethernets"]
        assert len(plan) == 2 * neighbours  # two cables of two halves
        path = ring / host / "etc/netplan/40-cx7.yaml"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        environment = (ring / host / "etc/sparkthor/fabric.env").read_text()
        address = next(line for line in environment.splitlines() if line.startswith("VLLM_HOST_IP="))
        others = [
            (ring / other / "etc/sparkthor/fabric.env").read_text()
            for other in ("spark-01", "spark-02", "spark-03")
            if other != host
        ]
        assert all(address not in text.splitlines() for text in others)


def test_only_the_head_serves(ring):
    found = files(ring)
    assert [name for name in found if name.endswith("vllm.yaml")] == ["spark-01/etc/sparkthor/vllm.yaml"]
    assert sum(name.endswith("sparkthor-ray.service") for name in found) == 3
    serving = yaml.safe_load(found["spark-01/etc/sparkthor/vllm.yaml"])
    assert serving["pipeline-parallel-size"] == 3


def test_without_ray_every_host_has_its_rank(tmp_path, inventory):
    done = render(tmp_path, inventory)
    assert done.returncode == 0, done.stdout + done.stderr
    told = "ranks started by mp, without Ray (assumed): nvcr.io/nvidia/vllm:26.10-py3 has no Ray"
    assert told in " ".join(done.stdout.split()), done.stdout
    found = files(tmp_path)
    for ending in ("/vllm.yaml", "/group.json", "/sparkthor-vllm.service"):
        assert sum(name.endswith(ending) for name in found) == 3, ending
    assert not [name for name in found if name.endswith(("sparkthor-ray.service", "/ray.env", "/ray.json"))]


def test_no_secret_is_rendered_and_none_is_made(ring, inventory):
    assert not [name for name in files(ring) if "/secrets/" in name or name.endswith(("keys.conf", ".key"))]
    assert not (inventory / ".secrets").exists()


def test_the_second_run_changes_nothing_and_check_mode_writes_nothing(ring, inventory, tmp_path):
    again = render(ring, inventory, *BY_RAY)
    assert again.returncode == 0, again.stdout
    assert all(
        "changed=0" in line for line in again.stdout.splitlines() if line.startswith("spark-0") and "ok=" in line
    )
    checked = render(tmp_path / "nothing", inventory, *BY_RAY, "--check", "--diff")
    assert checked.returncode == 0, checked.stdout
    assert "spark-03:/etc/netplan/40-cx7.yaml" in checked.stdout
    assert not (tmp_path / "nothing").exists()


def test_a_bad_inventory_is_refused_before_a_file_is_written(tmp_path):
    path = tmp_path / "hosts.yml"
    path.write_text(
        yaml.safe_dump(
            {
                "cluster": {
                    "children": {"ray_head": {"hosts": {"a": {}}}, "ray_workers": {"hosts": {"b": {}}}},
                    "vars": {"fabric_topology": "ring", "fabric_cidr": "10.100.0.0/24"},
                }
            }
        )
    )
    done = render(tmp_path / "out", path)
    assert done.returncode != 0
    assert "fabric_topology is ring with 2 hosts: a ring joins at least 3 hosts" in done.stdout
    assert not (tmp_path / "out").exists()


#: systemd reads what is in double quotes as a shell does
VALUE = '{"a": "$b \\n`"}'


def test_the_units_are_those_of_the_engine_that_is_named(tmp_path):
    inventory = TOP / "inventories" / "3spark_ring"
    units = ("sparkthor-ray.service", "sparkthor-vllm.service")
    engines = (
        (
            {"engine_runtime": "venv", "engine_venv_path": "/srv/engine"},
            ("--without=RAY_ADDRESS -- /srv/engine/bin/ray start", "exec /srv/engine/bin/vllm serve"),
            "/srv/engine/bin/python",
            False,
        ),
        (
            {"engine_runtime": "container", "engine_image": "reg.io/vllm:1.0"},
            ("ExecStart=+/usr/bin/python3 -IB /usr/local/lib/sparkthor/sparkthor_host container run ",) * 2,
            "/usr/bin/python3",
            True,
        ),
    )
    for settings, starts, program, docker in engines:
        dest = tmp_path / settings.get("engine_runtime", "venv")
        settings |= {"ray_node_env": {"RAY_X": VALUE}, "vllm_serve_executor": "ray"}
        done = render(dest, inventory, "-e", json.dumps(settings))
        assert done.returncode == 0, done.stdout + done.stderr
        for name, start in zip(units, starts, strict=True):
            unit = (dest / "spark-01/etc/systemd/system" / name).read_text()
            assert start in unit, name
            assert ("docker.service" in unit) is docker, name
            assert "/opt/sparkthor/venv" not in unit, name
        assert json.loads((dest / "spark-02/etc/sparkthor/ray.json").read_text())["engine"][0] == program
        given = (dest / "spark-01/etc/sparkthor/ray.env").read_text().splitlines()
        assert 'RAY_X="{\\"a\\": \\"\\$b \\\\n\\`\\"}"' in given, given


def test_each_of_many_hosts_has_its_own(tmp_path):
    names = [f"spark-{number:02d}" for number in range(1, 9)]
    wide = {
        "fabric_topology": "switch",
        "fabric_cidr": "10.100.0.0/16",
        "vllm_serve_model": "/models/m",
        "vllm_serve_tensor_parallel_size": 1,
        "vllm_serve_pipeline_parallel_size": len(names),
        "nccl_conf_settings": {"NCCL_A": "1", "NCCL_B": 2},
    }
    workers: dict[str, dict[str, object]] = {name: {} for name in names[1:]}
    groups = {"ray_head": {"hosts": {names[0]: {}}}, "ray_workers": {"hosts": workers}}
    path = tmp_path / "hosts.yml"
    path.write_text(
        yaml.safe_dump({"cluster": {"children": groups, "vars": wide}, "sparks": {"children": {"cluster": {}}}})
    )
    done = render(tmp_path / "out", path)
    assert done.returncode == 0, done.stdout + done.stderr
    found = files(tmp_path / "out")
    addresses = {
        line
        for name in names
        for line in found[f"{name}/etc/sparkthor/fabric.env"].splitlines()
        if line.startswith("VLLM_HOST_IP=")
    }
    assert len(addresses) == len(names)
    nccl = "# Ansible managed: sparkthor.cluster\nNCCL_A=1\nNCCL_B=2\n"
    assert {found[f"{name}/etc/nccl.conf"] for name in names} == {nccl}
    again = render(tmp_path / "out", path)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "changed=1" not in again.stdout


def shared(folder: Path, **beside: object) -> Path:
    """The inventory of three Sparks with a group beside the large one."""
    copy = shutil.copytree(TOP / "inventories/3spark", folder, ignore=shutil.ignore_patterns(".secrets"))
    embed = {"host": "spark-01", "vllm_serve_recipe": "qwen3-embedding-0.6b", "vllm_serve_max_model_len": 8192}
    hosts = {f"spark-0{number}": {} for number in (1, 2, 3)}
    more = {"serving_groups": ["big"], "serving_beside": {"embed": {**embed, **beside}}}
    group = {"children": {"big": {"hosts": hosts}}, "vars": more}
    (copy / "more.yml").write_text(json.dumps({"cluster": group}), encoding="utf-8")
    return copy


def test_a_small_model_beside_a_large_one(tmp_path):
    done = render(tmp_path / "out", shared(tmp_path / "inventory"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "sparkthor: memory of spark-01: " in done.stdout
    found = files(tmp_path / "out")
    assert [name for name in found if "embed" in name and name.endswith("vllm.yaml")] == [
        "spark-01/etc/sparkthor/beside/embed/vllm.yaml"
    ]
    own = yaml.safe_load(found["spark-01/etc/sparkthor/vllm.yaml"])
    embed = yaml.safe_load(found["spark-01/etc/sparkthor/beside/embed/vllm.yaml"])
    assert 0.8 < own["gpu-memory-utilization"] + embed["gpu-memory-utilization"] <= 0.851
    assert embed["kv-cache-memory-bytes"] > 2**30
    assert '"~^qwen3-embedding-0.6b$" "embed ' in found["spark-01/etc/sparkthor/front/names.conf"].replace("\\", "")


def test_a_group_that_does_not_fit_beside_another_is_refused_before_any_host(tmp_path):
    wanted = {"vllm_serve_args": {"kv-cache-memory-bytes": 60 * 2**30}}
    done = render(tmp_path / "out", shared(tmp_path / "inventory", **wanted))
    assert done.returncode != 0
    text = " ".join(done.stdout.split())
    for words in ("Nothing was changed", "does not fit", "It shares spark-01 with embed 63.", "cache 60.0 GiB"):
        assert words in text
    done = render(tmp_path / "out", shared(tmp_path / "other", host="spark-02"))
    assert "spark-02 is not the head of a serving group" in " ".join(done.stdout.split())
