# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Configurations that served, kept whole on every host, and the way back to one of them.

A configuration is the content of all files that say what is served and how: model, arguments, environment, units, and
the links that lead to the engine. It has one name on all hosts, which the playbook gives it once it has served, so that
no host goes back to another one than its peers. The newest is what served last.

::

    /var/lib/sparkthor-last-good/index.json   configurations, the newest first, each with its files' digests
    /var/lib/sparkthor-last-good/NAME-DIGEST  their contents, each once
"""

from __future__ import annotations

import dataclasses
import glob
import hashlib
import json
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.pins import read_marker
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.venv import interesting
from ansible_collections.sparkthor.cluster.plugins.module_utils._facts.machine import told_apart
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.units import PENDING
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import files
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.command import run_limited
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import (
    container,
    former_head,
    places,
    rank_link,
    serving,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines import registry as engines
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import base_of

#: how many configurations are kept at most
LIMIT = 8
UNITS = "/etc/systemd/system/"
#: what is served by all hosts, and while one is away
CONFIGS = "/etc/sparkthor/*.yaml"
#: the same of the groups beside the host's own one
BESIDE = f"{places.Places('*').etc}/*.yaml"
#: what the front proxy of a head is told: by which names its groups are known, and those of other heads
FRONT, FRONT_UNIT = "/etc/sparkthor/front/", "sparkthor-front.service"
NAMES, OTHERS = f"{FRONT}names.conf", f"{FRONT}others.conf"
#: whose names they are; lines of nginx's map: a name, its group and a label, and by a group its first name; the end
_TOLD = re.compile(
    r"(# of ([^\x00-\x1f\x7f]{1,255})\n)(?:"
    r'"~\^[^\s"\x00-\x1f\x7f]+\$" "[a-z][a-z0-9_]* [A-Za-z0-9._:/@+-]+";\n|'
    r'"~\^first of [a-z][a-z0-9_]*\$" "[^\s"$\\\x00-\x1f\x7f]+";\n'
    r")*(# end of \2\n)"
)


class KeptError(Exception):
    """Why there is nothing to go back to, and what to do instead."""


@dataclasses.dataclass(frozen=True)
class Item:
    """What lies at a path: a file, a link, or nothing."""

    digest: str = ""
    link: str = ""
    mode: int = 0
    uid: int = 0
    gid: int = 0


@dataclasses.dataclass(frozen=True)
class Kept:
    """One configuration that served."""

    name: str
    about: dict[str, Any]
    items: dict[str, Item]


@dataclasses.dataclass(frozen=True)
class Change:
    """One path; None stands for its absence."""

    path: str
    before: str | None
    after: str | None
    item: Item

    def shown(self) -> dict[str, str]:
        """For a diff. What a person sets for the engine may be a secret, whatever it is called."""
        before, after = self.before or "", self.after or ""
        if self.path.endswith(f"/{places.SERVICE}.env"):
            before = before and "(present secret content is not shown)\n"
            after = after and "(former secret content is not shown)\n"
        return {"before_header": self.path, "after_header": self.path, "before": before, "after": after}


def _read(path: str) -> tuple[Item, str | None]:
    """What lies there, and its text; of a link its target."""
    try:
        about = os.lstat(path)
        if stat.S_ISLNK(about.st_mode):
            target = os.readlink(path)
            return Item(link=target), target
        content = files.read_plain(path)
    except (FileNotFoundError, NotADirectoryError):
        return Item(), None
    digest = hashlib.sha256(content).hexdigest()
    return Item(digest, "", stat.S_IMODE(about.st_mode), about.st_uid, about.st_gid), content.decode("utf-8")


def _copy_of(path: str, item: Item) -> str:
    return f"{os.path.basename(path)}-{item.digest[:16]}"


def present(paths: Iterable[str]) -> dict[str, Item]:
    """What lies at these paths; a folder in the place of a link is a model that no revision was made of yet."""
    return {path: _read(path)[0] for path in sorted(set(paths)) if os.path.islink(path) or not os.path.isdir(path)}


def digest(items: Mapping[str, Item]) -> str:
    """Of the contents alone: two hosts, or two days, with the same configuration have the same."""
    content = [[path, item.digest, item.link] for path, item in sorted(items.items())]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def read(folder: str = serving.GOOD) -> list[Kept]:
    """The newest first; what is damaged is left out."""
    configurations = []
    for entry in files.read_json(os.path.join(folder, serving.GOOD_INDEX)).get("kept") or []:
        try:
            items = {str(path): Item(**item) for path, item in entry["items"].items()}
            configurations.append(Kept(str(entry["name"]), dict(entry["about"]), items))
        except (AttributeError, KeyError, TypeError, ValueError):
            continue
    return configurations


def describe(items: Mapping[str, Item]) -> dict[str, Any]:
    """What is said of the configuration whose files lie there now, read from the host itself."""
    units = "".join(_read(path)[1] or "" for path in items if path.startswith(UNITS))
    runtime = "container" if "/sparkthor_host container " in units else "venv"
    versions = files.read_json(container.CONFIG).get("versions") if runtime == "container" else None
    for path in (path for path, item in items.items() if item.link and runtime == "venv"):
        versions = interesting(read_marker(os.path.realpath(path)).get("pins") or {}) or versions
    declared = files.read_json(former_head.CLUSTER)
    return {
        "when": int(time.time()),
        "hosts": sorted(declared.get("peers") or {}),
        "machines": declared.get("machines") or {},
        "executor": executor(),
        "runtime": runtime,
        "versions": versions or {},
        "model": str(files.read_json(serving.CONFIG).get("model") or ""),
    }


def executor() -> str:
    """Only ranks without Ray have this file."""
    return "mp" if os.path.exists(rank_link.CONFIG) else "ray"


def keep(name: str, paths: Iterable[str], folder: str = serving.GOOD) -> bool:
    """Make what lies at these paths the newest of the configurations that served; whether it was another before.

    The index comes after the copies that it names, and what it names no more goes last: power may go at any moment.
    """
    items, kept = present(paths), read(folder)
    if kept and kept[0].name == name and digest(kept[0].items) == digest(items):
        return False
    os.makedirs(folder, mode=0o700, exist_ok=True)
    copies = set()
    for path, item in items.items():
        if item.digest:
            copies.add(_copy_of(path, item))
            serving.write_file(os.path.join(folder, _copy_of(path, item)), _read(path)[1] or "", 0o600)
    kept = [Kept(name, describe(items), items), *(one for one in kept if one.name != name)][:LIMIT]
    index = {"kept": [dataclasses.asdict(one) for one in kept]}
    serving.write_file(os.path.join(folder, serving.GOOD_INDEX), json.dumps(index, indent=1) + "\n", 0o600)
    copies.update(_copy_of(path, item) for one in kept for path, item in one.items.items() if item.digest)
    for found in os.listdir(folder):
        if found not in copies and found != serving.GOOD_INDEX:
            files.remove(os.path.join(folder, found))
    return True


def newest_is_present(paths: Iterable[str], folder: str = serving.GOOD) -> bool:
    kept = read(folder)
    return bool(kept) and digest(kept[0].items) == digest(present(paths))


def _group_of(path: str) -> str:
    """The group beside the host's own one that a file or unit is of; empty for what is the host's own."""
    folder = f"{places.ETC}/{places.BESIDE}/"
    if path.startswith(folder):
        return path.removeprefix(folder).partition("/")[0]
    head, unit = places.Places("*").unit.split("*")
    name = path.removeprefix(UNITS)
    return name.removeprefix(head).removesuffix(unit) if name.startswith(head) and path.startswith(UNITS) else ""


class KeptBeside(NamedTuple):
    """The groups that are beside the host's own one now, as a configuration sees them."""

    beside: list[str]
    #: what served then is gone back to, so these stop
    beside_since: list[str]


