"""Downloads MovieLens data sets from their publisher, verifies checksums and unpacks the archives.

The licence of the data allows research and forbids redistribution, so the package does not contain
the data [Harper & Konstan 2015, The MovieLens datasets: history and context, ACM TiiS 5(4)].
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from dsgmcmc.errors import InputError, refusing, writing

PUBLISHER = "https://files.grouplens.org/datasets/movielens"
LICENCE = (
    "MovieLens data belong to GroupLens, University of Minnesota: for research, not for resale, and"
    " not to be passed on. Terms and citation: the README in {folder}"
)
_TIMEOUT = 20.0  # seconds to wait for the publisher's answer
_BLOCK = 1 << 18  # bytes

#: The file with the ratings, and the publisher's MD5 checksum of the archive. The checksum is empty
#: for an archive that changes, and is then downloaded.
DATA_SETS = {
    "ml-100k": ("u.data", "0e33842e24a9c977be4e0107933c0723"),
    "ml-1m": ("ratings.dat", "c4d9eecfca2ab87c1945afe126590906"),
    "ml-10m": ("ratings.dat", "ce571fd55effeba0271552578f2648bd"),
    "ml-20m": ("ratings.csv", "cd245b17a1ae2cc31bb14903e1204af3"),
    "ml-25m": ("ratings.csv", "6b51fb2759a8657d3bfcbfc42b592ada"),
    "ml-latest-small": ("ratings.csv", ""),
}


def fetch(
    name: str, folder: Path, report: Callable[[int, int], None] = lambda done, total: None
) -> Path:
    """Download a data set into `folder`/`name`, unless its ratings are there.

    Returns the file with the ratings, for ``dsgmcmc prepare``. The folder is created atomically.
    `report` is called with the number of bytes received and the number expected (0 if unknown).
    Raises InputError if the publisher cannot be reached, the checksum is wrong, the folder exists
    without ratings, or it cannot be written. The environment variable ``DSGMCMC_FETCH_URL`` names a
    mirror, which is used in place of the publisher.
    """
    file_name, checksum = DATA_SETS[name]
    target = folder / name
    if (target / file_name).is_file():
        return target / file_name
    if target.exists():
        raise InputError(
            f"{target} exists without {file_name}: remove this folder, and fetch again"
        )
    url = f"{os.environ.get('DSGMCMC_FETCH_URL', PUBLISHER).rstrip('/')}/{name}.zip"
    with writing(target):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=folder) as scratch:
            archive = Path(scratch) / "archive.zip"
            _download(url, archive, checksum or _published_checksum(url), report)
            unpacked = Path(scratch) / "unpacked"
            shutil.unpack_archive(archive, unpacked)
            files = list(unpacked.glob(f"*/{file_name}"))
            if len(files) != 1:
                raise InputError(f"{url} contains {len(files)} files {file_name}: expected one")
            files[0].parent.rename(target)
    return target / file_name


def _published_checksum(url: str) -> str:
    """Return the MD5 checksum that the publisher gives beside an archive."""
    content = b"".join(block for block, _ in _blocks(f"{url}.md5"))
    found = re.search(r"\b[0-9a-f]{32}\b", content.decode("ascii", "replace").lower())
    return found[0] if found else "nothing"


def _download(url: str, archive: Path, checksum: str, report: Callable[[int, int], None]) -> None:
    """Write the content of `url` to a file; raise InputError if it has another checksum."""
    digest = hashlib.md5(usedforsecurity=False)
    with archive.open("wb") as file:
        for block, total in _blocks(url):
            digest.update(block)
            file.write(block)
            report(file.tell(), total)
    if digest.hexdigest() != checksum:
        raise InputError(
            f"{url} has MD5 {digest.hexdigest()}, its publisher gives {checksum}: fetch it again"
        )


def _blocks(url: str) -> Iterator[tuple[bytes, int]]:
    """Yield blocks of the content of `url`, each with the total size in bytes, 0 if unknown."""
    import http.client  # importing these modules takes longer than running most commands
    import urllib.request

    problem = (
        f"cannot download {url} (without a network, copy the archive here and unpack it, or make"
        " synthetic ratings with data/synthetic.py of the repository)"
    )
    with refusing(problem, OSError, http.client.HTTPException, ValueError):
        request = urllib.request.Request(url, headers={"User-Agent": "dsgmcmc"})
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:
            total = int(response.headers.get("Content-Length") or 0)
            while block := response.read(_BLOCK):
                yield block, total
