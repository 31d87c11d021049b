"""What a recording says beside its sound: the pieces of its file as bytes, and what they mean."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import IO

LIMIT_BYTES = 64 << 20  # of all pieces of a file: what is beyond is not carried, and named
LIMIT_PIECES = 10_000  # and of all fields: a hostile file could hold millions of empty ones
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class Piece:
    """A chunk, block, tag or box of a file, as bytes."""

    name: str
    data: bytes
    behind: bool = False  # behind the sound


@dataclass(frozen=True)
class Picture:
    """A picture as ID3 and FLAC describe it; `kind` 3 is the front cover."""

    data: bytes
    mime: str = "image/jpeg"
    description: str = ""
    kind: int = 3


@dataclass(frozen=True)
class Meaning:
    """What pieces say in words that other formats have too, and the names of the rest.

    Fields are pairs in the order of the file; names are those of Vorbis comments in lower case
    (title, artist, album, albumartist, tracknumber, lyrics, ...), and may recur.
    """

    fields: tuple[tuple[str, str], ...] = ()
    pictures: tuple[Picture, ...] = ()
    rest: tuple[str, ...] = ()

    def __or__(self, other: "Meaning") -> "Meaning":
        """Add what another source says; of the fields only those with names that are new."""
        known = {name for name, _ in self.fields}
        fields = tuple(field for field in other.fields if field[0] not in known)
        pictures = tuple(one for one in other.pictures if one not in self.pictures)
        return Meaning(self.fields + fields, self.pictures + pictures, self.rest + other.rest)

    def __add__(self, other: "Meaning") -> "Meaning":
        """Add all that another piece of the same source says."""
        return Meaning(
            self.fields + other.fields, self.pictures + other.pictures, self.rest + other.rest
        )

    def joined(self) -> dict[str, str]:
        """Return the fields with one value for each name."""
        made: dict[str, str] = {}
        for name, value in self.fields:
            made[name] = f"{made[name]}; {value}" if name in made else value
        return made


@dataclass(frozen=True)
class Metadata:
    """All that a file of a family of formats says beside its sound.

    `lost` names what no file can get from here: what is too large, and what holds only for the
    host's own bytes.
    """

    family: str = ""
    pieces: tuple[Piece, ...] = ()
    meaning: Meaning = Meaning()
    lost: tuple[str, ...] = ()

    @classmethod
    def of(cls, tags: Mapping[str, str]) -> "Metadata":
        """Return metadata that says these words and nothing else."""
        return cls(meaning=Meaning(tuple(tags.items())))

    @property
    def size_bytes(self) -> int:
        """Return about how much room it takes in a file."""
        words = sum(len(name) + len(value) for name, value in self.meaning.fields)
        pictures = sum(len(one.data) for one in self.meaning.pictures)
        return sum(len(one.data) for one in self.pieces) + 8 * words + 2 * pictures


class Collector:
    """Collects the pieces of one file up to `LIMIT_BYTES` in all."""

    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        self.lost: list[str] = []
        self._room = LIMIT_BYTES

    @property
    def full(self) -> bool:
        """Return whether there are too many pieces: then the rest need not be looked at."""
        return len(self.pieces) + len(self.lost) >= LIMIT_PIECES

    def add(self, name: str, data: bytes, start: int, size: int, *, behind: bool = False) -> bool:
        """Copy `size` bytes at `start` of `data`, which may be a map of a file, if they are there
        and there is room; otherwise note the name.
        """
        if start + size > len(data) or size > self._room or self.full:
            self.lost.append(name)
            return False
        self._room -= size
        self.pieces.append(Piece(name, bytes(data[start : start + size]), behind))
        return True


def splice(file: IO[bytes], start: int, end: int, new: bytes) -> None:
    """Put bytes in the place of others, in place and in little memory: what follows moves."""
    size = file.seek(0, 2)
    shift = len(new) - (end - start)
    blocks = range(end, size, _BLOCK_BYTES)
    for at in (reversed(blocks) if shift > 0 else blocks) if shift else ():
        file.seek(at)
        block = file.read(min(_BLOCK_BYTES, size - at))
        file.seek(at + shift)
        file.write(block)
    file.seek(start)
    file.write(new)
    file.truncate(size + shift)


def unique(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names in their order, each once."""
    return tuple(dict.fromkeys(name.strip() for name in names))
