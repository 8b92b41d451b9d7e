# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Models of the Hugging Face hub on the controller, by the hub's own client."""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import glob
import hashlib
import importlib
import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.files import write_atomic
from ansible_collections.sparkthor.cluster.plugins.module_utils._model import gguf
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.checkpoint import weight_form
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.content import free_bytes, human
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import push
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory import model_source

#: in a snapshot: the names of its files, written when a download ended well; of one model in GGUF with its pattern
_WHOLE = ".sparkthor-whole"
#: how our own files in a snapshot begin
_NOTES = ".sparkthor-"
#: the same weights once more, in forms that engines do not read beside safetensors
OTHER_FORMS = (
    *("original/*", "metal/*", "onnx/*", "openvino/*", "coreml/*", "consolidated*", "pytorch_model*", "tf_model*"),
    *("flax_model*", "*.gguf", "*.pth", "*.onnx", "*.h5", "*.msgpack", "*.ot", "*.tflite"),
)
#: endings of weights that are no model in GGUF
_WEIGHTS = (".bin", ".pt", ".pth", ".onnx", ".dat")
#: of the bytes still to come, kept free on top of them
RESERVE = 0.05
#: seconds between two lines of progress
TELL_EVERY = 2.0
#: what the client says of a full disk where it does not give the number
_NO_ROOM = "No space left on device"
#: what it raises while nobody answers
_NO_ANSWER = (
    *("Connect", "Timeout", "Proxy", "ReadError", "WriteError", "RemoteProtocol"),
    *("Offline", "LocalEntry", "DryRun"),
)

_OTHER_DISK = "or name a folder on another disk by XDG_CACHE_HOME in the environment of ansible-playbook"

Say = Callable[[str], None]


class HubError(Exception):
    """A sentence for the user."""


class Unreachable(HubError):
    """The hub does not answer, which says nothing about the model."""


class Listed(NamedTuple):
    """A file of a model on the hub."""

    path: str
    size: int
    blob: str  # its name in the cache: SHA-256 of a large file, else what git calls it


def is_commit(revision: str) -> bool:
    return re.fullmatch(r"[0-9a-f]{40}", revision) is not None


def client() -> Any:
    try:
        # the package imports its parts when they are asked for; these are attributes once they are imported
        importlib.import_module("huggingface_hub.constants")
        importlib.import_module("huggingface_hub.utils")
        return importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise HubError(
            "models from the hub need the Python package huggingface_hub on the controller: install it into the "
            "environment that runs Ansible, or give a folder as the source"
        ) from error


def files_left_out(names: Iterable[str]) -> tuple[str, ...]:
    """Patterns of what is not fetched: where there are safetensors, every other form of the same weights."""
    weights, _index = weight_form(names)
    if not weights:
        return ()
    return tuple(p for p in OTHER_FORMS if not any(fnmatch.fnmatchcase(name, p) for name in weights))


def wanted(names: Iterable[str], pattern: str = "", several: bool = False) -> list[str]:
    """The files that are fetched. With a ``pattern`` those of one model in GGUF, and no others of its weights.

    Raises HubError where the pattern fits no model or several, or one that lacks a part; without one where all would be
    ``several`` models in GGUF, unless that is asked for.
    """
    names = list(names)
    if pattern:
        return _of_gguf(names, pattern)
    found = gguf.models_in(names)
    if len(found) > 1 and not several and not weight_form(names)[0]:
        raise HubError(_several(found))
    patterns = files_left_out(names)
    return [name for name in names if not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]


def _several(found: Sequence[str]) -> str:
    example = found[0].rpartition("/")[2]
    return f"it holds {len(found)} models in GGUF ({_some(found)}): choose one by pattern, such as pattern: {example!r}"


