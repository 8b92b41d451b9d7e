# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Models in GGUF: one of many in a repository of the hub, in a folder, or one file; half of one is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.sparkthor.cluster.plugins.module_utils._model import gguf
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import hub, models

from tests.unit.gguf_files import small_model, split_model
from tests.unit.hub_stand_in import COMMIT, Models, hub_of

NAMES = [
    *("README.md", "config.json", ".gitattributes", "imatrix.dat", "mmproj-F16.gguf", "m-Q4_K_M.gguf", "m-Q8_0.gguf"),
    *(f"BF16/m-BF16-0000{number}-of-00002.gguf" for number in (1, 2)),
    "model.safetensors",
]


@pytest.mark.parametrize(
    ("pattern", "weights"),
    [
        ("*Q4_K_M*", ["m-Q4_K_M.gguf"]),
        ("m-Q8_0.gguf", ["m-Q8_0.gguf"]),
        ("BF16/*", NAMES[7:9]),
        ("*-00002-of-00002.gguf", NAMES[7:9]),
    ],
)
def test_a_pattern_chooses_one_model_with_its_parts(pattern: str, weights: list[str]) -> None:
    assert hub.wanted(NAMES, pattern) == sorted([*weights, "README.md", "config.json", ".gitattributes"])


@pytest.mark.parametrize(
    ("names", "pattern", "problem"),
    [
        (NAMES, "*Q*", r"pattern '\*Q\*' fits 2 of them: it holds m-Q4_K_M.gguf, m-Q8_0.gguf. Correct the pattern"),
        (NAMES, "*IQ2*", "fits none of them: it holds BF16/m-BF16-00001-of-00002.gguf, m-Q4_K_M.gguf"),
        (["model.safetensors"], "*Q4*", "fits none of them: it holds no model in GGUF"),
        (NAMES[8:], "*BF16*", "lacks 1 of 2 parts, such as BF16/m-BF16-00001-of-00002.gguf"),
        (NAMES[:-1], "", r"it holds 3 models in GGUF \(BF16.*choose one by pattern, such as pattern: 'm-BF16"),
        (NAMES, "*.gguf", r"it holds 3 models in GGUF \(BF16.*choose one by pattern, such as pattern: 'm-BF16"),
        (NAMES[-1:], "*.gguf", "^it holds no model in GGUF: choose another$"),
    ],
)
def test_a_choice_that_is_none(names: list[str], pattern: str, problem: str) -> None:
    with pytest.raises(hub.HubError, match=problem):
        hub.wanted(names, pattern)


def test_without_a_pattern_other_forms_are_left_out_as_ever() -> None:
    assert hub.wanted(NAMES) == [name for name in NAMES if not name.endswith(".gguf")]
    assert hub.wanted(["m.gguf", "README.md"]) == ["m.gguf", "README.md"]
    # whose engine reads nothing else gets the one in GGUF
    assert hub.wanted(["m.gguf", "README.md", "model.safetensors"], gguf.ANY) == ["README.md", "m.gguf"]


