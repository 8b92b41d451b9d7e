# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.waiting import Waiting


def test_waiting_speaks_every_ten_seconds_at_most() -> None:
    waiting = Waiting("spark-01", 100, 3, 0.0)
    assert waiting.say({"line": "loading: a"}, 0.0) == "spark-01: 0 s: loading: a"
    assert waiting.say({"line": "loading: b"}, 4.0) == ""
    assert waiting.say({"line": "loading: b"}, 12.0) == "spark-01: 12 s: loading: b"
    assert waiting.say({"line": "loading: b"}, 30.0) == ""
    assert waiting.say({"line": "loading: b"}, 75.0) == "spark-01: 1 min 15 s: loading: b"


def test_waiting_gives_up_with_the_reason() -> None:
    waiting = Waiting("spark-01", 100, 2, 0.0)
    failure = {"reason": "OSError: x", "fix": "", "final": False, "invocation": "a"}
    assert waiting.verdict({"failure": failure}, 1.0) == ""
    assert waiting.verdict({"failure": failure}, 5.0) == ""  # the same failed start, seen again
    verdict = waiting.verdict({"failure": {**failure, "invocation": "b"}}, 9.0)
    assert verdict.startswith("the engine failed to start 2 times on spark-01: OSError: x.")
    final = Waiting("spark-01", 100, 5, 0.0)
    assert "Fix: correct it." in final.verdict({"failure": {**failure, "final": True, "fix": "correct it"}}, 1.0)
    late = Waiting("spark-01", 100, 5, 0.0)
    assert "within vllm_serve_ready_timeout (1 min 40 s)" in late.verdict({"line": "loading: 41 %"}, 100.0)
    assert "loading: 41 %" in late.verdict({"line": "loading: 41 %"}, 100.0)
    assert late.unanswered("ssh", 0.0) == ""
    assert "gave no answer" in late.unanswered("ssh", 121.0)


def test_the_log_of_the_unit_that_is_waited_for_is_named() -> None:
    for unit, named in (({}, "sparkthor-vllm"), ({"unit": "sparkthor-vllm-embed.service"}, "sparkthor-vllm-embed")):
        text = Waiting("spark-01", 0, 1, 0.0, **unit).verdict({"line": "loading"}, 1.0)
        assert text.endswith(f"journalctl -b -u {named}")
