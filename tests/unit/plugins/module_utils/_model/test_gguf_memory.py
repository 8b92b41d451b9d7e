# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Memory of llama.cpp, held against what llama.cpp itself wrote of the same model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.gguf import Gguf, read_gguf
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.gguf_memory import plan
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError

from tests.unit.gguf_files import model_fields, model_tensors, small_model, smollm2, write_gguf

LOGS = Path(__file__).parents[4] / "fixtures" / "gguf"
MIB = 2**20
GIB = 2**30


@pytest.fixture(scope="module")
def smol(tmp_path_factory: pytest.TempPathFactory) -> Gguf:
    return read_gguf(str(smollm2(tmp_path_factory.mktemp("model") / "smollm2.gguf")))


def told(log: str, what: str) -> dict[str, float]:
    """MiB of a kind of buffer by device, as llama-server wrote them."""
    lines = (LOGS / log).read_text().splitlines()
    found = (re.search(rf"(\S+) {what} buffer size = +([0-9.]+) MiB", line) for line in lines)
    return {one[1]: float(one[2]) for one in found if one}


def mib(numbers: list[int]) -> list[str]:
    return [f"{number / MIB:.2f}" for number in numbers]


def test_one_host_as_measured(smol: Gguf) -> None:
    found = plan(smol, head_computes=False, max_model_len=2048, max_num_seqs=1)
    ranks = found["ranks"]
    assert mib(ranks["weights_bytes"]) == [f"{told('one-host.log', 'model')['CPU_Mapped']:.2f}"]
    assert mib(ranks["kv_cache_bytes"]) == [f"{told('one-host.log', 'KV')['CPU']:.2f}"]
    # expected 24.1 MiB: 55 % over what one process on a CPU takes
    measured = told("one-host.log", "compute")["CPU"] * MIB
    assert 1 <= ranks["compute_bytes"][0] / measured < 1.6


def test_two_workers_as_measured(smol: Gguf) -> None:
    """The head there had no device but its CPU."""
    found = plan(
        smol,
        head_computes=False,
        hosts=["head", "a", "b"],
        pipeline_parallel=3,
        layer_partition="0,16,14",
        max_model_len=2048,
    )
    ranks, log = found["ranks"], "two-workers.log"
    model, cache = told(log, "model"), told(log, "KV")
    a, b = "RPC0[127.0.0.1:50052]", "RPC0[127.0.0.1:50053]"
    assert mib(ranks["weights_bytes"]) == [f"{model[name]:.2f}" for name in ("CPU_Mapped", a, b)]
    assert mib(ranks["kv_cache_bytes"]) == ["0.00", *(f"{cache[name]:.2f}" for name in (a, b))]
    # this build worked on one step at a time, and took 24.9 MiB
    assert 1 <= ranks["compute_bytes"][1] / (told(log, "compute")[a] * MIB) < 1.5
    # llama.cpp divides 31 layers, the output matrix among them, by these numbers
    assert found["arguments"]["tensor-split"] == "16,15,0"


@pytest.mark.parametrize(
    ("length", "step", "told_mib"), [(512, 512, 29), (2048, 512, 35), (8192, 512, 59), (8192, 256, 29)]
)
def test_several_devices_work_on_four_steps_at_once(smol: Gguf, length: int, step: int, told_mib: int) -> None:
    """What llama-fit-params of llama.cpp 0.7.0 said of the first of two and of three workers, in whole MiB."""
    for hosts in (3, 4):
        names = ["head", "a", "b", "c"][:hosts]
        options = {"max_model_len": length, "max_num_batched_tokens": step, "pipeline_parallel": hosts}
        found = plan(smol, head_computes=False, hosts=names, **options)["ranks"]["compute_bytes"][1]
        assert told_mib <= found / MIB < told_mib + 1.5


def test_the_split_is_the_one_that_fills_the_fullest_host_least(smol: Gguf) -> None:
    found = plan(smol, hosts=["head", "a"], pipeline_parallel=2, max_model_len=2048, memory_bytes=[8 * GIB])
    ranks = found["ranks"]
    # the head holds the embedding and a copy of it as the output matrix: 57 MiB, 16 layers' weights and cache
    assert ranks["layers"] == [7, 23]
    assert sum(ranks["weights_bytes"]) == smol.size + smol.tensors["token_embd.weight"].size
    assert found["arguments"]["tensor-split"] == "23,8"
    for moved in (-1, 1):
        other = plan(
            smol,
            **{"hosts": ["head", "a"], "pipeline_parallel": 2, "max_model_len": 2048, "memory_bytes": [8 * GIB]},
            layer_partition=[7 + moved, 23 - moved],
        )
        assert max(other["ranks"]["total_bytes"]) > max(ranks["total_bytes"])


