# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One live fault at a time on a sound ring of three: the doctor names it, where it is, and nothing else.

Faults of the machine (a process, a unit, a file, a memory reading) are laid in place; those of cables and power by the
lab.  What a host without GPUs cannot do for real (a raylet, an engine) is a process of that name with its arguments.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tools import leaks

A, B, C = "spark-01", "spark-02", "spark-03"

RAY_ENV = "RAY_AUTH_MODE=token RAY_memory_monitor_refresh_ms=0"
#: a program that does nothing, under the name of another: name and arguments are what the doctor reads
IDLE = "mkdir -p /opt/x; printf '#!/usr/bin/python3\\nimport time\\ntime.sleep(600)\\n' >{0}; chmod +x {0}; "
STOP = "kill $(cat /run/act.pid); rm -rf /run/act.pid /opt/x; true"


def start(command: str, environment: str = "", inside: str = "") -> str:
    """A shell line that leaves a process with this command line behind; ``inside`` is done in its own mount space."""
    program = IDLE.format(command.split()[0])
    run = f"unshare -m bash -c '{inside}; exec {command}'" if inside else f"env {environment} {command}"
    return f"{program} nohup {run} </dev/null >/dev/null 2>&1 & echo $! >/run/act.pid; sleep 0.7"


def unit(name: str, body: str, *, begin: str) -> str:
    return f"printf '{body}' >/etc/systemd/system/{name}; systemctl daemon-reload; {begin}"


def no_unit(name: str) -> str:
    return (
        f"systemctl disable --now {name} 2>/dev/null; rm -f /etc/systemd/system/{name}; systemctl daemon-reload; "
        f"systemctl reset-failed {name} 2>/dev/null; true"
    )


def config(**options: Any) -> str:
    """vllm.yaml of a sound start, with these options changed."""
    base = {"model": "/var/lib/sparkthor/models/m", "uds": "/run/x", "gpu-memory-utilization": 0.85}
    text = json.dumps({**base, **{key.replace("_", "-"): value for key, value in options.items()}})
    return (
        f"mkdir -p /etc/sparkthor /var/lib/sparkthor/models/m; echo '{text}' >/etc/sparkthor/vllm.yaml; "
        "echo '{}' >/var/lib/sparkthor/models/m/config.json"
    )


NO_CONFIG = "rm -rf /etc/sparkthor/vllm.yaml /var/lib/sparkthor/models/m"
ON_ALL = "mkdir -p /var/lib/sparkthor/models/m; echo '{}' >/var/lib/sparkthor/models/m/config.json"

SHAPE = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "vocab_size": 151936,
    "max_position_embeddings": 262144,
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}


def shaped(size: int) -> str:
    return f"{config(tensor_parallel_size=size, distributed_executor_backend='ray')}; " + (
        f"echo '{json.dumps(SHAPE)}' >/var/lib/sparkthor/models/m/config.json"
    )


def distribution(**versions: str) -> str:
    lines = "".join(f"mkdir -p $S/{name}-{version}.dist-info; " for name, version in versions.items())
    return f"S=/opt/sparkthor/venv/lib/python3.12/site-packages; mkdir -p $S; {lines}"


NO_ENGINE = "rm -rf /opt/sparkthor/venv"
FAILING = "[Service]\\nExecStart=/bin/false\\n[Install]\\nWantedBy=multi-user.target\\n"


@dataclass(frozen=True)
class Fault:
    rule: str
    host: str
    make: str
    undo: str
    #: the same on all hosts beforehand, where the fault is that one differs
    before: str = ""
    after: str = ""
    hosts: tuple[str, ...] = ()

    @property
    def places(self) -> list[tuple[str, tuple[str, ...]]]:
        return [(self.rule, self.hosts or (self.host,))]


