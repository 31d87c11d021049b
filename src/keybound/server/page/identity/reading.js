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
  const best = new Map();
  for (const view of views) {
    for (const [held, one] of readView(view, frame_s, how)) {
      if (!(best.get(held)?.fit >= one.fit)) best.set(held, one);
    }
  }
  return [...best.values()].sort((a, b) => b.fit - a.fit);
}

/** Return a function from a block to {identifier, issuer}, or to nothing where the check fails. */
function opener({ secret, rounds, serial_bits, issuer_bits }) {
  const decrypt = decryption(Uint8Array.from(secret.match(/../g), (byte) => parseInt(byte, 16)), rounds);
  const [serial, told] = [serial_bits / 8, (serial_bits + issuer_bits) / 8]; // bytes
  return (block) => {
    const data = new DataView(new ArrayBuffer(4 * block.length));
    block.forEach((word, i) => data.setUint32(4 * i, word));
    const plain = decrypt(new Uint8Array(data.buffer));
    if (plain.subarray(told).some(Boolean)) return undefined;
    const identifier = Array.from(plain.subarray(0, serial), (byte) => byte.toString(16).padStart(2, "0"));
    const issuer = plain.subarray(serial, told).reduce((sum, byte) => 256 * sum + byte, 0);
    return { identifier: identifier.join(""), issuer };
  };
}

/** Read the whole of a view; then, where marked seconds are left, windows of them. */
function readView(view, frame_s, how) {
  const own = cells(view, frame_s, how);
  const left = own.marked(0).map((marked) => marked && view.present); // whose identifier is not read yet
  const found = new Map();
  const size = 2 * how.least;
  decode(0, left.length, own, left, found, how);
  if (left.length < size + how.least) return found;
  let windows = 0;
  for (let start = 0; start < left.length - how.least; start += how.least) {
    const enough = left.slice(start, start + size).filter(Boolean).length > how.least;
    if (enough && windows++ < how.most_windows) decode(start, start + size, own, left, found, how);
  }
  return found;
}

/** Decode a stretch of seconds at the likely beginnings, and open the blocks. */
function decode(start, stop, own, left, found, how) {
  const end = stop >= left.length ? Infinity : stop;
  const nothing = new Float64Array(how.sums.length);
  const parts = own.soft.map((soft, lead) => {
    const part = soft.map((bits, n) => (n >= start && n < end ? bits : nothing));
    return { lead, part, clear: part.reduce((sum, bits) => sum + magnitude(bits), 0) };
  });
  parts.sort((a, b) => (a.lead > 0) - (b.lead > 0) || b.clear - a.clear);
  const open = ({ block, fit, agreement: sum }, second, lead) => {
    const agreement = second === 0 && lead === 0 ? how.uncut * sum : sum;
    const first = rotated(block, -second);
    const held = how.opened(first);
    if (!held) return;
    const name = `${held.issuer}.${held.identifier}`;
    if (found.get(name)?.agreement >= agreement) return; // another beginning spells it more clearly
    agreeing(first, second, lead, own, how).forEach((agrees, n) => {
      if (agrees && n < left.length) left[n] = false;
    });
    found.set(name, { ...held, start_s: second + lead * own.cell_s, fit, agreement });
  };
  const more = [];
  const short = left.length < 2 * how.least; // more blocks fit about as well
  for (const { lead, part } of parts.slice(0, how.leads)) {
    const read = spelled(part, how.sums, short && lead === 0 ? how.from_start : how.candidates);
    more.push(...read.slice(how.candidates));
    for (const one of read.slice(0, how.candidates)) {
      for (let second = 0; second < how.period; second++) open(one, second, lead);
    }
  }
  if (!found.size) more.forEach((one) => open(one, 0, 0));
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
