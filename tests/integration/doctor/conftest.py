# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asking the doctor about a lab, and laying faults on its hosts that go again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.integration.asking import SECONDS, Answer, ask


@pytest.fixture(scope="session")
def diagnose(cluster: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Answer]:
    folder = tmp_path_factory.mktemp("doctor")

    def run(*arguments: str) -> Answer:
        answer = ask(cluster.inventories, folder, *arguments)
        assert answer.doctor, answer.output
        assert not answer.traceback, answer.output
        assert answer.changed == {"0"}, answer.output
        assert answer.seconds < SECONDS, f"{answer.seconds:.1f} s"
        return answer

    return run


@pytest.fixture(scope="session")
def laid(cluster: Any) -> Callable[..., contextlib.AbstractContextManager[None]]:
    """A fault on a host for as long as the block lasts."""

    @contextlib.contextmanager
    def lay(host: str, make: str, undo: str) -> Iterator[None]:
        try:
            cluster.run(host, make)
            yield
        finally:
            cluster.run(host, undo)

    return lay
