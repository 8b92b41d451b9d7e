# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which transport NCCL used, read out of lines that people posted; what a rank prints; counters of a host."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._measure import collective

# NVIDIA/nccl-tests issue 185 (NCCL 2.19.3, RoCE)
ROCE = """dgxh100-4:460770:460770 [0] NCCL INFO Bootstrap : Using enp220s0np0:11.1.128.136<0>
dgxh100-4:460770:460842 [0] NCCL INFO NET/IB : Using [0]mlx5_10:1/RoCE [1]mlx5_11:1/RoCE [RO]; OOB \
enp220s0np0:11.1.128.136<0>
dgxh100-4:460770:460842 [0] NCCL INFO Using non-device net plugin version 0
dgxh100-4:460770:460842 [0] NCCL INFO Using network IB
"""
# NVIDIA/nccl-tests issue 188 (NCCL_IB_DISABLE=1)
SOCKET = """user:852750:852802 [0] NCCL INFO NCCL_IB_DISABLE set by environment to 1.
user:852750:852802 [0] NCCL INFO NET/Socket : Using [0]ibs85f0:192.168.1.14<0> [1]ib0:192.168.1.15<0>
user:852750:852802 [0] NCCL INFO Using network Socket
"""
# NVIDIA/nccl issue 226 (NCCL 2.4.7: no line about the network, IB without a device)
OLD_SOCKET = """ip-172-31-7-247:45553:45553 [0] NCCL INFO NET/Socket : Using [0]ens3:172.31.7.247<0>
ip-172-31-7-247:45553:45553 [0] NCCL INFO NET/Plugin : No plugin found (libnccl-net.so).
ip-172-31-10-182:45407:45407 [0] NCCL INFO NET/IB : No device found.
"""
# Mellanox/nv_peer_memory issue 56 (NCCL 2.4.7: both announced, IB is what is used)
OLD_IB = """master_node:20:289 [0] NCCL INFO NET/Socket : Using [0]ib0:192.168.11.1<0>
master_node:20:289 [0] NCCL INFO NCCL_IB_DISABLE set by environment to 0.
master_node:20:289 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB ; OOB ib0:192.168.11.1<0>
"""


@pytest.mark.parametrize(
    ("text", "network", "ports", "netdevs", "disabled"),
    [
        (ROCE, "IB", ["mlx5_10:1", "mlx5_11:1"], [], False),
        (SOCKET, "Socket", [], ["ibs85f0", "ib0"], True),
        (OLD_SOCKET, "Socket", [], ["ens3"], False),
        (OLD_IB, "IB", ["mlx5_0:1"], [], False),
        (ROCE + SOCKET, "mixed: IB, Socket", [], [], True),
        ("", "", [], [], False),
        ("Using network IB\n", "", [], [], False),
        # NCCL announces what it found before it decides
        (ROCE.replace("Using network IB", "Using network Socket"), "Socket", [], [], False),
    ],
)
def test_the_transport(text, network, ports, netdevs, disabled):
    found = collective.parse_nccl_log("noise\n" + text + "more noise\n")
    assert (found["network"], found["ports"], found["netdevs"], found["ib_disabled"]) == (
        network,
        ports,
        netdevs,
        disabled,
    )


def test_the_bootstrap_interface():
    assert collective.parse_nccl_log(ROCE)["bootstrap"] == "enp220s0np0"


def test_noise_costs_no_time():
    noise = "x" * 500 + " NCCL INFO Channel 00/32 : 0[0] -> 1[0] [send] via NET/IB/0\n"
    assert collective.parse_nccl_log(noise * 20000)["network"] == "IB"


def test_a_rank_that_prints_its_result():
    rows = [{"bytes": 8, "seconds": 1e-4, "gbytes": 1.0, "busbw_gbytes": 1.0}]
    out = SOCKET + collective.MARK + json.dumps({"backend": "nccl", "world": 2, "right": True, "rows": rows}) + "\n"
    found = collective.read_output(0, out)
    assert found["rows"] == rows
    assert found["log"]["network"] == "Socket"