def beside(one: Kept, configs: str = places.Places("*").config) -> KeptBeside:
    """Which of them it knows. The files of one that an upgrade was about to bring were named, and not there yet."""
    known = {_group_of(path) for path, item in one.items.items() if item.digest}
    now = [os.path.basename(os.path.dirname(path)) for path in sorted(glob.glob(configs))]
    return KeptBeside([name for name in now if name in known], [name for name in now if name not in known])


def without_former(past: Kept, configs: str = places.Places("*").config, folder: str = serving.GOOD) -> Kept:
    """Without what is of groups that are beside the host's own one no longer: their units, folders and models may be
    gone, and nobody needs them to go back."""
    there = {"", *beside(past, configs).beside}
    models: dict[bool, set[str]] = {True: set(), False: set()}
    for path, item in past.items.items():
        if path.endswith(".yaml") and item.digest:
            name = os.path.basename(serving.model_of(os.path.join(folder, _copy_of(path, item))))
            models[_group_of(path) in there].add(base_of(name) or name)
    former = models[False] - models[True]
    return dataclasses.replace(
        past,
        items={
            path: item
            for path, item in past.items.items()
            if _group_of(path) in there and not (item.link and os.path.basename(path) in former)
        },
    )


def _engines(past: Kept, folder: str) -> tuple[list[str], str]:
    """Environments and models that its links lead to, and its image."""
    environments = [
        os.path.normpath(os.path.join(os.path.dirname(path), item.link))
        for path, item in past.items.items()
        if item.link
    ]
    item = past.items.get(container.CONFIG, Item())
    image = files.read_json(os.path.join(folder, _copy_of(container.CONFIG, item))).get("image") if item.digest else ""
    return environments, str(image or "")


