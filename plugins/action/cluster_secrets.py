# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the module ``cluster_secrets``: documented in plugins/modules/cluster_secrets.py."""

from __future__ import annotations

import base64
import os
import re
import secrets
import stat
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.files import write_atomic
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.base import Action
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory.inventory import (
    MINIMUM_SECRET_LENGTH,
    SECRETS,
    secrets_dir,
)

_VARIABLES = {secret: variable for variable, secret in SECRETS.items()}
#: the folder's own, so that an inventory under version control never takes the secrets along
#: what is fetched from a head is a token, never a file of it
_LONGEST = 512
_FETCHED = re.compile(rf"[!-~]{{1,{_LONGEST}}}")
_IGNORED = "# Secrets: nothing in this folder belongs into version control.\n*\n"


def new_secret() -> str:
    """43 URL-safe characters, 256 bits."""
    return secrets.token_urlsafe(32)


def read_kept(path: str) -> str | None:
    """The kept secret, None when there is none.  An empty, short or readable-by-others file is an error."""
    try:
        mode = stat.S_IMODE(os.stat(path).st_mode)
        with open(path, encoding="utf-8") as handle:
            value = handle.read().strip()
    except FileNotFoundError:
        return None
    if len(value) < MINIMUM_SECRET_LENGTH:
        raise AnsibleActionFail(
            f"{path}: it holds {len(value)} characters, at least {MINIMUM_SECRET_LENGTH} are needed; remove the file "
            "and one is generated"
        )
    if mode & 0o077:
        raise AnsibleActionFail(f"{path}: others may read it (mode {mode:04o}); chmod 0600 it, or remove it")
    return value


def keep(path: str, value: str) -> None:
    """Write a secret, 0600 from its first moment, in a folder that is 0700."""
    folder = os.path.dirname(path)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    write_atomic(path, value + "\n", mode=0o600)


def unignored(folder: str) -> str:
    """The .gitignore that the folder lacks; empty where it has one, and for a folder that a user made for more."""
    path = os.path.join(folder, ".gitignore")
    ours = os.path.basename(os.path.normpath(folder)) == ".secrets" or not os.path.exists(folder)
    return path if ours and not os.path.lexists(path) else ""


def secrets_of_head(task_vars: dict[str, Any]) -> list[str]:
    """Names of the secrets that the cluster's head holds.

    The task runs once, for whichever host the play names first: that may be a worker, which has no API key.
    """
    hosts = (task_vars.get("groups") or {}).get("ray_head") or []
    known = task_vars["hostvars"][hosts[0]] if hosts else task_vars
    return ((known.get("ansible_facts") or {}).get("sparkthor_node") or {}).get("secrets") or []


_NAMES = {"type": "list", "elements": "str", "choices": sorted(_VARIABLES)}


class ActionModule(Action):
    ARGUMENTS = {
        "names": _NAMES,
        "rotate": {**_NAMES, "default": []},
        "forget": {**_NAMES, "default": []},
        "once": {"type": "bool", "default": False},
    }

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        task_vars = self.vars
        folder = secrets_dir(task_vars, self._templar.template)
        if not folder:
            raise AnsibleActionFail("sparkthor_secrets_dir: it is empty; set it to a folder on the controller")
        on_head = secrets_of_head(task_vars)
        created = []
        ignore = unignored(folder)
        for name in arguments["names"] or sorted(_VARIABLES):
            if _VARIABLES[name] in task_vars:
                continue
            path = os.path.join(folder, name)
            if read_kept(path) is not None:
                continue
            # Another controller may have set the cluster up: its secret is the cluster's, a new one would rotate it.
            value = self._fetch(name, task_vars) if name in on_head else new_secret()
            created.append(path)
            if not self._task.check_mode:
                keep(path, value)
        if ignore and (created or os.path.isdir(folder)):
            created.append(ignore)
            if not self._task.check_mode:
                write_atomic(ignore, _IGNORED, mode=0o600)
        rotated = self._rotate(arguments["rotate"], folder, created, arguments["once"])
        forgotten = self._forget(arguments["forget"], folder)
        return {
            "changed": bool(created or rotated or forgotten),
            "created": created,
            "rotated": rotated,
            "forgotten": forgotten,
        }

    def _rotate(self, names: list[str], folder: str, created: list[str], once: bool) -> list[str]:
        for name in names:
            if _VARIABLES[name] in self.vars:
                raise AnsibleActionFail(
                    f"{_VARIABLES[name]}: it is given as a variable, so it is replaced there (in Vault): change its "
                    "value and run site.yml. Nothing was changed."
                )
        rotated = []
        for name in names:
            path = os.path.join(folder, name)
            former = read_kept(path)
            # one that was made a moment ago is new already, and so is one whose former one is still in use
            if former is None or path in created or (once and os.path.exists(f"{path}.previous")):
                continue
            rotated.append(path)
            if not self._task.check_mode:
                # the former first: a run that dies in between has lost neither
                keep(f"{path}.previous", former)
                keep(path, new_secret())
        return rotated

    def _forget(self, names: list[str], folder: str) -> list[str]:
        paths = [os.path.join(folder, f"{name}.previous") for name in names]
        there = [path for path in paths if os.path.exists(path)]
        if not self._task.check_mode:
            for path in there:
                os.unlink(path)
        return there

    def _fetch(self, name: str, task_vars: dict[str, Any]) -> str:
        # from -vvv on the connection prints what a module answers, here the secret in base64
        context = self._connection._play_context
        shown, context.no_log = context.no_log, True
        try:
            outcome = self._execute_module(
                "ansible.legacy.slurp", {"src": f"/etc/sparkthor/secrets/{name}"}, task_vars=task_vars
            )
        finally:
            context.no_log = shown
        # neither a binary nor half a text is a secret
        value = base64.b64decode(outcome.get("content") or "").decode("ascii", "replace").strip()
        if len(value) < MINIMUM_SECRET_LENGTH:
            raise AnsibleActionFail(
                f"{name}: the cluster has one on its head, but it could not be read from there; check become, or set "
                f"{_VARIABLES[name]}"
            )
        if not _FETCHED.fullmatch(value):
            # it would go into files of all hosts
            raise AnsibleActionFail(
                f"{name}: what host {self._task.delegate_to or self.host} has in /etc/sparkthor/secrets/{name} is no "
                f"secret of this collection: it has a space, a line break, signs beyond ASCII or more than {_LONGEST}. "
                f"Nothing was kept: set {_VARIABLES[name]}, or look at that host"
            )
        return value
