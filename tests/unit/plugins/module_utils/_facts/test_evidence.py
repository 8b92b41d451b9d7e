# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import base64
import json
import os
import stat
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._facts import evidence
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import gpu_state
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action import shape

SECRET = "S3CRET-S3CRET-S3CRET"
#: looks like nothing in particular: only a host that has it knows it
PLAIN = "correct-horse-battery"
CODED = base64.b64encode(f"user:{PLAIN}".encode()).decode()
KEY = "of-this-one-run"


def machine(root: Path) -> None:
    """A host's tree: what the collector reads, with secrets where they lie on a real one."""
    texts = {
        "etc/nccl.conf": "NCCL_IB_DISABLE=1\n NCCL_DEBUG=INFO\n",
        "etc/hosts": "127.0.1.1 box\n",
        "etc/sparkthor/vllm.yaml": f"model: /var/lib/sparkthor/models/m\napi-key: [{SECRET}]\n",
        "etc/sparkthor/secrets/api_key": SECRET + "\n",
        "etc/sparkthor/secrets/ray_token": "\n",
        "etc/sparkthor/secrets/hf_token": PLAIN + "\n",
        "proc/meminfo": "MemTotal: 125526016 kB\nSwapTotal: 4 kB\nCmaTotal: 0 kB\n",
        "proc/sys/net/ipv4/ip_forward": "1\n",
        "proc/41/cmdline": f"/usr/bin/python3\0/opt/x/vllm\0serve\0m\0--api-key\0{SECRET}\0--port\0005000\0",
        "proc/41/environ": f"NCCL_IB_DISABLE=1\0VLLM_API_KEY={SECRET}\0HF_TOKEN={SECRET}\0PATH=/bin\0",
        "proc/41/limits": "Limit  Soft  Hard\nMax locked memory         65536    65536    bytes\n",
        "proc/41/root/etc/nccl.conf": "NCCL_IB_DISABLE=0\n",
        "proc/42/cmdline": "/bin/bash\0",
        "var/lib/sparkthor/models/m/config.json": json.dumps({"num_attention_heads": 32}),
        "var/lib/sparkthor/models/.records/m.json": json.dumps({"config.json": [5, 1, "aa"]}),
        "var/lib/sparkthor/ray/t/session_latest/logs/raylet.out": "x\n" * 10,
        "var/lib/sparkthor/ray/t/session_latest/logs/dashboard.log": "y\n",
    }
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    hub = root / "root/.cache/huggingface/hub/models--a--b"
    (hub / "snapshots/0a").mkdir(parents=True)
    (hub / "refs").mkdir()
    (hub / "refs/main").write_text("abc\n")
    os.symlink("../../blobs/gone", hub / "snapshots/0a/model.safetensors")


UNITS = """\
Id=sparkthor-vllm.service
Names=sparkthor-vllm.service
LoadState=loaded
ActiveState=failed
SubState=failed

Id=sparkthor-ray.service
Names=sparkthor-ray.service
LoadState=loaded
ActiveState=active
SubState=running
InvocationID=77aa

Id=gdm.service
Names=gdm.service display-manager.service
LoadState=loaded
ActiveState=active
"""


class Runs:
    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def __call__(self, argv: list[str]) -> tuple[int, str, str]:
        self.calls.append(argv)
        match argv:
            case ["systemctl", "show", *_rest]:
                return 0, UNITS, ""
            case ["systemctl", "get-default"]:
                return 0, "graphical.target\n", ""
            case ["ss", *_rest]:
                return (
                    0,
                    'LISTEN 0 5 0.0.0.0:8265 0.0.0.0:* users:(("python3",pid=9,fd=3))\nLISTEN 0 5 [::1]:22 [::]:*\n',
                    "",
                )
            case ["iptables", *_rest]:
                return 0, "-P FORWARD DROP\n-A FORWARD -j DOCKER-USER\n", ""
            case ["journalctl", *_rest]:
                return 0, f"starting with --api-key {SECRET}\nsaw {PLAIN} and {CODED}\n", ""
        return 127, "", "not installed"


