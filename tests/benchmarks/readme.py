"""What the Python of the README prints, with a file of ratings in place of its own.

    python tests/benchmarks/readme.py ml-100k/u.data

The second column has the printed values, rounded.
"""

import re

import numpy as np
from bench import TESTS, arguments, say, say_head
from support import fenced


def main() -> None:
    """Print a line for each line of the README that prints."""
    parser = arguments(__doc__)
    parser.add_argument("ratings", help="file of ratings")
    options = parser.parse_args()
    code, _ = fenced(TESTS.parent / "README.md", "python")
    code, _ = code.replace("ratings.csv", options.ratings).split("\nmodel = BPMF.load")
    values: list[object] = []
    exec(code, {"print": values.append})
    say_head("", "prints")
    for shown, value in zip(
        re.findall(r"^print\((.*)\)(?:  #.*)?$", code, re.MULTILINE), values, strict=True
    ):
        say(f"`{shown}`", f"`{np.round(value, 3).tolist()}`")


if __name__ == "__main__":
    main()
