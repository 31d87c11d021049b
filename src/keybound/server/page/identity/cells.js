// The bits of the seconds of a view, at any beginning within a second: as
// src/keybound/identity/cells.py, in its precisions.

import { roundEven } from "../resample.js";

/**
 * Return what the seconds of a view say, from the presence (frames,) and logits [frames](bits,).
 *
 * `soft[lead]` holds the logits of their bits [seconds](bits,) for a recording that begins `lead`
 * cells into a second; `marked(lead)` says which are marked rather than not.
 */
export function cells({ chance, logits }, frame_s, { limit, grid_s, surest, edge }) {
  const [low, high] = [Math.fround(limit), Math.fround(1 - limit)];
  const clear = chance.map((value) => Math.min(high, Math.max(low, value)));
  const odds = clear.map((value) => value / Math.fround(1 - value));
  const top = odds.reduce((a, b) => Math.max(a, b));
  const weight = odds.map((value) => value / top);
  const size = Math.max(1, roundEven(grid_s / frame_s)); // frames of a cell
  const cell_s = size * frame_s;
  const second = roundEven(1 / cell_s); // cells
  const bits = logits[0].length;
  const count = Math.ceil(chance.length / size);
  const weights = summed(weight.length, size, 1, (frame) => weight[frame]);
  const sums = summed(weight.length, size, bits, (frame, i) => Math.fround(weight[frame] * logits[frame][i]));
  const marks = summed(clear.length, size, 1, (frame) => clear[frame]);

  const edges = (lead) => {
    const made = [];
    for (let at = -lead; at < count + second; at += second) made.push(Math.min(count, Math.max(0, at)));
    return made;
  };
  const seconds = (lead, made) => {
    const at = edges(lead);
    return at.slice(1).map((stop, n) => made(at[n], stop, n * second - lead));
  };
  const bitsOf = (start, stop, at) => {
    const share = (stop - start) / second;
    const [first, last] = [at + 1, at + second - 1].map((cell) => Math.min(count, Math.max(0, cell)));
    // The first and the last cell of a second hear two codes.
    const within = (all, i) => edge * (all[stop][i] - all[start][i]) + (1 - edge) * (all[last][i] - all[first][i]);
    const total = Math.max(within(weights, 0), 1e-9);
    const bounded = (mean) => Math.min(surest, Math.max(-surest, mean));
    return Float64Array.from(sums[stop], (_, i) => share * bounded(within(sums, i) / total));
  };
  const isMarked = (start, stop) => {
    const frames = Math.min(stop * size, chance.length) - start * size;
    return marks[stop][0] - marks[start][0] > frames / 2;
  };
  return {
    cell_s,
    soft: Array.from({ length: second }, (_, lead) => seconds(lead, bitsOf)),
    marked: (lead) => seconds(lead, isMarked),
  };
}

/** Return the sums of all frames before each cell, [cells + 1](width,): a stretch is a difference. */
function summed(frames, size, width, value) {
  const made = [new Float64Array(width)];
  for (let start = 0; start < frames; start += size) {
    const own = new Float32Array(width);
    for (let frame = start; frame < Math.min(frames, start + size); frame++) {
      for (let i = 0; i < width; i++) own[i] += value(frame, i);
    }
    made.push(made.at(-1).map((sum, i) => sum + own[i]));
  }
  return made;
}
