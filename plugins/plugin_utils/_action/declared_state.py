# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A role's declaration of a host, as its task writes it, made into what the module ``host_state`` is told.

The task's lists are the only place where a role says what a host gets.  ``present`` makes the arguments that put it
there, ``undone`` those that take it away again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible.module_utils.common.validation import check_type_list
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import lookup_loader
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.wanted import unit_name
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import onhost

Arguments = dict[str, Any]
#: (key of a file, ``template``, ``src`` or ``from_secret``; its value) -> the file's text
Text = Callable[[str, str], str]

#: what a file may say of itself to others: a rollback brings it back; a running engine was started with it
FLAGS = ("kept", "restarts")
#: options that are lists of items; an item may carry its own switch, ``when``, or a list of them that must all be on
LISTS = ("groups", "users", "directories", "files", "links", "absent", "restore", "sysctls", "units")
#: of a folder: its content is ours only where the folder is
MADE = "made"
_TEXTS = ("content", "template", "src", "from_secret")
#: where systemd reads the units that an administrator adds
_UNITS = "/etc/systemd/system/"
#: by the key of a file, the lookup that gives its text
_LOOKUPS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "template": ("ansible.builtin.template", {}),
    "src": ("ansible.builtin.file", {"rstrip": False}),
    "from_secret": ("sparkthor.cluster.role_secret", {}),
}


class DeclarationError(ValueError):
    """The task's arguments contradict themselves; the message names the list and the item."""


def present(arguments: Mapping[str, Any], text: Text, *, secrets: bool = True) -> Arguments:
    """What the host is to have: items whose switch is off are left out, and every file has its text.

    Without ``secrets`` the files ``from_secret`` are left out, and no secret is read.
    ``programs`` stands for all files of the package that runs on hosts.

    Raises DeclarationError for a file with none or several of ``content``, ``template``, ``src`` and ``from_secret``.
    """
    lists = {name: chosen(name, arguments.get(name)) for name in LISTS if arguments.get(name) is not None}
    if arguments.get("only"):
        lists = _only(lists, check_type_list(arguments["only"]))
    if not secrets and "files" in lists:
        lists["files"] = [item for item in lists["files"] if "from_secret" not in item]
    # what is wanted now is not also given back
    wanted = {unit_name(item["name"]) for item in lists.get("units", ()) if item.get("name")}
    wanted |= {item["path"] for item in lists.get("files", ())}
    if "restore" in lists:
        lists["restore"] = [name for name in dict.fromkeys(lists["restore"]) if name not in wanted]
    if "files" in lists:
        lists["files"] = [each for item in lists["files"] for each in _with_texts(item, text)]
    if "directories" in lists:
        lists["directories"] = [{k: v for k, v in item.items() if k != "own"} for item in lists["directories"]]
    return {**_others(arguments), **lists}


def merged(states: Sequence[Arguments]) -> Arguments:
    """One state for several, as the runs of a loop make them; what they say alike is said once."""
    everything: Arguments = {}
    for state in states:
        for name, value in state.items():
            if name in LISTS:
                known: list[Any] = everything.setdefault(name, [])
                known += [item for item in value if item not in known]
            else:
                everything.setdefault(name, value)
    return everything


class _Variables(dict[str, Any]):
    """A host's variables for the lookup ``template``, which copies them in depth before it adds some of its own.

    It changes none of them, and with all facts and plans a copy would take several times as long as the rendering.
    """

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return dict(self)


def text_by(loader: DataLoader, templar: Any, variables: Mapping[str, Any]) -> Text:
    """Texts as a task of a role with these variables has them: Ansible's own templating, in the role's own folders."""

    def text(kind: str, name: str) -> str:
        plugin, options = _LOOKUPS[kind]
        lookup = lookup_loader.get(plugin, loader=loader, templar=templar)
        return str(lookup.run([name], variables=_Variables(variables), **options)[0])

    return text


def _only(chosen: Mapping[str, list[Any]], names: Sequence[str]) -> Arguments:
    """Files and units of these paths, folders and names, and nothing else."""
    below = tuple(f"{name}/" for name in names)
    files = [item for item in chosen.get("files", ()) if item["path"] in names or item["path"].startswith(below)]
    return {"files": files, "units": [item for item in chosen.get("units", ()) if unit_name(item["name"]) in names]}