CONF = "/etc/nccl.conf"
ENV = "/etc/sparkthor/fabric.env"
KEEP = f"cp -p {ENV} /run/fabric.env"
GIVE_BACK = f"cp -p /run/fabric.env {ENV}"
IB = "/sys/class/infiniband/rocep1s0f0"
HUB = "/var/lib/sparkthor/cache/huggingface/hub/models--a--b"

FAULTS = [
    # NCCL and its files
    Fault("nccl-ib-disabled", B, f"echo NCCL_IB_DISABLE=1 >>{CONF}", f"rm {CONF}"),
    Fault("nccl-line-ineffective", C, f"echo ' NCCL_DEBUG=INFO' >>{CONF}", f"rm {CONF}"),
    Fault("gid-moved", A, f"echo NCCL_IB_GID_INDEX=5 >>{CONF}", f"rm {CONF}"),
    Fault(
        "nccl-ib-disabled-engine",
        B,
        start("/opt/x/vllm serve m --uds /run/x", "NCCL_IB_DISABLE=1"),
        STOP,
    ),
    Fault(
        "nccl-ib-disabled-engine",
        C,
        "cp -a /etc /run/image-etc; echo NCCL_IB_DISABLE=1 >/run/image-etc/nccl.conf; "
        + start("/opt/x/vllm serve m --uds /run/x", inside="mount --bind /run/image-etc /etc"),
        f"{STOP}; rm -rf /run/image-etc",
    ),
    Fault("hostname-on-loopback", A, f"{KEEP}; sed -i /GLOO_SOCKET_IFNAME/d {ENV}", GIVE_BACK),
    Fault(
        "nic-name-absent", B, f"{KEEP}; sed -i s/^NCCL_SOCKET_IFNAME=.*/NCCL_SOCKET_IFNAME==enp9s9/ {ENV}", GIVE_BACK
    ),
    Fault("environment-differs", C, f"{KEEP}; echo NCCL_PROTO=Simple >>{ENV}", GIVE_BACK),
    # the network of a host
    Fault(
        "mtu-mismatch",
        B,
        "ip link set enp1s0f0np0 mtu 1500",
        "ip link set enp1s0f0np0 mtu 9000",
        hosts=(B, C),
    ),
    Fault(
        "address-missing",
        A,
        "ip address del 10.100.0.1/24 dev enp1s0f0np0",
        "ip address add 10.100.0.1/24 dev enp1s0f0np0",
        hosts=(A, B),
    ),
    Fault(
        "address-twice",
        C,
        "ip address add 10.100.0.1/32 dev enp1s0f0np0",
        "ip address del 10.100.0.1/32 dev enp1s0f0np0",
        hosts=(A, C),
    ),
    Fault(
        "same-subnet",
        C,
        "ip address add 10.55.0.1/24 dev enp1s0f0np0; ip address add 10.55.0.2/24 dev enP2p1s0f0np0",
        "ip address del 10.55.0.1/24 dev enp1s0f0np0; ip address del 10.55.0.2/24 dev enP2p1s0f0np0",
    ),
    Fault(
        "foreign-route",
        A,
        "ip route add 10.100.0.0/24 via 10.100.0.1 dev enp1s0f0np0 metric 100",
        "ip route del 10.100.0.0/24 via 10.100.0.1 dev enp1s0f0np0 metric 100",
    ),
    Fault(
        "link-speeds-mixed",
        B,
        f"echo '40 Gb/sec (4X QDR)' >{IB}/ports/1/rate",
        f"echo '200 Gb/sec (4X HDR)' >{IB}/ports/1/rate",
    ),
    Fault("rdma-device-missing", C, f"mv {IB} /var/tmp/ib", f"mv /var/tmp/ib {IB}"),
    Fault(
        "docker-forward-drop",
        B,
        "iptables -P FORWARD DROP; iptables -N DOCKER-USER; iptables -A FORWARD -j DOCKER-USER",
        "iptables -F FORWARD; iptables -X DOCKER-USER; iptables -P FORWARD ACCEPT",
        hosts=(A, B),
    ),
    # the host
    Fault(
        "desktop-running",
        A,
        unit(
            "display-manager.service",
            "[Service]\\nExecStart=/bin/sleep 600\\n",
            begin="systemctl start display-manager.service",
        ),
        no_unit("display-manager.service"),
    ),
    # a file system of its own in memory: a host's disk is a sparse file, and filling it would fill the machine's
    Fault(
        "disk-full",
        B,
        "mkdir -p /var/lib/docker; mount -t tmpfs -o size=8m none /var/lib/docker; "
        "head -c 8300000 /dev/zero >/var/lib/docker/fill || true",
        "umount /var/lib/docker; rmdir /var/lib/docker || true",
    ),
    Fault(
        "disk-read-only",
        B,
        "mount -t tmpfs -o ro,size=8m none /var/lib/docker",
        "umount /var/lib/docker",
    ),
    Fault(
        "versions-differ",
        C,
        "printf 'DGX_OTA_VERSION=\"7.5.0\"\\n' >>/etc/dgx-release",
        "sed -i '$d' /etc/dgx-release",
    ),
    Fault(
        "memlock-limited",
        B,
        unit(
            "sparkthor-ray.service",
            "[Service]\\nExecStart=/bin/sleep 600\\nLimitMEMLOCK=8388608\\n",
            begin="systemctl start sparkthor-ray.service",
        ),
        no_unit("sparkthor-ray.service"),
    ),
    Fault(
        "unit-down",
        C,
        unit("sparkthor-ray.service", FAILING, begin="systemctl enable --now sparkthor-ray.service || true; sleep 0.5"),
        no_unit("sparkthor-ray.service"),
    ),
    # Ray
    Fault(
        "ray-wrong-nic",
        B,
        start("/opt/x/raylet --node_ip_address=10.100.0.2", RAY_ENV),
        STOP,
    ),
    Fault("ray-object-store", A, start("/opt/x/raylet --object_store_memory=38654705664", RAY_ENV), STOP),
    Fault("ray-memory-monitor", B, start("/opt/x/raylet --x", "RAY_AUTH_MODE=token"), STOP),
    Fault("ray-without-token", C, start("/opt/x/raylet --x", "RAY_memory_monitor_refresh_ms=0"), STOP),
    Fault(
        "ray-gpus-invented",
        A,
        start("/opt/x/raylet --static_resource_list=CPU,20,GPU,4,memory,1000", RAY_ENV),
        STOP,
    ),
    Fault(
        "ray-token-differs",
        C,
        "mkdir -p /etc/sparkthor/secrets; echo another-token-of-some-length >/etc/sparkthor/secrets/ray_token",
        "true",
        before="mkdir -p /etc/sparkthor/secrets; echo the-token-of-this-cluster >/etc/sparkthor/secrets/ray_token",
        after="rm -rf /etc/sparkthor/secrets",
    ),
    Fault(
        "ray-dashboard-open",
        A,
        "cd /run; nohup python3 -m http.server 8265 </dev/null >/dev/null 2>&1 & echo $! >/run/act.pid; sleep 1",
        STOP,
    ),
    # the engine and what it is given
    Fault(
        "engine-versions-differ",
        B,
        distribution(vllm="0.26.0") + "rm -rf $S/vllm-0.32.0.dist-info",
        "true",
        before=distribution(vllm="0.32.0", ray="2.60.0", torch="2.13.0"),
        after=NO_ENGINE,
    ),
    Fault(
        "ray-missing",
        B,
        "rm -rf /opt/sparkthor/venv/lib/python3.12/site-packages/ray-2.60.0.dist-info; "
        + "echo '{\"nodes\": []}' >/etc/sparkthor/ray.json",
        "rm /etc/sparkthor/ray.json",
        before=distribution(vllm="0.32.0", ray="2.60.0", torch="2.13.0"),
        after=NO_ENGINE,
    ),
    Fault("utilization-too-high", A, config(gpu_memory_utilization=0.95), "true", ON_ALL, NO_CONFIG),
    Fault("tool-parser-alone", A, config(tool_call_parser="hermes"), "true", ON_ALL, NO_CONFIG),
    Fault("quantization-nvfp4", A, config(quantization="nvfp4"), "true", ON_ALL, NO_CONFIG),
    Fault("option-gone", A, config(swap_space=0), "true", ON_ALL, NO_CONFIG),
    Fault("eager-enforced", A, config(enforce_eager=True), "true", ON_ALL, NO_CONFIG),
    Fault("executor-not-named", A, config(pipeline_parallel_size=3), "true", ON_ALL, NO_CONFIG),
    Fault("heads-indivisible", A, shaped(3), "true", ON_ALL, NO_CONFIG),
    Fault("fp8-block-indivisible", A, shaped(4), "true", ON_ALL, NO_CONFIG),
    Fault(
        "think-swallowed",
        A,
        distribution(vllm="0.11.0", ray="2.60.0", torch="2.13.0")
        + "mkdir -p /var/lib/sparkthor/models/Qwen3-30B-A3B-Thinking-2507; "
        + "echo '{}' >/var/lib/sparkthor/models/Qwen3-30B-A3B-Thinking-2507/config.json; "
        + config(model="/var/lib/sparkthor/models/Qwen3-30B-A3B-Thinking-2507", reasoning_parser="qwen3"),
        "true",
        before="mkdir -p /var/lib/sparkthor/models/Qwen3-30B-A3B-Thinking-2507",
        after=f"{NO_CONFIG}; {NO_ENGINE}; rm -rf /var/lib/sparkthor/models/Qwen3-30B-A3B-Thinking-2507",
    ),
    Fault(
        "api-key-empty",
        A,
        "mkdir -p /etc/sparkthor/secrets; echo >/etc/sparkthor/secrets/api_key",
        "rm -rf /etc/sparkthor/secrets",
    ),
    Fault("api-open", B, start("/opt/x/vllm serve m --host 0.0.0.0 --port 5000"), STOP),
    # models
    Fault(
        "hub-links-broken",
        C,
        f"mkdir -p {HUB}/snapshots/0a {HUB}/refs; ln -s ../../blobs/3f2c {HUB}/snapshots/0a/model.safetensors",
        f"rm -rf {HUB}",
    ),
    Fault(
        "revision-differs",
        B,
        f"printf 2222222 >{HUB}/refs/main",
        "true",
        before=f"mkdir -p {HUB}/refs; printf 1111111 >{HUB}/refs/main",
        after=f"rm -rf {HUB}",
    ),
    Fault(
        "answers-wrong",
        A,
        """mkdir -p /run/sparkthor; echo '{"answers": {"asked": 4, "right": 0, "wrong": "!!!"}}' """
        ">/run/sparkthor/state.json",
        "rm /run/sparkthor/state.json",
    ),
    Fault("model-absent", B, "rm -r /var/lib/sparkthor/models/m", "true", ON_ALL + f"; {config()}", NO_CONFIG),
    # a log line, as it comes from the kernel or a unit
    Fault(
        "no-kernel-image",
        # not A, whose journal keeps the line for the next unit of that name
        C,
        unit(
            "sparkthor-vllm.service",
            '[Service]\\nExecStart=/bin/sh -c "echo RuntimeError: CUDA error: no kernel image is available for '
            'execution on the device; exit 1"\\n[Install]\\nWantedBy=multi-user.target\\n',
            begin="systemctl enable --now sparkthor-vllm.service || true; sleep 0.5",
        ),
        no_unit("sparkthor-vllm.service"),
    ),
]


