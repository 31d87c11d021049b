// How a block of bits is spread over seconds, and read at an unknown cut: as
// src/keybound/identity/frame.py. A block is an array of words of 32 bits, the high one first; a set
// of rows is one too, of which row n is bit n % 32 of word n / 32.

const WORD = 32; // bits, and seconds after which the codes recur

/** Return the block as it stands some seconds later, or earlier below zero. */
export function rotated(block, seconds) {
  const by = seconds & (WORD - 1);
  return block.map((word) => (word << by) | (word >>> (WORD - by)));
}

/** Return the code of a second of a recording: its bits. */
export function code(block, second, sums) {
  const now = rotated(block, second);
  return sums.map((mask) => parity(now, mask));
}

/**
 * Return the blocks that fit soft code bits [seconds][bits] best as [{block, fit, agreement}].
 *
 * The best comes first. Above zero a bit is rather 1, and the further the surer. This is
 * ordered-statistics decoding: the block follows from the surest bits that determine it, with up to
 * two of them turned.
 */
export function spelled(soft, sums, candidates) {
  const { values, rows } = read(soft, sums);
  const order = values.map((_, i) => i).sort((a, b) => Math.abs(values[b]) - Math.abs(values[a]));
  const { basis, inverse } = surest(rows, order, sums[0].length);
  if (!inverse) return [];
  const hard = new Uint32Array(sums[0].length);
  basis.forEach((row, n) => values[row] > 0 && flip(hard, n));
  const follows = rows.map((row) => product(row, inverse)); // from which of the basis each row does
  const agrees = values.map((value, i) => (parity(follows[i], hard) ? value : -value));
  const weight = values.reduce((sum, value) => sum + Math.abs(value), 0);
  return best(agrees, follows, basis.length, candidates).map(({ fit, turned }) => {
    const bits = hard.slice();
    turned.forEach((n) => flip(bits, n));
    return { block: solved(inverse, bits), fit: fit / weight, agreement: fit };
  });
}

/** Return the bits that were read, those of one code added up, and what of a block each adds. */
function read(soft, sums) {
  const folded = Array.from({ length: WORD }, () => new Float64Array(sums.length));
  soft.forEach((bits, second) => bits.forEach((value, i) => (folded[second % WORD][i] += value)));
  const values = [];
  const rows = [];
  folded.forEach((bits, second) =>
    bits.forEach((value, i) => {
      if (!value) return;
      values.push(value);
      rows.push(rotated(sums[i], -second));
    }),
  );
  return { values, rows };
}

/** Return the first independent rows in an order, and their inverse if they determine a block. */
function surest(rows, order, words) {
  const pivots = []; // by their first column: a row, and the rows of the basis that it is the sum of
  const basis = [];
  const size = words * WORD;
  for (const index of order) {
    if (basis.length === size) break;
    const own = { row: rows[index].slice(), sources: new Uint32Array(words) };
    flip(own.sources, basis.length);
    let column = first(own.row);
    for (; column < size && pivots[column]; column = first(own.row)) add(own, pivots[column]);
    if (column === size) continue;
    pivots[column] = own;
    basis.push(index);
  }
  if (basis.length < size) return { basis };
  for (let column = size - 1; column >= 0; column--) {
    for (let other = column + 1; other < size; other++) {
      if (bit(pivots[column].row, other)) add(pivots[column], pivots[other]); // a unit row by now
    }
  }
  return { basis, inverse: pivots.map(({ sources }) => sources) };
}

/** Return the highest sums of agreement, and which bits of the basis are turned for them. */
function best(agrees, follows, size, candidates) {
  const signs = Array.from({ length: size }, (_, n) =>
    follows.map((own) => ((own[n >> 5] >>> (n & 31)) & 1 ? -1 : 1)),
  );
  const found = [];
  const keep = (fit, turned) => found.push({ fit, turned });
  keep(agrees.reduce((sum, value) => sum + value, 0), []);
  for (let a = 0; a < size; a++) {
    const own = signs[a].map((sign, i) => sign * agrees[i]);
    keep(own.reduce((sum, value) => sum + value, 0), [a]);
    for (let b = 0; b < a; b++) keep(dot(own, signs[b]), [a, b]);
  }
  return found.sort((one, two) => two.fit - one.fit).slice(0, candidates);
}

function dot(one, two) {
  let sum = 0;
  for (let i = 0; i < one.length; i++) sum += one[i] * two[i];
  return sum;
}

// Words of bits

function add(own, other) {
  for (let i = 0; i < own.row.length; i++) {
    own.row[i] ^= other.row[i];
    own.sources[i] ^= other.sources[i];
  }
}

/** Return the sum of the rows of a matrix that stand where a block has its bits. */
function product(block, matrix) {
  const made = new Uint32Array(block.length);
  matrix.forEach((row, column) => {
    if (!bit(block, column)) return;
    for (let i = 0; i < made.length; i++) made[i] ^= row[i];
  });
  return made;
}

/** Return the block that follows from bits of the basis. */
function solved(inverse, bits) {
  const block = new Uint32Array(bits.length);
  inverse.forEach((sources, column) => {
    if (parity(sources, bits)) block[column >> 5] |= 1 << (31 - (column & 31));
  });
  return block;
}

/** Return a bit of a block, the high one first. */
function bit(block, column) {
  return (block[column >> 5] >>> (31 - (column & 31))) & 1;
}

/** Return the first bit that is set, or the number of bits. */
function first(block) {
  const word = block.findIndex((value) => value !== 0);
  return word < 0 ? block.length * WORD : word * WORD + Math.clz32(block[word]);
}

function flip(rows, n) {
  rows[n >> 5] ^= 1 << (n & 31);
}

function parity(one, two) {
  let sum = 0;
  for (let i = 0; i < one.length; i++) sum ^= one[i] & two[i];
  for (let by = 16; by; by >>= 1) sum ^= sum >>> by;
  return sum & 1;
}