def collect(root: Path) -> tuple[dict, Runs]:
    runs = Runs()
    collector = evidence.Collector(runs, str(root), clock=lambda: 2_000_000_000.0, key=KEY)
    return collector.collect(), runs


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a link of another user")
def test_a_log_that_is_a_link_shows_nothing_else(tmp_path: Path) -> None:
    machine(tmp_path)
    (tmp_path / "shadow").write_text("root:hash:")
    planted = tmp_path / "var/lib/sparkthor/ray/t/session_latest/logs/raylet.err"
    planted.symlink_to(tmp_path / "shadow")
    os.chown(planted, 65534, 65534, follow_symlinks=False)
    os.utime(tmp_path / "shadow", (2e9, 2e9))
    os.mkfifo(planted.with_name("worker-1.err"))
    seen, _runs = collect(tmp_path)
    assert "root:hash:" not in json.dumps(seen)


def planted(path: Path, target: Path | str) -> None:
    """A link of another user's."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(target)
    os.chown(path, 65534, 65534, follow_symlinks=False)


@pytest.mark.skipif(os.geteuid() != 0, reason="makes files of another user")
def test_nothing_that_users_lay_in_the_way_leads_to_a_secret_or_blocks(tmp_path: Path) -> None:
    """Secrets that no mask knows: they must not be read at all."""
    machine(tmp_path)
    hidden = tmp_path / "srv/hidden"
    hidden.mkdir(parents=True)
    (hidden / "main").write_text("of-root-alone")
    (hidden / "config.json").write_text('{"of-root-alone": 1}')
    (hidden / "raylet.out").write_text("of-root-alone\n")
    (hidden / "nccl.conf").write_text("NCCL_SECRET_THING=of-root-alone\n")
    for path in hidden.iterdir():
        path.chmod(0o600)
        os.utime(path, (2e9, 2e9))
    home = tmp_path / "home/eve/.cache/huggingface/hub"
    for name in ("link", "pipe", "hard", "device", "folder", "memory", "giant"):
        (home / f"models--{name}" / "refs").mkdir(parents=True)
    planted(home / "models--link/refs/main", hidden / "main")
    os.mkfifo(home / "models--pipe/refs/main")
    os.link(hidden / "main", home / "models--hard/refs/main")
    os.mknod(home / "models--device/refs/main", 0o666 | stat.S_IFCHR, os.makedev(1, 5))
    (home / "models--folder/refs/main").mkdir()
    planted(home / "models--memory/refs/main", "/proc/self/mem")
    with open(home / "models--giant/refs/main", "wb") as stream:
        stream.truncate(1 << 40)
    planted(home / "models--elsewhere", hidden)
    planted(home / "models--link/refs/other", hidden / "nothing-there")
    for path in home.rglob("*"):
        if not path.is_symlink() and path.name != "main":
            os.chown(path, 65534, 65534)
    # a whole cache that is a link, and the served model's configuration
    (tmp_path / "srv/huggingface/hub/models--private").mkdir(parents=True)
    planted(tmp_path / "home/mallory/.cache", tmp_path / "srv")
    planted(tmp_path / "var/lib/sparkthor/models/m/config.json", hidden / "config.json")
    # a process's own root folder, Ray's session, and the state that a service writes
    (tmp_path / "proc/41/status").write_text("Name:\tx\nUid:\t65534\t65534\t65534\t65534\n")
    planted(tmp_path / "proc/41/root/etc/nccl.conf", hidden / "nccl.conf")
    (hidden / "logs").mkdir()
    os.link(hidden / "raylet.out", hidden / "logs/raylet.out")
    planted(tmp_path / "tmp/ray/session_latest", hidden)
    planted(tmp_path / "run/sparkthor/watchdog/state.json", hidden / "config.json")
    seen, _runs = collect(tmp_path)
    assert "of-root-alone" not in json.dumps(seen)
    assert seen["errors"] == []
    models = {model["name"]: model for model in seen["models"]}
    assert "models--link" in models
    assert not {"models--elsewhere", "models--private"} & set(models)
    assert {models[f"models--{name}"]["revision"] for name in ("link", "pipe", "hard", "device", "folder")} == {""}
    # not even whether something is there is asked outside of the model's folder
    assert models["models--link"]["broken"] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="makes files of another user")
def test_a_mount_in_a_process_own_root_folder_shows_no_file_of_roots(tmp_path: Path) -> None:
    """No link, but a file that its user may not read: he has mounted it there."""
    machine(tmp_path)
    (tmp_path / "proc/41/status").write_text("Uid:\t65534\t65534\t65534\t65534\n")
    conf = tmp_path / "proc/41/root/etc/nccl.conf"
    conf.write_text("NCCL_SECRET_THING=of-root-alone\n")
    conf.chmod(0o640)
    assert "of-root-alone" not in json.dumps(collect(tmp_path)[0])
    conf.chmod(0o644)
    assert collect(tmp_path)[0]["processes"][0]["nccl_conf"] == {"NCCL_SECRET_THING": "of-root-alone"}


def test_every_part_is_masked(tmp_path: Path) -> None:
    machine(tmp_path)
    (tmp_path / "etc/hosts").write_text(f"127.0.1.1 box {SECRET}\n")
    (tmp_path / "etc/nccl.conf").write_text(f"NCCL_DEBUG={SECRET}\n{SECRET}=1\n")
    (tmp_path / "proc/41/environ").write_text(f"NCCL_NET={'x' * 290}{SECRET}\0VLLM_HOST_IP={PLAIN}\0")
    (tmp_path / "var/lib/sparkthor/models/m/config.json").write_text(
        json.dumps({"architectures": [SECRET], "note": {"HF_TOKEN": "hf-of-somebody"}})
    )
    (tmp_path / f"var/lib/sparkthor/models/{SECRET}").mkdir()
    seen, _runs = collect(tmp_path)
    text = json.dumps(seen)
    assert SECRET not in text
    assert SECRET[:10] not in text
    assert PLAIN not in text
    assert "hf-of-somebody" not in text


def test_a_machine_is_read_and_no_secret_leaves_it(tmp_path: Path) -> None:
    machine(tmp_path)
    seen, _runs = collect(tmp_path)
    assert seen["errors"] == []
    assert SECRET not in json.dumps(seen)
    assert "saw ******** and " in seen["logs"][0]["text"]
    assert CODED not in json.dumps(seen)
    assert seen["nccl"]["/etc/nccl.conf"]["settings"] == {"NCCL_IB_DISABLE": "1", " NCCL_DEBUG": "INFO"}
    assert [line["line"] for line in seen["nccl"]["/etc/nccl.conf"]["ineffective"]] == [2]
    assert seen["secrets"]["api_key"]["characters"] == len(SECRET)
    assert seen["secrets"]["ray_token"] == {"characters": 0, "fingerprint": ""}
    assert seen["memory"] == {"MemTotal": 125526016 << 10, "SwapTotal": 4096, "CmaTotal": 0}
    assert seen["forward"] == {"policy": "drop", "docker": True, "accepts": [], "ip_forward": True}
    assert [(item["address"], item["port"]) for item in seen["listeners"]] == [("0.0.0.0", 8265), ("::1", 22)]
    assert seen["units"]["display-manager.service"]["Id"] == "gdm.service"
    assert seen["served_model"]["config"] == {"num_attention_heads": 32}


def test_an_engine_process_is_told_without_its_secrets(tmp_path: Path) -> None:
    machine(tmp_path)
    seen, _runs = collect(tmp_path)
    (process,) = seen["processes"]
    assert (process["pid"], process["program"], process["memlock"]) == (41, "vllm", 65536)
    assert process["argv"][-3:] == ["********", "--port", "5000"]
    assert process["env"] == {"NCCL_IB_DISABLE": "1"}
    assert process["api_key"] == "set"
    assert process["nccl_conf"] == {"NCCL_IB_DISABLE": "0"}


def test_models_have_their_revision_and_links_that_lead_nowhere(tmp_path: Path) -> None:
    machine(tmp_path)
    seen, _runs = collect(tmp_path)
    by_name = {model["name"]: model for model in seen["models"]}
    assert by_name["models--a--b"]["broken"] == ["snapshots/0a/model.safetensors"]
    assert by_name["models--a--b"]["revision"] == "abc"
    assert by_name["m"]["revision"].startswith("sha256:")
    assert by_name["m"]["path"] == "/var/lib/sparkthor/models/m"
    store = tmp_path / "var/lib/sparkthor/models"
    (store / "tiny@0123456789abcdef").mkdir()
    (store / "tiny").symlink_to("tiny@0123456789abcdef")
    (store / ".records/tiny@0123456789abcdef.json").write_text('{"config.json": [2, 1, "00"]}')
    revised = [model for model in collect(tmp_path)[0]["models"] if model["name"].startswith("tiny")]
    assert [(model["name"], model["revision"][:7]) for model in revised] == [("tiny", "sha256:")]
    assert revised[0]["folders"] == ["/var/lib/sparkthor/models/tiny@0123456789abcdef"]


def test_models_are_read_where_the_host_keeps_them(tmp_path: Path) -> None:
    machine(tmp_path)
    (tmp_path / "etc/sparkthor/cluster.json").write_text(
        json.dumps({"folders": {"models": "/data/m", "cache": "/data/c"}})
    )
    for folder in ("data/m/mine", "data/c/huggingface/hub/models--x--y"):
        (tmp_path / folder).mkdir(parents=True)
    seen, _runs = collect(tmp_path)
    found = {model["path"] for model in seen["models"] if not model["path"].startswith("/root/")}
    assert found == {"/data/m/mine", "/data/c/huggingface/hub/models--x--y"}
    (tmp_path / "etc/sparkthor/cluster.json").write_text("[]")
    seen, _runs = collect(tmp_path)
    assert "/var/lib/sparkthor/models/m" in {model["path"] for model in seen["models"]}


def test_the_disk_of_the_models_is_among_the_disks(tmp_path: Path) -> None:
    machine(tmp_path)
    # another file system than that of the tests' files
    (tmp_path / "data").symlink_to("/dev/shm")
    assert "/data" not in {disk["path"] for disk in collect(tmp_path)[0]["disks"]}
    (tmp_path / "etc/sparkthor/cluster.json").write_text(json.dumps({"folders": {"models": "/data"}}))
    assert "/data" in {disk["path"] for disk in collect(tmp_path)[0]["disks"]}


def test_a_unit_that_runs_is_asked_for_its_present_life_only(tmp_path: Path) -> None:
    machine(tmp_path)
    seen, runs = collect(tmp_path)
    journals = [call for call in runs.calls if call[0] == "journalctl"]
    assert any("_SYSTEMD_INVOCATION_ID=77aa" in call for call in journals)
    assert any("--unit=sparkthor-vllm.service" in call and "--since=-2h" in call for call in journals)
    assert "journal of sparkthor-ray.service" in {log["name"] for log in seen["logs"]}


def test_groups_beside_the_hosts_own_one_are_asked_for_as_well(tmp_path: Path) -> None:
    machine(tmp_path)
    for name, text in (
        ("etc/sparkthor/beside/embed/vllm.yaml", "api-key: sk-0123456789abcdef0123456789\nmodel: /m\n"),
        ("run/sparkthor/beside/embed/state.json", "{}"),
        ("var/lib/sparkthor/beside/embed/maintenance", "x"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    seen, runs = collect(tmp_path)
    assert (seen["files"]["beside/embed/state.json"], seen["files"]["beside/embed/maintenance"]) == ("{}", "x")
    config = seen["files"]["beside/embed/vllm.yaml"]
    assert "model: /m" in config
    assert "0123456789" not in config
    [shown] = [call for call in runs.calls if call[:2] == ["systemctl", "show"]]
    assert shown[-2:] == ["sparkthor-vllm-embed.service", "sparkthor-watchdog-embed.service"]


def test_nothing_that_is_run_changes_anything(tmp_path: Path) -> None:
    machine(tmp_path)
    before = sorted((str(path), path.lstat().st_mtime_ns) for path in tmp_path.rglob("*"))
    _seen, runs = collect(tmp_path)
    assert before == sorted((str(path), path.lstat().st_mtime_ns) for path in tmp_path.rglob("*"))
    readers = {"systemctl show", "systemctl get-default", "ss -Hltnp", "iptables -S", "journalctl --no-pager"}
    readers |= {"nvidia-smi -L", "nvidia-smi --query-gpu=driver_version", "ip -j", "ibdev2netdev", "rdma -j"}
    readers.add(" ".join(gpu_state.COMMAND[:2]))
    assert {" ".join(call[:2]) for call in runs.calls} <= readers


def test_the_served_model_is_found_in_one_line_of_json_too(tmp_path: Path) -> None:
    machine(tmp_path)
    text = json.dumps({"uds": "/run/x", "model": "/var/lib/sparkthor/models/m", "served-model-name": ["a"]})
    (tmp_path / "etc/sparkthor/vllm.yaml").write_text(text)
    seen, _runs = collect(tmp_path)
    assert seen["served_model"]["path"] == "/var/lib/sparkthor/models/m"
    assert seen["served_model"]["present"] is True


def test_another_engine_is_read_like_the_default_one(tmp_path: Path) -> None:
    machine(tmp_path)
    (tmp_path / "etc/sparkthor/vllm.yaml").unlink()
    (tmp_path / "etc/sparkthor/sglang.yaml").write_text("model-path: /var/lib/sparkthor/models/m\nport: 30000\n")
    (tmp_path / "opt/sparkthor/venv/lib/python3.12/site-packages/sglang-0.5.23.dist-info").mkdir(parents=True)
    seen, _runs = collect(tmp_path)
    assert seen["served_model"]["config"] == {"num_attention_heads": 32}
    assert seen["engine"]["versions"]["sglang"] == "0.5.23"
    assert "sglang.yaml" in seen["files"]


def test_the_nics_that_pci_shows(tmp_path: Path) -> None:
    assert collect(tmp_path)[0]["nic_pci"] is None
    devices = tmp_path / "sys/bus/pci/devices"
    devices.mkdir(parents=True)
    for name, vendor in (("0000:01:00.0", "0x15b3\n"), ("000f:01:00.0", "0x10de\n")):
        (tmp_path / "sys/devices" / name).mkdir(parents=True)
        (tmp_path / "sys/devices" / name / "vendor").write_text(vendor)
        (devices / name).symlink_to(f"../../../devices/{name}")
    told = collect(tmp_path)[0]
    assert told["nic_pci"] == ["0000:01:00.0"]


def test_an_empty_machine_is_an_answer(tmp_path: Path) -> None:
    seen, _runs = collect(tmp_path)
    assert seen["processes"] == []
    assert seen["models"] == []
    assert [error.split(":")[0] for error in seen["errors"]] == ["node"]


def test_a_command_that_hangs_is_not_taken_for_one_with_nothing_to_say(tmp_path: Path) -> None:
    machine(tmp_path)
    collector = evidence.Collector(lambda argv: (124, "", f"{argv[0]}: timeout after 10 s"), str(tmp_path))
    seen = collector.collect()
    assert seen["units"] == {}
    for command in ("systemctl show", "ss -Hltnp", "journalctl"):
        assert any(error.startswith(command) and "timeout after 10 s" in error for error in seen["errors"]), command
    assert len(seen["errors"]) == len(set(seen["errors"]))


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


@pytest.mark.parametrize("value", [nested(60), nested(900), nested(90_000), "NaN", "1e999", "9" * 30, '"\\ud800"'])
def test_no_model_makes_what_a_host_tells_useless(tmp_path: Path, value: str) -> None:
    machine(tmp_path)
    (tmp_path / "var/lib/sparkthor/models/m/config.json").write_text(f'{{"num_attention_heads": {value}}}')
    seen, _runs = collect(tmp_path)
    shape.bounded({"evidence": json.loads(json.dumps(seen))})
    assert seen["served_model"]["present"]
    assert seen["units"]


def test_no_name_of_a_folder_makes_what_a_host_tells_useless(tmp_path: Path) -> None:
    machine(tmp_path)
    folder = os.fsencode(tmp_path) + b"/root/.cache/huggingface/hub/models--\xff"
    os.makedirs(folder)
    os.symlink(b"gone\xfe", folder + b"/link\xfd")
    seen, _runs = collect(tmp_path)
    shape.bounded({"evidence": json.loads(json.dumps(seen))})
    assert [(model["name"], model["broken"]) for model in seen["models"] if "?" in model["name"]] == [
        ("models--?", ["link?"])
    ]
