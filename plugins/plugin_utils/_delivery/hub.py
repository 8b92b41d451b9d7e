# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Models of the Hugging Face hub on the controller, by the hub's own client."""

from __future__ import annotations

import importlib
import json
import os
import re
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.files import write_atomic
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import push

#: in a snapshot: the names of its files, written when a download ended well
_WHOLE = ".sparkthor-whole"
_ID = re.compile(r"\A[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*\Z")


class HubError(Exception):
    """A sentence for the user."""


def _client() -> Any:
    try:
        return importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise HubError(
            "models from the hub need the Python package huggingface_hub on the controller: install it into the "
            "environment that runs Ansible, or give a folder as the source"
        ) from error


def snapshot(repo: str, revision: str, name: str, fetch: bool, client: Any = None) -> tuple[str | None, str]:
    """Folder and commit of a hub id on the controller. Interrupted downloads are continued by the client.

    What a download brought here whole is used without asking the hub if the revision names a commit, so a second run
    works offline; a branch or a tag is looked up again, because it may have moved.
    """
    if not _ID.match(repo):
        raise HubError(
            f"source {repo!r} is neither a folder (it would begin with /, ./ or ~) nor a hub id such as owner/model"
        )
    hub = client or _client()
    cache = push.user_cache("hub")
    pinned = re.fullmatch(r"[0-9a-f]{40}", revision) is not None
    local: str | None = None
    try:
        local = hub.snapshot_download(repo, revision=revision or None, cache_dir=cache, local_files_only=True)
    except Exception:
        # not here yet, or not whole: the client has several exceptions for it, all of which mean "fetch it"
        local = None
    # some clients give out what a broken download left
    doubtful = local if local is not None and not _came_whole(local) else ""
    if local is None or doubtful or (fetch and not pinned):
        if not fetch:
            return None, ""
        try:
            local = _download(hub, repo, revision, name, cache)
        except HubError as error:
            if not doubtful:
                raise
            raise HubError(
                f"{error}. Nobody but the hub can tell whether {doubtful} is whole: if it is, give that folder as the "
                "source"
            ) from error
        _note_whole(local)
    return local, os.path.basename(local)


def _files(folder: str) -> list[str]:
    found = []
    for parent, _folders, names in os.walk(folder):
        found += [os.path.relpath(os.path.join(parent, name), folder) for name in names if not name.startswith(_WHOLE)]
    return sorted(found)


def _came_whole(folder: str) -> bool:
    """Whether a download of this snapshot ended well once, and all that it brought is still there."""
    try:
        with open(os.path.join(folder, _WHOLE), encoding="utf-8") as file:
            names = json.load(file)
        return all(os.path.exists(os.path.join(folder, name)) for name in names)
    except (OSError, ValueError, TypeError):
        return False


def _note_whole(folder: str) -> None:
    """In the snapshot itself, so that it goes with it; a name that begins with a dot is not brought to hosts."""
    write_atomic(os.path.join(folder, _WHOLE), json.dumps(_files(folder)))


def _download(hub: Any, repo: str, revision: str, name: str, cache: str) -> str:
    try:
        return str(hub.snapshot_download(repo, revision=revision or None, cache_dir=cache))
    except Exception as error:
        kind = type(error).__name__
        if kind == "GatedRepoError":
            raise HubError(
                f"{repo} is gated: accept its conditions on the hub, then give the controller a token of that account "
                "(hf auth login, or the variable HF_TOKEN in the environment of ansible-playbook)"
            ) from error
        if kind == "RevisionNotFoundError":
            raise HubError(f"{repo} has no revision {revision!r}") from error
        if kind == "RepositoryNotFoundError":
            raise HubError(f"the hub has no {repo}, or it is private and no token was given (HF_TOKEN)") from error
        raise HubError(f"{repo} could not be fetched: {kind}: {str(error)[:300]}") from error
