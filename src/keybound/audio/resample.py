"""Resample a stream with a short, fixed delay. Knows arrays only: no files, keys or networks.

soxr, which serves whole arrays elsewhere, holds back 37 to 116 ms of a stream. A mark that is to
follow speech within 200 ms leaves 20 ms to two changes of rate, so they are done here: a sinc
under a Kaiser window, applied to groups of outputs of about a millisecond as matrix products.
"""

import copy
from math import gcd, pi
from typing import Self

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

HALF_S = 0.006  # the filter reaches so far to either side
STOP_DB = 100.0
# Kaiser's rule for the width of the transition, which ends where the narrower rate ends.
TRANSITION_HZ = (STOP_DB - 8) / (2.285 * 2 * pi * 2 * HALF_S)
GROUP_S = 0.001
_ROWS = 512  # windows at once: they overlap, so their copies take room
_BATCH = 16  # windows in one product: too small for BLAS to spread over threads that wait


class Resampler:
    """Push (frames, channels) at one rate and get them at another, delay compensated.

    Output n stands for the moment n / to_hz of the input. All that comes out together has
    round(frames * to_hz / from_hz) frames, and does not depend on how the input was cut.
    """

    def __init__(self, from_hz: int, to_hz: int, channels: int) -> None:
        self.from_hz, self.to_hz = from_hz, to_hz
        shared = gcd(from_hz, to_hz)
        group = max(1, round(GROUP_S * to_hz))
        repeats = -(-group * shared // to_hz)
        # After a period the outputs fall on the inputs as before, so one set of filters serves.
        self._inputs, self._outputs = from_hz // shared * repeats, to_hz // shared * repeats
        count = -(-self._outputs // group)
        self._edges = np.arange(count + 1) * self._outputs // count  # of groups, in outputs
        self._reach = round(HALF_S * from_hz)
        at = self._edges * self._inputs // self._outputs  # in inputs
        last = (self._edges[1:] - 1) * self._inputs // self._outputs
        self._firsts = at[:-1] - self._reach
        self._ends = last + self._reach + 2
        self._filters: dict[int, npt.NDArray[np.float64]] = {}
        self._held: Floats = np.zeros((channels, self._reach), np.float32)
        self._base = -self._reach  # the input with which `_held` begins
        self._taken = self._made = self._groups = 0  # inputs, outputs and groups so far

    @property
    def delay_s(self) -> float:
        """Return the largest delay of an output behind the input."""
        if self.from_hz == self.to_hz:
            return 0.0
        return (self._reach + 2) / self.from_hz + int(np.diff(self._edges).max()) / self.to_hz

    def push(self, samples: Floats) -> Floats:
        """Push input and return the outputs that it completes."""
        self._taken += len(samples)
        if self.from_hz == self.to_hz:
            return samples
        self._held = np.concatenate([self._held, samples.T], axis=1)
        made = self._run(self._taken)
        self._made += len(made)
        return made

    def copy(self) -> Self:
        """Return a resampler that goes on from here by itself."""
        return copy.copy(self)  # `_held` is replaced and never written to; filters are shared

    def flush(self) -> Floats:
        """Return the remaining outputs: the input has ended."""
        if self.from_hz == self.to_hz:
            return np.zeros((0, len(self._held)), np.float32)
        left = round(self._taken * self.to_hz / self.from_hz) - self._made
        silence = 2 * self._reach + 2 * self._inputs
        self._held = np.pad(self._held, ((0, 0), (0, silence)))
        return self._run(self._taken + silence)[:left]

    def _run(self, there: int) -> Floats:
        """Make the groups that `there` inputs complete: (frames, channels)."""
        period = len(self._ends)
        stop = int(np.maximum(0, (there - self._ends) // self._inputs + 1).sum())
        start, self._groups = self._groups, stop
        origin = start // period
        shape = (-(-stop // period) - origin, self._outputs, len(self._held))
        made = np.empty(shape, np.float32)  # whole periods, of which some groups are not due
        for group in {k % period for k in range(start, min(stop, start + period))}:
            row, last = -(-(start - group) // period), -(-(stop - group) // period)  # periods due
            outputs = slice(*self._edges[group : group + 2])
            while row < last:
                count = min(_ROWS, last - row)
                product = self._product(group, row, count)
                made[row - origin : row - origin + count, outputs] = product
                row += count
        drop = stop // period * self._inputs + int(self._firsts[stop % period]) - self._base
        self._held = self._held[:, max(0, drop) :]
        self._base += max(0, drop)
        before = origin * self._outputs
        due = slice(self._output_of(start) - before, self._output_of(stop) - before)
        return made.reshape(-1, shape[2])[due]

    def _output_of(self, group: int) -> int:
        periods, rest = divmod(group, len(self._ends))
        return periods * self._outputs + int(self._edges[rest])

    def _product(self, group: int, period: int, count: int) -> Floats:
        """Filter one group of some periods: (periods, outputs of the group, channels)."""
        if group not in self._filters:
            self._filters[group] = self._filter(group)
        taps = self._filters[group]  # (inputs, outputs)
        begin = period * self._inputs + int(self._firsts[group]) - self._base
        windows = np.lib.stride_tricks.sliding_window_view(self._held, len(taps), axis=1)
        chosen = windows[:, begin :: self._inputs][:, :count]
        # Libraries sum products of other shapes in another order. Doubles hide that from floats.
        batches = -(-count // _BATCH)
        filled = np.zeros((len(chosen), batches * _BATCH, len(taps)))
        filled[:, :count] = chosen
        product = filled.reshape(len(chosen), batches, _BATCH, len(taps)) @ taps
        due = product.reshape(len(chosen), batches * _BATCH, -1)[:, :count]
        return due.transpose(1, 2, 0).astype(np.float32)

    def _filter(self, group: int) -> npt.NDArray[np.float64]:
        outputs = np.arange(*self._edges[group : group + 2])
        inputs = np.arange(self._firsts[group], self._ends[group])
        lag = inputs[:, None] - outputs * (self._inputs / self._outputs)  # in inputs
        cutoff_hz = min(self.from_hz, self.to_hz) / 2 - TRANSITION_HZ / 2
        inside = np.maximum(0, 1 - np.square(lag / (self._reach + 1)))
        beta = 0.1102 * (STOP_DB - 8.7)
        window = np.where(inside > 0, np.i0(beta * np.sqrt(inside)) / np.i0(beta), 0)
        share = 2 * cutoff_hz / self.from_hz
        taps: npt.NDArray[np.float64] = share * np.sinc(share * lag) * window
        return taps
