# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs inside modules on hosts and in tests:
# pylint: disable=ansible-bad-function

"""An engine that is installed beside the one in use is tried before that one stops: imports, the GPU, a tiny model.

What the trial takes is small, and its processes are the first that the kernel ends when memory runs out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.cuda_kernels import DEVICES, for_cpu
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.pins import EngineError, same_version
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.command import run_limited
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.versions import release

#: memory that must be free for the imports, with a GPU's context, and for the tiny model
IMPORT_BYTES = 3 << 30
MODEL_BYTES = 8 << 30

CONTAINER = "sparkthor-trial"

#: runs under the engine's Python; the only argument says whether to load a model
PROGRAM = r"""
import importlib.util, json, os, sys, tempfile
from importlib.metadata import version
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
import torch, vllm
import vllm.engine.arg_utils, vllm.v1.engine.async_llm
found = {**{name: version(name) for name in ("vllm", "torch")}, "gpu": "", "nccl": ""}
# an image that serves without Ray has none
if importlib.util.find_spec("ray"):
    import ray
    found["ray"] = version("ray")
if torch.cuda.is_available():
    ones = torch.ones(64, 64, device="cuda", dtype=torch.bfloat16)
    if float((ones @ ones).sum()) != 64.0 ** 3:
        sys.exit("the GPU multiplies wrongly")
    found["gpu"] = torch.cuda.get_device_name(0)
    found["nccl"] = ".".join(str(part) for part in torch.cuda.nccl.version())
if sys.argv[1] == "model":
    config = {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 512, "hidden_size": 128,
        "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 32, "max_position_embeddings": 256, "eos_token_id": 1, "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": True,
    }
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump(config, file)
        model = vllm.LLM(
            model=folder, load_format="dummy", skip_tokenizer_init=True, enforce_eager=True, max_model_len=64,
            max_num_seqs=1, gpu_memory_utilization=0.02,
            # not every CPU has instructions for bfloat16
            dtype="bfloat16" if found["gpu"] else "float32",
        )
        sampling = vllm.SamplingParams(max_tokens=4, temperature=0.0, ignore_eos=True, detokenize=False)
        answer = model.generate([{"prompt_token_ids": [5, 6, 7]}], sampling)
        found["tokens"] = len(answer[0].outputs[0].token_ids)
print("\n" + json.dumps(found), flush=True)
# what the engine leaves running must not keep the host waiting
os._exit(0)
"""

Runner = Callable[[Sequence[str], float, str], tuple[int, str, str]]


def _run(argv: Sequence[str], seconds: float, program: str) -> tuple[int, str, str]:
    return run_limited(list(argv), seconds, program)


def available() -> int:
    """Bytes of memory that the host can give."""
    with open("/proc/meminfo", encoding="ascii") as stream:
        rows = dict(line.split(":", 1) for line in stream)
    return int(rows["MemAvailable"].split()[0]) << 10


def attempt(
    command: Sequence[str], model: bool, seconds: float, free: int, runner: Runner = _run
) -> tuple[dict[str, Any], str]:
    """What the engine said, empty where it was not asked; and what was left out, with the reason."""
    if free < IMPORT_BYTES:
        return {}, f"not tried: only {free / 2**30:.1f} GiB of memory are free, and {IMPORT_BYTES >> 30} are needed"
    left_out = ""
    if model and free < MODEL_BYTES:
        model = False
        left_out = f"no model was tried: only {free / 2**30:.1f} GiB of memory are free, {MODEL_BYTES >> 30} are needed"
    # all of its processes end with it
    limit = ["timeout", "--signal=KILL", str(int(seconds))]
    argv = [*limit, "choom", "-n", "1000", "--", "nice", "-n", "10", *command, "-", "model" if model else "imports"]
    # a client of Docker that was ended leaves its container, that of a run which was broken off as well
    leftover = [["docker", "rm", "--force", CONTAINER]] if CONTAINER in command else []
    for remove in leftover:
        runner(remove, 60, "")
    status, out, err = runner(argv, seconds + 10, PROGRAM)
    for remove in leftover:
        runner(remove, 60, "")
    for line in reversed(out.splitlines()):
        if status == 0 and line.startswith("{"):
            found: dict[str, Any] = json.loads(line)
            return found, left_out
    if status == 137:
        err = f"no answer within {seconds:.0f} s (engine_trial: false leaves the model out)"
    reason = [line for line in (err or out).strip().splitlines() if line.strip()][-1:] or [f"exit status {status}"]
    what = "a tiny model does not run with it" if model else "it cannot be imported"
    raise EngineError(f"The new engine was tried, and {what}: {reason[0][:400]}. The engine in use was left as it is.")


def check(found: Mapping[str, Any], versions: Mapping[str, str], kind: str, nccl: str) -> None:
    """Whether it is the engine that was meant, sees the GPU and brings an NCCL that will do. Raises EngineError.

    ``nccl`` is the least that the topology needs, empty where any will do.
    """
    for name in ("vllm", "ray"):
        wanted = versions.get(name, "")
        if found and wanted and not same_version(wanted, str(found.get(name, ""))):
            raise EngineError(f"The new engine says that it is {name} {found.get(name)}, and {wanted} was installed.")
    if found and kind in DEVICES and not found.get("gpu") and not for_cpu(str(found.get("vllm", ""))):
        raise EngineError(
            f"The new engine sees no GPU on this {kind}: its torch {found.get('torch')} does not fit the driver. "
            "The engine in use was left as it is."
        )
    has = str(found.get("nccl") or "")
    if nccl and has and release(has) < release(nccl):
        raise EngineError(f"The new engine brings NCCL {has}, and this topology needs {nccl} or newer: choose another.")