@pytest.fixture
def far_route(cluster: Any) -> Iterator[None]:
    """A reaches the subnet between B and C through B."""
    cluster.run(A, "ip route add 10.100.2.0/24 via 10.100.0.2 dev enp1s0f0np0")
    yield
    cluster.run(A, "ip route del 10.100.2.0/24 via 10.100.0.2 dev enp1s0f0np0")


def test_nothing_on_a_healthy_cluster(diagnose: Callable[..., Any]) -> None:
    answer = diagnose()
    assert answer.doctor["findings"] == [], answer.output
    assert answer.doctor["notes"] == []
    assert answer.rc == 0
    assert set(answer.doctor["hosts"]) == {A, B, C}
    print(f"\nhealthy: {answer.seconds:.1f} s")


@pytest.mark.parametrize("fault", FAULTS, ids=[f"{fault.rule}-{fault.host[-2:]}" for fault in FAULTS])
def test_a_fault_is_named_and_nothing_else(
    fault: Fault, diagnose: Callable[..., Any], laid: Callable[..., Any], cluster: Any, request: Any
) -> None:
    if fault.rule == "docker-forward-drop":
        request.getfixturevalue("far_route")
    with contextlib.ExitStack() as stack:
        if fault.before:
            for host in cluster.hosts:
                stack.enter_context(laid(host, fault.before, fault.after))
        stack.enter_context(laid(fault.host, fault.make, fault.undo))
        answer = diagnose()
    assert answer.places == fault.places, answer.output
    finding = answer.doctor["findings"][0]
    assert finding["evidence"]
    assert finding["source"]
    print(f"\n{fault.rule}: {answer.seconds:.1f} s: {finding['evidence'][0]}")


