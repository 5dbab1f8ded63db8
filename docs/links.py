"""Hook of MkDocs: links of the notebook to other pages, which its plugin leaves as they are."""

import re
from typing import Any


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Return the HTML of a page, with links to Markdown files as links to their pages."""
    if not page.file.src_uri.endswith(".ipynb"):
        return output
    return re.sub(r'href="([\w/-]+)\.md(#[\w-]+)?"', r'href="../\1/\2"', output)
