# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The clusters of ``make gpu``, each an inventory of its own over that of ``inventories/gpu``.

Clusters that stand side by side share the machine's GPUs: one GPU for each host, and several hosts on a GPU. So what
is measured of one is measured while no other one computes; see suite.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tools.playbooks import TOP

BASE = TOP / "inventories" / "gpu"
#: below .lab, one folder for each cluster
FOLDER = TOP / ".lab" / "gpu-inventories"
#: what of a GPU one engine takes, where several share it
SHARE: Mapping[str, Any] = {"gpu-memory-utilization": 0.06, "kv-cache-memory-bytes": 6 << 30}
#: wheels of metadata alone, so that many hosts do not copy CUDA's libraries many times
THIN = {
    "engine_requirements": str(TOP / ".lab" / "gpu" / "thin.txt"),
    "engine_wheel_dir": str(TOP / ".lab" / "gpu" / "thin"),
}


@dataclass(frozen=True)
class Cluster:
    """Hosts by their GPU, what differs from ``inventories/gpu``, and what to call it in a table."""

    gpus: tuple[int, ...]
    title: str
    pipeline: int = 2
    tensor: int = 1
    executor: str = "ray"
    args: Mapping[str, Any] = field(default_factory=dict)
    #: variables beside these
    more: Mapping[str, Any] = field(default_factory=dict)
    #: serving groups of one host each, in the hosts' order, with what differs in them
    groups: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def variables(self, name: str, number: int) -> dict[str, Any]:
        given = yaml.safe_load((BASE / "group_vars" / "cluster.yml").read_text(encoding="utf-8"))
        # the inventory lies elsewhere, what it names does not
        text = yaml.safe_dump(given).replace("{{ inventory_dir }}/../..", str(TOP))
        values: dict[str, Any] = yaml.safe_load(text)
        values.update(
            lab_name=name,
            lab_subnet=f"10.78.{number}.0/24",
            lab_gpu=list(self.gpus),
            vllm_serve_pipeline_parallel_size=self.pipeline,
            vllm_serve_tensor_parallel_size=self.tensor,
            vllm_serve_executor=self.executor,
            **THIN,
        )
        # many engines compile at the same time
        values["engine_extra_env"] = {**values["engine_extra_env"], "TORCHINDUCTOR_COMPILE_THREADS": "4"}
        values["vllm_serve_args"] = {**values["vllm_serve_args"], **SHARE, **self.args}
        values.update(self.more)
        if self.groups:
            values["serving_groups"] = list(self.groups)
        return values

    def write(self, name: str, number: int, folder: Path = FOLDER) -> Path:
        """Its inventory; hosts are called as the cluster, so that logs tell them apart."""
        hosts = [f"{name}-{rank:02}" for rank in range(1, len(self.gpus) + 1)]
        target = folder / name
        (target / "group_vars").mkdir(parents=True, exist_ok=True)
        heads = len(self.groups) or 1
        groups = {"ray_head": {"hosts": dict.fromkeys(hosts[:heads])}}
        groups["ray_workers"] = {"hosts": dict.fromkeys(hosts[heads:])}
        for (group, own), host in zip(self.groups.items(), hosts, strict=False):
            groups[group] = {"hosts": {host: None}}
            (target / "group_vars" / f"{group}.yml").write_text(yaml.safe_dump(dict(own)), encoding="utf-8")
        document = {"cluster": {"children": groups}}
        (target / "hosts.yml").write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
        text = yaml.safe_dump(self.variables(name, number), sort_keys=False)
        (target / "group_vars" / "cluster.yml").write_text(text, encoding="utf-8")
        return target


