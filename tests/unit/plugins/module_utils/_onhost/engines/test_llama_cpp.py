# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""llama.cpp's words and counters, by lines that it wrote itself."""

from __future__ import annotations

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import hang, progress, watchdog_report
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines.llama_cpp import LLAMA_CPP

#: of a start over two workers, with -lv 4
START = (
    "0.00.004.752 I srv  llama_server: initializing ...",
    "0.00.004.806 I cmn  common_param: common_params_print_info: build 1 (0c1e570) with GNU 12.2.0 for Linux x86_64",
    "0.00.005.848 W srv  llama_server: security: no API key is set and CORS allows all origins",
    "0.00.021.064 I srv    load_model: loading model 'model/SmolLM2-135M-Instruct.Q4_1.gguf'",
    "0.00.597.425 I llama_model_loader: - kv  16:     llama.attention.layer_norm_rms_epsilon f32 = 0.000010",
    "0.00.694.938 I load_tensors:   CPU_Mapped model buffer size =    92.10 MiB",
    "0.00.738.009 I llama_kv_cache: size =   45.00 MiB (  2048 cells,  30 layers,  1/1 seqs), K (f16):   22.50 MiB",
    "0.01.201.740 I srv    load_model: initializing, n_slots = 1, n_ctx_slot = 2048, kv_unified = 'false'",
    "0.01.206.159 I srv  llama_server: model loaded",
    "0.01.206.184 I srv  llama_server: listening on unix:///run/sparkthor/engine.sock",
)


def test_a_start_is_followed_by_its_lines() -> None:
    reached = [progress.progress(START[: count + 1], form=LLAMA_CPP.log).name for count in range(len(START))]
    assert list(dict.fromkeys(reached)) == ["starting", "loading weights", "cache", "first completion"]
    assert progress.plain(START[3], LLAMA_CPP.log) == "loading model 'model/SmolLM2-135M-Instruct.Q4_1.gguf'"
    assert [line for line in START if LLAMA_CPP.log.serves.search(progress.plain(line, LLAMA_CPP.log))] == [START[-2]]


@pytest.mark.parametrize(
    ("line", "fix", "final"),
    [
        ("ggml/src/ggml-rpc/ggml-rpc.cpp:547: Failed to connect to 127.0.0.1:50052", "look at sparkthor-vllm", False),
        ("ggml-rpc.cpp:566: Remote RPC server crashed or returned malformed response", "has ended", False),
        ("RPC server version mismatch: 6.0.0", "different builds", True),
        ("llama_model_load: error loading model: unknown model architecture: 'flux'", "newer build", True),
        ("error loading model: unable to allocate CUDA0 buffer", "lower vllm_serve_max_model_len", False),
        ("error: invalid argument: --nosuch", "correct vllm_serve_args", True),
        ("Unsupported cache type: q9", "correct vllm_serve_args", True),
        ("0.00.012.000 E srv    load_model: failed to load model, '/m.gguf'", "not complete on the head", True),
        ("0.00.012.000 E srv         start: couldn't bind HTTP server socket, hostname: x", "holds the port", False),
    ],
)
def test_known_ends(line: str, fix: str, final: bool) -> None:
    # the last words of most ends
    found = progress.explain([*START[:4], line, "0.00.012.001 E srv  llama_server: exiting"], LLAMA_CPP.log)
    assert fix in found.fix
    assert found.final is final
    assert found.reason in line


def test_the_cause_is_told_before_what_follows_from_it() -> None:
    lines = ("error loading model: unknown model architecture: 'flux'", "E srv load_model: failed to load model, 'm'")
    assert "flux" in progress.explain(lines, LLAMA_CPP.log).reason


def test_what_is_counted_at_the_end_of_a_request_is_no_sign_of_life() -> None:
    text = "llamacpp:tokens_predicted_total 56\nllamacpp:prompt_tokens_total 5\nllamacpp:n_decode_total 161\n"
    assert watchdog_report.engine_counters(text, LLAMA_CPP.metrics) == (161.0,)


@pytest.mark.parametrize("name", ["llama-server", "ggml-rpc-server"])
def test_each_program_has_its_own_title(name: str) -> None:
    assert hang.engine_title(f"/opt/sparkthor/llama/{name}\0-c\x001\0") == name
    assert hang.engine_title(f"/usr/bin/python3\0/opt/x/{name}\0") == "llama-server"


def test_a_server_that_was_killed_has_said_nothing_of_it() -> None:
    lines = ("Starting RPC server v7.0.0", "  endpoint       : 127.0.0.2:50052", "  local cache    : n/a", "Devices:")
    more = ("  CPU: x (24105 MiB, 24105 MiB free)", "  transport      : TCP", "Accepted client connection")
    assert progress.explain([*lines, *more], LLAMA_CPP.log).reason == ""
