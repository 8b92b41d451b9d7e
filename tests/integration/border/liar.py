# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host's Python that runs no module: it answers what a file beside it says, and writes down what it was asked.

``answers.json``: by the module's name, or "*" for all, what is merged into the answer. A list is given out one by one,
the last one again and again.
"""

from __future__ import annotations

import ast
import json
import os
import re
import sys


def asked(text: str) -> tuple[str, dict[str, object]]:
    """The module of an Ansiballz file, and its arguments."""
    name = re.search(r"^module_fqn=(.+),$", text, re.MULTILINE)
    params = re.search(r"^params=(.+),$", text, re.MULTILINE)
    if not name or not params:
        return "", {}
    module = str(ast.literal_eval(name[1])).rpartition(".")[2]
    return module, json.loads(ast.literal_eval(params[1])).get("ANSIBLE_MODULE_ARGS") or {}


def main() -> None:
    folder = os.path.dirname(os.path.abspath(sys.argv[1]))
    script = sys.argv[2] if len(sys.argv) > 2 else "-"
    with open(0 if script == "-" else script, encoding="utf-8") as payload:
        module, arguments = asked(payload.read())
    with open(f"{folder}/asked.jsonl", "a", encoding="utf-8") as log:
        given = {key: value for key, value in arguments.items() if not key.startswith("_ansible_")}
        log.write(json.dumps({"module": module, "arguments": given}) + "\n")
    with open(f"{folder}/answers.json", encoding="utf-8") as file:
        answers = json.load(file)
    answer = {"changed": False}
    for name in (module, "*"):
        said = answers.get(name) or {}
        if isinstance(said, list):
            with open(f"{folder}/asked.jsonl", encoding="utf-8") as log:
                times = sum(json.loads(line)["module"] == module for line in log)
            said = said[min(times, len(said)) - 1]
        for key, value in said.items():
            if isinstance(value, dict) and isinstance(answer.get(key), dict):
                value = {**value, **answer[key]}
            answer[key] = value
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
