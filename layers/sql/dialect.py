"""What differs between the databases in the text of the schema.

All other SQL of ours is common to them: parameters are `?` in the order of use, upserts are `on conflict`, whole
numbers stand for truth values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["SQLITE", "Dialect"]


@dataclass(frozen=True, slots=True)
class Dialect:
    """`integer` is a whole number of 64 bits, `bytes` a string of bytes.

    `clustered` ends the definition of a table that is kept in the order of its primary key, where the database can.
    """

    integer: str
    bytes: str
    clustered: str


SQLITE: Final = Dialect(integer="integer", bytes="blob", clustered=" without rowid")
