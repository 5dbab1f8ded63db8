"""Names are data: whatever they are made of, a terminal shows them and obeys nothing in them."""

import csv
import fcntl
import json
import os
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence
from pathlib import Path

import pytest
import typer
from support import TIMEOUT, dsgmcmc, run

from dsgmcmc.cli.app import app
from dsgmcmc.terminal import plain

#: A title for the window, a bell, an empty screen, a colour in one byte, markup of rich that is
#: wrong and that hides itself, and text from right to left. Of a path it makes a folder and a name
#: in it.
HOSTILE = "a\x1b]0;pwned\x07\x1b[2J\x9b31m[/nothing] [bold]b :bomb: \u202ec\x7f"
SHOWN = r"a\x1b]0;pwned\x07\x1b[2J\x9b31m[/nothing] [bold]b :bomb: \u202ec\x7f"
#: What a name may have besides, where a format lets it.
LINES = f"{HOSTILE}\nsecond\rline"
SHOWN_LINES = rf"{SHOWN}\nsecond\rline"

#: Colours, and how rich writes a line again.
STYLING = re.compile(r"\x1b\[(?:\?25)?[\d;]*[mhlAK]|\r")
WIDTH = 700  # of a terminal in which no cell is folded

#: Runs commands in one process, as their users would one after another, and says how each of them
#: ended.
DRIVER = """
import json, sys
from dsgmcmc.cli.app import main
for arguments in json.load(open(sys.argv[1])):
    sys.argv[1:], status = arguments, 0
    try:
        main()
    except SystemExit as end:
        status = end.code or 0
    except Exception as error:
        status = repr(error)
    sys.stderr.flush()
    print(f"\\n<<{status}>>", flush=True)
"""


def in_terminal(commands: Sequence[Sequence[str]], folder: Path) -> list[tuple[str, str]]:
    """Run commands in a terminal; what each has shown there, and its exit status."""
    typed = folder / "commands.json"
    typed.write_text(json.dumps(commands), encoding="utf-8")
    reader, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, WIDTH, 0, 0))
    streams = {"stdin": subprocess.DEVNULL, "stdout": terminal, "stderr": terminal}
    environment = {
        name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")
    }
    shown = b""
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(typed)],
        env={**environment, "TERM": "xterm"},
        cwd=folder,
        **streams,
    ) as process:
        os.close(terminal)
        try:
            while more := os.read(reader, 1 << 16):
                shown += more
        except OSError:  # the terminal's end
            pass
        os.close(reader)
        process.wait(TIMEOUT)
    *parts, rest = re.split(r"\r\n<<(.*)>>\r\n", shown.decode())
    assert (len(parts), rest) == (2 * len(commands), ""), rest
    return list(zip(parts[::2], parts[1::2], strict=True))