# --- cables, memory, power: faults that the lab lays ------------------------------------------------------------------


def test_half_a_cable(diagnose: Callable[..., Any], cluster: Any) -> None:
    cluster.lab.cut(B, "enP2p1s0f0np0")
    try:
        answer = diagnose()
    finally:
        cluster.lab.fix(B, "enP2p1s0f0np0")
    assert answer.places == [("half-cable", (B, C))], answer.output
    assert "enP2p1s0f0np0" in answer.output


def test_a_cable_is_out(diagnose: Callable[..., Any], cluster: Any) -> None:
    cluster.lab.cut(B, "enp1s0f0np0", "enP2p1s0f0np0")
    try:
        answer = diagnose()
    finally:
        cluster.lab.fix(B, "enp1s0f0np0", "enP2p1s0f0np0")
    assert answer.places == [("cable-down", (B, C))], answer.output


def test_a_link_with_a_carrier_and_nothing_else(diagnose: Callable[..., Any], cluster: Any) -> None:
    cluster.lab.cut(B, "enp1s0f0np0", silent=True)
    try:
        answer = diagnose()
    finally:
        cluster.lab.fix(B, "enp1s0f0np0")
    assert answer.places == [("link-silent", (B, C))], answer.output


def test_full_packets_vanish(diagnose: Callable[..., Any], cluster: Any) -> None:
    cluster.lab.blackhole(B, "enp1s0f0np0")
    try:
        answer = diagnose()
    finally:
        cluster.lab.blackhole(B, "enp1s0f0np0", on=False)
    assert answer.places == [("path-mtu", (B, C))], answer.output


