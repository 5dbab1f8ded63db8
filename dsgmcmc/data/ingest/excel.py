"""The first sheet of an Excel workbook (.xlsx) as CSV, line by line of the sheet."""

from __future__ import annotations

import csv
import io
import warnings
import zipfile
from collections.abc import Generator, Iterator
from datetime import date, time
from pathlib import Path
from typing import IO, Any

from dsgmcmc.errors import InputError

WORKBOOK = "xl/workbook.xml"  # what a zip archive has that is a workbook
_LARGEST = 2 << 30  # bytes of XML; a full sheet with four columns has a tenth


def sheet_as_csv(path: Path) -> IO[bytes]:
    """Open the first sheet of a workbook as CSV, which is made while it is read.

    Raises InputError, also while it is read, if openpyxl is not installed, the workbook is damaged or too large.
    """
    return io.BufferedReader(_Stream(_lines(path)), 1 << 16)


class _Stream(io.RawIOBase):
    """Bytes that an iterator yields."""

    def __init__(self, parts: Generator[bytes, None, None]) -> None:
        self._parts, self._rest = parts, b""

    def close(self) -> None:
        self._parts.close()
        super().close()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._rest = self._rest or next(self._parts, b"")
        n = min(len(buffer), len(self._rest))
        buffer[:n], self._rest = self._rest[:n], self._rest[n:]
        return n


def _lines(path: Path) -> Generator[bytes, None, None]:
    try:
        import openpyxl
    except ImportError:
        raise InputError(
            f"{path} is an Excel file, which needs openpyxl: pip install openpyxl, or save the sheet as CSV"
        ) from None
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(info.file_size for info in archive.infolist())
        if size > _LARGEST:
            raise InputError(f"{path} unpacks to {size / 1e9:,.1f} GB: save the sheet as CSV")
        with path.open("rb") as file:  # which openpyxl leaves open where it fails
            yield from _of_sheet(openpyxl, file)
    except InputError:
        raise
    except Exception as error:  # zipfile, XML parsers and openpyxl raise whatever they meet
        raise InputError(f"{path} is not a readable Excel file: {error}") from error


def _of_sheet(openpyxl: Any, file: IO[bytes]) -> Iterator[bytes]:
    """Rows of the first sheet, as lines of CSV."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of styles and extensions
        sheet = openpyxl.load_workbook(file, read_only=True, data_only=True).worksheets[0]
    text, width = io.StringIO(), 0
    writer = csv.writer(text, lineterminator="\n")
    for row in sheet.iter_rows(values_only=True):
        values = [_text(value) for value in row]
        while values and not values[-1]:
            values.pop()
        width = width or len(values)
        writer.writerow(values and values + [""] * (width - len(values)))
        yield text.getvalue().encode()
        text.seek(0)
        text.truncate()


def _text(value: Any) -> str:
    """Text of a cell; whole numbers without a point, times as ISO 8601."""
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value.isoformat() if isinstance(value, date | time) else str(value)
