# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the name or the source of a model means: an id of the hub, a folder, a URL, or a name in the model store.  Pure
but for links on the way to a folder."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._model import gguf
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.checkpoint import SAFETENSORS_FIX
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import valid_name

_ID = re.compile(r"\A[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*\Z")
#: one file of llama.cpp's form, or its quantization behind the id of the hub
_GGUF = re.compile(r"\.gguf\Z|\A[^/:]+/[^/:]+:[^/:]+\Z", re.IGNORECASE)


def on_hub(name: str) -> bool:
    """Whether it is an id of the hub, ``owner/model``."""
    return _ID.match(name) is not None


def in_gguf(name: str) -> bool:
    """Whether the name means one model in GGUF: a file, or a quantization of a repository."""
    return _GGUF.search(name) is not None


def is_folder(source: str) -> bool:
    return source.startswith(("/", ".", "~"))


def on_controller(model: str) -> bool:
    """Whether a model to serve is a folder of the controller: one that begins with ``/`` is each host's own."""
    return model.startswith((".", "~"))


def folder(source: str) -> str:
    """A folder of the controller, whoever asks for it: from where Ansible was started, without links."""
    return os.path.realpath(os.path.expanduser(source))


def last(model: str) -> str:
    """The last part of a name: what the model store calls the model, and clients unless they are told otherwise."""
    return model.rstrip("/").rpartition("/")[2]


def folder_of(model: str, declared: Iterable[Mapping[str, Any]]) -> str:
    """The folder of the controller from which hosts get this model, by ``model_store_models`` or by its own name; empty
    where there is none."""
    itself = [{"name": last(model), "source": model}] if on_controller(model) else []
    for entry in [*declared, *itself]:
        source = str(entry.get("source") or "")
        if entry.get("name") == last(model) and is_folder(source):
            return folder(source)
    return ""


def require_folder(model: str, folder: str, declared: Iterable[Mapping[str, Any]]) -> None:
    """Raises SizingError, of the variable that names it, where the folder of :func:`folder_of` is not there."""
    if not os.path.isdir(folder):
        stored = any(entry.get("name") == last(model) for entry in declared)
        fix = "Put the model there, or name a repository of a hub instead."
        variable = "model_store_models" if stored else "vllm_serve_model"
        raise SizingError(variable, folder, "is not a folder of the controller", fix)


def gguf_file(model: str, folder: str, declared: Iterable[Mapping[str, Any]]) -> str:
    """The first file of the model in GGUF that :func:`folder_of` has found, by its pattern where it has one.

    Raises SizingError where there is none, or several.
    """
    pattern = next((str(one.get("pattern") or "") for one in declared if one.get("name") == last(model)), "")
    if not os.path.isdir(folder):
        names = [os.path.basename(folder)]
        folder = os.path.dirname(folder)
    else:
        names = os.listdir(folder)
    found = [name for name in gguf.models_in(names) if not pattern or gguf.fits(name, pattern)]
    if len(found) != 1:
        held = f"holds {len(found)} models in GGUF ({', '.join(found)})" if found else "holds no model in GGUF"
        raise SizingError("vllm_serve_model", folder, held, "Choose one by pattern, or take an engine for safetensors.")
    return os.path.join(folder, found[0])


def problem(model: str, takes_gguf: bool = False) -> tuple[str, str] | None:
    """What is wrong with the name of a model to serve, and the fix."""
    if in_gguf(model):
        if takes_gguf:
            return None
        return "names weights in GGUF, which are not planned", SAFETENSORS_FIX
    if on_hub(model) or "://" in model or model.startswith("/"):
        return None
    if not valid_name(last(model) if on_controller(model) else model):
        what = "is neither an id of the hub (owner/model) nor a folder nor a name in the model store"
        return what, "Correct it; a folder begins with /, ./ or ~."
    return None
