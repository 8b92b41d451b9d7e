# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines in the forms that logs of TensorRT-LLM in public threads have."""

from __future__ import annotations

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import progress, serving
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines.tensorrt_llm import TENSORRT_LLM

LOAD = """\
/usr/local/lib/python3.12/dist-packages/torch/cuda/__init__.py:61: FutureWarning: The pynvml package is deprecated.
[TensorRT-LLM] TensorRT-LLM version: 1.3.0rc13
Loading weights:  50%|#####     | 200/400 [00:10<00:10, 20.00it/s]
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 26.91 GiB for max tokens in paged KV cache (220480).
[TRT-LLM] [I] Running autotuner warmup...
[02/14/2026-09:38:53] [TRT-LLM] [I] max_seq_len=131072, max_num_requests=2048, max_num_tokens=8192
INFO:     Started server process [1]
INFO:     Waiting for application startup.
INFO:     Application startup complete.
INFO:     127.0.0.1:51784 - "GET /health HTTP/1.1" 200 OK
""".splitlines()


def test_a_load_is_told_by_its_log() -> None:
    told, seen = progress.Progress(), []
    for line in LOAD:
        told = progress.progress([line], told, TENSORRT_LLM.log)
        if told.name and told.name not in seen:
            seen.append(told.name)
    assert seen == [stage.name for stage in TENSORRT_LLM.log.stages]
    assert told.fraction == 0.99
    half = progress.progress(LOAD[:3], form=TENSORRT_LLM.log)
    assert half.text.startswith("loading weights 50 %")
    assert [line for line in LOAD if TENSORRT_LLM.log.serves.search(line)] == [LOAD[-2]]


@pytest.mark.parametrize(
    ("line", "fix", "final"),
    [
        ("ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'", "TRITON_PTXAS_PATH", True),
        ("torch.OutOfMemoryError: CUDA out of memory.", "TRT_LLM_DISABLE_LOAD_WEIGHTS_IN_PARALLEL", False),
        ("Error: No such option: --served_model_name", "correct vllm_serve_args", True),
        ("  Extra inputs are not permitted [type=extra_forbidden]", "correct vllm_serve_args", True),
        ("RuntimeError: Failed to bind socket to 127.0.0.1:30000: [Errno 98]", "set vllm_serve_engine_port", False),
    ],
)
def test_a_failed_start_says_what_to_do(line: str, fix: str, final: bool) -> None:
    said = progress.explain([*LOAD[:2], line], TENSORRT_LLM.log)
    assert fix in said.fix
    assert said.final is final


def test_the_model_of_its_file_stands_behind_the_word_of_its_command() -> None:
    command = ["/usr/bin/python3", "container", "run", "vllm", "serve", "--port", "1", "--config", "/f"]
    loaded = TENSORRT_LLM.load(command, "/models/a")
    assert loaded[4:6] == ["serve", "/models/a"]
    assert loaded[-2:] == ["--config", "/f"]
    assert serving.served_by(["serve", "--config", "/absent"], TENSORRT_LLM) == ""
