# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The models that a host is to have, in its store: compared, published, passed on, switched to, listed, removed."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.sparkthor.cluster.plugins.module_utils._store import content, fanout_job, hub_caches, revisions
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.content import human
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import (
    Entry,
    StoreError,
    StoreLink,
    base_of,
    check_folder,
    check_name,
    parse_manifest,
    parse_store_links,
    revision_folder,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.store import FolderPlan, Store, to_come

#: the arguments by which the modules of the store are told models; plugins/doc_fragments/models.py documents them
ARGUMENTS: dict[str, Any] = {
    "root": {"type": "path", "default": "/var/lib/sparkthor/models"},
    "models": {
        "type": "list",
        "elements": "dict",
        "required": True,
        "options": {
            "name": {"type": "str", "required": True},
            "source": {"type": "str", "required": True},
            "revision": {"type": "str"},
            "layout": {"type": "str", "choices": ["flat", "hub"], "default": "flat"},
            "files": {"type": "list", "elements": "str"},
            "pattern": {"type": "str"},
            "manifest": {"type": "list", "elements": "list", "default": []},
            "links": {"type": "list", "elements": "list", "default": []},
            "commit": {"type": "str", "default": ""},
            "folder": {"type": "str", "default": ""},
            "revisions": {"type": "bool", "default": True},
        },
    },
}


class Model(NamedTuple):
    name: str
    entries: list[Entry]
    links: list[StoreLink]
    commit: str
    folder: str  # of this revision; the name itself where the model has none

    @property
    def revised(self) -> bool:
        return self.folder != self.name


def read(rows: Iterable[Mapping[str, Any]]) -> list[Model]:
    """The models as the controller's side completed them. Raises StoreError."""
    models = []
    for model in rows:
        entries = parse_manifest(model["manifest"])
        links, name = parse_store_links(model["links"], entries), check_name(model["name"])
        folder = check_folder(model["folder"] or name)
        if folder not in (name, revision_folder(name, entries, links)):
            raise StoreError(f"manifest: {folder} is not a revision of {name} with these contents")
        models.append(Model(name, entries, links, model["commit"], folder))
    return models


def bring(
    store: Store, models: Sequence[Model], *, check: bool, alone: bool, full: bool = False, caches: Sequence[str] = ()
) -> dict[str, Any]:
    """The module's result; ``need`` in it names contents that are to be sent before anything can be published.

    ``alone``: no other host is to have them as well, so that the names lead to the new revisions at once.
    """
    report: dict[str, Any] = {}
    adopted = False
    plans, before, after = [], [], []
    for model in models:
        if model.revised and not check:
            adopted |= revisions.adopt(store, model.folder)
        plan = store.plan(_folder(store, model), model.entries, full, model.links)
        if not check:
            store.remember(model.folder, plan.read)
        plans.append((model, plan))
        row: dict[str, Any] = {
            "path": store.folder(model.folder),
            "files": len(model.entries),
            "bytes": sum(entry.size for entry in model.entries),
            "commit": model.commit,
            "wrong": plan.wrong,
            "extra": plan.extra,
        }
        report[model.name] = row
        after.append(f"{model.name}: {row['files']} files, {human(row['bytes'])}\n")
        right = f"{row['files'] - len(plan.wrong)} of {row['files']} files, {len(plan.modes)} owners wrong"
        before.append(after[-1] if plan.right else f"{model.name}: {right}\n")
    need = {item["sha256"]: item for _model, plan in plans for item in plan.need}
    behind = [model for model, _plan in plans if model.revised and revisions.current(store, model.name) != model.folder]
    changed = adopted or bool(behind) or any(not plan.right for _model, plan in plans)
    result: dict[str, Any] = {
        "changed": changed,
        "models": report,
        "unlisted": [name for name in store.names() if (base_of(name) or name) not in report],
    }
    if behind:
        result["behind"] = [model.name for model in behind]
    if changed:
        result["diff"] = _diff(store, before, after)
    if need:
        missing = sum(to_come(item) for item in need.values())
        store.check_space(missing, "model_store_models: " + ", ".join(report))
    if check:
        return result
    if lacking := _lacking(store, need, caches, result):
        result["need"] = lacking
        return result
    _publish(store, plans, alone)
    return result


def _diff(store: Store, before: Iterable[str], after: Iterable[str]) -> dict[str, str]:
    texts = {"before": "".join(before), "after": "".join(after)}
    return {"before_header": store.root, "after_header": store.root, **texts}


def _lacking(
    store: Store, need: dict[str, dict[str, Any]], caches: Sequence[str], result: dict[str, Any]
) -> list[dict[str, Any]]:
    """What has to be sent, once all is taken that this host has in a cache of the hub's client."""
    found = hub_caches.blobs(caches) if need else {}
    if need.keys().isdisjoint(found):
        return list(need.values())
    taken = hub_caches.take(store.incoming, need.values(), found)
    if taken.sha256:
        result["from_caches"] = {"bytes": taken.size, "caches": taken.caches}
    return [item for sha256, item in need.items() if sha256 not in taken.sha256]


def _publish(store: Store, plans: list[tuple[Model, FolderPlan]], alone: bool) -> None:
    """Nothing is lacking: give the files their names. ``alone``: no other host is to have them as well."""
    for model, plan in plans:
        if not plan.right:
            store.commit(model.folder, model.entries, plan.wrong, model.links)
        else:
            store.refresh_record(model.folder, model.entries, model.links)
        if model.revised and alone:
            revisions.lead_to(store, model.folder)
    # also where all was right: a run killed after its last rename left second names there
    store.clean_incoming([entry for model, _plan in plans for entry in model.entries])


def _folder(store: Store, model: Model) -> str:
    """Where the model's files are looked for: in check mode a folder of an earlier version is still to be adopted."""
    new = not os.path.isdir(store.folder(model.folder)) and revisions.is_plain(store, model.name)
    return model.name if new else model.folder


def switch(store: Store, models: Iterable[Model], keep: int, in_use: Collection[str], check: bool) -> dict[str, Any]:
    """Every host has all of it: the names mean the new revisions from here on, and the oldest ones go."""
    before, after = [], []
    changed = False
    for model in models:
        if not model.revised:
            continue
        was = revisions.current(store, model.name)
        if revisions.switch(store, model.folder, model.entries, model.links, check):
            changed = True
            before.append(f"{model.name} -> {was}\n" if was else "")
            after.append(f"{model.name} -> {model.folder}\n")
        # where one host alone has it, its name leads there already
        for folder in [] if check else revisions.superfluous(store, model.name, keep, in_use):
            changed = True
            before.append(f"{folder}\n")
            store.remove(folder)
    result: dict[str, Any] = {"changed": changed}
    if changed:
        if not check:
            # the folder that its lock is in
            store.clean_incoming([])
        result["diff"] = _diff(store, before, after)
    return result


def parts(store: Store, models: Iterable[Model], asked: Mapping[str, Any]) -> dict[str, Any]:
    """Digests of the parts of contents that this host has and the controller has not."""
    here: dict[str, str] = {}
    for model in models:
        here.update(store.whole(model.folder, model.entries, store.plan(model.folder, model.entries).wrong))
    if any(sha256 not in here for sha256 in asked["wanted"]):
        raise StoreError("what this host was to pass on is not here whole any more: run again")
    return {
        "changed": False,
        "parts": {sha256: content.hash_parts(here[sha256], asked["size"]) for sha256 in asked["wanted"]},
    }


def start(store: Store, models: Iterable[Model], job: dict[str, Any], key: str) -> dict[str, Any]:
    """Start this host's part in a fan-out; it goes on without this module and its connection."""
    wanted = {sha256 for sha256, _size, _digests in job["contents"]}
    local: dict[str, str] = {}
    spare: list[str] = []
    names: dict[str, str] = {}
    for model in models:
        plan = store.plan(model.folder, model.entries)
        store.remember(model.folder, plan.read)
        local.update(store.whole(model.folder, model.entries, plan.wrong))
        folder = store.folder(model.folder)
        spare += [path for path in (os.path.join(folder, name) for name in plan.wrong) if os.path.isfile(path)]
        names.update({entry.sha256: f"{model.name}/{entry.path}" for entry in model.entries})
    job.update(
        key=key,
        # only a host that lacks something has a use for the folder
        incoming=store.incoming if wanted - set(local) else "",
        local={sha256: path for sha256, path in local.items() if sha256 in wanted},
        spare=spare,
        names={sha256: name for sha256, name in names.items() if sha256 in wanted},
    )
    fanout_job.start(job)
    return {"changed": False}


def finish(store: Store, models: Sequence[Model], run: str, patience: int) -> dict[str, Any]:
    """Wait for the end of this host's part in a fan-out, and publish what arrived."""
    # the first host may be gone while this one still tries to get something: what it says in the end is wanted
    report = fanout_job.outcome(run, patience + 30)
    last_word = report.get("error") or fanout_job.ended()
    fanout_job.tidy()
    if report.get("state") == "failed":
        raise StoreError(last_word)
    result = bring(store, models, check=False, alone=False)
    if need := result.pop("need", None):
        missing = sum(to_come(item) for item in need)
        raise StoreError(
            f"{len(need)} contents ({human(missing)}) did not arrive: {last_word}. What arrived is kept and nothing "
            "incomplete is visible: run again"
        )
    result["received_bytes"] = int(report.get("received", 0))
    return result


def _use(params: Mapping[str, Any], folder: str, now: bool) -> str:
    """What a folder of the store is for; ``now`` says that it is the revision its model's name leads to."""
    name = base_of(folder)
    for use, names in (("declared", params["declared"]), ("kept", params["keep"])):
        if (now or not name) and (name or folder) in names:
            return use
    return "to go back to" if folder in params["in_use"] else "unused"


def listing(store: Store, params: Mapping[str, Any], check: bool) -> dict[str, Any]:
    """Every folder of the store with its size and a verdict; unused ones go if that was asked for."""
    rows = store.inventory()
    removed = []
    for row in rows:
        name = row["name"]
        row["use"] = _use(params, name, revisions.current(store, base_of(name)) == name)
        if row["use"] == "unused" and params["remove_unused"]:
            if not row["ours"]:
                row["verdict"] += "; not removed, because this store did not bring it"
                continue
            removed.append(name)
            if not check:
                revisions.part(store, name)
                store.remove(name)
    if params["remove_unused"] and not check:
        store.clean_incoming()
    lines = {row["name"]: f"{row['name']}  {human(row['bytes'])}\n" for row in rows}
    result: dict[str, Any] = {"changed": bool(removed), "inventory": rows, "removed": removed, "root": store.root}
    if removed:
        result["diff"] = _diff(store, lines.values(), [line for name, line in lines.items() if name not in removed])
    return result
