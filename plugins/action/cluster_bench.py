# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the module ``cluster_bench``: documented in plugins/modules/cluster_bench.py."""

from __future__ import annotations

import base64
import datetime
import hashlib
import json
import os
import ssl
import subprocess
import sys
import tempfile
import time
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.command import run_limited
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines import registry
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.base import ClusterAction
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory import role_specs
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory.inventory import secrets_dir
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import front
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report import bench, results, tune

#: seconds in which a Python imports a package, from a slow disk too
IMPORT_LIMIT = 60.0
#: seconds in which the tool tells something of its progress, and how often that is looked at
SILENCE_LIMIT, INTERVAL = 3600.0, 5.0
_NUMBERS = {"type": "list", "elements": "int"}


class ActionModule(ClusterAction):
    ARGUMENTS = {
        "stage": {"type": "str", "choices": ["plan", "run", "result", "splits", "best"], "default": "plan"},
        "nodes": {"type": "str", "required": True},
        "plan": {"type": "dict", "default": {}},
        "python": {"type": "path", "default": ""},
        "url": {"type": "str", "default": ""},
        "tokenizer": {"type": "str"},
        "book": {"type": "str", "default": "https://www.gutenberg.org/files/1661/1661-0.txt"},
        "prompts": {**_NUMBERS, "default": [128, 2048, 8192, 32768]},
        "streams": {**_NUMBERS, "default": [1, 2, 4, 8, 16, 32, 64]},
        "prompt": {"type": "int", "default": 2048},
        "tokens": {"type": "int", "default": 128, "no_log": False},
        "runs": {"type": "int", "default": 3},
        "extra": {"type": "list", "elements": "str", "default": []},
        "measured": {"type": "dict", "default": {}},
        "power": {"type": "str"},
        "folder": {"type": "path"},
        "source": {"type": "str", "default": ""},
        "goal": {"type": "str", "choices": ["latency", "throughput"], "default": "throughput"},
        "choice": {"type": "dict", "default": {}},
        "most": {"type": "int", "default": tune.MOST},
        "tried": {"type": "list", "elements": "dict", "default": []},
    }
    ERRORS = (bench.BenchError,)

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return {"changed": False, **getattr(self, f"_{arguments['stage']}_stage")(arguments)}

    # --- plan --------------------------------------------------------------------------------------------------------

    def _plan_stage(self, given: dict[str, Any]) -> dict[str, Any]:
        bench.check_source(given["source"])
        seen = results.see(self.vars, given["nodes"])
        head = seen.cluster["head"]
        facts = seen.facts_by_host.get(head)
        serving = results.served(facts, seen.cluster) if facts else {}
        if not serving.get("model"):
            raise bench.BenchError(f"{head} serves no model, or does not answer: playbooks/status.yml says which")
        options = registry.alike(serving["options"])
        path = str(options.get("model") or "")
        if not path.startswith("/") and not given["tokenizer"]:
            raise bench.BenchError(f"bench_tokenizer: {path} is not a folder of {head}: name the model on the hub")
        room = bench.room(options, given["tokens"])
        plan = {
            "head": head,
            "model": serving["model"],
            "tokenizer": f"{path}/tokenizer.json",
            "sweeps": bench.sweeps(given["prompts"], given["streams"], given["prompt"], room),
            "url": given["url"] or self._url(head, bool(serving["tls"])),
            "certificate": serving["certificate"],
            "with": self._with(seen, options),
        }
        return {"plan": plan}

    def _url(self, head: str, tls: bool) -> str:
        variables = self.vars["hostvars"][head]
        port = self._templar.template(
            variables.get("vllm_serve_api_port", role_specs.defaults()["vllm_serve_api_port"])
        )
        return front.api_url(str(variables.get("ansible_host", head)), port, tls)

    @staticmethod
    def _with(seen: results.Seen, options: dict[str, Any]) -> dict[str, str]:
        """What a speed depends on: options, versions, hosts."""
        found = {f"option {name}": str(value) for name, value in options.items()}
        for host, facts in seen.facts_by_host.items():
            for name, version in facts["versions"].items():
                found[f"{name} of {host}"] = str(version)
            node = facts["node"]
            for name in ("kernel", "driver"):
                if node.get(name):
                    found[f"{name} of {host}"] = str(node[name])
        return found

    # --- run ---------------------------------------------------------------------------------------------------------

    def _run_stage(self, given: dict[str, Any]) -> dict[str, Any]:
        plan = given["plan"]
        python = given["python"] or sys.executable
        with tempfile.TemporaryDirectory(prefix="sparkthor-bench-") as folder:
            self._prepare(given, plan, folder)
            if run_limited([python, "-c", "import llama_benchy"], IMPORT_LIMIT)[0]:
                raise bench.BenchError(
                    f"bench_python: {python} has no llama-benchy: install it there (pip install llama-benchy), or name "
                    "a Python that has it"
                )
            reports, progress = [], ""
            for number, (prompts, streams) in enumerate(plan["sweeps"]):
                self.tell(f"measuring prompts of {prompts} tokens with {streams} streams")
                tokenizer = given["tokenizer"] or folder
                argv = bench.arguments(
                    plan["url"], plan["model"], tokenizer, prompts, streams, given["tokens"], given["runs"]
                )
                report, events = (os.path.join(folder, f"{name}-{number}") for name in ("report", "events"))
                argv += ["--book-url", given["book"], "--save-result", report, "--emit-progress", events]
                argv += given["extra"]
                what = f"it measured prompts of {prompts} tokens with {streams} streams"
                reports.append(self._tool(python, argv, folder, (report, events), what))
                with open(events, encoding="utf-8") as handle:
                    progress += handle.read()
        spans = [[*key, windows] for key, windows in bench.windows(progress).items()]
        return {"report": bench.merged(reports), "spans": spans, "_ansible_verbose_override": True}

    def _prepare(self, given: dict[str, Any], plan: dict[str, Any], folder: str) -> None:
        """Tokenizer, text and certificate where the tool finds them without asking anybody."""
        content = (plan.get("slurped") or {}).get("content")
        if not given["tokenizer"] and not content:
            where = f"{plan['tokenizer']} is not on {plan['head']}"
            raise bench.BenchError(f"bench_tokenizer: {where}; name the model on the hub")
        if content:
            with open(os.path.join(folder, "tokenizer.json"), "wb") as handle:
                handle.write(base64.b64decode(content))
        if "://" not in given["book"]:
            kept = os.path.join(folder, ".cache", "llama-benchy")
            os.makedirs(kept)
            # the name under which the tool keeps a text that it fetched
            name = hashlib.md5(given["book"].encode(), usedforsecurity=False).hexdigest()
            try:
                with open(os.path.expanduser(given["book"]), encoding="utf-8") as book:
                    text = book.read()
            except OSError as error:
                raise bench.BenchError(f"bench_book: {given['book']} cannot be read: {error.strerror}") from None
            with open(os.path.join(kept, f"{name}.txt"), "w", encoding="utf-8") as handle:
                handle.write(text)
        if plan["certificate"] and plan["url"].startswith("https://"):
            host, _colon, port = plan["url"].split("/")[2].rpartition(":")
            pem = ssl.get_server_certificate((host, int(port)), timeout=20)
            shown = hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).digest().hex(":").upper()
            if shown != plan["certificate"]:
                raise bench.BenchError(f"{plan['url']} shows another certificate than {plan['head']} has")
            with open(os.path.join(folder, "ca.pem"), "w", encoding="ascii") as handle:
                handle.write(pem)

    def _tool(self, python: str, argv: list[str], folder: str, told: tuple[str, str], what: str) -> dict[str, Any]:
        """What the tool writes to ``told``: its report, and before that its progress."""
        environment = {**os.environ, "HOME": folder} if os.path.isdir(f"{folder}/.cache") else dict(os.environ)
        if os.path.exists(f"{folder}/ca.pem"):
            environment["SSL_CERT_FILE"] = f"{folder}/ca.pem"
        given = json.dumps({"argv": [*argv, "--api-key", self._key()]})
        report, events = told
        code, said = self._watched([python, "-c", bench.LAUNCH], given, environment, events, what)
        if code or not os.path.exists(report):
            tail = " | ".join(said.strip().splitlines()[-3:])
            raise bench.BenchError(f"llama-benchy ended with {code} and no result: {tail[-600:]}")
        with open(report, encoding="utf-8") as handle:
            found: dict[str, Any] = json.load(handle)
        return found

    @staticmethod
    def _watched(argv: list[str], given: str, environment: dict[str, str], events: str, what: str) -> tuple[int, str]:
        """Exit status and words of the tool; how long it takes is the cluster's, but it must not fall silent."""
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        heard, size, rest = time.monotonic(), -1, given or None
        with subprocess.Popen(argv, env=environment, text=True, **pipes) as process:
            while True:
                try:
                    out, err = process.communicate(rest, timeout=INTERVAL)
                    return process.returncode, err or out
                except subprocess.TimeoutExpired:
                    # the input is given once
                    rest, now = None, os.path.getsize(events) if os.path.exists(events) else 0
                    if now != size:
                        heard, size = time.monotonic(), now
                    if time.monotonic() - heard > SILENCE_LIMIT:
                        process.kill()
                        raise bench.BenchError(
                            f"llama-benchy told nothing for {SILENCE_LIMIT:g} s while {what}, and was ended: "
                            "playbooks/status.yml says whether the cluster serves"
                        ) from None
                except BaseException:
                    process.kill()
                    raise

    def _key(self) -> str:
        if self.vars.get("vllm_serve_api_key"):
            return str(self._templar.template(self.vars["vllm_serve_api_key"])).strip()
        path = os.path.join(secrets_dir(self.vars, self._templar.template), "api_key")
        try:
            with open(path, encoding="utf-8") as handle:
                return handle.read().strip()
        except OSError as error:
            raise AnsibleActionFail(f"vllm_serve_api_key: {path} cannot be read: {error.strerror}") from None

    # --- result ------------------------------------------------------------------------------------------------------

    def _result_stage(self, given: dict[str, Any]) -> dict[str, Any]:
        seen = results.see(self.vars, given["nodes"])
        plan, measured = given["plan"], given["measured"]
        everything = self.vars["hostvars"]
        power = {}
        for host in seen.facts_by_host:
            told = everything[host].get(given["power"] or "") or {}
            power[host] = bench.samples(base64.b64decode(told.get("content") or "").decode("utf-8", "replace"))
        nodes = {host: facts["node"] for host, facts in seen.facts_by_host.items()}
        bound, _why = results.decode_bound(everything, seen.cluster, nodes) if not seen.plan_error else (None, "")
        spans = {tuple(span[:3]): [tuple(window) for window in span[3]] for span in measured["spans"]}
        document = {
            "version": bench.VERSION,
            "taken": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "tool": f"llama-benchy {measured['report'].get('version', '')}".strip(),
            "model": plan["model"],
            "group": results.group_of(seen.cluster),
            "bound": bound,
            "with": plan["with"],
            "rows": bench.rows(measured["report"], spans, power),
        }
        folder = os.path.join(results.results_folder(self.vars, given["folder"]), "bench")
        earlier = results.runs_of_group(bench.history(results.read_all(folder, 50)), seen.cluster)
        document["slower"] = bench.slower(document, earlier[-1] if earlier else None)
        stem = os.path.join(folder, document["taken"].replace("-", "").replace(":", ""))
        results.save(f"{stem}.json", document, "bench_folder")
        results.save(f"{stem}.llama-benchy", measured["report"], "bench_folder")
        hosts, head = seen.cluster["hosts"], seen.cluster["head"]
        rows = bench.catalogue_rows(document, len(hosts), head, given["source"])
        results.save(f"{stem}.measured.yml", bench.catalogue_text(rows), "bench_folder")
        self.tell(bench.text(document))
        self.tell(
            f"kept in {stem}.json; rows for a recipe: {stem}.measured.yml; for others to compare: {stem}.llama-benchy"
        )
        return {"bench": document, "path": f"{stem}.json", "_ansible_verbose_override": True}

    # --- tune --------------------------------------------------------------------------------------------------------

    def _splits_stage(self, given: dict[str, Any]) -> dict[str, Any]:
        tune.check(given["goal"], given["plan"]["sweeps"])
        found = tune.splits(given["choice"], tune.used(given["plan"]["with"]), given["most"])
        self.tell(f"measured one after the other: {', '.join(map(tune.name, found))}")
        return {"splits": [list(split) for split in found]}

    def _best_stage(self, given: dict[str, Any]) -> dict[str, Any]:
        tried = given["tried"]
        self.tell(tune.text(given["goal"], tried))
        return {"best": tune.best(given["goal"], tried)}
