# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible.errors import AnsibleLookupError
from ansible_collections.sparkthor.cluster.plugins.lookup.onhost import LookupModule
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import onhost


def lookup(*terms: str) -> object:
    (answer,) = LookupModule().run(list(terms))
    return answer


def test_the_answers() -> None:
    assert lookup("package") == onhost.package_state()
    assert lookup("program_files", "rank") == onhost.program_files("rank")
    assert lookup("program_digest", "watchdog") == onhost.program_digest("watchdog")


@pytest.mark.parametrize("terms", [(), ("packages",), ("package", "rank"), ("program_files",)])
def test_a_question_without_an_answer(terms: tuple[str, ...]) -> None:
    with pytest.raises(AnsibleLookupError, match="asks for nothing"):
        lookup(*terms)


def test_a_program_that_is_not_there_is_named() -> None:
    with pytest.raises(AnsibleLookupError, match="no program 'gate' in the package"):
        lookup("program_files", "gate")
