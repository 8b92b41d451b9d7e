# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Models by name: what the hub tells of them before they are fetched, and what the plan makes of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import huggingface_hub
import huggingface_hub.constants
import pytest
import tqdm
import yaml
from ansible_collections.sparkthor.cluster.plugins.module_utils._model import checkpoint
from ansible_collections.sparkthor.cluster.plugins.module_utils._store import hub_caches
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import hub, hub_card
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery.record import MODELS, Record
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.serving import plan_serving

from tests.unit.hub_stand_in import COMMIT, TOKEN, Models, hub_of
from tests.unit.planned_cluster import planned
from tests.unit.published_models import model
from tests.unit.role_state import ROLES

#: by hub id the fixture with its config.json, and the bytes of its safetensors, rounded from the models' pages
PUBLISHED = {
    "mistralai/Mistral-7B-v0.1": ("mistral-7b-v0.1", 14_480_000_000),
    "Qwen/Qwen2.5-7B-Instruct": ("qwen2.5-7b-instruct", 15_230_000_000),
    "meta-llama/Llama-3.1-8B-Instruct": ("llama-3.1-8b", 16_060_000_000),
    "Qwen/Qwen3-30B-A3B-Thinking-2507-FP8": ("qwen3-30b-a3b-thinking-2507-fp8", 31_200_000_000),
    "google/gemma-3-27b-it": ("gemma-3-27b-it", 54_860_000_000),
    "openai/gpt-oss-120b": ("gpt-oss-120b", 65_250_000_000),
    "Qwen/Qwen3.5-122B-A10B-FP8": ("qwen3.5-122b-a10b-fp8", 127_000_000_000),
    "hugging-quants/Meta-Llama-3.1-405B-Instruct-AWQ-INT4": ("llama-3.1-405b-awq-int4", 203_000_000_000),
    "Qwen/Qwen3.5-397B-A17B-FP8": ("qwen3.5-397b-a17b-fp8", 406_950_000_000),
    "deepseek-ai/DeepSeek-V3": ("deepseek-v3", 688_590_000_000),
}
GATED = "meta-llama/Llama-3.1-8B-Instruct"


def mistral(fixture: str, size: int, indexed: bool) -> dict[str, bytes | int]:
    """A model in Mistral's own form alone."""
    names = [f"consolidated-0000{number}-of-00002.safetensors" for number in (1, 2)]
    index = {"metadata": {}, "weight_map": {"tok_embeddings.weight": names[0], "norm.weight": names[1]}}
    return {
        "config.json": json.dumps(model(fixture)).encode(),
        "params.json": b"{}",
        "tekken.json": b"{}",
        names[0]: size // 2,
        names[1]: size - size // 2,
        "consolidated.00.pth": size,
        **({checkpoint.INDEXES[1]: json.dumps(index).encode()} if indexed else {}),
    }


def published(fixture: str, size: int) -> dict[str, bytes | int]:
    """Two shards with their index, and the same weights in forms that nobody needs beside them."""
    names = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    index = {"metadata": {"total_size": size}, "weight_map": {"a": names[0], "b": names[1]}}
    return {
        "config.json": json.dumps(model(fixture)).encode(),
        checkpoint.INDEXES[0]: json.dumps(index).encode(),
        names[0]: size // 2,
        names[1]: size - size // 2,
        "consolidated.safetensors": size,
        "original/consolidated.00.pth": size,
    }


@pytest.fixture
def models() -> Models:
    files = {repo: published(*known) for repo, known in PUBLISHED.items()}
    files |= {
        "owner/quants": {"model-Q4.gguf": 4096},
        "owner/pickled": {"config.json": b"{}", "pytorch_model.bin": 4096},
        "owner/mistral": mistral("mistral-7b-v0.1", 14_480_000_000, True),
        "owner/mistral-bare": mistral("mistral-7b-v0.1", 14_480_000_000, False),
        "owner/params": {"params.json": b"{}", "consolidated.safetensors": 4096},
        "owner/torn": {"config.json": b"{", "model.safetensors": 4096},
    }
    return Models(files, frozenset({GATED}))


