"""``dsgmcmc fetch`` against a real server on this machine: what arrives whole is kept, anything else is not."""

from __future__ import annotations

import hashlib
import io
import re
import socket
import stat
import threading
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from support import Result, typed

RATINGS = "userId,movieId,rating,timestamp\n1,1,4.0,964982703\n1,3,3.5,964981247\n2,1,1.0,964982224\n"


class Handler(SimpleHTTPRequestHandler):
    """Serves a folder and remembers what was asked for."""

    def do_GET(self) -> None:
        self.server.asked.append(self.path)  # type: ignore[attr-defined]
        if self.path.endswith("ml-latest-small.zip") and (Path(self.directory) / "cut").exists():
            self.send_response(200)
            self.send_header("Content-Length", "1000000")
            self.end_headers()
            self.wfile.write(b"PK only the beginning")
            return
        super().do_GET()

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ThreadingHTTPServer]:
    folder = tmp_path / "published"
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder))) as running:
        running.asked = []  # type: ignore[attr-defined]
        running.folder = folder  # type: ignore[attr-defined]
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def publish(
    server: ThreadingHTTPServer, members: dict[str, str], name: str = "ml-latest-small", **changes: str
) -> None:
    """Put an archive and its checksum on the server."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, text in members.items():
            entry = zipfile.ZipInfo(path)
            if text.startswith("-> "):
                entry.external_attr = (stat.S_IFLNK | 0o777) << 16
            archive.writestr(entry, text)
    md5 = hashlib.md5(buffer.getvalue()).hexdigest()
    folder = server.folder  # type: ignore[attr-defined]
    (folder / f"{name}.zip").write_bytes(buffer.getvalue())
    (folder / f"{name}.zip.md5").write_text(changes.get("md5", f"MD5 ({name}.zip) = {md5}\n"))
    if "cut" in changes:  # the connection ends early
        (folder / "cut").touch()


@pytest.fixture
def fetch(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """The command, by a server or an address."""

    def command(server: ThreadingHTTPServer | str, *arguments: str | Path) -> Result:
        url = server if isinstance(server, str) else f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv("DSGMCMC_FETCH_URL", url)
        monkeypatch.setenv("no_proxy", "*")
        return typed("fetch", *arguments)

    return command


def test_fetch_prepare(server, fetch, tmp_path):
    """A data set lies in its folder with its licence, is announced by its path, and is not fetched a second time."""
    publish(server, {"ml-latest-small/ratings.csv": RATINGS, "ml-latest-small/README.txt": "terms"})
    run = fetch(server, "ml-latest-small", "--out", tmp_path / "downloads").expect(0)
    ratings = tmp_path / "downloads" / "ml-latest-small" / "ratings.csv"
    assert run.out == f"{ratings}\n"
    assert "GroupLens" in run.err
    assert "README" in run.err
    assert ratings.read_text() == RATINGS
    assert [path.name for path in (tmp_path / "downloads").iterdir()] == ["ml-latest-small"]
    typed("prepare", ratings, tmp_path / "out.h5").expect(0)
    assert server.asked == ["/ml-latest-small.zip.md5", "/ml-latest-small.zip"]
    again = fetch("http://127.0.0.1:1", "ml-latest-small", "--out", tmp_path / "downloads").expect(0)
    assert again.out == run.out


GOOD = {"ml-latest-small/ratings.csv": RATINGS}


@pytest.mark.parametrize(
    ("members", "changes", "message"),
    [
        (GOOD, {"md5": "0" * 32}, "its publisher says 00000000"),
        (GOOD, {"md5": "<html>not found</html>"}, "its publisher says nothing"),
        (GOOD, {"cut": "yes"}, "cannot download|its publisher says"),
        ({"ml-latest-small/movies.csv": "x"}, {}, "holds 0 files ratings.csv"),
    ],
)
def test_wrong_archive_is_refused(server, fetch, tmp_path, members, changes, message):
    """A wrong checksum, a connection that ends early or a hostile archive: exit 2, the reason, and not one file."""
    publish(server, members, **changes)
    run = fetch(server, "ml-latest-small", "--out", tmp_path / "downloads").expect(2)
    assert re.search(message, run.err)
    assert list((tmp_path / "downloads").iterdir()) == []


def test_nothing_is_unpacked_outside(server, fetch, tmp_path):
    """Paths and links of an archive that lead outside its folder are not followed."""
    outside = {"../outside.csv": "x", "ml-latest-small/../../../../outside.csv": "x", f"{tmp_path}/outside.csv": "x"}
    publish(server, {**GOOD, **outside, "ml-latest-small/link": "-> /etc/passwd"})
    fetch(server, "ml-latest-small", "--out", tmp_path / "downloads").expect(0)
    assert not list(tmp_path.rglob("outside.csv"))
    assert not list(tmp_path.rglob("passwd"))
    assert not any(path.is_symlink() for path in tmp_path.rglob("*"))


def test_pinned_checksum(server, fetch, tmp_path):
    """Archives that never change are checked against the checksum in the program, whatever the server says."""
    publish(server, {"ml-1m/ratings.dat": "1::1::5::1\n"}, "ml-1m")
    run = fetch(server, "ml-1m", "--out", tmp_path / "downloads").expect(2)
    assert "its publisher says c4d9eecfca2ab87c1945afe126590906" in run.err
    assert server.asked == ["/ml-1m.zip"]


def test_no_network(fetch, tmp_path):
    """Without a server the message says what to do instead."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        run = fetch(f"http://127.0.0.1:{unused.getsockname()[1]}", "ml-1m", "--out", tmp_path / "downloads").expect(2)
    assert "cannot download http://127.0.0.1" in run.err
    assert "data/synthetic.py" in run.err
    assert len(run.err.splitlines()) == 1


def test_folder_in_the_way(fetch, tmp_path):
    """A folder of that name without ratings is not overwritten."""
    (tmp_path / "ml-1m").mkdir()
    (tmp_path / "ml-1m" / "mine.txt").touch()
    run = fetch("http://127.0.0.1:1", "ml-1m", "--out", tmp_path).expect(2)
    assert "exists without ratings.dat" in run.err
    assert (tmp_path / "ml-1m" / "mine.txt").exists()
