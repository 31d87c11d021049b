// The two ways to check a recording: the service behind the page, or a worker in the browser.

import { Problem } from "./decode.js";

const TRIES = 4; // where the service is busy

/** Send a file, or {url}, to the service and return what it found. */
export async function byService(body) {
  const json = !(body instanceof Blob);
  const headers = { "Content-Type": json ? "application/json" : "application/octet-stream" };
  for (let attempt = 1; ; attempt++) {
    let response;
    try {
      response = await fetch("detect", { method: "POST", headers, body: json ? JSON.stringify(body) : body });
    } catch {
      throw new Problem("the service cannot be reached", "check the connection, then try again");
    }
    const answer = await response.json().catch(() => ({ error: `the service answered ${response.status}` }));
    if (response.ok) return answer;
    if (response.status !== 503 || attempt === TRIES) throw new Problem(answer.error, answer.hint ?? "");
    const wait_s = Number(response.headers.get("Retry-After")) || 5;
    await new Promise((done) => setTimeout(done, wait_s * 1000));
  }
}

let worker;
let asked = 0;

/** Detect in samples in the browser; nothing leaves it. */
export function inBrowser({ channels, rate }, facts) {
  if (channels[0].length < facts.shortest_s * rate) {
    throw new Problem(`the recording is too short`, `at least ${facts.shortest_s} s are needed`);
  }
  worker ??= new Worker(new URL("worker.js", import.meta.url), { type: "module" });
  const id = ++asked;
  return new Promise((done, fail) => {
    const hear = ({ data }) => {
      if (data.id !== id) return;
      stop();
      if (data.error) fail(new Problem("detection failed in this browser", data.error));
      else done(data.found);
    };
    const broken = () => {
      stop();
      worker.terminate();
      worker = undefined;
      fail(new Problem("detection cannot start in this browser", "try a newer one"));
    };
    const stop = () => {
      worker.removeEventListener("message", hear);
      worker.removeEventListener("error", broken);
    };
    worker.addEventListener("message", hear);
    worker.addEventListener("error", broken);
    worker.postMessage({ id, channels, rate, facts });
  });
}
