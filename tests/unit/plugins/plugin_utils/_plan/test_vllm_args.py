# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import shlex
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import (
    ERROR,
    WARNING,
    Finding,
    errors_and_others,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import vllm_args
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.serve_command import read_command
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.vllm_args import (
    check,
    command,
    find_table,
    normalise,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.vllm_config import render_args

VERSIONS = ["0.17.1", "0.20.1", "0.26.0", "0.31.0", "0.32.0", "0.33.0"]
NEW, _exact = find_table("0.33.0")
OLD, _exact = find_table("0.17.1")


def fatal(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.severity == ERROR]


def kinds(args: dict[str, Any], table: dict[str, Any] = NEW, **options: Any) -> list[tuple[str, str]]:
    return [(problem.where, problem.id) for problem in fatal(check(args, table, **options))]


def test_the_shipped_tables() -> None:
    assert vllm_args.shipped_versions() == VERSIONS
    for version in VERSIONS:
        table, exact = find_table(version)
        assert exact
        assert table["vllm"] == version
        assert len(table["options"]) > 200
        lists = {"quantization", "attention-backend", "tool-call-parser", "reasoning-parser"}
        assert lists <= set(table["value_lists"])


GOOD: list[dict[str, Any]] = [
    {},
    {"max-model-len": 32768, "enable-prefix-caching": True, "gpu-memory-utilization": 0.85},
    {"--max_model_len": "32k", "enable_prefix_caching": False, "no-enable-chunked-prefill": True},
    {"max-model-len": "auto"},
    {"max-model-len": -1},
    {"tool-call-parser": "hermes", "enable-auto-tool-choice": True, "reasoning-parser": "qwen3"},
    {"attention-backend": "flashinfer", "kv-cache-dtype": "fp8", "distributed-executor-backend": "ray"},
    {"compilation-config": {"mode": 2, "backend": "eager"}, "served-model-name": ["a", "b"]},
    {"compilation-config.mode": 2, "compilation-config.pass_config.fuse_norm": True},
    {"compilation-config": '{"mode": 2}', "uds": "/run/x.sock", "headless": True},
    {"quantization": "modelopt_fp4", "enable-expert-parallel": True, "language-model-only": True},
    {"reasoning-parser": "mine", "reasoning-parser-plugin": "/srv/mine.py"},
    {"seed": None},
    {"gpu-memory-utilization": 0.90},
]


@pytest.mark.parametrize("args", GOOD, ids=range(len(GOOD)))
@pytest.mark.parametrize("version", VERSIONS)
def test_good_arguments(args: dict[str, Any], version: str) -> None:
    assert fatal(check(args, find_table(version)[0], ["reasoning-parser-plugin"])) == []


BAD: list[tuple[dict[str, Any], str, str, str]] = [
    # arguments, option, kind, a piece of the message
    ({"max-modle-len": 1}, "max-modle-len", "unknown", "did you mean max-model-len"),
    # the parser itself would take this prefix
    ({"enable-prefix-cachin": True}, "enable-prefix-cachin", "unknown", "enable-prefix-caching"),
    ({"zzz": 1}, "zzz", "unknown", "--help=all"),
    ({"tp": 2}, "tp", "unknown", "use tensor-parallel-size"),
    ({"swap-space": 0}, "swap-space", "removed", "leave it out"),
    ({"guided_decoding_backend": "x"}, "guided-decoding-backend", "removed", "structured-outputs-config"),
    ({"enable-reasoning": True}, "enable-reasoning", "removed", "reasoning-parser"),
    ({"calculate-kv-scales": True}, "calculate-kv-scales", "removed", "KV scales"),
    ({"quantization": "nvfp4"}, "quantization", "value", "KV-cache dtype"),
    ({"quantization": "awqq"}, "quantization", "value", "did you mean awq"),
    ({"attention-backend": "FLASH_INFER"}, "attention-backend", "value", "did you mean FLASHINFER"),
    ({"kv-cache-dtype": "fp9"}, "kv-cache-dtype", "value", "fp8"),
    ({"reasoning-parser": "super_v3"}, "reasoning-parser", "value", "nemotron_v3"),
    ({"reasoning-parser": "qwen4"}, "reasoning-parser", "value", "did you mean qwen3"),
    (
        {"tool-call-parser": "hermess", "enable-auto-tool-choice": True},
        "tool-call-parser",
        "value",
        "did you mean hermes",
    ),
    ({"distributed-executor-backend": "slurm"}, "distributed-executor-backend", "value", "ray, mp"),
    ({"all2all-backend": "carrier-pigeon"}, "all2all-backend", "value", "valid:"),
    ({"tool-call-parser": "hermes"}, "tool-call-parser", "companion", "enable-auto-tool-choice: true"),
    ({"enable-auto-tool-choice": True}, "enable-auto-tool-choice", "companion", "tool-call-parser"),
    ({"enable-log-outputs": True}, "enable-log-outputs", "companion", "enable-log-requests"),
    (
        {"enable-chunked-prefill": False, "max-num-batched-tokens": 2048, "max-model-len": 4096},
        "max-num-batched-tokens",
        "companion",
        "chunked prefill",
    ),
    ({"gpu-memory-utilization": 0.95}, "gpu-memory-utilization", "dangerous", "acknowledge"),
    ({"gpu_memory_utilization": "0.91"}, "gpu-memory-utilization", "dangerous", "0.90"),
    ({"gpu-memory-utilization": 85}, "gpu-memory-utilization", "value", "0.85, not 85"),
    ({"trust-remote-code": True}, "trust-remote-code", "dangerous", "acknowledge"),
    ({"enable_sleep_mode": True}, "enable-sleep-mode", "dangerous", "acknowledge"),
    ({"no-trust-remote-code": False}, "trust-remote-code", "dangerous", "acknowledge"),
    ({"max-model-len": "long"}, "max-model-len", "type", "a whole number"),
    ({"max-model-len": True}, "max-model-len", "type", "not a switch"),
    ({"enable-prefix-caching": "yes"}, "enable-prefix-caching", "type", "true or false"),
    ({"no-enable-prefix-caching": 3}, "no-enable-prefix-caching", "type", "switch"),
    ({"gpu-memory-utilization": "much"}, "gpu-memory-utilization", "type", "a number"),
    ({"compilation-config": "{mode"}, "compilation-config", "type", "a dictionary"),
    ({"dtype": {"a": 1}}, "dtype", "type", "a plain value"),
    ({"seed.more": 1}, "seed.more", "unknown", "takes no fields"),
    ({"max-num-seqs": 4, "max_num_seqs": 8}, "max-num-seqs", "twice", "same option as 'max-num-seqs'"),
    (
        {"enable-prefix-caching": True, "no-enable-prefix-caching": True},
        "no-enable-prefix-caching",
        "twice",
        "keep one",
    ),
]


@pytest.mark.parametrize(("args", "option", "kind", "text"), BAD)
def test_bad_arguments(args: dict[str, Any], option: str, kind: str, text: str) -> None:
    found = fatal(check(args, NEW))
    assert [(problem.where, problem.id) for problem in found][:1] == [(option, kind)]
    assert text in str(found[0])


def test_options_follow_the_version() -> None:
    assert kinds({"swap-space": 0}, OLD) == []
    assert kinds({"swap-space": 0}, find_table("0.20")[0]) == [("swap-space", "removed")]
    assert kinds({"kv-cache-dtype": "nvfp4"}, OLD) == [("kv-cache-dtype", "value")]
    assert kinds({"kv-cache-dtype": "nvfp4"}, NEW) == []
    assert kinds({"attention-backend": "auto"}, OLD) == [("attention-backend", "value")]
    # from 0.33 on enable-x and disable-x are each other's negation
    assert kinds({"disable-prefix-caching": True}, find_table("0.32")[0])[0][1] == "unknown"
    assert kinds({"disable-prefix-caching": True}, NEW) == []
    assert normalise({"disable-prefix-caching": True}, NEW) == {"enable-prefix-caching": False}
    assert normalise({"device-memory-utilization": 0.8}, NEW) == {"gpu-memory-utilization": 0.8}


def test_acknowledged_by_name() -> None:
    args = {"gpu-memory-utilization": 0.92, "trust-remote-code": True}
    assert fatal(check(args, NEW, acknowledged=["gpu_memory_utilization", "--trust-remote-code"])) == []
    assert fatal(check({"enable-sleep-mode": True}, NEW, acknowledged=["enable-sleep-mode"])) == []
    assert [problem.where for problem in fatal(check(args, NEW, ["trust-remote-code"]))] == ["gpu-memory-utilization"]


def test_warnings_do_not_stop() -> None:
    problems = check({"enforce-eager": True, "mamba-cache-mode": "align"}, NEW)
    assert {problem.id for problem in problems} == {"slow", "deprecated", "default"}
    assert fatal(problems) == []
    assert check({"enforce-eager": True, "gpu-memory-utilization": 0.8}, NEW, ["enforce-eager"]) == []


def test_vllms_own_share_is_too_much() -> None:
    assert "own 0.92" in str(check({}, NEW)[0])
    assert "own 0.9 " in str(check({}, OLD)[0])
    assert check({"kv-cache-memory-bytes": 2**30}, NEW) == []


def test_all_problems_in_one_message() -> None:
    args = {"swap-space": 0, "quantization": "nvfp4", "gpu-memory-utilization": 0.95, "trust-remote-code": True}
    errors, _warnings = errors_and_others(check(args, NEW))
    assert len(errors) == 4
    message = vllm_args.refusal(errors, NEW["vllm"])
    assert message.startswith("vllm_serve_args (vLLM 0.33.0): ")
    for name in args:
        assert name in message


def test_normalise() -> None:
    args = {"--enable_x": 1, "no-enforce-eager": True, "compilation-config.mode": 3, "max_num_seqs": 8, "seed": None}
    args.pop("--enable_x")
    assert normalise(args, NEW) == {"compilation-config": {"mode": 3}, "enforce-eager": False, "max-num-seqs": 8}
    both = {"compilation-config": {"backend": "eager"}, "compilation-config.pass_config.a": 1}
    assert normalise(both, NEW) == {"compilation-config": {"backend": "eager", "pass_config": {"a": 1}}}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_flag_that_is_off_is_left_out(version: str) -> None:
    """vLLM's parser knows no --no-disable-log-stats; of enable-prefix-caching, a switch, it knows the negation."""
    table, _exact = find_table(version)
    args = {"disable-log-stats": False, "aggregate-engine-logging": False, "enable-prefix-caching": False}
    assert fatal(check(args, table)) == []
    assert normalise(args, table) == {"enable-prefix-caching": False}
    assert render_args(normalise(args, table)) == {"no-enable-prefix-caching": True}
    assert normalise({"aggregate-engine-logging": True}, table) == {"aggregate-engine-logging": True}


def test_statistics_that_the_watchdog_needs_are_not_switched_off_by_the_way() -> None:
    assert kinds({"disable-log-stats": True}) == [("disable-log-stats", "dangerous")]
    assert kinds({"disable_log_stats": True}) == [("disable-log-stats", "dangerous")]
    assert kinds({"disable-log-stats": True}, acknowledged=["disable-log-stats"]) == []
    [problem] = fatal(check({"disable-log-stats": True}, NEW))
    assert "takes a busy engine for one that hangs" in str(problem)


MIXED: list[dict[str, Any]] = [
    {"compilation-config": '{"mode": 3, "pass_config": {"a": 1}}', "compilation-config.pass_config.b": 2},
    {"compilation-config.pass_config.b": 2, "compilation-config": '{"mode": 3, "pass_config": {"a": 1}}'},
    {"compilation-config.pass_config.b": 2, "compilation-config": {"mode": 3, "pass_config": {"a": 1}}},
    {"compilation-config": {"mode": 3, "pass_config": {"a": 1}}, "compilation-config.pass_config.b": 2},
]


@pytest.mark.parametrize("args", MIXED)
def test_fields_beside_the_whole_are_added_to_it(args: dict[str, Any]) -> None:
    before = copy.deepcopy(args)
    assert kinds(args) == []
    wanted = {"mode": 3, "pass_config": {"a": 1, "b": 2}}
    assert normalise(args, NEW) == {"compilation-config": wanted}
    assert vllm_args.fields(args, "compilation-config") == wanted
    assert args == before


@pytest.mark.parametrize(
    "args",
    [
        {"speculative-config": "a-file.json", "speculative-config.method": "ngram"},
        {"speculative-config.method": "ngram", "speculative-config": "a-file.json"},
    ],
)
def test_fields_beside_what_is_no_dictionary_are_not_dropped(args: dict[str, Any]) -> None:
    assert [kind for _option, kind in kinds(args)] == ["twice"]


def test_the_command_that_says_the_same() -> None:
    args = {"a": True, "b": False, "c": {"x": 1}, "d": ["m", "n"], "e": 0.85}
    assert vllm_args.command("org/model", args) == [
        *("vllm", "serve", "org/model", "--a", "--no-b", "--c", '{"x": 1}', "--d", "m", "n", "--e", "0.85"),
    ]


def test_environment_of_old_guides() -> None:
    problems = vllm_args.check_environment({"VLLM_ATTENTION_BACKEND": "FLASHINFER", "VLLM_API_KEY": "s3cret", "A": "b"})
    assert [problem.where for problem in problems] == ["VLLM_ATTENTION_BACKEND", "VLLM_API_KEY"]
    assert "attention-backend" in str(problems[0])
    assert "s3cret" not in str(problems[1])


@pytest.mark.parametrize(
    ("asked", "found", "exact"),
    [
        ("0.33.0", "0.33.0", True),
        ("0.32.0+cpu", "0.32.0", True),
        ("0.20.1+abc.nv26.05", "0.20.1", True),
        ("0.20.2", "0.20.1", False),
        ("v0.17", "0.17.1", False),
    ],
)
def test_tables_by_version(asked: str, found: str, exact: bool) -> None:
    table, is_exact = find_table(asked)
    assert (table["vllm"], is_exact) == (found, exact)


def test_versions_without_a_table(tmp_path: Path) -> None:
    with pytest.raises(SizingError, match=r"0\.11\.0.*no option table"):
        find_table("0.11.0")
    with pytest.raises(SizingError, match="is not a version"):
        find_table("nightly")
    (tmp_path / "0.33.0.json").write_text('{"schema": 2}')
    with pytest.raises(SizingError, match="not an option table"):
        find_table("0.33.0", str(tmp_path))


def test_arguments_must_be_a_dictionary() -> None:
    assert [problem.id for problem in check(["--a"], NEW)] == ["type"]  # type: ignore[arg-type]


def test_arguments_environment_and_table_of_one_version() -> None:
    args = {"max_num_seqs": 4, "enforce-eager": True}
    table, exact = find_table("0.32.0+cpu")
    assert normalise(args, table) == {"enforce-eager": True, "max-num-seqs": 4}
    assert exact is True
    assert len([problem for problem in check(args, table) if problem.severity == WARNING]) == 2
    assert vllm_args.valid_table(dict(NEW), "table")["vllm"] == "0.33.0"
    [removed] = fatal(check({"swap-space": 4}, NEW))
    assert "swap-space" in str(removed)
    [unknown] = fatal(vllm_args.check_environment({"VLLM_ATTENTION_BACKEND": "X"}))
    assert "VLLM_ATTENTION_BACKEND" in str(unknown)
    with pytest.raises(SizingError, match="not an option table"):
        vllm_args.valid_table({"a": 1}, "table")


@pytest.mark.parametrize("name", ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"])
@pytest.mark.parametrize("value", ["True", "False"])
def test_expandable_segments_are_refused_either_way(name: str, value: str) -> None:
    given = f"max_split_size_mb:128,expandable_segments:{value}"
    [refused] = fatal(vllm_args.check_environment({name: given}))
    assert (refused.where, refused.value) == (name, given)
    assert vllm_args.check_environment({name: "max_split_size_mb:128"}) == []


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("seed", 1, ["--seed", "1"]),
        ("enable-prefix-caching", False, ["--no-enable-prefix-caching"]),
        ("compilation-config.inductor_compile_config.x", False, ["false"]),
        ("compilation-config.inductor_compile_config.x", True, ["true"]),
        ("compilation-config.cudagraph_mode", "NONE", ["NONE"]),
        # text that JSON would read as something else
        ("speculative-config.model", "false", ['"false"']),
        ("default-chat-template-kwargs.effort", "3", ['"3"']),
        ("compilation-config.cudagraph_capture_sizes", [1, 2], ["[1, 2]"]),
    ],
)
def test_a_field_in_a_command_has_a_word_that_is_read_as_it_is_meant(option: str, value: Any, words: list[str]) -> None:
    found = command("m", {option: value})[3:]
    assert found == (words if "." not in option else [f"--{option}", *words])
    read = read_command(shlex.join(["vllm", "serve", "m", *found]), "x").flags
    assert read == ({f"no-{option}": True} if words[0].startswith("--no-") else {option: value})