def undone(arguments: Mapping[str, Any]) -> Arguments:
    """What takes all of it back, whatever the switches say now: an earlier run may have had them on.

    A unit whose file the task brings is stopped and disabled; another one gets back the state in which it was found.
    Folders with ``own`` go with all that is in them (with ``made`` only where we made them), and files with ``own``
    whatever they say of themselves; other folders, users and groups stay.
    """
    items = {name: _items(name, arguments.get(name)) for name in LISTS}
    paths = [item["path"] for name in ("files", "links") for item in items[name]]
    own = {os.path.basename(path) for path in paths if path.startswith(_UNITS) and path.count("/") == 4}
    named = list(dict.fromkeys(unit_name(name) for item in items["units"] for name in _names(item)))
    stopped = [name for name in named if name in own]
    units = [{"name": name, "enabled": False, "state": "stopped", "optional": True} for name in reversed(stopped)]
    kept = {unit_name(name) for item in items["units"] if not _gives_back(item) for name in _names(item)}
    given_back = [name for name in named if name not in own and name not in kept]
    restored = [*paths, *(item["name"] for item in items["sysctls"]), *given_back, *_plain(items["restore"])]
    made = [item["path"] for item in items["directories"] if item.get("own") == MADE]
    absent = [
        item["path"]
        for name in ("directories", "files")
        for item in items[name]
        if item["path"] not in made and boolean(item.get("own", False))
    ]
    restored += made
    inside = tuple(f"{path}/" for path in absent)
    restored = [name for name in dict.fromkeys(restored) if name not in absent and not name.startswith(inside)]
    return {**_others(arguments), "absent": absent, "restore": restored, "units": units}


def _gives_back(item: Mapping[str, Any]) -> bool:
    """Whether the task changes for good how the unit was found: what it only stops comes back by itself at boot."""
    return item.get("masked") is not None or item.get("enabled") is not None or item.get("state") == "started"


def _others(arguments: Mapping[str, Any]) -> Arguments:
    return {name: value for name, value in arguments.items() if name not in (*LISTS, "state", "only")}


def _items(name: str, given: Any) -> list[Arguments]:
    if isinstance(given, (str, bytes)) or not isinstance(given, Sequence | None):
        raise DeclarationError(f"{name}: {given!r} is not a list")
    return [dict(item) if isinstance(item, Mapping) else {"value": item} for item in given or ()]


def chosen(name: str, given: Any) -> list[Any]:
    """The items that are switched on, without their switches, and one for each of their ``names``."""
    items: list[Any] = []
    for item in _items(name, given):
        switch = item.pop("when", True)
        if not all(map(boolean, switch if isinstance(switch, list) else [switch])):
            continue
        if name in ("absent", "restore"):
            items += _plain([item])
        elif "names" in item:
            shared = {key: value for key, value in item.items() if key != "names"}
            items += [{"name": each, **shared} for each in _names(item)]
        else:
            items.append(item)
    return items


def _plain(items: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Items of a list of texts: each a text, or a mapping with ``names`` that share a switch."""
    return [text for item in items for text in (_names(item) if "names" in item else [item["value"]])]


def _names(item: Mapping[str, Any]) -> list[str]:
    """The item's one name, or its names, which the command line gives as one text."""
    return list(check_type_list(item["names"])) if "names" in item else [item["name"]]


def _with_texts(item: Arguments, text: Text) -> list[Arguments]:
    """The file with its text, or all files of the collection's programs for hosts."""
    if not boolean(item.get("programs", False)):
        return [_with_text(item, text)]
    shared = {key: value for key, value in item.items() if key not in ("path", "programs")}
    return [{**file, **shared} for file in onhost.package_files(item["path"])]


def _with_text(item: Arguments, text: Text) -> Arguments:
    given = [key for key in _TEXTS if item.get(key) is not None]
    if len(given) != 1:
        what = " and ".join(given) or "none"
        raise DeclarationError(f"files: {item.get('path')}: give one of {', '.join(_TEXTS)}; there is {what}")
    rest = {key: value for key, value in item.items() if key not in (*_TEXTS, *FLAGS, "own")}
    if given == ["from_secret"]:
        rest["secret"] = True
    value = item[given[0]]
    return {**rest, "content": value if given == ["content"] else text(given[0], str(value))}
