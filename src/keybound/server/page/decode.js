// From the bytes of a file to samples at the file's own rate. The browser does the decoding.

const RATES = [44100, 48000, 32000];
const AAC_RATES = [96000, 88200, 64000, 48000, 44100, 32000, 24000, 22050, 16000, 12000, 11025, 8000];
const USUAL = 48000;

/** A recording that cannot be checked: what is wrong, and what may help. */
export class Problem extends Error {
  constructor(message, hint = "") {
    super(message);
    this.hint = hint;
  }
}

/** Return {channels: [Float32Array], rate} of a file; throw a Problem if it cannot be decoded. */
export async function decode(bytes) {
  if (!bytes.byteLength) throw new Problem("the file is empty");
  const rate = rateOf(new DataView(bytes));
  // A context at the file's rate: at another one the browser would resample in its own way.
  const context = new OfflineAudioContext(1, 1, rate);
  let buffer;
  try {
    buffer = await context.decodeAudioData(bytes.slice(0));
  } catch {
    throw new Problem(
      "the browser cannot decode this file",
      "it reads wav, flac, mp3, ogg, opus and m4a; it may be another format, or damaged",
    );
  }
  const channels = [];
  for (let c = 0; c < buffer.numberOfChannels; c++) channels.push(buffer.getChannelData(c));
  return { channels, rate: buffer.sampleRate };
}

/** Return the sample rate that a file names in its header, or a usual one. */
export function rateOf(data) {
  const found = wav(data) ?? flac(data, 0) ?? ogg(data) ?? mp4(data) ?? mpeg(data);
  return found >= 8000 && found <= 192000 ? found : USUAL;
}

function wav(data) {
  if (!tagged(data, 0, "RIFF") || !tagged(data, 8, "WAVE")) return undefined;
  let rate;
  for (let at = 12; at + 8 <= data.byteLength; ) {
    const size = data.getUint32(at + 4, true);
    if (tagged(data, at, "fmt ") && at + 16 <= data.byteLength) rate = data.getUint32(at + 12, true);
    if (tagged(data, at, "data") && size < 0x7ffff000 && at + 8 + size > data.byteLength) {
      throw new Problem("the file is cut short", "get the whole file again");
    }
    at += 8 + size + (size % 2);
  }
  return rate;
}

function flac(data, at) {
  if (!tagged(data, at, "fLaC") || data.byteLength < at + 22) return undefined;
  return data.getUint32(at + 18) >>> 12;
}

function ogg(data) {
  if (!tagged(data, 0, "OggS")) return undefined;
  for (let at = 27; at < Math.min(400, data.byteLength - 16); at++) {
    if (tagged(data, at, "OpusHead")) return 48000;
    if (tagged(data, at, "\x01vorbis")) return data.getUint32(at + 12, true);
    if (tagged(data, at, "fLaC")) return flac(data, at);
  }
  return undefined;
}

function mp4(data) {
  if (!tagged(data, 4, "ftyp")) return undefined;
  for (let at = 8; at < data.byteLength - 32; at++) {
    if (data.getUint8(at) === 0x6d && tagged(data, at, "mp4a") && data.getUint16(at + 28) >= 8000) {
      return data.getUint16(at + 28);
    }
  }
  return undefined;
}

function mpeg(data) {
  let at = 0;
  if (tagged(data, 0, "ID3") && data.byteLength > 10) {
    const [a, b, c, d] = [6, 7, 8, 9].map((i) => data.getUint8(i));
    at = 10 + ((a << 21) | (b << 14) | (c << 7) | d);
  }
  for (const end = Math.min(data.byteLength - 4, at + (1 << 16)); at < end; at++) {
    const head = data.getUint32(at);
    if (head >>> 20 !== 0xfff && head >>> 21 !== 0x7ff) continue;
    const version = (head >>> 19) & 3;
    const layer = (head >>> 17) & 3;
    if (layer === 0 && head >>> 20 === 0xfff) return AAC_RATES[(head >>> 10) & 15];
    const rate = RATES[(head >>> 10) & 3];
    if (layer === 0 || version === 1 || !rate || ((head >>> 12) & 15) === 15) continue;
    return version === 3 ? rate : version === 2 ? rate / 2 : rate / 4;
  }
  return undefined;
}

function tagged(data, at, text) {
  if (at + text.length > data.byteLength) return false;
  return [...text].every((char, i) => data.getUint8(at + i) === char.charCodeAt(0));
}