EAGER = {"enforce-eager": True}
#: 28 layers as wide as those of Llama-3.1-70B, whose weights are made on the GPUs: 24.5 billion parameters. So the GPUs
#: set how long a step takes, as they do on the hosts that this collection is for.
LARGE: dict[str, Any] = {
    "load-format": "dummy",
    "hf-overrides": {"hidden_size": 8192, "intermediate_size": 28672, "num_attention_heads": 64},
}
FOUR: Mapping[str, Cluster] = {
    "gpu": Cluster((0, 1), "`ray`, PP=2"),
    "ray3": Cluster((0, 1, 2), "`ray`, PP=3", pipeline=3),
    "mp3": Cluster((1, 2, 3), "`mp`, PP=3", pipeline=3, executor="mp"),
    "tp4": Cluster((0, 1, 2, 3), "`ray`, TP=4", pipeline=1, tensor=4),
    "tp2pp2": Cluster((0, 1, 2, 3), "`ray`, TP=2, PP=2", pipeline=2, tensor=2),
    "fault1": Cluster((2, 3), "`ray`, PP=2", args=EAGER),
    "fault2": Cluster((2, 3), "`ray`, PP=2", args=EAGER),
    "load": Cluster((2, 3), "`ray`, PP=2"),
}
TWO: Mapping[str, Cluster] = {
    "gpu": FOUR["gpu"],
    "mp2": Cluster((0, 1), "`mp`, PP=2", executor="mp"),
    "tp2": Cluster((0, 1), "`ray`, TP=2", pipeline=1, tensor=2),
    "fault1": Cluster((0, 1), "`ray`, PP=2", args=EAGER),
    "fault2": Cluster((0, 1), "`ray`, PP=2", args=EAGER),
    "load": Cluster((0, 1), "`ray`, PP=2"),
}
#: each by itself on its machine
ALONE: Mapping[str, Cluster] = {"alone": Cluster((0, 1), "`ray`, PP=2, nothing beside")}
SINGLE: Mapping[str, Cluster] = {"one": Cluster((0,), "`ray`, one host", pipeline=1)}
WIDE: Mapping[str, Cluster] = {"large": Cluster((0, 1), "`ray`, PP=2, 24.5B, nothing beside", args=LARGE)}
#: Small engines, so that many clusters fit on one GPU, with all their ranks: NCCL takes two GPUs for the same one only
#: where hostname, boot id and bus are equal, and each simulated host has a name of its own.
_SMALL = {**EAGER, "gpu-memory-utilization": 0.03, "kv-cache-memory-bytes": 1 << 30, "max-num-seqs": 8}
_SURE = {
    "model_store_models": [{"name": "sure-qwen3", "source": str(TOP / ".lab" / "gpu" / "sure")}],
    "vllm_serve_model": "sure-qwen3",
}


def _small(title: str, hosts: int = 3, **split: Any) -> Cluster:
    return Cluster((0,) * hosts, title, args=_SMALL, more=_SURE, **split)


CHAOS: Mapping[str, Cluster] = {
    "cray1": _small("`ray`, PP=3", pipeline=3),
    "cmp1": _small("`mp`, PP=3", pipeline=3, executor="mp"),
    "ctp1": _small("`ray`, TP=2", 2, pipeline=1, tensor=2),
    "cray2": _small("`ray`, PP=3", pipeline=3),
    "cmp2": _small("`mp`, PP=3", pipeline=3, executor="mp"),
    "ctp2": _small("`ray`, TP=2", 2, pipeline=1, tensor=2),
}
#: A small model and a large one, each with a head of its own: who asks the first head for the second model goes through
#: both front proxies. Beside the clusters of chaos it has half of the GPU's memory.
DOORS: Mapping[str, Cluster] = {
    "doors": Cluster(
        (0, 0),
        "two serving groups of one host each",
        pipeline=1,
        executor="mp",
        args=_SMALL,
        groups={
            "near": {"vllm_serve_served_model_name": "near-qwen3"},
            "far": {
                "vllm_serve_args": {
                    "dtype": "bfloat16",
                    "max-num-seqs": 128,
                    "gpu-memory-utilization": 0.42,
                    "kv-cache-memory-bytes": 6 << 30,
                    **LARGE,
                },
            },
        },
    ),
}
#: Six layers as wide as those of Llama-3.1-70B, so that several engines fit on one GPU and it sets their steps.
_WIDE = {**LARGE, "gpu-memory-utilization": 0.03, "kv-cache-memory-bytes": 2 << 30}
_GUESSED = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 2, "prompt_lookup_max": 4}


def _layers(number: int) -> dict[str, Any]:
    return {**_WIDE, "hf-overrides": {**LARGE["hf-overrides"], "num_hidden_layers": number}}


