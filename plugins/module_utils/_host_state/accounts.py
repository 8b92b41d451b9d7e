# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Users and groups."""

from __future__ import annotations

from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.host import Changes
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.originals import Originals
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.wanted import Wanted


def plan_accounts(changes: Changes, wanted: Wanted, originals: Originals) -> None:
    """Groups and users that are not there, and groups that a user lacks."""
    accounts = changes.host.accounts
    declared = {g["name"] for g in wanted.groups} | {u["name"] for u in wanted.users}
    for group in wanted.groups:
        name = group["name"]
        if accounts.gid(name) is None:
            argv = ["groupadd"] + (["--system"] if group.get("system", True) else []) + [name]
            _plan_new(changes, originals, f"group {name}", argv, f"group {name}\n")
    group_names = {g["name"] for g in wanted.groups}
    for user in wanted.users:
        name = user["name"]
        extra = []
        for group_name in user.get("groups") or []:
            if group_name in declared or accounts.gid(group_name) is not None:
                extra.append(group_name)
            elif group_name not in changes.result.skipped_groups:
                changes.result.skipped_groups.append(group_name)
        home = user.get("home")
        shell = user.get("shell")
        present = accounts.user(name)
        if present is None:
            argv = ["useradd", "--no-create-home", "--home-dir", home or "/nonexistent"]
            argv += ["--shell", shell or "/usr/sbin/nologin"]
            argv += ["--system"] if user.get("system", True) else []
            has_own = name in group_names or accounts.gid(name) is not None
            argv += ["--gid", name] if has_own else ["--user-group"]
            argv += ["--groups", ",".join(extra)] if extra else []
            text = _user_text(name, home or "/nonexistent", shell or "/usr/sbin/nologin", extra)
            _plan_new(changes, originals, f"user {name}", [*argv, name], text)
            continue
        argv = ["usermod"]
        if home and present["home"] != home:
            argv += ["--home", home]
        if shell and present["shell"] != shell:
            argv += ["--shell", shell]
        lacking = [g for g in extra if g not in present["groups"]]
        if lacking:
            argv += ["--append", "--groups", ",".join(lacking)]
        if len(argv) > 1:
            before = _user_text(name, present["home"], present["shell"], present["groups"])
            after = _user_text(name, home or present["home"], shell or present["shell"], [*present["groups"], *lacking])
            _plan_account(changes, f"user {name}", [*argv, name], before, after)


def _plan_new(changes: Changes, originals: Originals, name: str, argv: list[str], after: str) -> None:
    """Recorded as ours, so that a teardown takes away no account that was there before."""
    changes.steps.append(lambda: originals.remember("accounts", name, None))
    _plan_account(changes, name, argv, "", after)


def plan_account_restore(changes: Changes, originals: Originals, name: str) -> None:
    """Remove ``user NAME`` or ``group NAME`` if we made it."""
    if name not in originals.entries("accounts"):
        return
    kind, account = name.split(" ", 1)

    def there() -> bool:
        accounts = changes.host.accounts
        return (accounts.user(account) if kind == "user" else accounts.gid(account)) is not None

    if there():
        changes.note(name, f"{name}\n", "")
        changes.result.changed_accounts.append(name)

    def remove() -> None:
        # userdel takes the user's own group along
        if there():
            changes.must([f"{kind}del", account], f"{name} cannot be removed")
        originals.forget("accounts", name)

    changes.steps.append(remove)


def _plan_account(changes: Changes, name: str, argv: list[str], before: str, after: str) -> None:
    changes.note(name, before, after)
    changes.result.changed_accounts.append(name)
    changes.steps.append(lambda: changes.must(argv, f"{name} cannot be set up"))


def _user_text(name: str, home: str, shell: str, groups: list[str]) -> str:
    return f"user {name}\nhome {home}\nshell {shell}\ngroups {' '.join(sorted(set(groups)))}\n"