def declared(source: Path | str, **more: Any) -> list[str]:
    found = models.declare([{"name": "m", "source": str(source), **more}], fetch=True)
    assert not {"pattern", "files"} & set(found.models[0])
    return [row[0] for row in found.models[0]["manifest"]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    place = tmp_path / "models"
    place.mkdir()
    (place / "LICENSE").write_text("of the model")
    small_model(place / "m-Q4.gguf")
    split_model(place, "m-Q8")
    return place


def test_one_file_is_a_model(folder: Path) -> None:
    assert declared(folder / "m-Q4.gguf") == ["m-Q4.gguf"]
    assert declared(folder / "m-Q8-00001-of-00002.gguf") == [f"m-Q8-0000{n}-of-00002.gguf" for n in (1, 2)]


def test_a_pattern_chooses_in_a_folder(folder: Path) -> None:
    assert declared(folder, pattern="*Q4*") == ["LICENSE", "m-Q4.gguf"]
    assert len(declared(folder, pattern="*Q8*")) == 3
    assert len(declared(folder)) == 4


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"source": "m-Q8-00002-of-00002.gguf"}, "is cut short|has .* bytes and should have"),
        ({"source": "none.gguf"}, "none.gguf"),
        ({"pattern": "*Q8*"}, "m: model_path='.*m-Q8-00002-of-00002.gguf': has .* bytes and should have"),
        ({"pattern": "*Q5*"}, "m: pattern '.Q5.' fits none of them"),
        ({"pattern": "*Q4*", "layout": "hub"}, "m: layout hub has all files of a model, and pattern chooses some"),
        ({"source": "m-Q4.gguf", "layout": "hub"}, "m: layout hub has all files of a model, and source chooses some"),
        ({"source": "https://example.com/m", "pattern": "*"}, "m: pattern chooses files of the hub or of a folder"),
    ],
)
def test_half_a_model_is_refused(folder: Path, given: dict[str, str], problem: str) -> None:
    last = folder / "m-Q8-00002-of-00002.gguf"
    os.truncate(last, last.stat().st_size - 1)
    source = given.get("source", "")
    rest = {key: value for key, value in given.items() if key != "source"}
    with pytest.raises(AnsibleActionFail, match=problem):
        declared(source if "://" in source else folder / source, **rest)


PROGRAM = """
import json, sys
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import hub, hub_card, models
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery.record import Record
found = {}
for pattern in json.loads(sys.argv[1]):
    given = [{"name": "m", "source": "owner/quants", "revision": "c" * 40, "pattern": pattern}]
    try:
        before = hub_card.models_of(given, Record(""))
        pending = models.declare(given, fetch=False).pending
        outlined = models.declare(given, fetch=True, outlines=True).models[0]["manifest"]
        rows = models.declare(given, fetch=True).models[0]["manifest"]
        after = hub_card.models_of(given, Record(""))
        found[pattern] = {"files": [row[0] for row in rows], "same": outlined == rows, "pending": pending,
                          "sizes": [before.sizes["m"], after.sizes["m"], sum(row[1] for row in rows)],
                          "again": len(after.downloads)}
    except Exception as error:
        found[pattern] = str(error)
print(json.dumps(found))
"""


@pytest.fixture
def quants(tmp_path: Path) -> Models:
    q4 = small_model(tmp_path / "m-Q4.gguf").read_bytes()
    parts = [path.read_bytes() for path in split_model(tmp_path)]
    held: dict[str, bytes | int] = {
        "README.md": b"# m",
        "m-Q4.gguf": q4,
        "m-torn.gguf": q4[:-1],
        **{f"Q8/m-Q8-0000{number}-of-00002.gguf": part for number, part in enumerate(parts, 1)},
    }
    return Models({"owner/quants": held})


@pytest.fixture
def url(quants: Models) -> Iterator[str]:
    with hub_of(quants) as address:
        yield address


def test_models_of_one_repository_side_by_side(url: str, quants: Models, tmp_path: Path) -> None:
    """Each is fetched when it is asked for, found again, and never taken for another one."""
    patterns = ["*Q4*", "Q8/*", "*torn*", "*Q5*", ""]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(patterns)],
        env={
            "PATH": os.environ["PATH"], "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), "HF_ENDPOINT": url,
            "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_XET": "1",
        },
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    for pattern, weights in (("*Q4*", ["m-Q4.gguf"]), ("Q8/*", [f"Q8/m-Q8-0000{n}-of-00002.gguf" for n in (1, 2)])):
        one = found[pattern]
        assert sorted(one["files"]) == sorted(["README.md", *weights])
        assert one["same"] is True
        assert one["pending"] == ["m"]
        assert len(set(one["sizes"])) == 1
        assert one["again"] == 0
    assert "owner/quants" in found["*torn*"]
    assert "m-torn.gguf': has " in found["*torn*"]
    assert "owner/quants: pattern '*Q5*' fits none of them" in found["*Q5*"]
    assert "owner/quants: it holds 3 models in GGUF" in found[""]
    fetched = [name for name in quants.sent if name.endswith(".gguf")]
    assert len(fetched) == len(set(fetched)) == 4
    assert COMMIT == "c" * 40