def _of_other_engines(one: Kept) -> dict[str, Item]:
    """Configurations of engines that this one did not serve with: what served since has left them, and they go."""
    names = [engine.config for engine in engines.ENGINES.values() if engine.config]
    folders = {os.path.dirname(path) for path, item in one.items.items() if item.digest and path.endswith(tuple(names))}
    paths = (os.path.join(folder, name) for folder in sorted(folders) for name in names)
    return {path: Item() for path in paths if path not in one.items}


class Needed(NamedTuple):
    """What no new engine removes."""

    folders: list[str]
    images: list[str]


def needed(folder: str = serving.GOOD) -> Needed:
    """Environments, models and images of what served last and of what served before that."""
    engines = [_engines(one, folder) for one in read(folder)[:2]]
    return Needed(
        [path for environments, _image in engines for path in environments],
        [image for _paths, image in engines if image],
    )


def revisions_needed(config: str = CONFIGS, folder: str = serving.GOOD, beside: str = BESIDE) -> list[str]:
    """Revisions of models that this host serves with, and those of the two configurations that served last."""
    needed: set[str] = set()
    named = [*glob.glob(config), *glob.glob(beside)]
    for one in read(folder)[:2]:
        needed.update(item.link for item in one.items.values())
        named += [os.path.join(folder, _copy_of(*item)) for item in one.items.items() if item[0].endswith(".yaml")]
    # of a model that is declared no more the link was not kept
    needed.update(os.path.basename(serving.model_of(path)) for path in named)
    return sorted(name for name in needed if base_of(name))


def has_image(image: str) -> bool:
    """Without a docker, or with one that does not answer, it is not there to be used."""
    return run_limited(["docker", "image", "inspect", image], 60)[0] == 0


def choose(name: str, folder: str = serving.GOOD) -> Kept:
    kept = read(folder)
    chosen = next((one for one in kept if one.name == name), None)
    if chosen is None:
        known = ", ".join(one.name for one in kept) or "none"
        raise KeptError(
            f"no configuration {name!r} is kept on this host ({known}); run site.yml with the variables that you want"
        )
    return chosen


def _by_the_same(about: Mapping[str, Any], hosts: Sequence[str], machines: Mapping[str, str]) -> bool:
    """Whether the hosts that served then are those of now, whatever their names are."""
    then = about.get("hosts") or sorted(hosts)
    were, are = (sorted(told_apart(one).values()) for one in (about.get("machines") or {}, machines))
    return bool(then == sorted(hosts)) or (were == are and len(are) == len(hosts) == len(then))


