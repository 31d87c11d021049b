// The waveform of a recording with its marked spans and the playing position, on a canvas.

const HEIGHT = 96;
const BAR = 3; // CSS pixels for a bar and its gap

/** Return the largest magnitude in each of `count` parts of a recording. */
export function peaks(channels, count) {
  const made = new Float32Array(count);
  const size = channels[0].length / count;
  for (const samples of channels) {
    for (let part = 0; part < count; part++) {
      const end = Math.floor((part + 1) * size);
      for (let i = Math.floor(part * size); i < end; i++) {
        made[part] = Math.max(made[part], Math.abs(samples[i]));
      }
    }
  }
  return made;
}

/** Draw a recording and keep it drawn as the page and the position change. */
export function wave(canvas, overview, seconds, spans, audio) {
  const draw = () => {
    const width = canvas.clientWidth;
    if (!width) return;
    const scale = devicePixelRatio || 1;
    canvas.width = width * scale;
    canvas.height = HEIGHT * scale;
    const pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    const style = getComputedStyle(canvas);
    const [plain, marked, ground, now] = ["--wave", "--marked", "--marked-ground", "--text"].map((name) =>
      style.getPropertyValue(name),
    );
    pen.fillStyle = ground;
    for (const { start_s, end_s } of spans) {
      const left = (start_s / seconds) * width;
      pen.fillRect(left, 0, Math.max(2, ((end_s - start_s) / seconds) * width), HEIGHT);
    }
    const bars = Math.floor(width / BAR);
    const top = overview.reduce((a, b) => Math.max(a, b), 1e-9);
    for (let bar = 0; bar < bars; bar++) {
      const from = Math.floor((bar / bars) * overview.length);
      const to = Math.max(from + 1, Math.floor(((bar + 1) / bars) * overview.length));
      let high = 0;
      for (let i = from; i < to; i++) high = Math.max(high, overview[i]);
      const at = ((bar + 0.5) / bars) * seconds;
      pen.fillStyle = spans.some((one) => one.start_s <= at && at < one.end_s) ? marked : plain;
      const tall = Math.max(2, (high / top) * (HEIGHT - 12));
      pen.fillRect(bar * BAR, (HEIGHT - tall) / 2, BAR - 1, tall);
    }
    if (audio.currentTime > 0) {
      pen.fillStyle = now;
      pen.fillRect((audio.currentTime / seconds) * width - 1, 0, 2, HEIGHT);
    }
  };
  const follow = () => {
    draw();
    if (!audio.paused) requestAnimationFrame(follow);
  };
  audio.addEventListener("play", follow);
  audio.addEventListener("timeupdate", draw);
  audio.addEventListener("seeked", draw);
  canvas.addEventListener("click", (event) => {
    audio.currentTime = (event.offsetX / canvas.clientWidth) * seconds;
    audio.play();
  });
  new ResizeObserver(draw).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
}
