"""Downloads MovieLens data sets from their publisher, checks and unpacks them.

Their licence allows research and forbids redistribution, so the package downloads them and does not contain
them [Harper & Konstan 2015, The MovieLens datasets: history and context, ACM TiiS 5(4)].
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from dsgmcmc.errors import InputError, writing

PUBLISHER = "https://files.grouplens.org/datasets/movielens"
LICENCE = (
    "MovieLens data belong to GroupLens, University of Minnesota: for research, not for resale, and not to "
    "be passed on. Terms and citation: the README in {folder}"
)
_TIMEOUT = 20.0  # seconds without an answer
_BLOCK = 1 << 18
_MAX_DOWNLOAD = 2 << 30  # bytes; the largest archive has 0.3 GB
_MAX_UNPACKED = 16 << 30


@dataclass(frozen=True)
class DataSet:
    """A published archive.

    Attributes
    ----------
    ratings : str
        The file with the ratings.
    md5 : str or None
        The publisher's checksum; None for an archive that changes, whose current checksum is downloaded.
    """

    ratings: str
    md5: str | None


DATA_SETS = {
    "ml-100k": DataSet("u.data", "0e33842e24a9c977be4e0107933c0723"),
    "ml-1m": DataSet("ratings.dat", "c4d9eecfca2ab87c1945afe126590906"),
    "ml-10m": DataSet("ratings.dat", "ce571fd55effeba0271552578f2648bd"),
    "ml-20m": DataSet("ratings.csv", "cd245b17a1ae2cc31bb14903e1204af3"),
    "ml-25m": DataSet("ratings.csv", "6b51fb2759a8657d3bfcbfc42b592ada"),
    "ml-latest-small": DataSet("ratings.csv", None),
}


def fetch(name: str, folder: Path, report: Callable[[int, int], None] = lambda done, total: None) -> Path:
    """Download a data set into `folder`/`name`, which is created atomically, unless it exists.

    `report` is called with the number of bytes received and the number expected (0 if unknown). Returns the file with
    the ratings, for ``dsgmcmc prepare``. Raises InputError if the publisher cannot be reached, the checksum is wrong,
    or the folder cannot be written. The environment variable ``DSGMCMC_FETCH_URL`` names a mirror.
    """
    if name not in DATA_SETS:
        raise InputError(f"no data set {name!r}; there are {', '.join(DATA_SETS)}")
    data_set = DATA_SETS[name]
    final = folder / name
    ratings = final / data_set.ratings
    if ratings.is_file():
        return ratings
    if final.exists():
        raise InputError(f"{final} exists without {data_set.ratings}; remove it and fetch again")
    url = f"{os.environ.get('DSGMCMC_FETCH_URL', PUBLISHER).rstrip('/')}/{name}.zip"
    with writing(final):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=folder) as scratch:
            archive = Path(scratch) / "archive.zip"
            expected = data_set.md5 or _published_md5(f"{url}.md5")
            digest = _download(url, archive, report)
            if digest != expected:
                raise InputError(f"{url} has MD5 {digest}, its publisher says {expected}: damaged, or not the original")
            unpacked = _unpack(archive, Path(scratch) / "unpacked", data_set.ratings)
            unpacked.rename(final)
    return ratings


def _blocks(url: str) -> Iterator[tuple[bytes, int]]:
    """Yield the content of `url` in blocks, each with the total size in bytes, or 0 if unknown."""
    import http.client  # these modules take longer to import than most commands to run
    import urllib.error
    import urllib.request

    request = urllib.request.Request(url, headers={"User-Agent": "dsgmcmc"})
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:
            total = int(response.headers.get("Content-Length") or 0)
            while block := response.read(_BLOCK):
                yield block, total
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = error.reason if type(error) is urllib.error.URLError else error
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        raise InputError(
            f"cannot download {url}: {reason}. Without a network, copy the archive here and unpack it, or "
            "make synthetic ratings with data/synthetic.py of the repository"
        ) from error


def _published_md5(url: str) -> str:
    """Download the checksum file of an archive, in the format of md5 or md5sum; return the checksum."""
    text = next((block for block, _ in _blocks(url)), b"").decode("ascii", "replace")
    match = re.search(r"\b[0-9a-f]{32}\b", text.lower())
    if match is None:
        raise InputError(f"{url} holds no MD5 checksum")
    return match[0]


def _download(url: str, path: Path, report: Callable[[int, int], None]) -> str:
    """Download `url` to `path` and return the MD5 of the content."""
    digest = hashlib.md5(usedforsecurity=False)
    done = 0
    with path.open("wb") as file:
        for block, total in _blocks(url):
            digest.update(block)
            done += len(block)
            if done > _MAX_DOWNLOAD:
                raise InputError(f"{url} is larger than {_MAX_DOWNLOAD >> 30} GiB: not the original")
            file.write(block)
            report(done, total)
    return digest.hexdigest()


def _unpack(archive: Path, folder: Path, ratings: str) -> Path:
    """Unpack an archive into `folder`; return the folder that holds the file `ratings`."""
    try:
        with zipfile.ZipFile(archive) as file:
            members = file.infolist()
            for member in members:
                path = PurePosixPath(member.filename)
                if path.is_absolute() or ".." in path.parts or stat.S_ISLNK(member.external_attr >> 16):
                    raise InputError(f"the archive holds {member.filename!r}, outside its own folder: refused")
            if sum(member.file_size for member in members) > _MAX_UNPACKED:
                raise InputError(f"the archive unpacks to more than {_MAX_UNPACKED >> 30} GiB: refused")
            file.extractall(folder)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise InputError(f"the archive cannot be unpacked: {error}") from error
    matches = sorted(folder.glob(f"*/{ratings}"))
    if len(matches) != 1:
        raise InputError(f"the archive holds {len(matches)} files {ratings}, expected one")
    return matches[0].parent
