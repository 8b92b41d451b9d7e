# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of a recipe goes with what the user puts in its place: the rest of it was said of the replaced thing alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory import model_source
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.settings import option_name

#: fields that are said of the model, and what stands where they are not
_OF_MODEL: Mapping[str, Any] = {
    **{"revision": "", "served_model_name": "", "weights_bytes": None, "active_bytes": None, "config": None},
}
#: arguments that name a commit of the model's own repository
_COMMITS = ("revision", "code-revision", "tokenizer-revision")
_DRAFTS = "speculative-config"


def with_dependents(data: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The recipe without what belongs to a model, an image or a runtime that ``given`` replaces; what is to be said.

    A folder, or a name in the model store, that ends like the recipe's model is that model at another place.
    """
    kept: dict[str, Any] = dict(data)
    notes: list[str] = []
    another_image = given.get("image_archive") or given.get("image", data["image"]) != data["image"]
    if another_image:
        kept["image_digest"] = ""
    if another_image or given.get("runtime", data["runtime"]) != data["runtime"]:
        kept["vllm"] = {**data["vllm"], "pinned": ""}
    theirs, mine = str(data["model"]), str(given.get("model") or data["model"])
    if mine == theirs:
        return kept, notes
    kept["revision"] = ""
    kept["args"] = {key: value for key, value in data["args"].items() if option_name(key) not in _COMMITS}
    elsewhere = not model_source.on_hub(mine) and _last(mine) == _last(theirs)
    if not elsewhere:
        kept.update(_OF_MODEL)
    gone = [name.replace("_", " ") for name in _OF_MODEL if data[name] and not kept[name]]
    gone += [f"--{name}" for name in data["args"] if name not in kept["args"]]
    if gone:
        notes.append(f"recipe {data['name']}: {mine} is served instead of {theirs}, so without its {', '.join(gone)}")
    return kept, notes


def _last(model: str) -> str:
    return model.rstrip("/").rpartition("/")[2]


def without_partition(
    environment: Mapping[str, Any],
    given: Mapping[str, Any],
    data: Mapping[str, Any],
    stages: int,
    layers: int | None,
    name: str,
) -> tuple[dict[str, Any], list[str]]:
    """The environment without a recipe's division of the layers that is none of the user's own split or model.

    ``name`` is the engine's variable.
    """
    another = str(given.get("model") or data["model"]) != data["model"]
    replaced = another or given.get("tensor_parallel") or given.get("pipeline_parallel")
    theirs = name in environment and name not in given.get("environment", {})
    if not (replaced and theirs):
        return dict(environment), []
    if divides(environment[name], stages, layers) and not (another and layers is None):
        return dict(environment), []
    kept = {key: value for key, value in environment.items() if key != name}
    what = f"{name}={environment[name]} of the recipe"
    return kept, [f"recipe {data['name']}: {what} is left out: it divides another split or model"]


def without_drafter(
    args: Mapping[str, Any], given: Mapping[str, Any], data: Mapping[str, Any], stages: int
) -> tuple[dict[str, Any], list[str]]:
    """The arguments without a recipe's drafting by layers of the model itself, which is for one stage alone.

    Engines refused to start with both until of late (issues 49355 and 52069 of the project). Who wants to try sets it.
    """
    asked = args.get(_DRAFTS)
    method = str(asked.get("method") or "") if isinstance(asked, Mapping) else ""
    theirs = _DRAFTS not in {option_name(name).partition(".")[0] for name in given.get("args", {})}
    if stages < 2 or not theirs or not method.endswith("mtp"):
        return dict(args), []
    kept = {name: value for name, value in args.items() if name != _DRAFTS}
    return kept, [
        f"recipe {data['name']}: {_DRAFTS} (method {method}) is left out: engines have refused it on {stages} "
        f"pipeline stages; to try it with the one that serves, set it among the group's own arguments"
    ]


def divides(partition: Any, stages: int, layers: int | None) -> bool:
    """Whether an engine takes this division for so many stages and layers, where the layers are known."""
    parts = str(partition).split(",")
    if len(parts) != stages or not all(re.fullmatch(r"\s*[0-9]+\s*", part) for part in parts):
        return False
    return layers is None or sum(int(part) for part in parts) == layers


def check_partition(environment: Mapping[str, Any], stages: int, layers: int | None, name: str, engine: str) -> None:
    """Raises SizingError for a division of the layers with which the engine does not start."""
    if name not in environment or divides(environment[name], stages, layers):
        return
    words = f"{layers} layers in all" if layers is not None else "the model's layers"
    raise SizingError(
        name,
        environment[name],
        f"does not name {stages} stage{'s' if stages > 1 else ''} with {words}, and {engine} does not start with it",
        f"Give {stages} number{'s that add' if stages > 1 else ' that adds'} up to "
        f"{layers if layers is not None else 'them'}, or leave it out.",
    )
