"""``dsgmcmc fetch`` against a real server on this machine: what arrives whole is kept, anything
else is not.
"""

import hashlib
import io
import re
import stat
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from support import typed

RATINGS = (
    "userId,movieId,rating,timestamp\n1,1,4.0,964982703\n1,3,3.5,964981247\n2,1,1.0,964982224\n"
)
GOOD = {"ml-latest-small/ratings.csv": RATINGS}


class Server(ThreadingHTTPServer):
    """Serves a folder and remembers what was asked for; an archive ``cut`` is sent in part."""

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
        self.folder = folder
        self.asked = []
        self.cut = False

    def publish(
        self, members: dict[str, str], name: str = "ml-latest-small", md5: str | None = None
    ) -> None:
        """Put an archive and its checksum on the server."""
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for path, text in members.items():
                entry = zipfile.ZipInfo(path)
                if text.startswith("-> "):
                    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
                archive.writestr(entry, text)
        (self.folder / f"{name}.zip").write_bytes(buffer.getvalue())
        checksum = f"MD5 ({name}.zip) = {hashlib.md5(buffer.getvalue()).hexdigest()}\n"
        (self.folder / f"{name}.zip.md5").write_text(md5 or checksum)


class Handler(SimpleHTTPRequestHandler):
    """Answers for a `Server`, and keeps quiet."""

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        if self.server.cut and self.path.endswith(".zip"):
            self.send_response(200)
            self.send_header("Content-Length", "1000000")
            self.end_headers()
            self.wfile.write(b"PK only the beginning")
            return
        super().do_GET()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(autouse=True)
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command asks an address where nobody answers."""
    monkeypatch.setenv("DSGMCMC_FETCH_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """The command asks this server."""
    folder = tmp_path / "published"
    folder.mkdir()
    with Server(folder) as running:
        monkeypatch.setenv("DSGMCMC_FETCH_URL", f"http://127.0.0.1:{running.server_port}")
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def test_fetch_prepare(server, tmp_path):
    """Ratings lie in their folder, by whose path they are announced, with their licence, and can be
    prepared.

    What is there is not fetched again.
    """
    server.publish({**GOOD, "ml-latest-small/README.txt": "terms"})
    command = ("fetch", "ml-latest-small", "--out", tmp_path / "downloads")
    done = typed(*command).expect(0)
    ratings = tmp_path / "downloads" / "ml-latest-small" / "ratings.csv"
    assert done.out == typed(*command).expect(0).out == f"{ratings}\n"
    assert server.asked == ["/ml-latest-small.zip.md5", "/ml-latest-small.zip"]
    assert "GroupLens" in done.err
    assert "README" in done.err
    assert ratings.read_text() == RATINGS
    assert [path.name for path in (tmp_path / "downloads").iterdir()] == ["ml-latest-small"]
    typed("prepare", ratings, tmp_path / "out.h5").expect(0)


@pytest.mark.parametrize(
    ("members", "md5", "cut", "message"),
    [
        (GOOD, "0" * 32, False, "its publisher gives 00000000"),
        (GOOD, "<html>not found</html>", False, "its publisher gives nothing"),
        (GOOD, None, True, "cannot download|its publisher gives"),
        ({"ml-latest-small/movies.csv": "x"}, None, False, "contains 0 files ratings.csv"),
    ],
)
def test_wrong_archive_is_refused(server, tmp_path, members, md5, cut, message):
    """A wrong checksum, a connection that ends early or a hostile archive: exit 2, the reason, and
    not one file.
    """
    server.publish(members, md5=md5)
    server.cut = cut
    done = typed("fetch", "ml-latest-small", "--out", tmp_path / "downloads").expect(2)
    assert re.search(message, done.err)
    assert list((tmp_path / "downloads").iterdir()) == []


def test_nothing_is_unpacked_outside(server, tmp_path):
    """Paths and links of an archive that lead outside its folder are not followed."""
    outside = {
        "../outside.csv": "x",
        "ml-latest-small/../../../../outside.csv": "x",
        f"{tmp_path}/outside.csv": "x",
    }
    server.publish({**GOOD, **outside, "ml-latest-small/link": "-> /etc/passwd"})
    typed("fetch", "ml-latest-small", "--out", tmp_path / "downloads").expect(0)
    assert not list(tmp_path.rglob("outside.csv"))
    assert not list(tmp_path.rglob("passwd"))
    assert not any(path.is_symlink() for path in tmp_path.rglob("*"))


def test_pinned_checksum(server, tmp_path):
    """Archives that never change are checked against the checksum in the program, whatever the
    server says.
    """
    server.publish({"ml-1m/ratings.dat": "1::1::5::1\n"}, "ml-1m")
    done = typed("fetch", "ml-1m", "--out", tmp_path / "downloads").expect(2)
    assert "its publisher gives c4d9eecfca2ab87c1945afe126590906" in done.err
    assert server.asked == ["/ml-1m.zip"]


def test_no_network(tmp_path):
    """Without a server the message says what to do instead."""
    done = typed("fetch", "ml-1m", "--out", tmp_path / "downloads").expect(2)
    assert "cannot download http://127.0.0.1" in done.err
    assert "data/synthetic.py" in done.err
    assert len(done.err.splitlines()) == 1


def test_folder_in_the_way(tmp_path):
    """A folder of that name without ratings is not overwritten."""
    (tmp_path / "ml-1m").mkdir()
    (tmp_path / "ml-1m" / "mine.txt").touch()
    done = typed("fetch", "ml-1m", "--out", tmp_path).expect(2)
    assert "exists without ratings.dat" in done.err
    assert (tmp_path / "ml-1m" / "mine.txt").exists()