@pytest.mark.parametrize(
    ("out", "words"),
    [
        ("Traceback\nRuntimeError: connectFullMesh failed\n[rank0] bye\n", "connectFullMesh"),
        ("a:1:1 [0] NCCL WARN Call to ibv_modify_qp failed\nRuntimeError: x\n", "ibv_modify_qp"),
        ("", "said nothing"),
        ("killed\n", "killed"),
        (f"{collective.MARK}[1]\nan engine that lies\n", "an engine that lies"),
        (f"{collective.MARK}{'[' * 100_000}{']' * 100_000}\nan engine that lies\n", "an engine that lies"),
    ],
)
def test_a_rank_that_dies_says_why(out, words):
    found = collective.read_output(1, out)
    assert words in found["error"]
    assert "rows" not in found


def test_an_engine_that_is_not_there():
    found = collective.run_rank(0, 1, "127.0.0.1", 1, ["/nonexistent/python"], "root", 8, 1, 1)
    assert "/nonexistent/python" in found["error"]


@pytest.mark.parametrize("user", ["sparkthor", ""])
def test_docker_s_client_gets_none_of_the_engine_s_variables(tmp_path, monkeypatch, user):
    (tmp_path / "engine.env").write_text("LD_PRELOAD=/evil.so\n")
    monkeypatch.setattr(collective.environment_file, "ENGINE", str(tmp_path / "engine.env"))
    monkeypatch.setattr(collective, "_as_user", lambda _user: {})
    told = []

    def started(_words, _limit, _program, environment, _account, **_more):
        told.append(environment.get("LD_PRELOAD"))
        raise FileNotFoundError(2, "not there")

    monkeypatch.setattr(collective, "run_alone", started)
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    assert "not there" in collective.run_rank(0, 1, "127.0.0.1", 1, ["x"], user, 8, 1, 1)["error"]
    # a rank of a venv is the serving user's
    assert told == ["/evil.so" if user else None]


def test_root_runs_no_engine_where_its_user_is_gone(monkeypatch):
    monkeypatch.setattr(collective.os, "geteuid", lambda: 0)
    found = collective.run_rank(0, 1, "127.0.0.1", 1, [sys.executable], "nobody-here", 8, 1, 1)
    assert "no user nobody-here" in found["error"]


def test_counters_of_netdevs_and_rdma_ports(tmp_path):
    for name, value in (("net/eth0/statistics/tx_bytes", "12"), ("net/lo/statistics/tx_bytes", "99")):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(value)
    port = tmp_path / "infiniband/rocep1s0f1/ports/1/counters"
    port.mkdir(parents=True)
    (port / "port_xmit_data").write_text("5\n")
    assert collective.counters(str(tmp_path)) == {"eth0": 12, "rocep1s0f1": 20}


def test_the_program_compiles():
    compile(collective.PROGRAM, "program", "exec")


def test_what_the_loaded_library_knows_is_read_out_of_its_file(tmp_path):
    library, other = tmp_path / "libnccl.so.2", tmp_path / "own.so"
    library.write_bytes(b"\x7fELF\0NCCL_ALGO\0NCCL_SKIP_TREE_CONNECT_OF_OTHERS\0")
    other.write_bytes(b"\0NCCL_SKIP_TREE_CONNECT\0")
    text = f"{collective.LIBRARIES}\nfile = open({str(library)!r}, 'rb')\n"
    text += "held = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)\nprint(libraries())"
    environment = {"NCCL_ALGO": "Ring", "NCCL_SKIP_TREE_CONNECT": "1", "VLLM_NCCL_SO_PATH": str(other)}
    done = subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str({str(library): ["NCCL_ALGO"], str(other): ["NCCL_SKIP_TREE_CONNECT"]})
    environment["VLLM_NCCL_SO_PATH"] = str(tmp_path / "gone.so")
    text = f"{collective.LIBRARIES}\nprint(libraries())"
    done = subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "{}"


def test_what_a_killed_client_leaves_is_ended(tmp_path):
    """Docker's client is killed at the limit; its container would stay."""
    ended = tmp_path / "ended"
    slow = [sys.executable, "-c", "import time; time.sleep(600)"]
    found = collective.run_rank(0, 1, "127.0.0.1", 1, slow, "", 8, 1, -29.5, ["touch", str(ended)])
    assert "no end after" in found["error"]
    assert ended.exists()
