# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which lines count as saying vLLM where any engine may be meant, and that there are no more of them than before."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import engine_words


@pytest.mark.parametrize(
    "line",
    [
        '"""vLLM ends then."""',
        'if name == "vllm":',
        "vllm_args.parsed(value)",
        'raise Error(f"{variable}: vLLM refuses it")',
    ],
)
def test_lines_that_count(line: str) -> None:
    assert engine_words.says_engine(line)


@pytest.mark.parametrize(
    "line",
    [
        "port = given.vllm_serve_api_port",
        'unit = "sparkthor-vllm-small.service"',
        'socket = "/run/sparkthor/beside/small/vllm/vllm.sock"',
        "from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import vllm_args",
        "the engine's log",
    ],
)
def test_names_that_stay_do_not(line: str) -> None:
    assert not engine_words.says_engine(line)


def test_the_adapter_s_files_are_left_out(tmp_path: Path) -> None:
    for name in ("module_utils/_onhost/engines/vllm.py", "plugin_utils/_plan/vllm_args.py", "module_utils/_lib/a.py"):
        path = tmp_path / "plugins" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("vLLM\n\nvLLM and vllm\n", encoding="utf-8")
    assert engine_words.counted(tmp_path) == {"plugins/module_utils/_lib/a.py": 2}


def test_one_more_is_named_and_one_that_moved_is_not() -> None:
    (said,) = engine_words.grown({"a.py": 2, "b.py": 1}, {"a.py": 1, "b.py": 1})
    assert said.startswith("a.py says vLLM in 2 lines and may in 1: ")
    assert not engine_words.grown({"a.py": 2}, {"a.py": 1, "b.py": 1})


def test_there_are_no_more_than_the_list_says_and_it_says_sixty_at_most() -> None:
    assert not engine_words.grown(engine_words.counted(), engine_words.held())
    assert sum(engine_words.held().values()) <= 60
