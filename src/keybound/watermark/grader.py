"""Answers for others: the grade of a recording alone, and a limited number of times.

Someone who sees the distance or the p-value of each submission finds a mark that passes in a few
queries; someone who sees only the grade needs hundreds, and that many are not answered
(docs/security.md, the oracle).
"""

import numpy.typing as npt

from keybound.crypto.keys import Key
from keybound.errors import KeyBoundError
from keybound.seal.search import SealSearch
from keybound.watermark.watermarker import Watermarker


class Grader:
    """Answers for one party with the grade alone, `answers` times at most.

    However the recordings are chosen, the chance that a wrong key passes is at most `answers` times
    that of one recording. Use one grader for all who ask together, not one for each.
    """

    def __init__(
        self,
        *,
        key: Key,
        payload: int,
        answers: int,
        nonce: bytes = b"",
        search: SealSearch | None = None,
        marker: Watermarker | None = None,
    ) -> None:
        self._key, self._payload, self._nonce, self._search = key, payload, nonce, search
        self._marker = marker or Watermarker()
        self.left = answers

    def grade(self, samples: npt.ArrayLike, sample_rate: int) -> str:
        """Return the grade: none, present, attributed or sealed."""
        if self.left < 1:
            raise KeyBoundError("no answers are left", hint="each one helps a forger a little")
        self.left -= 1
        verdict = self._marker.verify(
            samples,
            sample_rate,
            key=self._key,
            payload=self._payload,
            nonce=self._nonce,
            search=self._search,
        )
        return verdict.grade
