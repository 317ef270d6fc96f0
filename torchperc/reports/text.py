"""Text of the data (names of columns and files, labels) made fit to be shown."""

from __future__ import annotations

import re

# what moves the cursor, changes the terminal or turns the line round, and halves of characters that cannot be printed;
# a line break and a tab are harmless
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    r"""Write out the characters that a terminal or a browser would act on instead of showing them.

    Args:
        text: any, of one line or several.

    Example:
        >>> print(visible("age\x1b[2J \r of 3"))
        age\x1b[2J \r of 3
    """
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
