# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The base of every action plugin: the ansible-core version, validated arguments, one way to report a failure, and no
more belief in a host's answer than its module needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase
from ansible.release import __version__ as core_version
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import versions
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.printable import printable, printable_data
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action import answer as _answer
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action import compared, differences
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.believed import believed, heard

OLDEST_CORE = (2, 19)
#: parts of a result that Ansible shows as they are
_SHOWN = ("msg", "exception", "module_stdout", "module_stderr", "stdout", "stderr", "warnings", "deprecations", "diff")


def too_old(version: str) -> str:
    """Why this version of ansible-core cannot run the collection; empty if it can."""
    if versions.release(version) >= OLDEST_CORE:
        return ""
    oldest = ".".join(map(str, OLDEST_CORE))
    return (
        f"sparkthor.cluster needs ansible-core {oldest} or newer; this is {version}: "
        f"pip install 'ansible-core>={oldest}' (in the environment that ansible-playbook runs from)"
    )


def words(done: dict[str, Any]) -> dict[str, Any]:
    """What a command on a host wrote, as Ansible and the user may get it."""
    for name in ("stdout", "stderr"):
        text = heard(str(done.get(name) or ""))
        done |= {name: text, f"{name}_lines": text.splitlines()}
    return done


class Action(ActionBase):  # type: ignore[misc]  # ansible-core ships no types: its base is Any
    """One host's action.  A subclass implements :meth:`act`; its result is added to that of Ansible's own base."""

    TRANSFERS_FILES = False
    #: the argument spec; None where the module of the same name validates the arguments on the host
    ARGUMENTS: ClassVar[dict[str, Any] | None] = None
    #: exceptions whose message is written for the user: the task fails with it, without a traceback
    ERRORS: ClassVar[tuple[type[Exception], ...]] = ()
    #: the facts that the module is there to read; no other one of an answer becomes a variable
    FACTS: ClassVar[tuple[str, ...]] = ()
    #: keys of the result that :meth:`act` alone sets, because later tasks do on the controller what they say
    OWN: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def finalize_task_arg(cls, name: str, value: Any, templar: Any, context: Any) -> Any:
        """An argument as the task gets it: of a task that preflight has answered nobody reads it.

        Ansible calls this hook experimental. A release that does not ask it templates arguments for nothing.
        """
        if compared.answer(cls.__module__.rpartition(".")[2], templar.available_variables) is not None:
            return None
        return super().finalize_task_arg(name, value, templar, context)

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        try:
            result = self._run(tmp, task_vars)
        except (AnsibleActionFail, AnsibleConnectionFailure) as error:
            text = printable(str(error), lines=True)
            if text == str(error):
                raise
            # Ansible shows a message as it is, and those that led to it
            raise type(error)(text) from None
        for key in _SHOWN:
            if key in result:
                result[key] = printable_data(result[key])
        return result

    def _run(self, tmp: str | None, task_vars: dict[str, Any] | None) -> dict[str, Any]:
        problem = too_old(core_version)
        if problem:
            return {"failed": True, "msg": problem}
        result: dict[str, Any] = super().run(tmp, task_vars)
        self.vars: dict[str, Any] = task_vars or {}
        self.host = str(self.vars.get("inventory_hostname") or "")
        known = compared.answer(str(self._task.action).rpartition(".")[2], self.vars)
        if known is not None:
            return {**result, **known}
        arguments = dict(self._task.args)
        if self.ARGUMENTS is not None:
            _validated, arguments = self.validate_argument_spec(argument_spec=self.ARGUMENTS)
        try:
            outcome = self.act(arguments)
        except self.ERRORS as error:
            # its text is in the message, and Ansible would show it once more
            raise AnsibleActionFail(self.explain(error)) from None
        # a warning of ours does not replace one that Ansible's base has to give
        warnings = [*(result.get("warnings") or ()), *(outcome.get("warnings") or ())]
        result.update(outcome)
        if warnings:
            result["warnings"] = warnings
        # what is done once is of no host
        if not self._task.check_mode or self._task.run_once:
            return result
        return differences.noted(result, self.vars, str(self._task.name), self._low_level_execute_command)

    def tell(self, text: str) -> None:
        """Show lines to whoever runs this: most of what is told came from a host, a log or a model."""
        self._display.display(printable(text, lines=True))

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Do the work and return the task's result."""
        # every action plugin overrides it; a plugin that does not is a mistake in this collection
        raise NotImplementedError

    def explain(self, error: Exception) -> str:
        """The failure message for one of :attr:`ERRORS`."""
        return f"host {self.host}: {error}"

    def execute(self, module: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Run a module of this collection on the host."""
        outcome: dict[str, Any] = self._execute_module(
            module_name=f"sparkthor.cluster.{module}", module_args=arguments, task_vars=self.vars
        )
        return outcome

    def read(self, module: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Run a module of this collection that reads the host.

        Whoever ignores that a host is away judges all hosts in a later task. Ansible would show each of them twice,
        with the task's place in its file, and "ignoring" below it; so it is told as data.
        """
        try:
            return self.execute(module, arguments)
        except AnsibleError as error:
            if not self._task.ignore_unreachable:
                raise
            return {"changed": False, "away": isinstance(error, AnsibleConnectionFailure), "msg": str(error)}

    def builtin(self, module: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Run a module of ansible.builtin on the host, and let its answer set no variable."""
        task = self._task.copy()
        task.action = f"ansible.builtin.{module}"
        task.args = arguments
        # a module without an action plugin of its own is run by the one for all of them
        loader = self._shared_loader_obj.action_loader
        name = task.action if loader.has_plugin(task.action) else "ansible.builtin.normal"
        action = loader.get(
            name,
            task=task,
            connection=self._connection,
            play_context=self._play_context,
            loader=self._loader,
            templar=self._templar,
            shared_loader_obj=self._shared_loader_obj,
        )
        run = action._low_level_execute_command
        action._low_level_execute_command = lambda *args, **kwargs: words(run(*args, **kwargs))
        return self.believed(action.run(task_vars=self.vars))

    def _low_level_execute_command(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return words(super()._low_level_execute_command(*args, **kwargs))

    def _execute_module(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        module = str(kwargs.get("module_name") or next(iter(args), ""))
        try:
            answer = super()._execute_module(*args, **kwargs)
        except (RecursionError, TypeError, ValueError) as error:
            # of Ansible's own reader
            return self._failed(_answer.unusable(module, printable(str(error))))
        return self.usable(module, kwargs.get("module_args") or {}, answer)

    def usable(self, module: str, arguments: Mapping[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
        """An answer as far as its host is believed; a failure of this host alone where nobody could read it."""
        if why := _answer.wrong(module, arguments, answer):
            return self._failed(why)
        return self.believed(answer)

    def _failed(self, why: str) -> dict[str, Any]:
        return {"failed": True, "changed": False, "msg": f"host {self._task.delegate_to or self.host}: {why}"}

    def believed(self, answer: dict[str, Any]) -> dict[str, Any]:
        """An answer of the host, without what it has no say in."""
        # what a task that is delegated or done once finds of one host would be held for a fact of others
        of_this_host = not (self._task.delegate_to or self._task.run_once)
        return believed(answer, self.FACTS, self.OWN, of_this_host=of_this_host)


class HostAction(Action):
    """The action of a module that needs no other part of the controller than to be asked."""

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return self.execute(str(self._task.action).rpartition(".")[2], arguments)


class ClusterAction(Action):
    """Runs once for all hosts, on the controller alone."""

    BYPASS_HOST_LOOP = True
    _requires_connection = False

    def explain(self, error: Exception) -> str:
        return str(error)
