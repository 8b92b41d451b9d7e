# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import ast
from collections.abc import Sequence

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import trial
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.pins import EngineError

PLENTY = 64 << 30
FOUND = {"vllm": "0.33.0", "ray": "2.60.0", "torch": "2.13", "gpu": "NVIDIA GB10", "nccl": "2.30.7"}


class Engine:
    def __init__(self, status: int = 0, out: str = 'noise\n{"vllm": "0.33.0"}\n', err: str = "") -> None:
        self.answer, self.asked = (status, out, err), []

    def __call__(self, argv: Sequence[str], seconds: float, program: str) -> tuple[int, str, str]:
        self.asked.append((list(argv), seconds))
        ast.parse(program)
        return self.answer


def test_the_engine_is_asked_as_one_that_the_kernel_ends_first() -> None:
    engine = Engine()
    assert trial.attempt(["/v/bin/python"], True, 60, PLENTY, engine) == ({"vllm": "0.33.0"}, "")
    [(argv, seconds)] = engine.asked
    assert argv[:6] == ["timeout", "--signal=KILL", "60", "choom", "-n", "1000"]
    assert argv[-3:] == ["/v/bin/python", "-", "model"]
    assert seconds > 60


def test_a_container_of_the_trial_is_gone_before_it_and_afterwards() -> None:
    engine = Engine(1)
    with pytest.raises(EngineError):
        trial.attempt(["docker", "run", "--name", trial.CONTAINER, "image"], False, 60, PLENTY, engine)
    gone = ["docker", "rm", "--force", trial.CONTAINER]
    assert [argv == gone for argv, _seconds in engine.asked] == [True, False, True]


def test_where_memory_is_short_less_is_tried_and_that_is_said() -> None:
    engine = Engine()
    found, left_out = trial.attempt(["p"], True, 60, 5 << 30, engine)
    assert found
    assert engine.asked[0][0][-1] == "imports"
    assert left_out == "no model was tried: only 5.0 GiB of memory are free, 8 are needed"
    assert trial.attempt(["p"], False, 60, 5 << 30, engine)[1] == ""
    found, left_out = trial.attempt(["p"], False, 60, 1 << 30, Engine())
    assert (found, left_out) == ({}, "not tried: only 1.0 GiB of memory are free, and 3 are needed")


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        (Engine(1, "", "Traceback\nImportError: libcudart.so.13: cannot open\n"), "cannot be imported: ImportError"),
        (Engine(0, "nothing\n"), "nothing"),
        (Engine(137, ""), r"no answer within 60 s \(engine_trial: false"),
    ],
)
def test_an_engine_that_does_not_come_up_is_refused_with_its_own_words(engine: Engine, words: str) -> None:
    with pytest.raises(EngineError, match=words) as caught:
        trial.attempt(["p"], False, 60, PLENTY, engine)
    assert str(caught.value).endswith("The engine in use was left as it is.")


def test_an_environment_that_does_not_come_up_is_named() -> None:
    """Files that a full disk damaged keep their sizes, so that nothing but their owner can say so."""
    command = ["runuser", "-u", "sparkthor", "--", "/opt/sparkthor/venvs/24a32b28e00aab18.0/bin/python"]
    with pytest.raises(
        EngineError, match=r"damaged: remove /opt/sparkthor/venvs/24a32b28e00aab18\.0, and the next run installs it"
    ):
        trial.attempt(command, False, 60, PLENTY, Engine(1, "", "ImportError: bad magic number\n"))


@pytest.mark.parametrize("python", ["/usr/bin/python", "/opt/venv/bin/python", "python3"])
def test_nothing_but_an_environment_of_ours_is_named_for_removal(python: str) -> None:
    with pytest.raises(EngineError) as caught:
        trial.attempt(["runuser", "-u", "sparkthor", "--", python], False, 60, PLENTY, Engine(1, "", "ImportError\n"))
    assert "remove" not in str(caught.value)


@pytest.mark.parametrize("said", ["{no json}", '{"a":' + "[" * 100_000 + "]" * 100_000 + "}"])
def test_an_engine_whose_words_nobody_can_read_is_refused(said: str) -> None:
    with pytest.raises(EngineError, match="what it says cannot be read: n"):
        trial.attempt(["p"], False, 60, PLENTY, Engine(0, f"{said}\n"))


def test_a_sound_engine_passes() -> None:
    trial.check(FOUND, {"vllm": "0.33.0", "ray": "2.60.0"}, "spark", "2.30.7")
    # an image that serves by mp need not have Ray, and its Ray is not asked for
    trial.check({key: value for key, value in FOUND.items() if key != "ray"}, {"vllm": "0.33.0"}, "spark", "")
    # not tried for lack of memory, or without a GPU where none is wanted
    trial.check({}, {"vllm": "0.33.0"}, "spark", "2.30.7")
    trial.check({**FOUND, "gpu": "", "nccl": ""}, {}, "generic", "2.30.7")
    # a build for CPUs looks for no GPU, wherever it is tried
    trial.check({**FOUND, "vllm": "0.33.0+cpu", "gpu": "", "nccl": ""}, {}, "spark", "")


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"vllm": "0.32.0"}, "says that it is vllm 0.32.0, and 0.33.0 was installed"),
        ({"gpu": ""}, "sees no GPU on this spark"),
        ({"nccl": "2.29.1"}, "brings NCCL 2.29.1, and this topology needs 2.30.7"),
    ],
)
def test_what_is_wrong_with_an_engine(found: dict[str, str], words: str) -> None:
    with pytest.raises(EngineError, match=words):
        trial.check({**FOUND, **found}, {"vllm": "0.33.0"}, "spark", "2.30.7")


def test_free_memory_is_read() -> None:
    assert trial.available() > 1 << 20


def test_each_engine_has_a_program_of_its_own() -> None:
    engine = Engine(0, '{"sglang": "0.5.23"}\n')
    found, left_out = trial.attempt(["p"], True, 60, PLENTY, engine, "sglang")
    assert (found, engine.asked[0][0][-1]) == ({"sglang": "0.5.23"}, "imports")
    assert left_out == "no model was tried: of sglang the import alone is"
    with pytest.raises(EngineError, match=r"says that it is sglang 0\.5\.23, and 0\.5\.17 was installed"):
        trial.check(found, {"sglang": "0.5.17"}, "", "")
    unknown = Engine()
    assert trial.attempt(["p"], True, 60, PLENTY, unknown, "flux") == ({}, "not tried: no trial of flux is known")
    assert unknown.asked == []