@pytest.fixture
def url(models: Models) -> Iterator[str]:
    with hub_of(models) as address:
        yield address


@pytest.fixture(autouse=True)
def client(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The hub's own client, which reads its settings when it is imported."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    # a thread of the client's progress bars
    monkeypatch.setattr(tqdm.tqdm, "monitor_interval", 0)
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "theirs"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda token=None: _api(url, token))
    fetch, whole = huggingface_hub.hf_hub_download, huggingface_hub.snapshot_download
    monkeypatch.setattr(
        huggingface_hub, "hf_hub_download", lambda *args, **kwargs: fetch(*args, endpoint=url, **kwargs)
    )
    monkeypatch.setattr(
        huggingface_hub, "snapshot_download", lambda *args, **kwargs: whole(*args, endpoint=url, **kwargs)
    )
    return huggingface_hub


def _api(url: str, token: str | None) -> Any:
    from huggingface_hub.hf_api import HfApi

    return HfApi(endpoint=url, token=token)


def asked(repo: str, revision: str) -> tuple[dict[str, Any], int]:
    card = hub_card.card(repo, revision, token=TOKEN)
    return card.config, card.weights


@pytest.mark.parametrize("repo", PUBLISHED)
def test_config_and_sizes_are_known_before_a_weight_is_fetched(models: Models, repo: str) -> None:
    card = hub_card.card(repo, "", token=TOKEN)
    fixture, size = PUBLISHED[repo]
    assert (card.commit, card.config, card.weights) == (COMMIT, model(fixture), size)
    # what lies on a host: the shards and the small files, once
    assert size < card.size < size + 1_000_000
    assert not [name for name in models.sent if name.endswith((".safetensors", ".pth"))]
    assert hub_card.kept(repo, "") == hub_card.kept(repo, COMMIT) == card


#: on two Sparks (TP=2 over RoCE): verdict, and what the line says of cache and speed
VERDICTS = {
    "mistralai/Mistral-7B-v0.1": "Mistral-7B-v0.1 on 2 GPUs fits; weights 13.5 GiB",
    "Qwen/Qwen2.5-7B-Instruct": "Qwen2.5-7B-Instruct on 2 GPUs fits; weights 14.2 GiB",
    "meta-llama/Llama-3.1-8B-Instruct": "Llama-3.1-8B-Instruct on 2 GPUs fits; weights 15.0 GiB",
    "Qwen/Qwen3-30B-A3B-Thinking-2507-FP8": "Qwen3-30B-A3B-Thinking-2507-FP8 on 2 GPUs fits; weights 29.1 GiB",
    "google/gemma-3-27b-it": "gemma-3-27b-it on 2 GPUs fits; weights 51.1 GiB",
    "openai/gpt-oss-120b": "gpt-oss-120b on 2 GPUs fits; weights 60.8 GiB",
    "Qwen/Qwen3.5-122B-A10B-FP8": "Qwen3.5-122B-A10B-FP8 on 2 GPUs fits; weights 118.3 GiB",
}
TOO_LARGE = [
    "hugging-quants/Meta-Llama-3.1-405B-Instruct-AWQ-INT4",
    "Qwen/Qwen3.5-397B-A17B-FP8",
    "deepseek-ai/DeepSeek-V3",
]


@pytest.mark.parametrize("repo", VERDICTS)
def test_a_model_by_name_is_planned_with_its_verdict(repo: str) -> None:
    first, cluster, _fabric, nodes = planned(["a", "b"], vllm_serve_model=repo)
    serving = plan_serving(first, cluster, nodes, ".", asked)
    assert serving["tensor_parallel"] == 2
    assert serving["outlook"].startswith(VERDICTS[repo])
    for words in ("GiB of cache on each", "requests of", "tokens at once", "tokens/s for one stream"):
        assert words in serving["outlook"]
    assert serving["models"] == [{"name": repo.rpartition("/")[2], "source": repo, "revision": ""}]
    assert serving["runtime"] == "container"


