// HMAC-SHA256 of short messages. Own code: crypto.subtle is absent over plain http, and a call of it
// for each of thousands of blocks takes longer than the hash.

const ROUND = new Uint32Array(64); // the first bits of the cube roots of primes
const START = new Uint32Array(8); // and of the square roots of the first eight
const BLOCK = 64; // bytes
const schedule = new Uint32Array(64);

let primes = 0;
for (let number = 2; primes < 64; number++) {
  let divisor = 2;
  while (number % divisor) divisor++;
  if (divisor < number) continue;
  if (primes < 8) START[primes] = (Math.sqrt(number) % 1) * 2 ** 32;
  ROUND[primes++] = (Math.cbrt(number) % 1) * 2 ** 32;
}

/** Return a function from a message of at most 55 bytes to its HMAC, 32 bytes. */
export function hmac(secret) {
  const padded = (value) => Uint8Array.from({ length: BLOCK }, (_, i) => (secret[i] ?? 0) ^ value);
  const inner = compressed(START, padded(0x36));
  const outer = compressed(START, padded(0x5c));
  return (message) => bytes(compressed(outer, last(bytes(compressed(inner, last(message))))));
}

/** Return the last block of what begins with one block and goes on with a message. */
function last(message) {
  const made = new Uint8Array(BLOCK);
  made.set(message);
  made[message.length] = 0x80;
  new DataView(made.buffer).setUint32(BLOCK - 4, 8 * (BLOCK + message.length));
  return made;
}

function bytes(state) {
  const made = new DataView(new ArrayBuffer(32));
  state.forEach((word, i) => made.setUint32(4 * i, word));
  return new Uint8Array(made.buffer);
}

/** Return the state after one block: FIPS 180-4, section 6.2.2. */
function compressed(state, block) {
  const view = new DataView(block.buffer);
  for (let t = 0; t < 16; t++) schedule[t] = view.getUint32(4 * t);
  for (let t = 16; t < 64; t++) {
    const x = schedule[t - 15];
    const y = schedule[t - 2];
    const low = right(x, 7) ^ right(x, 18) ^ (x >>> 3);
    const high = right(y, 17) ^ right(y, 19) ^ (y >>> 10);
    schedule[t] = schedule[t - 16] + low + schedule[t - 7] + high;
  }
  let [a, b, c, d, e, f, g, h] = state;
  for (let t = 0; t < 64; t++) {
    const chosen = (e & f) ^ (~e & g);
    const first = (h + (right(e, 6) ^ right(e, 11) ^ right(e, 25)) + chosen + ROUND[t] + schedule[t]) | 0;
    const majority = (a & b) ^ (a & c) ^ (b & c);
    const second = (right(a, 2) ^ right(a, 13) ^ right(a, 22)) + majority;
    h = g;
    g = f;
    f = e;
    e = (d + first) | 0;
    d = c;
    c = b;
    b = a;
    a = (first + second) | 0;
  }
  const made = Uint32Array.from(state);
  [a, b, c, d, e, f, g, h].forEach((value, i) => (made[i] += value));
  return made;
}

function right(x, by) {
  return (x >>> by) | (x << (32 - by));
}
