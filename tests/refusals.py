"""What is refused by name, in rows."""

import pytest


def all_refused(*rows):
    """Every row is a part of the message of a ValueError, and a call that raises it."""
    for message, call in rows:
        with pytest.raises(ValueError, match=message):
            call()