def test_a_host_without_python(diagnose: Callable[..., Any], laid: Callable[..., Any]) -> None:
    with laid(B, "mv /usr/bin/python3 /usr/bin/python3.away", "mv /usr/bin/python3.away /usr/bin/python3"):
        answer = diagnose()
    assert answer.places == [("host-unreadable", (B,))], answer.output
    assert answer.doctor["hosts"][B]["state"] == "unreadable"


@contextlib.contextmanager
def memory(cluster: Any, host: str, **values: int) -> Iterator[None]:
    """/proc/meminfo of a host, in MiB."""
    path = cluster.lab.folder / "hosts" / host / "sys" / "meminfo"
    before = path.read_text()
    rows = dict(line.split(":", 1) for line in before.splitlines())
    rows.update({key: f" {value * 1024} kB" for key, value in values.items()})
    path.write_text("".join(f"{key}:{value}\n" for key, value in rows.items()))
    try:
        yield
    finally:
        path.write_text(before)


def test_swap_in_use(diagnose: Callable[..., Any], cluster: Any) -> None:
    with memory(cluster, B, SwapFree=9000):
        answer = diagnose()
    assert answer.places == [("swap-in-use", (B,))], answer.output


def test_memory_below_utilization(diagnose: Callable[..., Any], laid: Callable[..., Any], cluster: Any) -> None:
    with contextlib.ExitStack() as stack:
        for host in cluster.hosts:
            stack.enter_context(laid(host, ON_ALL, NO_CONFIG))
        stack.enter_context(laid(A, config(), "true"))
        stack.enter_context(memory(cluster, C, MemFree=30_000, MemAvailable=60_000))
        answer = diagnose()
    assert answer.places == [("memory-below-utilization", (C,))], answer.output