def differences(
    past: Kept,
    hosts: Sequence[str],
    folder: str = serving.GOOD,
    image_there: Callable[[str], bool] = has_image,
    machines: Mapping[str, str] | None = None,
) -> list[Change]:
    """What to write for this configuration. Raises KeptError where this host cannot serve it any more.

    ``hosts`` are those that serve now, ``machines`` their identities.
    """
    if past.about.get("executor", executor()) != executor():
        raise KeptError(
            f"the configuration {past.name} ran with vllm_serve_executor={past.about['executor']}, and the units of "
            f"this host are {executor()}'s: run site.yml with vllm_serve_executor: {past.about['executor']} and the "
            "former variables instead"
        )
    if not _by_the_same(past.about, hosts, machines or {}):
        raise KeptError(
            f"the configuration {past.name} served on the hosts {', '.join(past.about['hosts'])}, and the inventory "
            f"has {', '.join(sorted(hosts))}: run site.yml with the former variables instead"
        )
    past = without_former(past, folder=folder)
    environments, image = _engines(past, folder)
    # an engine that lost its marker was found damaged, and installed anew elsewhere
    lost = [path for path in environments if not _is_whole(path)]
    # which of the two it ran from is what its unit calls
    if image and past.about.get("runtime") == "container" and not image_there(image):
        lost.append(image)
    if lost:
        raise KeptError(
            f"what the configuration {past.name} needs is not on this host any more ({', '.join(lost)}): run site.yml "
            "with the former variables, and raise engine_keep or model_store_revisions"
        )
    changes = []
    for path, item in {**past.items, **_of_other_engines(past)}.items():
        there, before = _read(path)
        if path.startswith(FRONT) and not item.digest:
            # it came later, and so did the nginx.conf that is there and includes it
            continue
        if (there.digest, there.link) != (item.digest, item.link):
            changes.append(Change(path, before, _text(path, item, past.name, folder), item))
    return changes


def names(path: str = NAMES) -> str:
    """By which names the doors of other heads have to know the groups of this one; empty without a door."""
    return _read(path)[1] or ""


def told(names: str, path: str = OTHERS) -> list[Change]:
    """What changes for the door of this head by the names of another one; nothing where it has no door to that.

    Raises KeptError for what are no names: they come from a host, and root writes them.
    """
    found = _TOLD.fullmatch(names)
    if found is None:
        raise KeptError(f"what another head says that it serves are no names: {names[:200]!r}")
    item, text = _read(path)
    before, begin, rest = (text or "").partition(found[1])
    _former, end, after = rest.partition(found[3])
    if text is None or not (begin and end) or before + names + after == text:
        return []
    return [Change(path, text, before + names + after, item)]


def _is_whole(folder: str) -> bool:
    return os.path.isdir(folder) if base_of(os.path.basename(folder)) else bool(read_marker(folder))


def _text(path: str, item: Item, name: str, folder: str) -> str | None:
    if not item.digest:
        return item.link or None
    try:
        content = files.read_plain(os.path.join(folder, _copy_of(path, item)))
        if hashlib.sha256(content).hexdigest() == item.digest:
            return content.decode("utf-8")
        reason = "it is damaged"
    except (OSError, UnicodeDecodeError) as error:
        reason = str(error)
    raise KeptError(f"the copy of {path} in the configuration {name} cannot be used: {reason}")


def owed(changes: Iterable[Change]) -> list[str]:
    """What host_state then has to restart or reload, as it notes that: units that read these only when they start, and
    the front proxy. The engine itself is compared with what it was started with."""
    paths = {change.path for change in changes}
    # Ray runs from the engine that a link leads to, and knows nothing of the model's
    links = {change.path for change in changes if change.item.link and not base_of(change.item.link)}
    ray = {f"/etc/sparkthor/{name}" for name in ("ray.env", "ray.json", "engine.env", "container.json")}
    found = ["sparkthor-ray.service"] if paths & {*ray, *links, f"{UNITS}sparkthor-ray.service"} else []
    groups = [places.Places(name) for name in sorted({"", *map(_group_of, paths)})]
    front = [f"{FRONT_UNIT}.reload"] if any(path.startswith(FRONT) for path in paths) else []
    return [*found, *(own.watchdog for own in groups if own.config in paths), *front]


def apply(changes: Sequence[Change], runner: serving.Runner = serving.run, pending: str = PENDING) -> None:
    """Write them; systemd reads its units anew. What it owes is noted first, for host_state, which does it also
    after a run that was broken off here."""
    for note in owed(changes):
        os.makedirs(pending, mode=0o700, exist_ok=True)
        files.write_atomic(os.path.join(pending, note), "")
    units = any(change.path.startswith(UNITS) for change in changes)
    for change in changes:
        if change.after is None:
            files.remove(change.path)
        elif change.item.link:
            files.make_link(change.path, change.item.link)
        else:
            files.write_atomic(change.path, change.after, change.item.uid, change.item.gid, change.item.mode)
    if units:
        status, _out, err = runner(["systemctl", "daemon-reload"], 120)
        if status != 0:
            raise KeptError(f"systemctl daemon-reload: {err.strip() or status}")
