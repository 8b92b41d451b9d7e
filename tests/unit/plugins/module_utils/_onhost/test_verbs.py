# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import exporter, verbs


def test_a_verb_gets_its_arguments_and_gives_its_status(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[list[str]] = []

    def main(arguments: list[str]) -> int:
        called.append(arguments)
        return 75

    monkeypatch.setattr(exporter, "main", main)
    assert verbs.main(("exporter", "--port", "9")) == 75
    assert called == [["--port", "9"]]


@pytest.mark.parametrize("words", [[], ["wathcdog"], ["wathcdog", "--help"]])
def test_a_verb_that_is_not_there_is_an_error(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert verbs.main(words) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("usage: sparkthor_host compiled|")


@pytest.mark.parametrize("word", ["--help", "-h"])
def test_help_is_no_error_and_names_every_verb(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert verbs.main([word]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert all(verb in said.out for verb in verbs.VERBS)
