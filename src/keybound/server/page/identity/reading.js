// Read public identifiers from the views of a recording: as src/keybound/identity/reading.py.

import { cells } from "./cells.js";
import { code, rotated, spelled } from "./frame.js";
import { decryption } from "./permutation.js";

/**
 * Return the public identifiers that views [{chance, logits}] spell, the one that fits best first.
 *
 * Each is {identifier, issuer, start_s, fit, agreement}. Anyone can write one: it is a claim.
 */
export function readPublic(views, frame_s, facts) {
  const sums = facts.sums.map((mask) => Uint32Array.from(mask.match(/.{8}/g), (word) => parseInt(word, 16)));
  const least = (sums[0].length * 32) / sums.length; // seconds that determine a block
  const how = { ...facts, sums, least, opened: opener(facts) };
  if (views[0].logits[0].length !== how.sums.length) return []; // such weights carry none
  const read = views.map((view) => begun(view, frame_s, how));
  openAll(read.flatMap((view) => whole(view, how)), how);
  if (read.every((view) => !view.found.size)) {
    const more = read.flatMap((view) => view.more);
    more.sort(byScore).forEach((one) => open(one, 0, how));
  }
  for (const [size, step] of [[2 * least, least], [least + 2, 3]]) {
    openAll(read.flatMap((view) => windows(view, size, step, how)), how);
  }
  const best = new Map();
  for (const [held, one] of read.flatMap((view) => [...view.found])) {
    if (!(best.get(held)?.fit >= one.fit)) best.set(held, one);
  }
  return [...best.values()].sort((a, b) => b.fit - a.fit);
}

/** Return a function from a block to {identifier, issuer}; to nothing where the check fails, or too many were opened. */
function opener({ secret, rounds, serial_bits, issuer_bits, most_blocks }) {
  const decrypt = decryption(Uint8Array.from(secret.match(/../g), (byte) => parseInt(byte, 16)), rounds);
  const [serial, told] = [serial_bits / 8, (serial_bits + issuer_bits) / 8]; // bytes
  const known = new Map();
  const decrypted = (block) => {
    const data = new DataView(new ArrayBuffer(4 * block.length));
    block.forEach((word, i) => data.setUint32(4 * i, word));
    const plain = decrypt(new Uint8Array(data.buffer));
    if (plain.subarray(told).some(Boolean)) return undefined;
    const identifier = Array.from(plain.subarray(0, serial), (byte) => byte.toString(16).padStart(2, "0"));
    const issuer = plain.subarray(serial, told).reduce((sum, byte) => 256 * sum + byte, 0);
    return { identifier: identifier.join(""), issuer };
  };
  return (block) => {
    const name = block.join();
    if (!known.has(name) && known.size < most_blocks) known.set(name, decrypted(block));
    return known.get(name);
  };
}

/** Return a view while its identifiers are read. */
function begun(view, frame_s, how) {
  const own = cells(view, frame_s, how);
  const left = own.marked(0).map((marked) => marked && view.present); // whose identifier is not read yet
  return { own, left, found: new Map(), more: [], tried: 0 };
}

/** Return the blocks that the whole of a view may spell. */
function whole(view, how) {
  const short = view.left.length < 2 * how.least; // more blocks fit about as well
  return proposed(view, 0, view.left.length, short ? how.from_start : 0, how);
}

/** Return the blocks that windows of a view may spell, where marked seconds are left. */
function windows(view, size, step, how) {
  const { left } = view;
  const made = [];
  if (left.length < 3 * how.least) return made;
  for (let first = 0; first < left.length - how.least; first += step) {
    const enough = left.slice(first, first + size).filter(Boolean).length > how.least;
    if (enough && view.tried++ < how.most_windows) made.push(...proposed(view, first, first + size, null, how));
  }
  return made;
}

/** Decode a stretch of seconds at the likely beginnings. */
function proposed(view, first, stop, fromStart, how) {
  const end = stop >= view.left.length ? Infinity : stop;
  const nothing = new Float64Array(how.sums.length);
  const parts = view.own.soft.map((soft, lead) => {
    const part = soft.map((bits, n) => (n >= first && n < end ? bits : nothing));
    return { lead, part, clear: part.reduce((sum, bits) => sum + magnitude(bits), 0) };
  });
  parts.sort((a, b) => (a.lead > 0) - (b.lead > 0) || b.clear - a.clear);
  const seconds = Math.min(how.period, Math.min(stop, view.left.length) - first);
  const redundancy = Math.max(1, seconds) / how.least;
  const strict = fromStart === null || redundancy >= how.enough; // a window has no blocks from the start
  const count = strict ? 1 : how.candidates;
  const made = [];
  for (const { lead, part } of parts.slice(0, how.leads)) {
    const read = spelled(part, how.sums, lead ? count : Math.max(count, fromStart));
    const own = read.map((one) => ({ ...one, view, lead, score: score(one.fit, redundancy, how) }));
    made.push(...own.slice(0, count));
    view.more.push(...own.slice(count));
  }
  return made.filter((one) => !strict || one.score > how.least_score);
}

/** Return how much better a block fits than the best by chance, of what is left to a 1. */
function score(fit, redundancy, { by_chance, falls }) {
  const chance = by_chance - falls * Math.log(redundancy / 1.5);
  return (fit - chance) / (1 - chance);
}

function byScore(one, two) {
  return two.score - one.score;
}

/** Open blocks in every rotation, those first that fit best beside chance. */
function openAll(blocks, how) {
  for (const one of blocks.sort(byScore)) {
    for (let second = 0; second < how.period; second++) open(one, second, how);
  }
}

/** Open a block as it stood at the beginning of the recording; keep the beginning that agrees most. */
function open({ view, block, fit, agreement: sum, lead }, second, how) {
  const first = rotated(block, -second);
  const held = how.opened(first);
  if (!held) return;
  const agreement = second === 0 && lead === 0 ? how.uncut * sum : sum;
  const name = `${held.issuer}.${held.identifier}`;
  if (view.found.get(name)?.agreement >= agreement) return;
  agreeing(first, second, lead, view.own, how).forEach((agrees, n) => {
    if (agrees && n < view.left.length) view.left[n] = false;
  });
  view.found.set(name, { ...held, start_s: second + lead * view.own.cell_s, fit, agreement });
}

/** Return which seconds have the codes of a block, together with those around them. */
function agreeing(block, second, lead, own, { sums, around, agrees }) {
  const all = own.soft[lead].map((bits, n) => {
    const codes = code(block, second + n, sums);
    return [bits.reduce((sum, x, i) => sum + (codes[i] ? x : -x), 0), magnitude(bits)];
  });
  const reach = Math.floor(around / 2);
  return own.marked(lead).map((marked, n) => {
    const near = all.slice(Math.max(0, n - reach), n + reach + 1);
    const [same, whole] = near.reduce((sum, one) => [sum[0] + one[0], sum[1] + one[1]], [0, 0]);
    return marked && same / Math.max(whole, 1e-9) > agrees;
  });
}

function magnitude(bits) {
  let sum = 0;
  for (const value of bits) sum += Math.abs(value);
  return sum;
}