def test_page_cache_pressure(diagnose: Callable[..., Any], laid: Callable[..., Any], cluster: Any) -> None:
    body = (
        "[Service]\\nExecStart=/bin/false\\nRestart=always\\nRestartSec=20\\n[Install]\\nWantedBy=multi-user.target\\n"
    )
    failing = unit(
        "sparkthor-vllm.service", body, begin="systemctl enable --now sparkthor-vllm.service || true; sleep 21.5"
    )
    with contextlib.ExitStack() as stack:
        for host in cluster.hosts:
            stack.enter_context(laid(host, ON_ALL, NO_CONFIG))
        stack.enter_context(laid(A, f"{config()}; {failing}", no_unit("sparkthor-vllm.service")))
        stack.enter_context(memory(cluster, A, MemFree=20_000, Cached=95_000, MemAvailable=115_000))
        answer = diagnose()
    assert answer.places == [("page-cache-pressure", (A,))], answer.output
    assert [item["rule"] for item in answer.doctor["findings"][0]["consequences"]] == ["unit-down"]


def test_secrets_do_not_leave_a_host(diagnose: Callable[..., Any], laid: Callable[..., Any]) -> None:
    secret = "S3CRET-S3CRET-S3CRET-S3CRET"
    make = "; ".join(
        (
            start(f"/opt/x/vllm serve m --host 0.0.0.0 --api-key {secret}"),
            f"mkdir -p /etc/sparkthor/secrets; echo {secret} >/etc/sparkthor/secrets/api_key",
        )
    )
    with laid(A, make, f"{STOP}; rm -rf /etc/sparkthor/secrets"):
        answer = diagnose("-vvv")
    assert answer.doctor["findings"] == [], answer.output
    assert leaks.shown(answer.output + json.dumps(answer.doctor), {"api_key": secret}) == []


def test_a_host_without_power(diagnose: Callable[..., Any], cluster: Any) -> None:
    cluster.lab.off(C)
    try:
        answer = diagnose()
        failing = diagnose("--extra-vars", "doctor_fail_on=error")
    finally:
        cluster.lab.boot(C)
        cluster.lab.wait(C)
    back = diagnose()
    assert answer.places == [("host-unreachable", (C,))], answer.output
    assert (answer.rc, failing.rc) == (0, 2)
    assert answer.doctor["hosts"][C]["state"] == "unreachable"
    # until its next orderly stop
    assert back.places == [("boot-cut", (C,))], back.output
    print(f"\none host off: {answer.seconds:.1f} s")


def test_all_hosts_without_power(diagnose: Callable[..., Any], cluster: Any) -> None:
    cluster.lab.off(A, B, C)
    try:
        answer = diagnose()
    finally:
        cluster.lab.boot(A, B, C)
        cluster.lab.wait(A, B, C)
    assert answer.places == [("host-unreachable", (host,)) for host in (A, B, C)], answer.output
    # nobody was read, which is no diagnosis of the cluster
    assert answer.rc == 2
    print(f"\nall hosts off: {answer.seconds:.1f} s")