@pytest.mark.parametrize("repo", TOO_LARGE)
def test_a_model_that_does_not_fit_is_refused_with_the_numbers(repo: str) -> None:
    first, cluster, _fabric, nodes = planned(["a", "b"], vllm_serve_model=repo)
    with pytest.raises(ValueError, match="does not fit these hosts") as refused:
        plan_serving(first, cluster, nodes, ".", asked)
    for words in ("a: ", "weights", "overhead", "GPUs of 121.7 GiB would hold it"):
        assert words in str(refused.value)


@pytest.mark.parametrize("repo", ["owner/mistral", "owner/mistral-bare"])
def test_mistrals_own_form_alone_is_counted_and_fetched(models: Models, repo: str, tmp_path: Path) -> None:
    assert hub_card.card(repo, "").weights == 14_480_000_000
    found = hub_card.models_of([{"name": "m", "source": repo}], Record(str(tmp_path)))
    small = sum(len(content) for content in models.files[repo].values() if isinstance(content, bytes))
    assert (found.sizes["m"], found.downloads[0].missing) == (14_480_000_000 + small, 14_480_000_000)


@pytest.mark.parametrize(
    ("repo", "message"),
    [
        ("owner/quants", r"owner/quants has no config.json, .* \(it holds \.gguf\)"),
        ("owner/params", "owner/params has params.json and no config.json: vLLM reads Mistral's own form"),
        ("owner/pickled", "owner/pickled has no safetensors"),
        ("owner/torn", "is not JSON"),
        ("owner/none", "the hub has no owner/none"),
        (GATED, "Llama-3.1-8B-Instruct is gated and no token was given"),
    ],
)
def test_what_cannot_be_planned_is_named(repo: str, message: str) -> None:
    with pytest.raises((hub.HubError, ValueError), match=message):
        hub_card.card(repo, "")


def test_a_token_of_somebody_else_does_not_open_it() -> None:
    with pytest.raises(hub.HubError, match="the account of the token that was given has no access"):
        hub_card.card(GATED, "", token="hf_of_somebody")


def test_downloads_are_proved_and_counted_before_the_first(models: Models, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "model.safetensors").write_bytes(b"w" * 77)
    record = Record(str(tmp_path))
    given = [
        {"name": "mine", "source": str(mine)},
        {"name": "far", "source": "https://example.org/model"},
        {"name": "small", "source": "owner/pickled"},
    ]
    found = hub_card.models_of(given, record)
    assert found.sizes == {"mine": 77, "small": 4098}
    assert [item.line() for item in found.downloads] == [
        f"owner/pickled: 4.0 KiB, 2 B of it are in {tmp_path}/sparkthor/hub; to fetch 4.0 KiB, 0 min at 100 MB/s"
    ]
    assert models.sent == ["owner/pickled/config.json"]
    with pytest.raises(hub.HubError, match=r"^gated: meta-llama/Llama-3\.1-8B-Instruct is gated and no token"):
        hub_card.models_of([*given, {"name": "gated", "source": GATED}], record)


def test_a_disk_of_the_controller_that_is_too_small_for_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "free_bytes", lambda _path: 20_000_000_000)
    given = [{"name": name, "source": f"{name}"} for name in ("mistralai/Mistral-7B-v0.1", "Qwen/Qwen2.5-7B-Instruct")]
    for item in given:
        item["name"] = item["source"].rpartition("/")[2]
    record = Record(str(tmp_path))
    assert len(hub_card.models_of(given[:1], record).downloads) == 1
    with pytest.raises(hub.HubError, match=r"Qwen2.5-7B-Instruct needs 29\.1 GiB more on the controller"):
        hub_card.models_of(given, record)


