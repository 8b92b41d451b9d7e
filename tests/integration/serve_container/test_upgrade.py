# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Another image on hosts that serve: refused, taken back, taken, and back again days later.  Last of this folder."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import TOP
from tests.integration.lifecycle.conftest import Lifecycle
from tests.integration.serve.conftest import Serving
from tests.integration.serve_container.derived import GONE, derive, newer_image

ARCHIVE = TOP / ".lab/engine/image.tar"
#: what CPUs of a small machine can promise
PROOF = {"upgrade_speed": 0.2, "upgrade_wait": 300}


@pytest.fixture(scope="module")
def lifecycle(serving: Serving) -> Lifecycle:
    found = Lifecycle(serving.cluster)
    found.site(whole=True)
    found.assert_answers_as_one_host()
    return found


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    path = newer_image(ARCHIVE, tmp_path_factory.mktemp("newer"))
    yield {"engine_image_archive": str(path)}
    path.unlink()


def images(lifecycle: Lifecycle) -> set[str]:
    """The file by which an image of these tests is known, as Ray's containers have it."""
    command = "docker exec sparkthor-ray cat /etc/lab-image 2>/dev/null || echo first"
    return {lifecycle.cluster.run(host, command).strip() for host in lifecycle.cluster.hosts}


def without_msgspec(lifecycle: Lifecycle, folder: Path) -> dict[str, Any]:
    program = "import msgspec; print(msgspec.__path__[0])"
    where = lifecycle.cluster.run(lifecycle.cluster.head, f"docker exec sparkthor-ray python3 -c '{program}'").strip()
    parent, name = posixpath.split(where.lstrip("/"))
    path = folder / "image.tar"
    derive(ARCHIVE, path, "sparkthor-lab/vllm:torn", {f"{parent}/{GONE}{name}": b""})
    return {"engine_image_archive": str(path)}


def no_file(_lifecycle: Lifecycle, folder: Path) -> dict[str, Any]:
    return {"engine_image_archive": str(folder / "nothing.tar")}


@pytest.mark.parametrize(
    ("make", "words"), [(no_file, "nothing.tar"), (without_msgspec, "msgspec")], ids=["no archive", "import"]
)
def test_an_image_that_is_not_sound_touches_nothing(
    lifecycle: Lifecycle, tmp_path: Path, make: Any, words: str
) -> None:
    variables = make(lifecycle, tmp_path)
    units, files = lifecycle.units(), lifecycle.files()
    with lifecycle.watched(words):
        outcome = lifecycle.play("playbooks/upgrade.yml", **PROOF, **variables)
    assert outcome.rc != 0
    assert words in outcome.output, outcome.failures
    assert (lifecycle.units(), lifecycle.files()) == (units, files)
    assert images(lifecycle) == {"first"}
    assert lifecycle.complete(20)


def test_an_image_that_does_not_start_goes_back(lifecycle: Lifecycle, newer: dict[str, Any]) -> None:
    files = lifecycle.files()
    broken = {"vllm_serve_args": {"hf-overrides": {"architectures": ["NoSuchModel"]}}}
    with lifecycle.watched("start"):
        outcome = lifecycle.play("playbooks/upgrade.yml", **PROOF, **newer, **broken)
    assert outcome.rc != 0
    assert "The former engine serves again" in outcome.output, outcome.failures
    assert images(lifecycle) == {"first"}
    assert lifecycle.files() == files
    lifecycle.assert_answers_as_one_host()


def test_another_image_there_and_back(lifecycle: Lifecycle, newer: dict[str, Any]) -> None:
    with lifecycle.watched("upgrade"):
        outcome = lifecycle.play("playbooks/upgrade.yml", **PROOF, **newer)
    assert outcome.rc == 0, outcome.failures
    assert images(lifecycle) == {"newer"}
    lifecycle.assert_answers_as_one_host()
    again = lifecycle.play("playbooks/upgrade.yml", **PROOF, **newer)
    assert (again.rc, again.changes) == (0, []), again.changed
    with lifecycle.watched("back to the former image"):
        back = lifecycle.play("playbooks/rollback.yml", roll_back_to="previous")
    assert back.rc == 0, back.failures
    assert images(lifecycle) == {"first"}
    lifecycle.assert_answers_as_one_host()