def test_a_smaller_host_gets_fewer_layers(smol: Gguf) -> None:
    options: dict[str, Any] = {"hosts": ["head", "a", "b"], "pipeline_parallel": 3, "max_model_len": 8192}
    like = plan(smol, **options, memory_bytes=[8 * GIB])["ranks"]["layers"]
    unlike = plan(smol, **options, memory_bytes=[8 * GIB, 8 * GIB, 2 * GIB])["ranks"]["layers"]
    assert sum(like) == sum(unlike) == 30
    assert unlike[2] < like[2]
    assert min(unlike) >= 1


def test_slots_share_the_context_in_steps_of_256(smol: Gguf) -> None:
    found = plan(smol, max_model_len=1000, max_num_seqs=3)
    assert (found["arguments"]["ctx-size"], found["arguments"]["parallel"]) == (3072, 3)
    assert found["max_model_len"] == 1024
    assert found["ranks"]["kv_cache_bytes"] == [found["kv_bytes_per_token"] * 3072]


@pytest.mark.parametrize(("kind", "bits"), [("f16", 16), ("f32", 32), ("q8_0", 8.5), ("q4_0", 4.5), ("iq4_nl", 4.5)])
def test_types_of_the_cache(smol: Gguf, kind: str, bits: float) -> None:
    # 30 layers, 3 heads of 64 for keys and for values
    assert plan(smol, kv_cache_dtype=kind)["kv_bytes_per_token"] == 30 * 2 * 3 * 64 * bits / 8


def test_prompts_are_kept_on_one_host_alone(smol: Gguf) -> None:
    one, two = plan(smol), plan(smol, hosts=["a", "b"], pipeline_parallel=2)
    assert (one["arguments"]["cache-ram"], two["arguments"]["cache-ram"]) == (8192, 0)
    assert one["ranks"]["total_bytes"][0] > 8 * GIB > two["ranks"]["total_bytes"][0]
    assert plan(smol, prompt_cache_mib=512)["arguments"]["cache-ram"] == 512
    with pytest.raises(SizingError, match=r"prompt_cache_mib=1: makes llama.cpp end .* Take 0"):
        plan(smol, hosts=["a", "b"], pipeline_parallel=2, prompt_cache_mib=1)


def test_verdicts(smol: Gguf) -> None:
    def judged(memory: int, available: int | None = None) -> dict[str, Any]:
        return plan(smol, prompt_cache_mib=0, memory_bytes=[memory], memory_available_bytes=available)

    taken = judged(8 * GIB)["ranks"]["total_bytes"][0]
    assert judged(8 * GIB)["verdict"] == "fits"
    assert judged(int(taken / 0.87))["verdict"] == "tight"
    small = judged(taken)
    assert small["verdict"] == "does_not_fit"
    assert "host 0: weights 0.1 GiB" in small["reasons"][0]
    assert judged(8 * GIB, taken - 1)["verdict"] == "does_not_fit"
    fitting = re.search(r"max_model_len=(\d+) fits", " ".join(small["suggestions"]))
    assert fitting
    again = plan(smol, prompt_cache_mib=0, max_model_len=int(fitting[1]), memory_bytes=[taken])
    assert again["verdict"] != "does_not_fit"


def built(tmp_path: Path, fields: dict[str, Any], parts: dict[int, list[str]]) -> Gguf:
    """A model whose layers have these parts."""
    tensors = {"token_embd.weight": (64, 512)}
    for layer, names in parts.items():
        tensors.update({f"blk.{layer}.{name}.weight": (64, 64) for name in names})
    return read_gguf(str(write_gguf(tmp_path / "m.gguf", {**model_fields(len(parts)), **fields}, tensors)))


def total(planned: dict[str, Any]) -> int:
    return int(planned["ranks"]["total_bytes"][0])


def test_states_that_do_not_fit_are_named_with_the_number_that_does(tmp_path: Path) -> None:
    window = {"llama.attention.sliding_window": 4096, "llama.attention.sliding_window_pattern": [True] * 64}
    model = built(tmp_path, window, {layer: ["attn_k"] for layer in range(64)})
    asked = {"prompt_cache_mib": 0, "memory_bytes": [1700 * MIB]}
    refused = plan(model, **asked)
    assert (refused["verdict"], "ctx-checkpoints 1.0 GiB" in refused["reasons"][0]) == ("does_not_fit", True)
    fitting = re.search(r"ctx-checkpoints=(\d+) fits", " ".join(refused["suggestions"]))
    assert fitting
    for number, fits in ((int(fitting[1]), True), (int(fitting[1]) + 1, False)):
        found = plan(model, **asked, beside={"ctx-checkpoints": number})
        assert (found["verdict"] != "does_not_fit") == fits


