# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What planning needs of a model on the hub, without its weights: config.json, and the sizes of the files.

What was learned is kept on the controller, so that status, verify and a plan without the hub know it too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.files import read_json, write_atomic
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.checkpoint import (
    INDEXES,
    MISTRAL_ALONE,
    SAFETENSORS_FIX,
    other_forms,
    read_config,
    weight_form,
    weight_map_files,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError
from ansible_collections.sparkthor.cluster.plugins.module_utils._store import hub_caches
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.content import human
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import valid_sha256
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import (
    hub,
    hub_fetch,
    hub_outline,
    models,
    push,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery.record import Record
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory import model_source

#: what is read of a model before it is fetched
_SMALL = ("config.json", "params.json", "hf_quant_config.json", *INDEXES)
#: bytes a second of the download whose minutes are shown before one has begun
ASSUMED_RATE = 100e6


class Card(NamedTuple):
    """A model of the hub as it can be known before it is fetched."""

    commit: str
    config: dict[str, Any]
    weights: int  # bytes of the files that the engine loads
    size: int  # bytes of all files that are fetched


class Download(NamedTuple):
    """A model that the controller has to fetch."""

    name: str  # in the model store
    source: str
    size: int
    missing: int
    cache: str
    host: str = ""  # whose own cache has most of it
    there: int = 0
    by_host: str = ""  # why a host fetches it and not the controller; empty where the controller does

    def line(self) -> str:
        minutes = self.lacking / ASSUMED_RATE / 60
        here = f", {human(self.size - self.missing)} of it are in {self.cache}" if self.missing < self.size else ""
        if self.host:
            here += f", {human(self.there)} are in a hub cache of {self.host} and taken from there"
        line = f"{self.source}: {human(self.size)}{here}; to fetch {human(self.lacking)}, {minutes:.0f} min at 100 MB/s"
        return f"{line}, by the first host: {self.by_host}" if self.by_host else line

    @property
    def lacking(self) -> int:
        """Bytes that neither the controller nor that host has."""
        return max(0, self.missing - self.there)


def _kept(repo: str, revision: str) -> str:
    return push.user_cache("cards", f"{repo.replace('/', '--')}@{(revision or 'main').replace('/', '--')}.json")


def kept(repo: str, revision: str) -> Card | None:
    """What was learned of the model before, by whoever asked the hub for this revision."""
    found = read_json(_kept(repo, revision))
    try:
        return Card(str(found["commit"]), dict(found["config"]), int(found["weights"]), int(found["size"]))
    except (KeyError, TypeError, ValueError):
        return None


def recorded(repo: str, revision: str, record: Record) -> str:
    """The commit that the model's name or branch meant at its first download, else the revision as it is."""
    [model] = models.with_recorded([{"name": "x", "source": repo, "revision": revision}], record)
    return str(model.get("revision") or "")


def card(repo: str, revision: str, token: str | None = None, client: Any = None) -> Card:
    """Config and sizes of a model, from the hub.  Raises HubError, and Unreachable where the hub does not answer."""
    client = client or hub.client()
    commit, files = hub.listing(client, repo, revision, token, several=True)
    sizes = {file.path: file.size for file in files}
    if "config.json" not in sizes and "params.json" in sizes:
        problem, _fix = MISTRAL_ALONE
        raise hub.HubError(
            f"{repo} {problem}: serve it by a recipe of yours that gives its shape as config (roles/vllm_serve)"
        )
    if "config.json" not in sizes:
        raise hub.HubError(
            f"{repo} has no config.json, so it is no model of safetensors that can be served{_holds(sizes)}. "
            f"{SAFETENSORS_FIX}"
        )
    folder = _small_files(client, repo, commit, sizes, token)
    files_of_weights, index = weight_form(sizes)
    loaded = weight_map_files(os.path.join(folder, index)) if index in sizes else set(files_of_weights)
    weights = sum(size for path, size in sizes.items() if path in loaded)
    if not weights:
        raise hub.HubError(f"{repo} has no safetensors{_holds(sizes)}. {SAFETENSORS_FIX}")
    found = Card(commit, read_config(folder), weights, sum(sizes.values()))
    for name in sorted({commit, revision or "main"}):
        place = _kept(repo, name)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        write_atomic(place, json.dumps(found._asdict()))
    return found


def _holds(names: Iterable[str]) -> str:
    forms = other_forms(names)
    return f" (it holds {', '.join(forms)})" if forms else ""


def _small_files(client: Any, repo: str, commit: str, names: Iterable[str], token: str | None) -> str:
    """Fetch the files that describe the model; the folder that they are in."""
    folder, names = "", set(names)
    with hub.explained(client, repo, commit, token):
        for name in _SMALL:
            if name in names:
                cache = hub.cache_with(client, repo, commit, name)
                folder = os.path.dirname(
                    client.hf_hub_download(repo, name, revision=commit, cache_dir=cache, token=token)
                )
    return folder


def caches_of(nodes: Mapping[str, Mapping[str, Any]], variables: Mapping[str, Any]) -> dict[str, Mapping[str, int]]:
    """By host the bytes of each model in hub caches that the model store takes from; facts know the usual ones."""
    taken_from = variables.get("model_store_hub_caches", hub_caches.DEFAULT)
    if not set(hub_caches.DEFAULT).issubset(taken_from):
        return {}
    return {host: node.get("hub_models") or {} for host, node in nodes.items()}


def how_of(variables: Mapping[str, Any]) -> str:
    """Who fetches what is nowhere yet."""
    return str(variables.get("model_store_fetch") or hub_fetch.AUTO)


class Models(NamedTuple):
    """What is known of declared models before one is fetched."""

    sizes: dict[str, int]  # bytes of each on a host, by its name in the store
    downloads: list[Download]

    def planned(self) -> dict[str, Any]:
        """What the plan keeps of it for the check of the hosts' room."""
        there = next((one.by_host for one in self.downloads if one.by_host), "")
        return {"store_bytes": self.sizes, **({"store_fetched_there": there} if there else {})}


def with_controller(refused: Mapping[str, list[str]], plans: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Of models that hosts have no room for, why the controller does not fetch them either; hosts by message."""
    there = next((f"; {plan['store_fetched_there']}" for plan in plans if plan.get("store_fetched_there")), "")
    return {text + there * text.startswith("model_store_models: "): hosts for text, hosts in refused.items()}


def models_of(
    given: Iterable[Mapping[str, Any]],
    record: Record,
    client: Any = None,
    caches: Mapping[str, Mapping[str, int]] | None = None,
    how: str = hub_fetch.CONTROLLER,
) -> Models:
    """Every download is proved to be there, open to us, and to have room where it goes; nothing is fetched.

    What lies behind a URL is not counted. ``caches`` are the bytes of each model in the hub caches of hosts; ``how``
    says who fetches (``model_store_fetch``). The hosts' room is asked for by whoever knows them. Raises HubError.
    """
    of_card = Models({}, [])
    for model in models.with_recorded(list(given), record):
        name, source = models.name_of(model), str(model.get("source") or "")
        revision, pattern = str(model.get("revision") or ""), str(model.get("pattern") or "")
        if not model_source.on_hub(source):
            folder = model_source.folder(source)
            folder = os.path.dirname(folder) if source.endswith(".gguf") else folder
            if model_source.is_folder(source) and os.path.isdir(folder):
                of_card.sizes[name] = _bytes_of(folder, _chosen(model, folder))
            continue
        client = client or hub.client()
        folder_here = hub.whole(source, revision, client, pattern)
        if folder_here is not None:
            of_card.sizes[name] = _bytes_of(folder_here, _chosen(model, folder_here))
            continue
        outline = hub_outline.outline(source, revision, False, client, pattern)
        if outline is not None and outline.untouched:
            # hosts had its large files: what they lack of them now is told when it is fetched
            small = models.chosen_files(model, outline.folder, name, outline.absent)
            large = {entry.path for entry in outline.absent}
            small = None if small is None else [path for path in small if path not in large]
            of_card.sizes[name] = _bytes_of(outline.folder, small) + sum(entry.size for entry in outline.absent)
            continue
        try:
            commit, files = hub.listing(client, source, revision, pattern=pattern)
            # of a gated model everybody may read the list of its files, and nothing else
            _small_files(client, source, commit, [file.path for file in files], None)
            cache, lacking = hub.place_of(client, source, commit, files, pattern=pattern)
        except hub.HubError as error:
            raise type(error)(f"{name}: {error}") from error
        of_card.sizes[name] = sum(file.size for file in files)
        there, host = max(((known.get(source, 0), host) for host, known in (caches or {}).items()), default=(0, ""))
        # of half a model nobody knows here which half: what the controller lacks of it is fetched
        whole_there = 0 < sum(file.size for file in files if valid_sha256(file.blob)) <= there
        there_of = (host, min(there, lacking)) if whole_there and model.get("layout", "flat") == "flat" else ("", 0)
        download = Download(name, source, of_card.sizes[name], lacking, cache, *there_of)
        mine = sum(one.lacking for one in [*of_card.downloads, download] if not one.by_host)
        problem = hub.room_problem(source, cache, mine)
        # the hub's layout is made of a whole snapshot, and of a model without large files a host knows no SHA-256
        able = model.get("layout", "flat") == "flat" and any(valid_sha256(file.blob) for file in files)
        if able and how == hub_fetch.HOST:
            download = download._replace(by_host="model_store_fetch says so")
        elif able and problem and how == hub_fetch.AUTO:
            download = download._replace(by_host=f"{hub.free_there(cache)} are free on the controller")
        elif problem:
            raise hub.HubError(f"{name}: {problem}" + (", or set model_store_fetch: host" if able else ""))
        of_card.downloads.append(download)
    return of_card


def _chosen(model: Mapping[str, Any], folder: str) -> list[str] | None:
    """Files of a folder that are the model; raises HubError for half of a model in GGUF."""
    try:
        return models.chosen_files(model, folder, f"model_store_models: {model['name']}")
    except (SizingError, hub.HubError) as error:
        raise hub.HubError(f"{model['name']}: {error}") from error


def _bytes_of(folder: str, names: Iterable[str] | None) -> int:
    """What the files of a folder take on a host, where links become files."""
    paths = names or push.folder_files(folder, folder)
    return sum(
        os.stat(os.path.join(folder, path)).st_size for path in paths if os.path.exists(os.path.join(folder, path))
    )
