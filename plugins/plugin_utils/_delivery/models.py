# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Declared models, completed by what their sources hold: a folder of the controller, a hub's or a URL's copy there."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ansible.errors import AnsibleActionFail
from ansible_collections.sparkthor.cluster.plugins.module_utils._model import gguf
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import (
    Entry,
    StoreError,
    StoreLink,
    check_name,
    parse_manifest,
    revision_folder,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import hub, hub_outline, push, url
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery.record import MODELS, Record, hub_key
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory import model_source


class DeclaredModels(NamedTuple):
    models: list[dict[str, Any]]  # with manifest, links and commit
    folders: dict[str, Any]  # name -> (folder, entries), of which some files may be on hosts alone
    pending: list[str]  # not here, and not to be fetched now


class _Source(NamedTuple):
    folder: str | None  # None if it must not be fetched
    commit: str = ""
    absent: Sequence[Entry] = ()  # files of the model that are not in the folder


def name_of(model: Any) -> str:
    try:
        return check_name(str(model["name"]))
    except (KeyError, TypeError) as error:
        raise AnsibleActionFail(f"model_store_models: {model!r} needs a name and a source") from error
    except StoreError as error:
        raise AnsibleActionFail(f"model_store_models: {error}") from error


def store_folder_of(model: Mapping[str, Any]) -> str:
    """The name of a model's folder in the store, without reading its source, which may be away just now."""
    name = name_of(model)
    source = str(model.get("source") or "")
    chosen = "pattern" if model.get("pattern") else "source" if source.endswith(".gguf") else ""
    if model.get("pattern") and "://" in source:
        raise AnsibleActionFail(
            f"model_store_models: {name}: pattern chooses files of the hub or of a folder; remove it"
        )
    if model.get("layout", "flat") != "hub":
        return name
    if chosen:
        raise AnsibleActionFail(
            f"model_store_models: {name}: layout hub has all files of a model, and {chosen} chooses some; remove layout"
        )
    if not model_source.is_folder(source):
        return f"models--{source.replace('/', '--')}"
    # of the hub's own cache: …/models--owner--name/snapshots/COMMIT, which is what _push.hub_folder makes of it
    snapshots, _slash, _commit = model_source.folder(source).rpartition("/")
    if os.path.basename(snapshots) != "snapshots":
        raise AnsibleActionFail(
            f"model_store_models: {name}: layout hub needs a model of the hub's cache "
            f"(…/models--owner--name/snapshots/COMMIT), but {source} is not one"
        )
    return os.path.basename(os.path.dirname(snapshots))


def fixed(model: Mapping[str, Any]) -> bool:
    """Whether the source means the same at any time, without a question to anybody."""
    source = str(model.get("source") or "")
    revision = str(model.get("revision") or "")
    return "://" in source or model_source.is_folder(source) or re.fullmatch(r"[0-9a-f]{40}", revision) is not None


def with_recorded(given: Sequence[Any], record: Record) -> list[Any]:
    """The models, those of the hub at the commit that their name or branch meant at their first download."""
    models = []
    for item in given:
        model = item
        if isinstance(item, Mapping) and not fixed(item):
            key = hub_key(str(item.get("source") or ""), str(item.get("revision") or ""))
            commit = record.of(MODELS, key)
            model = {**item, "revision": commit} if commit else item
        models.append(model)
    return models


def keep_commits(given: Sequence[Any], declared: DeclaredModels, record: Record) -> None:
    """Record what the hub's names meant, once all models are here whole."""
    if declared.pending:
        return
    for item, model in zip(given, declared.models, strict=True):
        if model["commit"] and not fixed(item):
            key = hub_key(str(item.get("source") or ""), str(item.get("revision") or ""))
            record.keep(MODELS, key, str(model["commit"]))


def declare(
    given: Sequence[Any], fetch: bool, say: hub.Say = lambda _line: None, outlines: bool = False
) -> DeclaredModels:
    """Complete the models by what their sources hold; without ``fetch`` those that are not here are pending.

    With ``outlines`` the large files of the hub's models are not fetched either. ``say`` is told how far a download is.
    """
    declared = DeclaredModels([], {}, [])
    by_folder: dict[str, str] = {}
    for item in given:
        name, folder_name = name_of(item), store_folder_of(item)
        if folder_name in by_folder:
            raise AnsibleActionFail(
                f"model_store_models: {by_folder[folder_name]} and {name} are both to be {folder_name} in the store: "
                "remove one, or give each a name of its own (with layout hub, one revision of a model)"
            )
        by_folder[folder_name] = name
    for item in given:
        model = dict(item) if isinstance(item, dict) else item
        name = name_of(model)
        if "manifest" in model:
            # of files that hosts alone have: what they are was told by one of them
            declared.folders[name] = ("", _told(model["manifest"], name))
            declared.models.append({**model, "links": [], "commit": "", "folder": name})
            continue
        folder, commit, absent = _folder(model, name, fetch, say, outlines)
        if folder is None:
            declared.pending.append(name)
            continue
        what = f"model_store_models: {name}"
        try:
            names = chosen_files(model, folder, what, absent)
        except (SizingError, hub.HubError) as error:
            raise AnsibleActionFail(f"{what}: {error}") from error
        model.pop("files", None)
        model.pop("pattern", None)
        links: list[Any] = []
        if names:
            absent = [entry for entry in absent if entry.path in names]
            names = [path for path in names if path not in {entry.path for entry in absent}]
        if model.pop("layout", "flat") == "hub":
            # the hub's client looks for a folder of this name, so it is not for the user to choose
            folder, name, names, links = push.hub_folder(folder, what)
        names = push.folder_files(folder, what) if names is None else names
        entries = sorted([*push.manifest(folder, names), *absent])
        declared.folders[name] = (folder, entries)
        rows = [list(entry) for entry in entries]
        place = name
        if model.get("revisions", True):
            place = revision_folder(name, entries, [StoreLink(*row) for row in links])
        declared.models.append(
            {**model, "name": name, "manifest": rows, "links": links, "commit": commit, "folder": place}
        )
    return declared


def chosen_files(model: Mapping[str, Any], folder: str, what: str, absent: Sequence[Entry] = ()) -> list[str] | None:
    """The files of a folder that are the model, where not all of them are; with ``absent`` ones that it has elsewhere.

    Of a model in GGUF that a pattern or a file chooses, headers and parts have to be whole.
    """
    if files := model.get("files"):
        return list(files)
    source, pattern = str(model.get("source") or ""), str(model.get("pattern") or "")
    if model_source.is_folder(source) and source.endswith(".gguf"):
        names = gguf.part_names(os.path.basename(source))
    elif pattern:
        elsewhere = [entry.path for entry in absent]
        names = hub.wanted({*push.folder_files(folder, what), *elsewhere}, pattern)
    else:
        return None
    if not absent:
        for name in gguf.models_in(names):
            gguf.read_gguf(os.path.join(folder, name))
    return names


def _told(rows: Any, name: str) -> list[Entry]:
    try:
        return parse_manifest(rows)
    except (StoreError, TypeError, ValueError) as error:
        raise AnsibleActionFail(f"{name}: what a host told about its files is no manifest ({error})") from error


def revisions(declared: DeclaredModels) -> dict[str, str]:
    """The folder of each model's declared revision, by the model's name in the store."""
    return {model["name"]: model["folder"] for model in declared.models if model["folder"] != model["name"]}


def revisions_here(given: Sequence[Any], record: Record) -> dict[str, str]:
    """The same without a download, of those whose files are on the controller; others are left out."""
    known = [model for model in with_recorded(given, record) if fixed(model)]
    try:
        return revisions(declare(known, fetch=False))
    except AnsibleActionFail:
        # whoever brings the models says what is wrong with them
        return {}


def _folder(model: Mapping[str, Any], name: str, fetch: bool, say: hub.Say, outlines: bool) -> _Source:
    """A local folder, or the controller's copy of a hub id with its commit."""
    source = str(model.get("source") or "")
    if "://" in source:
        if model.get("revision"):
            raise AnsibleActionFail(f"model_store_models: {name}: a URL has no revision; remove it")
        try:
            with push.locked(push.user_cache("locks", "url.lock")):
                return _Source(url.fetch(source, push.user_cache("url"), fetch=fetch))
        except url.UrlError as error:
            raise AnsibleActionFail(f"model_store_models: {name}: {error}") from error
    if model_source.is_folder(source):
        if model.get("revision"):
            raise AnsibleActionFail(f"model_store_models: {name}: a folder has no revision; remove it")
        folder = model_source.folder(source)
        return _Source(os.path.dirname(folder) if source.endswith(".gguf") else folder)
    revision, pattern = str(model.get("revision") or ""), str(model.get("pattern") or "")
    try:
        with push.locked(push.user_cache("locks", "hub.lock")):
            # the hub's layout is made of the whole snapshot
            if (outlines or not fetch) and model.get("layout", "flat") == "flat":
                found = _outline(source, revision, fetch, pattern)
                if found is not None:
                    return _Source(found.folder, found.commit, found.absent)
            return _Source(*hub.snapshot(source, revision, name, fetch=fetch, say=say, pattern=pattern))
    except hub.HubError as error:
        raise AnsibleActionFail(f"model_store_models: {name}: {error}") from error


def _outline(source: str, revision: str, fetch: bool, pattern: str) -> hub_outline.Outline | None:
    try:
        return hub_outline.outline(source, revision, fetch, pattern=pattern)
    except hub.HubError:
        # the download of the whole has words for it, and may know the model without the hub
        return None