@pytest.mark.parametrize(
    ("how", "why"), [("auto", "100 B are free on the controller"), ("host", "model_store_fetch says so")]
)
def test_a_host_fetches_what_the_controller_has_no_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, why: str
) -> None:
    monkeypatch.setattr(hub, "free_bytes", lambda _path: 100)
    record, given = Record(str(tmp_path)), [{"name": "small", "source": "owner/pickled"}]
    with pytest.raises(hub.HubError, match=r"more on the controller .*, or set model_store_fetch: host$"):
        hub_card.models_of(given, record, how="controller")
    found = hub_card.models_of(given, record, how=how)
    # the hosts' room is asked for by the sizes
    assert found.sizes == {"small": 4098}
    assert found.downloads[0].line().endswith(f"min at 100 MB/s, by the first host: {why}")
    # where neither has room, both are told
    refused = {"model_store_models: small needs 4.2 KiB more": ["a"], "another: thing": ["b"]}
    both = hub_card.with_controller(refused, [found.planned()])
    assert both == {f"model_store_models: small needs 4.2 KiB more; {why}": ["a"], "another: thing": ["b"]}
    assert hub_card.with_controller(refused, [{}]) == refused
    with pytest.raises(hub.HubError, match="more on the controller"):
        hub_card.models_of([{**given[0], "layout": "hub"}], record, how=how)


@pytest.mark.parametrize("there", [0, 4095, 4096])
def test_what_a_host_has_in_its_own_cache_needs_no_download_and_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: int
) -> None:
    monkeypatch.setattr(hub, "free_bytes", lambda _path: 100)
    given = [{"name": "small", "source": "owner/pickled"}]
    caches = {"spark-01": {"owner/other": 1 << 40}, "spark-02": {"owner/pickled": there}}
    if there < 4096:
        # half a model may be any half
        with pytest.raises(hub.HubError, match=r"owner/pickled needs 4\.2 KiB more on the controller"):
            hub_card.models_of(given, Record(str(tmp_path)), caches=caches)
        return
    (download,) = hub_card.models_of(given, Record(str(tmp_path)), caches=caches).downloads
    assert (download.lacking, download.host) == (0, "spark-02")
    assert "4.0 KiB are in a hub cache of spark-02 and taken from there; to fetch 0 B, 0 min" in download.line()
    whole = [{**given[0], "layout": "hub"}]
    with pytest.raises(hub.HubError, match="more on the controller"):
        hub_card.models_of(whole, Record(str(tmp_path)), caches=caches)


def test_caches_that_the_model_store_leaves_alone_do_not_count() -> None:
    nodes = {"a": {"hub_models": {"owner/model": 9}}, "b": {}}
    known = {"a": {"owner/model": 9}, "b": {}}
    assert hub_card.caches_of(nodes, {}) == known
    assert hub_card.caches_of(nodes, {"model_store_hub_caches": [*hub_caches.DEFAULT, "/data/hub"]}) == known
    for others in ([], ["/data/hub"], list(hub_caches.DEFAULT[:1])):
        assert hub_card.caches_of(nodes, {"model_store_hub_caches": others}) == {}


def test_the_role_takes_from_the_caches_that_facts_read() -> None:
    defaults = yaml.safe_load((ROLES / "model_store/defaults/main.yml").read_text(encoding="utf-8"))
    assert defaults["model_store_hub_caches"] == list(hub_caches.DEFAULT)


def test_the_recorded_commit_is_what_is_asked_for(tmp_path: Path) -> None:
    record = Record(str(tmp_path))
    record.keep(MODELS, "owner/name", "d" * 40)
    assert hub_card.recorded("owner/name", "", record) == "d" * 40
    assert hub_card.recorded("owner/name", "v2", record) == "v2"
    assert hub_card.kept("owner/never", "") is None


def test_a_hub_that_does_not_answer(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "HfApi", lambda token=None: _api("http://127.0.0.1:9", token))
    with pytest.raises(hub.Unreachable, match="does not answer"):
        hub_card.card("Qwen/Qwen2.5-7B-Instruct", "")
