# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import progress as p

LOG = [
    "(APIServer pid=566) INFO 11-21 02:49:30 [utils.py:325] non-default args: {'model': 'tiny', 'warmup': 1}",
    "(APIServer pid=566) INFO 11-21 02:49:33 [model.py:500] Resolved architecture: Qwen3ForCausalLM",
    "(EngineCore pid=601) INFO 11-21 02:49:40 [core.py:70] Initializing a V1 LLM engine (v0.32.0) with config: "
    "compilation_config={'cudagraph_num_of_warmups': 1, 'mode': 2}, torch.compile",
    "(EngineCore pid=601) INFO 11-21 02:49:44 [cpu_model_runner.py:57] Starting to load model tiny",
    "\rLoading safetensors checkpoint shards:   0% Completed | 0/4 [00:00<?, ?it/s]\r"
    "Loading safetensors checkpoint shards:  50% Completed | 2/4 [00:00<00:00, 4it/s]",
]


def test_progress_follows_the_stages() -> None:
    assert p.progress([]).fraction is None
    assert p.progress(LOG[:2]).text.startswith("starting")
    engine = p.progress(LOG[:3])
    assert engine.text.startswith("engine starts")
    assert engine.fraction < 0.1
    half = p.progress(LOG)
    assert half.text == "loading weights 50 %"
    assert half.fraction == pytest.approx(0.45)
    done = p.progress([*LOG, "INFO 11-21 02:49:50 [x.py:1] Application startup complete."])
    assert done.fraction == 0.99


def test_progress_never_runs_backwards_in_the_tail_of_a_log() -> None:
    earlier = p.progress(LOG)
    later = p.progress(["(EngineCore pid=601) INFO 11-21 02:49:51 [a.py:3] something new"], earlier)
    assert later.fraction == earlier.fraction
    assert later.mark == "something new"
    assert later.text == "loading weights 50 %: something new"
    assert p.progress([], earlier).mark == earlier.mark


def test_mark_changes_with_every_new_line_but_not_with_dull_ones() -> None:
    assert p.progress([*LOG, "INFO: 127.0.0.1 - GET /health"]).mark == p.progress(LOG).mark


def test_only_what_the_engine_logs_is_shown() -> None:
    log = [
        *LOG,
        "(Worker pid=7) INFO 11-21 02:49:51 [a.py:3] Using the CPU attention backend",
        "(Worker pid=7) WARNING 11-21 02:49:52 [a.py:4] Found ulimit of 20000 and failed to automatically increase",
        "(Worker pid=7) INFO 11-21 02:49:52 [a.py:4] Triton is installed but 0 active driver(s) found",
        "W1121 02:49:53.648000 1346 torch/_library/triton.py:53] Triton not available, find_triton_kernels = []",
        '  wrapper = lookup(vars(value).get("kernel"))',
    ]
    found = p.progress(log)
    assert found.text == "loading weights 50 %: Using the CPU attention backend"
    # whatever is new counts as progress, shown or not
    assert found.mark == 'wrapper = lookup(vars(value).get("kernel"))'


def test_messages_of_the_journal() -> None:
    rows = [json.dumps({"MESSAGE": "plain"}), json.dumps({"MESSAGE": list(b"\rbar 5%")}), "{", json.dumps({"X": 1})]
    rows.append('{"MESSAGE": ' + "[" * 100_000 + "]" * 100_000 + "}")
    assert p.messages("\n".join(rows)) == ["plain", "\rbar 5%"]


CASES = [
    (
        "heads",
        [
            "(APIServer pid=1) pydantic_core._pydantic_core.ValidationError: 1 validation error for VllmConfig",
            "  Value error, Total number of attention heads (32) must be divisible by tensor parallel size (3).",
        ],
        "divisible by tensor parallel size (3)",
        True,
    ),
    (
        "root cause before the tail",
        [
            "(EngineCore pid=9) ERROR 11-21 02:00:00 [core.py:1] OSError: cannot open shared object: libnuma.so.1",
            "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above.",
        ],
        "libnuma.so.1",
        False,
    ),
    ("usage", ["vllm: error: unrecognized arguments: --swap-space 4"], "--swap-space", True),
    ("only vague", ["RuntimeError: Engine core initialization failed. See root cause above."], "initialization", False),
    ("no error line", ["spark-03 is absent: no raylet on 10.0.0.3", ""], "spark-03 is absent", False),
    ("memory", ["torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"], "out of memory", False),
    ("silence", [], "", False),
]


@pytest.mark.parametrize(("lines", "reason", "final"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_explain(lines: list[str], reason: str, final: bool) -> None:
    failure = p.explain(lines)
    assert reason in failure.reason
    assert failure.final is final
    assert bool(failure.fix) or not final


def test_settings_that_the_engine_logs_are_no_cause():
    """vLLM 0.32 names every setting in one line of each start."""
    lines = [
        "(EngineCore pid=5057) INFO 11-21 09:42:13 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: "
        "model='/var/lib/sparkthor/models/tiny-qwen3', trust_remote_code=True, dtype=torch.float32",
        "(EngineCore pid=5057) ERROR 11-21 09:42:23 [core.py:1510] EngineCore failed to start.",
        "RuntimeError: Unable to resolve hostname to a (local) address",
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
    ]
    found = p.explain(lines)
    assert found.reason == "RuntimeError: Unable to resolve hostname to a (local) address"
    assert not found.final


def test_a_model_with_code_of_its_own_is_told_from_its_loaders_words():
    """transformers' sentence, of dynamic_module_utils.py."""
    line = (
        "ValueError: The repository org/model contains custom code which must be executed to correctly load the model. "
        "Please pass the argument `trust_remote_code=True` to allow custom code to be run."
    )
    found = p.explain([line])
    assert found.final
    assert "trust-remote-code" in found.fix
