"""Tables of what is refused, each a test."""

import pytest


def refusals(*rows, by=None, error=(ValueError, TypeError)):
    """A test of rows (call, message) or (call, error, message): the call raises that error, with a message that matches.

    With ``by`` the first entry of a row is not a call, but what ``by`` is called with.
    """
    full = [(row[0], row[1] if len(row) == 3 else error, row[-1]) for row in rows]

    @pytest.mark.parametrize(("given", "error", "message"), full)
    def test(given, error, message):
        with pytest.raises(error, match=message):
            by(given) if by else given()

    return test
