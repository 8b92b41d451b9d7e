# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask vLLM's own code what a model's cache and weights take on a GB10: no GPU, no weights, no engine.

Runs under the Python of the lab's CPU build. vLLM's model classes are made on torch's meta device, where a tensor has
a shape and no memory, on a platform that says it is sm_121; then vLLM's own functions make specifications, groups,
bytes of one request and concurrency of them. What a GPU build would bring (compiled operators, torchvision, CUTLASS)
is faked, because the sizes do not depend on it.

    PYTHON -B ask.py CASES.json ANSWERS.json     (cases and answers: see tools/judge/__main__.py)
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import json
import math
import os
import pathlib
import sys
import tempfile
import traceback
import types
from typing import Any

TOTAL_BYTES = 130663055360  # 121.69 GiB
#: while vLLM is imported only questions are answered: operators that it finds are given shape functions
_imported = False
#: what a case is asked to divide by; any number does, because planner and vLLM are given the same
AVAILABLE = 64 * 2**30

os.environ.update(
    VLLM_LOGGING_LEVEL="ERROR",
    HF_HUB_OFFLINE="1",
    TRANSFORMERS_OFFLINE="1",
    VLLM_NO_USAGE_STATS="1",
    VLLM_PLUGINS="",
    VLLM_USE_V2_MODEL_RUNNER="0",  # it wants Triton
)


