# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What names a model, and where its folder on the controller is, whoever asks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.checkpoint import SAFETENSORS_FIX
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import hub_card, models
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery.record import Record
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory import model_source
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import serving


@pytest.mark.parametrize(
    "name", ["org/m", "Qwen/Qwen3-0.6B", "m", "m.v1-x_2", "/srv/my models/m", "./m", "~/a/m/", "https://h/m"]
)
def test_a_model_is_named_in_one_of_these_ways(name: str) -> None:
    assert model_source.problem(name) is None


@pytest.mark.parametrize("name", ["a/b/c", "org/", "a/b/", "", "m m", "m:latest", "@m", "./", "~/my m"])
def test_what_names_nothing_is_refused(name: str) -> None:
    what, fix = model_source.problem(name) or ("", "")
    assert what.startswith("is neither an id of the hub (owner/model) nor a folder nor a name in the model store")
    assert fix


@pytest.mark.parametrize("name", ["org/m-GGUF:Q4_K_M", "/srv/m.gguf", "m.GGUF", "./m-Q4.gguf", "org/m.gguf"])
def test_ggufs_are_told_what_to_choose(name: str) -> None:
    assert model_source.problem(name) == ("names weights in GGUF, which are not planned", SAFETENSORS_FIX)


def test_a_folder_is_the_same_for_all_who_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "m").symlink_to("real")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    real = str(tmp_path / "real")
    assert [model_source.folder(one) for one in ("./m", "~/m", f"{tmp_path}/m/")] == [real] * 3
    declared = [{"name": "x", "source": "./m"}, {"name": "hub", "source": "org/hub"}]
    assert model_source.folder_of("x", declared) == model_source.folder_of("org/x", declared) == real
    assert model_source.folder_of("~/m", []) == real
    # one that begins with / is a folder of the hosts
    assert [model_source.folder_of(one, declared) for one in ("hub", f"{tmp_path}/m", "org/m", "y")] == [""] * 4


def test_the_plan_reads_the_folder_that_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another of that name is beside the inventory."""
    for place, size in ((tmp_path / "inventory", 8), (tmp_path / "here", 16)):
        (place / "m").mkdir(parents=True)
        (place / "m/config.json").write_text("{}")
        header = json.dumps({"x": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
        (place / "m/model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(size))
    monkeypatch.chdir(tmp_path / "here")
    given = [{"name": "m", "source": "./m"}]
    first = {"vllm_serve_model": "m", "model_store_models": given}
    _config, weights, _remark = serving.model_on_controller({"model": "m"}, first, str(tmp_path / "inventory"))
    assert weights == 16
    assert models.declare(given, fetch=False).folders["m"][0] == str(tmp_path / "here/m")
    sizes = hub_card.models_of(given, Record(None)).sizes
    assert sizes["m"] == sum(path.stat().st_size for path in (tmp_path / "here/m").iterdir())


@pytest.mark.parametrize(
    ("first", "variable"),
    [
        ({"vllm_serve_model": "m", "model_store_models": [{"name": "m", "source": "/lost/m"}]}, "model_store_models"),
        ({"vllm_serve_model": "./lost/m"}, "vllm_serve_model"),
    ],
)
def test_a_folder_that_is_not_there_is_said_of_the_variable_that_names_it(
    first: dict[str, Any], variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SizingError, match=rf"\A{variable}='[^']*/lost/m': is not a folder of the controller\."):
        serving.model_on_controller({"model": first["vllm_serve_model"]}, first, "/")
