# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the trial of a vLLM runs that is not in use yet."""

from __future__ import annotations

#: runs under vLLM's Python; the only argument says whether to load a model
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