def _some(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(names[:8]) + (" …" if len(names) > 8 else "")


def _of_gguf(names: list[str], pattern: str) -> list[str]:
    models = gguf.models_in(names)
    fitting = [name for name in models if gguf.fits(name, pattern)]
    if len(fitting) != 1 and pattern == gguf.ANY:
        raise HubError(_several(fitting) if fitting else "it holds no model in GGUF: choose another")
    if len(fitting) != 1:
        what = f"fits {len(fitting)} of them" if fitting else "fits none of them"
        held = f"it holds {_some(fitting or models)}" if models else "it holds no model in GGUF"
        raise HubError(f"pattern {pattern!r} {what}: {held}. Correct the pattern, so that it fits one")
    parts = gguf.part_names(fitting[0])
    if lost := sorted(set(parts) - set(names)):
        raise HubError(f"{fitting[0]} lacks {len(lost)} of {len(parts)} parts, such as {lost[0]}: choose another")
    # what is neither this model nor weights of another form: its card, its licence, its tokenizer
    small = [name for name in names if not name.endswith((".gguf", ".safetensors", *_WEIGHTS))]
    small = [name for name in small if not any(fnmatch.fnmatchcase(name, one) for one in OTHER_FORMS)]
    return sorted([*parts, *small])


def _only(paths: Iterable[str], pattern: str) -> dict[str, Any]:
    """How the client is told which files to fetch."""
    if pattern:
        return {"allow_patterns": [glob.escape(path) for path in paths]}
    return {"ignore_patterns": files_left_out(paths)}


def caches(hub: Any) -> list[str]:
    """Ours, and the one that the hub's own tools keep for this user (HF_HUB_CACHE, HF_HOME)."""
    theirs = getattr(getattr(hub, "constants", None), "HF_HUB_CACHE", "")
    return [push.user_cache("hub"), *([str(theirs)] if theirs else [])]


def model_folder(cache: str, repo: str) -> str:
    return os.path.join(cache, f"models--{repo.replace('/', '--')}")


def found_in(hub: Any, repo: str, revision: str, name: str, cache: str) -> str:
    """Where the client finds a file of the model in a cache, without asking the hub; empty where it does not."""
    path = hub.try_to_load_from_cache(repo, name, cache_dir=cache, revision=revision or None)
    # the client has a mark of its own for a file that the model has not
    return path if isinstance(path, str) else ""


def cache_with(hub: Any, repo: str, revision: str, name: str) -> str:
    """The cache in which the client finds a file of the model; ours where it is in none."""
    ours, *others = caches(hub)
    return next((cache for cache in (ours, *others) if found_in(hub, repo, revision, name, cache)), ours)


class Place(NamedTuple):
    """Where a model is fetched to."""

    cache: str
    lacking: int  # bytes that a download into it brings


def place_of(
    hub: Any, repo: str, commit: str, files: Iterable[Listed], token: str | None = None, pattern: str = ""
) -> Place:
    """The cache that lacks least of the model, ours where they are alike.

    The client itself says what it would fetch: some of it can be there under another revision, or as another model's.
    """
    only = _only([file.path for file in files], pattern)
    silent, _written = _counting(hub.utils.tqdm)
    places = []
    for cache in caches(hub):
        with explained(hub, repo, commit, token):
            rows = hub.snapshot_download(
                repo,
                revision=commit,
                cache_dir=cache,
                dry_run=True,
                tqdm_class=silent,
                token=token,
                **only,
            )
        places.append(Place(cache, sum(int(row.file_size or 0) for row in rows if row.will_download)))
    return min(places, key=lambda place: place.lacking)


def whole(repo: str, revision: str, hub: Any, pattern: str = "") -> str | None:
    """The folder of a model that came whole before; nobody is asked, so a branch may have moved since."""
    for cache in caches(hub):
        local = _local(hub, repo, revision, cache)
        if local is not None and _came_whole(local, pattern):
            return local
    return None


def _local(hub: Any, repo: str, revision: str, cache: str) -> str | None:
    try:
        return str(
            hub.snapshot_download(
                repo, revision=revision or None, cache_dir=cache, local_files_only=True, ignore_patterns=OTHER_FORMS
            )
        )
    except Exception:
        # not here yet, or not whole: the client has several exceptions for it, all of which mean "fetch it"
        return None


def snapshot(
    repo: str,
    revision: str,
    name: str,
    fetch: bool,
    say: Say = lambda _line: None,
    hub: Any = None,
    pattern: str = "",
) -> tuple[str | None, str]:
    """Folder and commit of a hub id on the controller.

    What a download brought here whole is used without asking the hub if the revision names a commit, so a second run
    works offline; a branch or a tag is looked up again, because it may have moved. A cache that the hub's own tools
    left is used where it is; the client compares it with the hub's list once and fetches what lacks.
    """
    if not model_source.on_hub(repo):
        raise HubError(
            f"source {repo!r} is neither a folder (it would begin with /, ./ or ~) nor a hub id such as owner/model"
        )
    hub = hub or client()
    local = whole(repo, revision, hub, pattern)
    if local is None or (fetch and not is_commit(revision)):
        if not fetch:
            return None, ""
        # some clients give out what a broken download left
        doubtful = "" if local else next(filter(None, (_local(hub, repo, revision, one) for one in caches(hub))), "")
        try:
            local = _download(hub, repo, revision, name, say, pattern)
            _check_gguf(repo, local, pattern)
        except HubError as error:
            if local is not None and isinstance(error, Unreachable):
                return local, os.path.basename(local)
            if not doubtful:
                raise
            raise HubError(
                f"{error}. Nobody but the hub can tell whether {doubtful} is whole: if it is, give that folder as the "
                "source"
            ) from error
        _note_whole(local, pattern)
    return local, os.path.basename(local)


def _files(folder: str) -> list[str]:
    found = []
    for parent, _folders, names in os.walk(folder):
        found += [os.path.relpath(os.path.join(parent, name), folder) for name in names if not name.startswith(_NOTES)]
    return sorted(found)


def _check_gguf(repo: str, folder: str, pattern: str) -> None:
    """Whether the headers of a model in GGUF say that it is whole."""
    for name in gguf.models_in(wanted(_files(folder), pattern)) if pattern else []:
        try:
            gguf.read_gguf(os.path.join(folder, name))
        except SizingError as error:
            raise HubError(f"{repo}: {error}") from error


def note_of(name: str, pattern: str) -> str:
    """The name of a note of ours in a snapshot; each model that was chosen there by a pattern has its own."""
    return name + (f"-{hashlib.sha256(pattern.encode()).hexdigest()[:16]}" if pattern else "")


def _came_whole(folder: str, pattern: str) -> bool:
    """Whether a download of this snapshot ended well once, and all that it brought is still there."""
    try:
        with open(os.path.join(folder, note_of(_WHOLE, pattern)), encoding="utf-8") as file:
            names = json.load(file)
        return all(os.path.exists(os.path.join(folder, name)) for name in names)
    except (OSError, ValueError, TypeError):
        return False


def _note_whole(folder: str, pattern: str) -> None:
    """In the snapshot itself, so that it goes with it; a name that begins with a dot is not brought to hosts."""
    names = _files(folder)
    note = os.path.join(folder, note_of(_WHOLE, pattern))
    write_atomic(note, json.dumps(wanted(names, pattern) if pattern else names))


def listing(
    hub: Any, repo: str, revision: str, token: str | None = None, pattern: str = "", several: bool = False
) -> tuple[str, list[Listed]]:
    """Commit and files of a model, as the hub has them now; see :func:`wanted`."""
    with explained(hub, repo, revision, token):
        api = hub.HfApi(token=token)
        commit = str(api.model_info(repo, revision=revision or None).sha)
        tree = {
            item.path: Listed(item.path, int(item.size), item.lfs.sha256 if item.lfs else str(item.blob_id))
            for item in api.list_repo_tree(repo, revision=commit, recursive=True)
            if hasattr(item, "blob_id")
        }
    try:
        return commit, [tree[name] for name in wanted(tree, pattern, several)]
    except (HubError, SizingError) as error:
        raise HubError(f"{repo}: {error}") from error


def _here(hub: Any, repo: str, commit: str, files: Iterable[Listed], cache: str) -> int:
    """Bytes of the files that are whole in a cache, without asking the hub."""
    return sum(file.size for file in files if found_in(hub, repo, commit, file.path, cache))


def free_there(cache: str) -> str:
    """Room on the disk that a cache is on, in words."""
    return human(free_bytes(cache))


def room_problem(repo: str, cache: str, lacking: int) -> str:
    """Why a download would not fit the controller's disk; empty if it fits."""
    free, needed = free_bytes(cache), int(lacking * (1 + RESERVE))
    if needed <= free:
        return ""
    return (
        f"{repo} needs {human(needed)} more on the controller (5 % reserve included), and {human(free)} are free where "
        f"{cache} is: free {human(needed - free)}, {_OTHER_DISK}"
    )


def _download(hub: Any, repo: str, revision: str, name: str, say: Say, pattern: str) -> str:
    commit, files = listing(hub, repo, revision, pattern=pattern)
    _remove_orphans(model_folder(push.user_cache("hub"), repo))
    cache, lacking = place_of(hub, repo, commit, files, pattern=pattern)
    if problem := room_problem(repo, cache, lacking):
        raise HubError(problem)
    before = _here(hub, repo, commit, files, cache)
    progress, written = _counting(hub.utils.tqdm)
    try:
        with _told(f"{name} from the hub", lacking, written, say), explained(hub, repo, revision):
            # the client itself goes on where a line breaks
            return str(
                hub.snapshot_download(
                    repo,
                    revision=revision or commit,
                    cache_dir=cache,
                    tqdm_class=progress,
                    **_only([file.path for file in files], pattern),
                )
            )
    except HubError as error:
        kept = _here(hub, repo, commit, files, cache) - before
        words = f"{human(kept)} of {human(lacking)} are kept: run again" if kept else ""
        raise type(error)(". ".join(filter(None, [str(error), words]))) from error


def _remove_orphans(folder: str) -> None:
    """Half files of a run that was killed, in our own cache, where only one run works at a time: the client gives each
    a name of its own and does not go on with them."""
    for path in glob.glob(os.path.join(glob.escape(folder), "blobs", "*.????????.incomplete")):
        with contextlib.suppress(OSError):
            os.unlink(path)


def _counting(base: Any) -> tuple[type, Callable[[], int]]:
    """A progress bar for the client that shows nothing, and how many bytes it has seen written to the disk."""
    written, lock = [0], threading.Lock()

    def init(self: Any, *given: Any, **named: Any) -> None:
        # another bar counts files, and one what goes over the line: compressed, and parts of some files only once
        self.counts = named.get("unit") == "B" and not str(named.get("name")).endswith(".transfer")
        base.__init__(self, *given, **{**named, "disable": True})

    def update(self: Any, more: float | None = 1) -> Any:
        if self.counts:
            with lock:
                written[0] += int(more or 0)
        return base.update(self, more)

    return type("Bar", (base,), {"__init__": init, "update": update}), lambda: written[0]


@contextlib.contextmanager
def _told(what: str, lacking: int, written: Callable[[], int], say: Say) -> Iterator[None]:
    """Say every few seconds how far a download is."""
    began, ended = time.monotonic(), threading.Event()

    def line() -> str:
        here, seconds = written(), max(time.monotonic() - began, 0.001)
        rate = here / seconds
        left = f", {(lacking - here) / rate:.0f} s left" if 0 < here < lacking else ""
        return f"{what}: {human(min(here, lacking))} of {human(lacking)}, {human(rate)}/s{left}"

    def tell() -> None:
        while not ended.wait(TELL_EVERY):
            say(line())

    teller = threading.Thread(target=tell, daemon=True)
    if lacking:
        say(f"{what}: {human(lacking)} to fetch")
        teller.start()
    try:
        yield
    finally:
        ended.set()
        if lacking:
            teller.join()
            say(line())


@contextlib.contextmanager
def explained(hub: Any, repo: str, revision: str, token: str | None = None) -> Iterator[None]:
    """What the client raises, as a sentence with the fix."""
    try:
        yield
    except HubError:
        raise
    except Exception as error:
        kind = type(error).__name__
        status = getattr(getattr(error, "response", None), "status_code", None)
        if getattr(error, "errno", None) == errno.ENOSPC or _NO_ROOM in str(error):
            raise HubError(
                f"the controller's disk became full while {repo} was fetched: free some of it, {_OTHER_DISK}"
            ) from error
        if kind == "GatedRepoError":
            raise HubError(_gated(hub, repo, token)) from error
        if kind == "RevisionNotFoundError":
            raise HubError(f"{repo} has no revision {revision!r}") from error
        if kind == "RepositoryNotFoundError" or status == 401:
            raise HubError(
                f"the hub has no {repo}, or it is private and {_given(hub, token)}: correct the name, or give the "
                "controller a token that may read it (hf auth login, or HF_TOKEN in the environment of "
                "ansible-playbook)"
            ) from error
        if any(word in kind for word in _NO_ANSWER) or (isinstance(status, int) and (status == 429 or status >= 500)):
            endpoint = getattr(getattr(hub, "constants", None), "ENDPOINT", "")
            raise Unreachable(
                f"{repo} could not be fetched: the hub {endpoint} does not answer ({kind}: {str(error)[:200]}). "
                "Without it give a folder as the source, or name a mirror by HF_ENDPOINT in the environment of "
                "ansible-playbook"
            ) from error
        raise HubError(f"{repo} could not be fetched: {kind}: {str(error)[:300]}") from error


def _token(hub: Any, token: str | None) -> str:
    return token or (hub.get_token() if hasattr(hub, "get_token") else "") or ""


def _given(hub: Any, token: str | None) -> str:
    return "the token that was given may not read it" if _token(hub, token) else "no token was given"


def _gated(hub: Any, repo: str, token: str | None) -> str:
    if _token(hub, token):
        return (
            f"{repo} is gated, and the account of the token that was given has no access: accept its conditions on the "
            "model's page with that account, or give the token of one that did (hf auth login, or HF_TOKEN in the "
            "environment of ansible-playbook; a fine-grained token needs read access to gated models)"
        )
    return (
        f"{repo} is gated and no token was given: accept its conditions on the model's page, make a token with read "
        "access there (Settings, Access Tokens), and give it to the controller: hf auth login, or the variable "
        "HF_TOKEN in the environment of ansible-playbook"
    )
