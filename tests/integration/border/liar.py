# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host's Python that lies: it answers what a file beside it says, and writes down what it was asked.

With ``python`` in that file, modules are run by that one and ``forged`` goes over their answers; else none is run.

``answers.json``: by the module's name, or "*" for all, what is merged into the answer. With ``needs`` the host lacks
every file of the models that it is first asked about, but for so many bytes of each; what it is sent it keeps. What is
``raw`` is said as it stands, where it is a list each part of it so many times. ``forged`` is by the module's name, its
name and step ("model_fanout parts"), or "*".
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from typing import Any


def asked(text: str) -> tuple[str, dict[str, Any]]:
    """The module of an Ansiballz file, and its arguments."""
    name = re.search(r"^module_fqn=(.+),$", text, re.MULTILINE)
    params = re.search(r"^params=(.+),$", text, re.MULTILINE)
    if not name or not params:
        return "", {}
    module = str(ast.literal_eval(name[1])).rpartition(".")[2]
    return module, json.loads(ast.literal_eval(params[1])).get("ANSIBLE_MODULE_ARGS") or {}


def needed(arguments: dict[str, Any], missing: int) -> list[dict[str, Any]]:
    """All contents of the models that a host is asked about."""
    entries = [entry for model in arguments["models"] for entry in model["manifest"]]
    return [{"sha256": sha256, "size": size, "have": max(size - missing, 0)} for _path, size, sha256 in entries]


def over(answer: Any, forged: Any) -> Any:
    """What is forged in place of what was answered: in a dictionary by key, in a list of them in each one."""
    if isinstance(forged, dict) and isinstance(answer, list):
        return [over(item, forged) for item in answer]
    if isinstance(forged, dict) and isinstance(answer, dict):
        return {**answer, **{key: over(answer.get(key), value) for key, value in forged.items()}}
    return forged


def run(python: str, words: list[str]) -> tuple[Any, int]:
    """The answer of the module itself, None where it gave none, and its exit status."""
    done = subprocess.run([python, *words], stdout=subprocess.PIPE, check=False)
    found = re.search(rb"^\{.*\}$", done.stdout, re.MULTILINE)
    if not found:
        sys.stdout.buffer.write(done.stdout)
    return (json.loads(found[0]) if found else None), done.returncode


def main() -> None:
    folder = os.path.dirname(os.path.abspath(sys.argv[1]))
    script = sys.argv[2] if len(sys.argv) > 2 else "-"
    with open(0 if script == "-" else script, encoding="utf-8") as payload:
        module, arguments = asked(payload.read())
    with open(f"{folder}/asked.jsonl", "a+", encoding="utf-8") as log:
        log.seek(0)
        first = not any(json.loads(line)["module"] == module for line in log)
        given = {key: value for key, value in arguments.items() if not key.startswith("_ansible_")}
        log.write(json.dumps({"module": module, "arguments": given}) + "\n")
    for part in arguments.get("parts") or ():
        shutil.copy(part["file"], tempfile.mkstemp(dir=folder, prefix="got-")[1])
    with open(f"{folder}/answers.json", encoding="utf-8") as file:
        answers = json.load(file)
    if python := answers.get("python"):
        answer, status = run(python, sys.argv[2:])
        if answer is not None:
            for name in ("*", module, f"{module} {arguments.get('step')}"):
                answer = over(answer, answers.get("forged", {}).get(name, {}))
            print(json.dumps(answer))
        sys.exit(status)
    answer = {"changed": False}
    for name in (module, "*"):
        for key, value in (answers.get(name) or {}).items():
            both = isinstance(value, dict) and isinstance(answer.get(key), dict)
            answer[key] = {**value, **answer[key]} if both else value
    if missing := answer.pop("needs", 0):
        answer["models"] = {}
        answer |= {"need": needed(arguments, missing)} if first else {}
    # what is no JSON: before the answer, after it, in its place, and as an error
    raw = {**answers.get("raw", {}), **answer.pop("raw", {})}
    instead = raw.get("instead", json.dumps(answer))
    # so much that it is told by its parts, and bytes that are no text
    said = instead if isinstance(instead, str) else "".join(part * times for part, times in instead)
    words = "\n".join([raw.get("before", ""), said, raw.get("after", ""), ""])
    sys.stdout.buffer.write(words.encode("utf-8", "surrogateescape"))
    sys.stdout.flush()
    print(raw.get("error", ""), file=sys.stderr)
    sys.exit(raw.get("rc", 0))


if __name__ == "__main__":
    main()