def write_csv(path: Path, *rows: Sequence[object]) -> None:
    """Write a file."""
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ratings and features whose names are hostile, as its own is."""
    folder = tmp_path_factory.mktemp("names") / LINES
    (folder / HOSTILE).parent.mkdir(parents=True)
    users = [LINES, *(f"usér {k}" for k in range(11))]
    items = [HOSTILE, *(f"item {k}" for k in range(8))]
    rated = [
        (u, i, 1 + (3 * a + 2 * b + a * b) % 5)
        for a, u in enumerate(users)
        for b, i in enumerate(items)
        if a + b
    ]
    write_csv(folder / f"{HOSTILE}.csv", ("user", "item", "rating"), *rated)
    for entity, names in (("user", users), ("item", items)):
        described = [(name, HOSTILE if k % 2 else "other") for k, name in enumerate(names)]
        write_csv(folder / f"{entity}s.csv", (entity, HOSTILE), *described)
    write_csv(folder / "titles.csv", ("item", "title"), *((i, HOSTILE) for i in items))
    write_csv(folder / "pairs.csv", ("user", "item"), (LINES, HOSTILE))
    write_csv(
        folder / "new.csv",
        ("user", "item", "rating"),
        (f"{LINES}, new", HOSTILE, 4),
        ("x", LINES, 4),
    )
    return folder


def cases(folder: Path) -> dict[str, list[tuple[int, list[str]]]]:
    """Every command, with arguments for which it shows a hostile name, and the exit status that
    they lead to.
    """

    def at(name: str) -> str:
        return str(folder / name)

    ratings = at(f"{HOSTILE}.csv")
    data = at("r.h5")
    sampled = at("run")
    features = ["--user-features", at("users.csv"), "--item-features", at("items.csv")]
    short = [
        "--rank=2",
        "--grid=2",
        "--iterations=12",
        "--burn-in=4",
        "--thin=2",
        "--set=evaluate_every=4",
    ]
    return {
        "fetch": [(2, [HOSTILE]), (2, ["ml-100k", "--out", ratings])],
        "prepare": [
            (0, [ratings, data, *features]),
            (2, [ratings, data]),
            (2, [ratings, at("x.h5"), "--columns", f"user={HOSTILE},item=item,rating=rating"]),
        ],
        "sample": [
            (0, [data, "--out", sampled, *short]),
            (2, [data, "--out", sampled]),
            (2, [data, "--out", sampled, "--resume", "--sampler", HOSTILE]),
            (2, [data, "--out", sampled, "--resume", "--set", f"{HOSTILE}=1"]),
        ],
        "compare": [(2, [at("none")]), (2, [data, "--set", f"{HOSTILE}=1"])],
        "predict": [(0, [sampled, at("pairs.csv")]), (2, [sampled, at("new.csv")])],
        "recommend": [
            (0, [sampled, "--user", LINES, "--items", at("titles.csv")]),
            (2, [sampled, "--user", HOSTILE]),
        ],
        "evaluate": [(2, [at("none")])],
        "export": [(2, [sampled, "--out", at("run.x")])],
        "report": [(0, [sampled])],
        "info": [
            *(
                (0, command)
                for command in ([data], [sampled], [sampled, "--diagnostics"], [sampled, "--json"])
            ),
            (2, [at("none")]),
        ],
        "verify": [(0, [data]), (0, [sampled])],
        "doctor": [(2, [HOSTILE])],
    }


Shown = dict[tuple[str, ...], tuple[str, str]]


@pytest.fixture(scope="module")
def sampled(folder: Path) -> Shown:
    """Output in a terminal and exit status of every case, and of options that no command has."""
    commands = [
        [name, *arguments] for name, several in cases(folder).items() for _, arguments in several
    ]
    commands += [[name, f"--{HOSTILE}"] for name in typer.main.get_command(app).commands]
    commands += [[f"--{HOSTILE}"], [HOSTILE]]
    shown = in_terminal(commands, folder.parent.parent)
    return dict(zip(map(tuple, commands), shown, strict=True))


def test_no_name_reaches_a_terminal_as_it_is(sampled: Shown) -> None:
    """No command and no mistake lets one empty the screen, hide what follows, or begin a line as an
    error does.
    """
    for command, (shown, _) in sampled.items():
        text = STYLING.sub("", shown)
        assert all(c.isprintable() or c == "\n" for c in text), (command, shown)
        if command[0] != "predict":  # which writes CSV
            assert "\nsecond" not in text, (command, shown)


def test_a_report_has_no_invisible_characters(sampled: Shown, folder: Path) -> None:
    """They are escaped, so that its title and tables read as they are."""
    (page,) = folder.rglob("*.html")
    assert all(c.isprintable() or c == "\n" for c in page.read_text(encoding="utf-8"))
    assert SHOWN in page.read_text(encoding="utf-8")


def test_every_command_shows_names_as_they_are_written(folder: Path, sampled: Shown) -> None:
    """None dies of one, or takes a part of it for markup.

    A new command has to be added to `cases`.
    """
    commands = cases(folder)
    assert set(commands) == set(typer.main.get_command(app).commands)
    for name, several in commands.items():
        for status, arguments in several:
            shown, ended = sampled[name, *arguments]
            assert ended == str(status), (name, arguments, shown)
            text = STYLING.sub("", shown)
            escaped = SHOWN
            if "--json" in arguments:
                escaped = json.dumps(HOSTILE)[1:-1].replace("\x7f", r"\u007f")
            assert escaped in text, (name, arguments, shown)
    assert (
        len([shown for shown, status in sampled.values() if SHOWN_LINES in shown and status == "0"])
        > 8
    )


@pytest.mark.parametrize("start", ["", "logging.basicConfig(format='%(message)s')"])
def test_logs_of_a_program_that_imports_the_package_are_escaped(start: str) -> None:
    """No handler needs to know of it: neither the one of a program nor Python's last resort."""
    code = (
        f"import logging; from dsgmcmc.storage import lock; {start}\nlock.log.warning('%s',"
        f" {HOSTILE!r})"
    )
    assert run(sys.executable, "-c", code).expect().err == f"{SHOWN}\n"


def test_what_goes_to_a_program_is_as_it_was(sampled: Shown, folder: Path) -> None:
    """Readers of the CSV look for the names that were given."""
    command = dsgmcmc("predict", folder / "run", folder / "pairs.csv")
    done = subprocess.run(command, capture_output=True, timeout=TIMEOUT, check=True)
    (row,) = csv.DictReader(done.stdout.decode().splitlines(keepends=True))
    assert (row["user"], row["item"]) == (LINES, HOSTILE)


def test_letters_that_a_locale_lacks(sampled: Shown, folder: Path) -> None:
    """They are escaped as well: a command died of them."""
    done = run(
        *dsgmcmc("recommend", folder / "run", "--user", "usér 0"), env={"PYTHONIOENCODING": "ascii"}
    ).expect()
    assert done.out.startswith("user us\\xe9r 0\n")


def test_plain_text_stays_as_it_is() -> None:
    """Visible characters are not touched: letters of all kinds, and escapes that a person may have
    typed.
    """
    for name in ("Toy Story (1995)", "Zoë", "千と千尋の神隠し", "[bold]", r"\x1b", ""):
        assert plain(name) == name
    assert plain(LINES) == SHOWN_LINES
    assert plain("\udcff") == r"\udcff"  # of a path that is no UTF-8
