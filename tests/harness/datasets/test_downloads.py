"""Downloads from a real server on loopback that cuts, stalls, redirects and lies about lengths."""

from __future__ import annotations

import dataclasses
import io
import threading
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from harness import datasets
from harness.datasets import _external as external
from harness.errors import InputError
from tests.support.raw_files import write_saint

NAME = "pyg:Flickr"
Reply = Callable[[BaseHTTPRequestHandler, bytes], None]
STOP = threading.Event()


def whole(request: BaseHTTPRequestHandler, content: bytes) -> None:
    send(request, content, len(content))


def send(request: BaseHTTPRequestHandler, content: bytes, length: int | None, kind: str = "application/zip") -> None:
    request.send_response(200)
    request.send_header("Content-Type", kind)
    if length is not None:
        request.send_header("Content-Length", str(length))
    request.end_headers()
    request.wfile.write(content)


def stalls(request: BaseHTTPRequestHandler, content: bytes) -> None:
    send(request, content[:50], len(content))
    request.wfile.flush()
    STOP.wait(30)


def chunked(request: BaseHTTPRequestHandler, content: bytes, ended: bool) -> None:
    request.protocol_version = "HTTP/1.1"
    request.send_response(200)
    request.send_header("Transfer-Encoding", "chunked")
    request.end_headers()
    request.wfile.write(b"%x\r\n%s\r\n" % (len(content), content) + b"0\r\n\r\n" * ended)
    request.close_connection = True


def elsewhere(request: BaseHTTPRequestHandler, content: bytes) -> None:
    if request.path.startswith("/moved"):
        whole(request, content)
        return
    request.send_response(302)
    request.send_header("Location", f"/moved{request.path}")
    request.end_headers()


def around(request: BaseHTTPRequestHandler, content: bytes) -> None:
    request.send_response(302)
    request.send_header("Location", request.path)
    request.end_headers()


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Reply], Path]]:
    """Serves the files of a small graph with a given reply; returns the folder that they are downloaded to."""
    write_saint(tmp_path / "origin", "Flickr", {"0": 0, "1": 1, "2": 2, "3": 1})
    source, origin = external.GRAPHS[NAME], tmp_path / "origin" / "Flickr"
    how: list[Reply] = []

    class Server(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            how[0](self, (origin / self.path.removeprefix("/moved").lstrip("/")).read_bytes())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    server.daemon_threads = False
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    urls = {file: f"{address}/{file}" for file in source.files}
    monkeypatch.setitem(external.GRAPHS, NAME, dataclasses.replace(source, urls=urls))
    monkeypatch.setattr(external, "_SECONDS", 0.5)
    monkeypatch.setenv("NO_PROXY", "*")
    STOP.clear()

    def serve(reply: Reply) -> Path:
        how[:] = [reply]
        return tmp_path / "to"

    yield serve
    STOP.set()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize("reply", [whole, elsewhere, lambda r, c: send(r, c, None), lambda r, c: chunked(r, c, True)])
def test_whole_files_are_taken(reply: Reply, served: Callable[[Reply], Path]) -> None:
    folder = served(reply)
    assert datasets.load(f"{NAME},root={folder}").num_nodes == 4


CUT: list[tuple[Reply, str]] = [
    (lambda r, c: send(r, c[: len(c) // 2], len(c)), "ended after|IncompleteRead"),
    (lambda r, c: send(r, b"", len(c)), "ended after|IncompleteRead"),
    (lambda r, c: send(r, c, len(c) + 1), "ended after|IncompleteRead"),
    (lambda r, c: chunked(r, c[: len(c) // 2], False), "IncompleteRead|ended after"),
    (stalls, "timed out"),
    (around, "redirect|infinite loop"),
    (lambda r, c: send(r, b"<html>quota</html>", None, "text/html"), "returned a web page"),
]


@pytest.mark.parametrize(("reply", "words"), CUT, ids=range(len(CUT)))
def test_what_is_not_whole_is_not_kept(reply: Reply, words: str, served: Callable[[Reply], Path]) -> None:
    folder = served(reply)
    with pytest.raises(InputError, match=f"the download failed .*({words}).*put "):
        datasets.load(f"{NAME},root={folder}")
    assert not [path for path in folder.rglob("*") if path.is_file()]
    assert datasets.load(f"{NAME},root={served(whole)}").num_nodes == 4, "the next attempt may succeed"


def test_a_length_that_is_too_short_leaves_a_damaged_file_that_is_named(served: Callable[[Reply], Path]) -> None:
    folder = served(lambda r, c: send(r, c, len(c) // 2))
    with pytest.raises(InputError, match="adj_full.npz|feats.npy|class_map.json|role.json"):
        datasets.load(f"{NAME},root={folder}")


def test_a_zip_that_lies_about_a_member_is_refused(served: Callable[[Reply], Path], tmp_path: Path) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("a/data.bin", b"x" * 1000)
    broken = bytearray(packed.getvalue())
    broken[60] ^= 1  # in the member's bytes
    with (
        zipfile.ZipFile(io.BytesIO(bytes(broken))) as archive,
        archive.open("a/data.bin") as content,
        pytest.raises(zipfile.BadZipFile),
    ):
        external._write(content, tmp_path / "data.bin", 1000, "http://127.0.0.1/a.zip")
    assert not (tmp_path / "data.bin").exists()
