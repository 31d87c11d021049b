// The permutation that public identifiers are encrypted with: as src/keybound/identity/permutation.py.

import { hmac } from "./hmac.js";

/** Return a function from the bytes of an encrypted block to those of the block. */
export function decryption(secret, rounds) {
  const hash = hmac(secret);
  return (block) => {
    const size = block.length / 2;
    const told = new Uint8Array(1 + size);
    let left = block.slice(0, size);
    let right = block.slice(size);
    for (let round = rounds - 1; round >= 0; round--) {
      told[0] = round;
      told.set(left, 1);
      const mixed = hash(told);
      [left, right] = [right.map((value, i) => value ^ mixed[i]), left];
    }
    return Uint8Array.of(...left, ...right);
  };
}