SHARED: Mapping[str, Cluster] = {
    "page": Cluster((0,), "`auto`, one host, 5.6B", pipeline=1, executor="auto", args=_WIDE, more=_SURE),
    # as much as two engines of one GPU can hold, so that the GPU sets more of each step
    "guess": Cluster(
        (0,),
        "`auto`, one host, 14.2B, n-gram speculation",
        pipeline=1,
        executor="auto",
        args={**_layers(16), "speculative-config": _GUESSED},
        more=_SURE,
    ),
    # three engines fit: ours, one by hand, and one by hand in the unit's limits
    "plain": Cluster(
        (0,),
        "`mp`, one host, 9.1B",
        pipeline=1,
        executor="mp",
        args={**_layers(10), "kv-cache-memory-bytes": 3 << 30},
        more=_SURE,
    ),
    "wray2": Cluster((0, 1), "`ray`, PP=2, 10.8B", args=_layers(12)),
    "wmp2": Cluster((0, 1), "`mp`, PP=2, 10.8B", executor="mp", args=_layers(12)),
}
#: From the image that tools/gpu/image.py makes, which leads to what the machine's Python has. No CUDA graphs, and
#: kernels that all of this machine's packages can run, as it was tried by hand.
_SGLANG: dict[str, Any] = {
    "serving_engine": "sglang",
    "engine_runtime": "container",
    "engine_image_archive": str(TOP / ".lab" / "gpu" / "sglang.tar"),
    "engine_container_mounts": ["/opt/torch", "/usr/local/cuda", "/usr/local/nvidia"],
    # it would import torch from the image alone
    "engine_trial": False,
    "vllm_serve_args": {
        "dtype": "bfloat16",
        "mem-fraction-static": 0.3,
        "max-total-tokens": 131072,
        "max-running-requests": 64,
        "disable-decode-cuda-graph": True,
        "disable-prefill-cuda-graph": True,
        "attention-backend": "triton",
        "sampling-backend": "pytorch",
        "grammar-backend": "none",
    },
    "vllm_serve_env": {"SGLANG_DISABLE_CUDNN_CHECK": "1"},
}
#: The model of names alone, whose 29.5 billion parameters the engine makes. Two engines fit side by side, and a chunk
#: of a prompt stays below what its kernels count in 32 bits.
_SGLANG_WIDE: dict[str, Any] = {
    **_SGLANG,
    "model_store_models": [{"name": "wide-qwen3", "source": str(TOP / ".lab" / "gpu" / "wide")}],
    "vllm_serve_model": "wide-qwen3",
    "vllm_serve_args": {
        **_SGLANG["vllm_serve_args"],
        "load-format": "dummy",
        "mem-fraction-static": 0.85,
        "max-total-tokens": 65536,
        "chunked-prefill-size": 2048,
    },
}
#: three layers of it, so that ours and two by hand fit on one GPU
_SGLANG_THREE: dict[str, Any] = {
    **_SGLANG_WIDE,
    "model_store_models": [{"name": "wide3-qwen3", "source": str(TOP / ".lab" / "gpu" / "wide3")}],
    "vllm_serve_model": "wide3-qwen3",
}
#: 34.2 billion parameters in three layers, so that ours and two by hand fit on two GPUs
_SGLANG_BROAD: dict[str, Any] = {
    **_SGLANG_WIDE,
    "model_store_models": [{"name": "broad-qwen3", "source": str(TOP / ".lab" / "gpu" / "broad")}],
    "vllm_serve_model": "broad-qwen3",
    "vllm_serve_args": {**_SGLANG_WIDE["vllm_serve_args"], "chunked-prefill-size": 1024},
}
SGLANG: Mapping[str, Cluster] = {
    "sgl": Cluster((0, 1), "SGLang, TP=2", pipeline=1, tensor=2, executor="mp", more=_SGLANG),
    "sglw": Cluster((0, 1), "SGLang, TP=2, 29.5B", pipeline=1, tensor=2, executor="mp", more=_SGLANG_WIDE),
    "sgl1": Cluster((0, 0), "SGLang, TP=2 on one GPU", pipeline=1, tensor=2, executor="mp", more=_SGLANG),
    "sglp": Cluster((0,), "SGLang, one host, 17.9B", pipeline=1, executor="mp", more=_SGLANG_THREE),
    "sglt": Cluster((0, 1), "SGLang, TP=2, 34.2B", pipeline=1, tensor=2, executor="mp", more=_SGLANG_BROAD),
}
#: what the table of clusters calls them; the others only take faults and load
TITLES = [
    (name, one.title)
    for name, one in {**FOUR, **TWO, **ALONE, **SINGLE, **WIDE, **SHARED, **SGLANG}.items()
    if name not in ("fault1", "fault2", "load")
]