class _AnyAttribute(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Name(name)


class _Name(str):
    """A member of something that is not here, with members of its own."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Name(name)

    def __call__(self, *args: Any, **named: Any) -> Any:
        return args[0] if args else self  # a decorator


class _Anything(metaclass=_AnyAttribute):
    """Stands for an operator or an object of a library that is not here."""

    def __init__(self, *args: Any, **named: Any) -> None:
        pass

    def __call__(self, *args: Any, **named: Any) -> Any:
        return True

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything()


class _Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Importable stand-ins for packages that a CPU machine lacks; every attribute of theirs is a class."""

    EARLY, LATE = ("torchvision", "gguf"), ("cutlass", "cuda")

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        # a library that looks for CUDA while it is imported rightly finds none
        if fullname.split(".")[0] in (*self.EARLY, *(self.LATE if _imported else ())):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> types.ModuleType:
        module = types.ModuleType(spec.name)
        module.__getattr__ = _missing  # type: ignore[method-assign]
        module.__version__ = "0.28.0"  # type: ignore[attr-defined]
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def _missing(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return _AnyAttribute(name, (_Anything,), {})


def _fake_operators() -> None:
    """vLLM's compiled operators: asked whether a kernel exists, they say yes; called, they do nothing."""
    for name in (
        "vllm._C_stable_libtorch",
        "vllm._flashkda_C",
        "vllm._moe_C",
        "vllm._moe_C_stable_libtorch",
        "vllm.vllm_flash_attn._vllm_fa2_C",
        "vllm.cumem_allocator",
    ):
        sys.modules.setdefault(name, types.ModuleType(name))
    import torch._ops

    real = torch._ops._OpNamespace.__getattr__

    def attribute(self: Any, name: str) -> Any:
        try:
            return real(self, name)
        except AttributeError:
            if self.name.startswith(("_C", "_moe_C", "_vllm_fa", "_flashkda")) and not name.startswith("__"):
                if _imported or "support" in name:
                    return _Anything()
            raise

    torch._ops._OpNamespace.__getattr__ = attribute  # type: ignore[method-assign]


def _fake_gpu() -> None:
    """One GB10 (sm_121) for torch and for vLLM's platform."""
    import torch

    properties = types.SimpleNamespace(
        name="NVIDIA GB10",
        major=12,
        minor=1,
        total_memory=TOTAL_BYTES,
        multi_processor_count=48,
        shared_memory_per_block_optin=101376,
        warp_size=32,
        max_threads_per_multi_processor=1536,
        L2_cache_size=25165824,
    )
    for name, value in {
        "is_available": True,
        "device_count": 8,
        "current_device": 0,
        "get_device_capability": (12, 1),
        "get_device_name": properties.name,
        "get_device_properties": properties,
        "current_stream": _Anything(),
        "_lazy_init": None,
    }.items():
        setattr(torch.cuda, name, lambda *args, _value=value, **named: _value)
    torch.cuda.Stream = torch.cuda.Event = _Anything  # type: ignore[assignment,misc]
    for name, value in {
        "current_device_index": 0,
        "is_available": True,
        "device_count": 8,
        "current_accelerator": torch.device("cuda"),
        "current_stream": None,
    }.items():
        setattr(torch.accelerator, name, lambda *args, _value=value, **named: _value)

    import vllm.platforms
    from vllm.platforms.cuda import CudaPlatformBase
    from vllm.platforms.interface import DeviceCapability

    answers: dict[str, Any] = {
        "get_device_capability": DeviceCapability(12, 1),
        "get_device_name": properties.name,
        "get_device_uuid": "GPU-0",
        "get_device_total_memory": TOTAL_BYTES,
        "is_fully_connected": False,
        "num_compute_units": 48,
        "device_count": 8,
        "import_kernels": None,
        "set_device": None,
        "check_if_supports_dtype": None,
    }
    members = {name: classmethod(lambda cls, *args, _v=value, **named: _v) for name, value in answers.items()}

    def has_capability(cls: Any, wanted: Any, device_id: int = 0) -> bool:
        asked = tuple(wanted) if isinstance(wanted, tuple) else (wanted // 10, wanted % 10)
        return asked <= (12, 1)

    platform = type("GB10", (CudaPlatformBase,), {**members, "has_device_capability": classmethod(has_capability)})
    platform.device_name = properties.name
    vllm.platforms._current_platform = vllm.platforms.current_platform = platform()


class Group:
    """A process group of which only size and rank are asked."""

    def __init__(self, size: int, rank: int) -> None:
        self.world_size, self.rank_in_group, self.rank, self.local_rank = size, rank, rank, rank
        self.ranks = list(range(size))
        self.device_group = self.cpu_group = types.SimpleNamespace(size=lambda: size, rank=lambda: rank)
        self.unique_name = "judge"
        self.is_first_rank, self.is_last_rank = rank == 0, rank == size - 1
        self.first_rank, self.last_rank = 0, size - 1
        self.next_rank = (rank + 1) % size

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None

    def all_reduce(self, tensor: Any) -> Any:
        return tensor

    def barrier(self) -> None:
        pass


def _place(tensor: int, pipeline: int, stage: int) -> None:
    """This process becomes the first rank of a pipeline stage."""
    import torch
    import vllm.distributed.parallel_state as state

    state._TP, state._PP = Group(tensor, 0), Group(pipeline, stage)
    state._DP, state._DCP, state._PCP = Group(1, 0), Group(1, 0), Group(1, 0)
    state._EP = state._EPLB = state._ETP = Group(tensor, 0)
    state._WORLD = Group(tensor * pipeline, stage * tensor)
    state._NODE_COUNT = 1
    torch.distributed.is_initialized = lambda: True
    torch.distributed.get_rank = lambda *args, **named: 0
    torch.distributed.get_world_size = lambda *args, **named: tensor * pipeline


def _meta_mode() -> Any:
    from torch.overrides import TorchFunctionMode

    class ToMeta(TorchFunctionMode):
        """Whatever device a model's class asks for, its tensors stay shapes."""

        def __torch_function__(self, func: Any, kinds: Any, args: Any = (), named: Any = None) -> Any:
            import torch

            named = dict(named or {})
            name = getattr(func, "__name__", "")
            if named.get("device") is not None:
                named["device"] = "meta"
            if name == "to" and len(args) > 1 and not isinstance(args[1], (torch.dtype, torch.Tensor)):
                return func(args[0], "meta", **named)
            if name in ("cuda", "cpu"):
                return args[0]
            if name == "item":
                return 0
            if name == "tolist":
                return [0.0] * args[0].numel()
            return func(*args, **named)

    return ToMeta()


def prepare() -> None:
    global _imported
    sys.meta_path.append(_Absent())
    import torch  # noqa: F401  (before the fakes, so that torch itself is loaded as it is)

    _fake_operators()
    _fake_gpu()
    import torch.fx.experimental._config as fx

    fx.meta_nonzero_assume_all_nonzero = True  # type: ignore[attr-defined]
    import transformers.generation.continuous_batching.utils  # noqa: F401  (reads torch.cuda while it is imported)
    import vllm.engine.arg_utils  # noqa: F401  (all of vLLM, before its operators are faked)
    import vllm.model_executor.layers.sparse_attn_indexer as indexer

    # a class is looked at here, not in a process of its own, which would import all of vLLM again
    from vllm import triton_utils
    from vllm.model_executor.models import registry
    from vllm.utils import deep_gemm, flashinfer

    registry._LazyRegisteredModel.inspect_model_cls = lambda self: registry._ModelInfo.from_model_cls(  # type: ignore[method-assign]
        self.load_model_cls()
    )
    # kernels that a GB10's image has and a CPU build lacks; of classes that are not imported yet, at their source
    indexer.has_deep_gemm = deep_gemm.has_deep_gemm = lambda: True
    flashinfer.has_flashinfer_sparse_mla_sm120_config = lambda *args: True
    flashinfer.has_flashinfer_sparse_mla_sm120 = lambda *args: True
    # one function of Triton that decides a size, and has a place to stand here
    triton_utils.triton.next_power_of_2 = lambda number: 1 << (number - 1).bit_length()
    _imported = True


def _know(model_type: str) -> None:
    """A class for a config whose own one comes with the model's files: it keeps what the file says."""
    from transformers import AutoConfig, PreTrainedConfig
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from vllm.transformers_utils.config import _CONFIG_REGISTRY

    if model_type not in CONFIG_MAPPING and model_type not in _CONFIG_REGISTRY:
        # Transformers asks for the limit while it reads the fields before it
        members = {"model_type": model_type, "max_position_embeddings": None}
        AutoConfig.register(model_type, type("Published", (PreTrainedConfig,), members))


def _know_words(text: dict[str, Any]) -> None:
    """Tables of n-grams are looked up by what a tokenizer makes of words; here its two sizes are enough."""
    import transformers
    from vllm.models.deepseek_v41.common import engram

    words = list(range(text["vocab_size"])), text["engram_compressed_vocab_size"]
    transformers.AutoTokenizer.from_pretrained = lambda *args, **named: None  # type: ignore[method-assign]
    engram.build_compressed_token_map = lambda tokenizer: words


def _configuration(case: dict[str, Any], folder: str) -> Any:
    from vllm.engine.arg_utils import EngineArgs

    _know(case["config"]["model_type"])
    text = case["config"].get("text_config") or {}
    if text.get("engram_compressed_vocab_size"):
        _know_words(text)
    (pathlib.Path(folder) / "config.json").write_text(json.dumps(case["config"]))
    world = case["tp"] * case["pp"]
    arguments: dict[str, Any] = {
        "model": folder,
        "skip_tokenizer_init": True,
        "load_format": "dummy",
        "tensor_parallel_size": case["tp"],
        "pipeline_parallel_size": case["pp"],
        "kv_cache_dtype": case.get("kv", "auto"),
        "max_model_len": case["length"],
        "max_num_batched_tokens": case.get("batched", 8192),
        "max_num_seqs": 4,
        "enforce_eager": True,
        **case.get("engine", {}),
    }
    if world > 1:
        arguments.update(distributed_executor_backend="mp", nnodes=world)
    configuration = EngineArgs(**arguments).create_engine_config()
    # an image for GPUs has Triton, hence the newer runner, which prepares one batch beside those of the stages
    type(configuration).max_concurrent_batches = property(lambda self: case["pp"] + 1)
    return configuration


def _stage(configuration: Any, case: dict[str, Any], stage: int) -> tuple[dict[str, Any], int, list[str]]:
    """(specification of each cache, bytes of weights, layouts that the backends support) of one stage's first rank."""
    import torch
    import vllm.platforms
    from vllm.config import set_current_vllm_config
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.utils.torch_utils import set_default_torch_dtype
    from vllm.v1.attention.backends.utils import get_supported_kv_cache_layouts
    from vllm.v1.worker.gpu.attn_utils import get_kv_cache_spec
    from vllm.v1.worker.worker_base import get_current_attn_backends

    _place(case["tp"], case["pp"], stage)
    configuration.parallel_config.rank = stage * case["tp"]
    configuration.compilation_config.static_forward_context.clear()
    dtype = configuration.model_config.dtype
    with (
        set_current_vllm_config(configuration, check_compile=False),
        set_default_torch_dtype(dtype),
        torch.device("meta"),
        _meta_mode(),
    ):
        models = [initialize_model(vllm_config=configuration)]
        drafter = configuration.speculative_config
        if drafter is not None and drafter.draft_model_config is not None and stage == case["pp"] - 1:
            models.append(
                initialize_model(vllm_config=configuration, model_config=drafter.draft_model_config, prefix="draft")
            )
    seen: dict[int, int] = {}
    for name, tensor in [pair for m in models[:1] for pair in (*m.named_parameters(), *m.named_buffers())]:
        if "cos_sin_cache" not in name:
            seen[id(tensor)] = tensor.numel() * tensor.element_size()
    with set_current_vllm_config(configuration, check_compile=False):
        vllm.platforms.current_platform.update_block_size_for_backend(configuration)
        specification = get_kv_cache_spec(configuration)
        layouts = [layout.name for layout in get_supported_kv_cache_layouts(get_current_attn_backends(configuration))]
    return specification, sum(seen.values()), layouts


def _by_kind(specification: dict[str, Any], length: int) -> dict[str, Any]:
    """Bytes that a token adds to what grows and to what slides, and bytes of one state."""
    grows = slides = state = 0.0
    for spec in specification.values():
        kind = type(spec).__name__
        if kind == "CircularBufferSpec":
            continue  # one block for each request, whatever its length
        if kind == "MambaSpec":
            state += spec.state_content_size_bytes
            continue
        each = getattr(spec, "unpadded_page_size_bytes", spec.page_size_bytes) / spec.block_size
        # within a window that holds the whole length a cache grows with each token
        window = getattr(spec, "sliding_window", None) or getattr(spec, "attention_chunk_size", None) or length
        if ("Sliding" in kind or "Chunked" in kind) and window < length:
            slides += each
        else:
            grows += each
    return {"token": grows, "window_token": slides, "state": state}


def answer(case: dict[str, Any]) -> dict[str, Any]:
    from vllm.config import set_current_vllm_config
    from vllm.v1.attention.backends.utils import resolve_kv_cache_layout
    from vllm.v1.core import kv_cache_utils

    with tempfile.TemporaryDirectory() as folder:
        configuration = _configuration(case, folder)
        stages = [_stage(configuration, case, stage) for stage in range(case["pp"])]
        specs = [specification for specification, _weights, _layouts in stages]
        with set_current_vllm_config(configuration, check_compile=False):
            resolve_kv_cache_layout(
                configuration,
                [layouts for _specification, _weights, layouts in stages],
                [spec for stage in specs for spec in stage.values()],
            )
            merged = {name: spec for stage in specs for name, spec in stage.items()}
            groups = kv_cache_utils.get_kv_cache_groups(configuration, merged)
            answers = []
            blocks = []
            for specification, weights, _layouts in stages:
                mine = kv_cache_utils._project_kv_cache_groups_to_worker(groups, specification)
                planned = kv_cache_utils.get_kv_cache_config_from_groups(configuration, mine, AVAILABLE)
                blocks.append(planned.num_blocks)
                answers.append(
                    {
                        **_by_kind(specification, case["length"]),
                        "request": kv_cache_utils._max_memory_usage_bytes_from_groups(configuration, mine),
                        "longest": kv_cache_utils._estimate_max_model_len_from_groups(configuration, mine, AVAILABLE),
                        "weights": weights,
                    }
                )
            planned.num_blocks = min(blocks)
            concurrency = kv_cache_utils.get_kv_cache_capacity(configuration, planned)[1] if groups else math.inf
    cache = configuration.cache_config
    return {
        "stages": answers,
        "concurrency": concurrency,
        "block": cache.block_size,
        "dtype": cache.cache_dtype,
        "length": configuration.model_config.max_model_len,
        "batches": configuration.max_concurrent_batches,
        "mamba_mode": cache.mamba_cache_mode,
        "groups": [[type(g.kv_cache_spec).__name__, len(g.layer_names), g.kv_cache_spec.block_size] for g in groups],
    }


def main() -> int:
    with open(sys.argv[1], encoding="utf-8") as stream:
        cases = json.load(stream)
    prepare()
    answers: dict[str, Any] = {}
    for case in cases:
        try:
            answers[case["id"]] = answer(case)
        except Exception:
            # one class that cannot be made says nothing about the others; the caller decides what that means
            answers[case["id"]] = {"error": traceback.format_exc()[-3000:]}
        print(case["id"], "error" if "error" in answers[case["id"]] else "asked", flush=True)
        with open(sys.argv[2], "w", encoding="utf-8") as stream:
            json.dump(answers, stream)
    return 0


if __name__ == "__main__":
    sys.exit(main())
