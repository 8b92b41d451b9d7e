# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Models behind a URL, by fsspec's own file system in memory: what a server or a bucket is to it."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import url
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery.url import UrlError, fetch

FILES = {"config.json": b"{}", "sub/model.safetensors": b"w" * 5000}
URL = "memory://bucket/tiny"


def sums(files: dict[str, bytes]) -> str:
    return "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in files.items())


@pytest.fixture
def bucket() -> Iterator[Any]:
    files = fsspec.filesystem("memory")
    for name, data in FILES.items():
        files.pipe_file(f"/bucket/tiny/{name}", data)
    files.pipe_file("/bucket/tiny/SHA256SUMS", sums(FILES).encode())
    yield files
    files.rm("/bucket", recursive=True)


def test_a_folder_is_fetched_once_and_used_offline_afterwards(bucket: Any, tmp_path: Path) -> None:
    assert fetch(URL, str(tmp_path), fetch=False) is None
    folder = Path(str(fetch(URL, str(tmp_path), fetch=True)))
    assert {name: (folder / name).read_bytes() for name in FILES} == FILES
    bucket.rm("/bucket/tiny/config.json")
    assert fetch(URL, str(tmp_path), fetch=False) == str(folder)
    bucket.pipe_file("/bucket/tiny/config.json", b"{}")


def test_what_came_half_is_continued(bucket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(str(fetch(URL, str(tmp_path), fetch=True)))
    (tmp_path / f"{folder.name}.SHA256SUMS").unlink()
    (folder / "sub/model.safetensors").rename(folder / "sub/model.safetensors.part")
    with (folder / "sub/model.safetensors.part").open("r+b") as file:
        file.truncate(3000)
    seen = []
    opened = type(bucket).open

    def watch(self: Any, path: str, mode: str = "rb", **settings: Any) -> Any:
        file = opened(self, path, mode, **settings)
        seek = file.seek
        file.seek = lambda place, *rest: (seen.append((path.rsplit("/")[-1], place)), seek(place, *rest))[1]
        return file

    monkeypatch.setattr(type(bucket), "open", watch)
    fetch(URL, str(tmp_path), fetch=True)
    assert ("model.safetensors", 3000) in seen
    assert (folder / "sub/model.safetensors").read_bytes() == FILES["sub/model.safetensors"]


def test_a_model_that_was_replaced_between_two_attempts_is_not_mixed(
    bucket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.pipe_file("/bucket/tiny/a-shard", b"of the first version alone")
    bucket.pipe_file("/bucket/tiny/SHA256SUMS", sums({"a-shard": b"of the first version alone", **FILES}).encode())
    opened = type(bucket).open

    def broken(self: Any, path: str, mode: str = "rb", **settings: Any) -> Any:
        if path.endswith("model.safetensors"):
            raise OSError("link down")
        return opened(self, path, mode, **settings)

    with monkeypatch.context() as patch:
        patch.setattr(type(bucket), "open", broken)
        with pytest.raises(UrlError, match="link down"):
            fetch(URL, str(tmp_path), fetch=True)
    second = {"config.json": b'{"version": 2}', "sub/model.safetensors": b"v" * 4000}
    for name, data in second.items():
        bucket.pipe_file(f"/bucket/tiny/{name}", data)
    bucket.pipe_file("/bucket/tiny/SHA256SUMS", sums(second).encode())
    folder = Path(str(fetch(URL, str(tmp_path), fetch=True)))
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert found == second


def test_a_file_that_is_not_what_the_list_says_is_discarded(bucket: Any, tmp_path: Path) -> None:
    bucket.pipe_file("/bucket/tiny/config.json", b"[]")
    with pytest.raises(UrlError, match=r"config\.json has SHA-256 .*discarded"):
        fetch(URL, str(tmp_path), fetch=True)
    assert list(tmp_path.rglob("config.json*")) == []


def test_a_folder_without_a_list_proves_nothing(bucket: Any, tmp_path: Path) -> None:
    bucket.rm("/bucket/tiny/SHA256SUMS")
    with pytest.raises(UrlError, match="has no SHA256SUMS"):
        fetch(URL, str(tmp_path), fetch=True)


def test_a_list_without_end_is_not_kept(bucket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless(io.BytesIO):
        given = 0

        def read(self, size: int | None = -1, /) -> bytes:
            assert (size or 0) > 0, "all of it was asked for"
            Endless.given += size
            assert Endless.given < 64 << 20
            return b"a" * size

    monkeypatch.setattr(type(bucket), "open", lambda *_words, **_settings: Endless())
    with pytest.raises(UrlError, match=r"its SHA256SUMS is larger than 16 MiB"):
        fetch(URL, str(tmp_path), fetch=True)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_goes_on_after_its_size_is_discarded(
    bucket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = type(bucket).info

    def less(self: Any, path: str, **settings: Any) -> Any:
        return {**told(self, path, **settings), **({"size": 4000} if path.endswith("model.safetensors") else {})}

    monkeypatch.setattr(type(bucket), "info", less)
    with pytest.raises(UrlError, match=r"model\.safetensors declares 4000 bytes and sends more: it was discarded"):
        fetch(URL, str(tmp_path), fetch=True)
    assert list(tmp_path.rglob("model.safetensors*")) == []


class HttpError(Exception):
    """As a client of HTTP has it."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


@pytest.mark.parametrize(
    ("status", "said"), [(404, "has no SHA256SUMS"), (503, "cannot be read: HttpError: status 503")]
)
def test_a_server_that_fails_does_not_lack_the_list(
    bucket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, said: str
) -> None:
    def refuse(*_words: Any, **_settings: Any) -> Any:
        raise FileNotFoundError("url") from HttpError(status)

    monkeypatch.setattr(type(bucket), "open", refuse)
    with pytest.raises(UrlError, match=said):
        fetch(URL, str(tmp_path), fetch=True)


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../b", "a//b"])
def test_paths_out_of_the_folder_are_refused(bucket: Any, path: str, tmp_path: Path) -> None:
    bucket.pipe_file("/bucket/tiny/SHA256SUMS", sums({path: b"x"}).encode())
    with pytest.raises(UrlError, match="does not stay inside"):
        fetch(URL, str(tmp_path), fetch=True)
    assert list(tmp_path.iterdir()) == []


def test_a_scheme_nobody_knows(tmp_path: Path) -> None:
    with pytest.raises(UrlError, match="nonsense://x"):
        fetch("nonsense://x", str(tmp_path), fetch=True)


def test_a_client_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def without(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(url.importlib, "import_module", without)
    with pytest.raises(UrlError, match="need the Python package fsspec"):
        fetch(URL, str(tmp_path), fetch=True)