def test_layers_without_keys_have_a_state(tmp_path: Path) -> None:
    ssm = {"inner_size": 128, "state_size": 16, "conv_kernel": 4, "group_count": 2}
    fields = {f"llama.ssm.{name}": number for name, number in ssm.items()}
    mixed = built(tmp_path, fields, {0: ["attn_k"], 1: ["ssm_in", "attn_qkv"], 2: ["ffn_up"]})
    asked = {"max_model_len": 256, "max_num_seqs": 2}
    found = plan(mixed, **asked)
    token = 2 * 2 * 16 * 2
    state = 4 * (3 * (128 + 2 * 2 * 16) + 128 * 16)
    assert found["kv_bytes_per_token"] == token
    assert found["ranks"]["kv_cache_bytes"] == [token * 512 + 2 * state]
    # 32 of them are kept of each slot
    assert total(found) - total(plan(mixed, **asked, beside={"ctx-checkpoints": 0})) == 32 * 2 * state


def test_windows_latent_keys_and_shared_layers(tmp_path: Path) -> None:
    window = {"llama.attention.sliding_window": 100, "llama.attention.sliding_window_pattern": [True, False]}
    windows = built(tmp_path, window, {0: ["attn_k"], 1: ["attn_k"]})
    found = plan(windows, max_model_len=4096)
    token = 2 * 2 * 16 * 2
    # a window keeps the tokens of a step as well, in steps of 256
    assert found["ranks"]["kv_cache_bytes"] == [token * (768 + 4096)]
    five = plan(windows, max_model_len=4096, beside={"ctx-checkpoints": 5})
    assert total(found) - total(five) == (32 - 5) * 100 * token
    whole = plan(windows, max_model_len=4096, beside={"swa-full": True})
    assert whole["ranks"]["kv_cache_bytes"] == [token * 2 * 4096]
    # it is rolled back without a copy of its window
    assert total(whole) - total(five) == token * (4096 - 768) - 5 * 100 * token
    latent = {
        "llama.attention.key_length": 72,
        "llama.attention.key_length_mla": 24,
        "llama.attention.head_count_kv": 1,
    }
    assert plan(built(tmp_path, latent, {0: ["attn_kv_a_mqa"]}))["kv_bytes_per_token"] == 72 * 2
    shared = {"llama.attention.shared_kv_layers": 1}
    assert plan(built(tmp_path, shared, {0: ["attn_k"], 1: ["attn_k"]}))["kv_bytes_per_token"] == token


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"beside": {"ctx-checkpoints": -1}}, "ctx-checkpoints=-1: is below 0"),
        ({"tensor_parallel": 2}, "tensor_parallel=2: is not possible with llama.cpp.*vllm and sglang split tensors"),
        ({"max_model_len": 9000}, "max_model_len=9000: is not 1 to the 4096 tokens"),
        ({"kv_cache_dtype": "fp8"}, "kv_cache_dtype='fp8': is no type of llama.cpp's cache. Take one of f16"),
        ({"hosts": list("abcde"), "pipeline_parallel": 5}, "are more than the 4 layers"),
        ({"hosts": ["a"], "pipeline_parallel": 2}, "pipeline_parallel=2: is not the 1 hosts"),
        ({"hosts": ["a", "b"], "pipeline_parallel": 2, "layer_partition": "1,2"}, "make 3. Give 2 numbers.*make 4"),
        ({"hosts": ["a", "b"], "pipeline_parallel": 2, "memory_bytes": [1, 2, 3]}, "has 3 numbers"),
    ],
)
def test_what_llama_cpp_cannot_do(tmp_path: Path, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(SizingError, match=problem):
        plan(read_gguf(str(small_model(tmp_path / "m.gguf"))), **options)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"llama.attention.head_count_kv": "two"}, "has llama.attention.head_count_kv 'two', which is no size"),
        ({"llama.attention.head_count_kv": [2]}, r"has llama.attention.head_count_kv \[2\]"),
        ({"llama.context_length": 0}, "is not 1 to the 0 tokens"),
        ({"llama.attention.key_length": 10}, "kv_cache_dtype='q8_0': needs widths that 32 divides"),
    ],
)
def test_fields_that_are_no_sizes(tmp_path: Path, fields: dict[str, Any], problem: str) -> None:
    model = built(tmp_path, fields, {0: ["attn_k"], 1: ["attn_k"]})
    with pytest.raises(SizingError, match=problem):
        plan(model, kv_cache_dtype="q8_0")


def test_many_layers_over_many_hosts(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", model_fields(500), model_tensors(500))
    found = plan(read_gguf(str(path)), hosts=[f"h{n}" for n in range(8)], pipeline_parallel=8)
    assert sum(found["ranks"]["layers"]) == 500
